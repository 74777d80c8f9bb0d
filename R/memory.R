# How much memory there is: as a user writes it, or as this process finds it.

# Powers of 1000 and of 1024, as the SI and the IEC write them. KB is common for kB.
memory_units <- c(
  B = 1, kB = 1e3, KB = 1e3, MB = 1e6, GB = 1e9, TB = 1e12, PB = 1e15,
  KiB = 2^10, MiB = 2^20, GiB = 2^30, TiB = 2^40, PiB = 2^50
)

# A number of bytes from a number or from text such as "8 GB".
parse_memory <- function(x, argument = "memory") {
  if (is_number(x) && is.finite(x) && x >= 0) return(as.double(x))
  if (!is.character(x) || length(x) != 1L || is.na(x)) bad_memory(x, argument)
  number <- "([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?"
  pattern <- paste0("^[ \t]*", number, "[ \t]*([A-Za-z]*)[ \t]*$")
  parts <- regmatches(x, regexec(pattern, x, useBytes = TRUE))[[1L]]
  if (length(parts) == 0L) bad_memory(x, argument)
  number <- as.numeric(paste0(parts[[2L]], parts[[3L]]))
  unit <- parts[[4L]]
  if (unit == "") unit <- "B"
  if (!unit %in% names(memory_units)) {
    bad_memory(x, argument, unit_hint(paste0(parts[[2L]], parts[[3L]]), unit))
  }
  bytes <- round(number * memory_units[[unit]])
  if (!is.finite(bytes)) bad_memory(x, argument)
  bytes
}

bad_memory <- function(x, argument, hint = "") {
  stop_agbudget(
    "bad_argument", "`", argument, "` must be a number of bytes of at least 0, or text ",
    "such as \"8GB\" (10^9 bytes each) or \"8 GiB\" (2^30 bytes each), not ",
    describe(x), ".", hint
  )
}

# "8G", "8gb" and "8Gb" may mean either power (or bits), so both are offered.
unit_hint <- function(number, unit) {
  prefix <- regmatches(unit, regexec("^([kKmMgGtTpP])[iI]?[bB]?$", unit))[[1L]]
  if (length(prefix) == 0L) return("")
  prefix <- chartr("kmgtp", "KMGTP", prefix[[2L]])
  decimal <- if (prefix == "K") "kB" else paste0(prefix, "B")
  binary <- paste0(prefix, "iB")
  paste0(
    " Did you mean \"", number, decimal, "\" (10^", log10(memory_units[[decimal]]),
    ") or \"", number, binary, "\" (2^", log2(memory_units[[binary]]), ")?"
  )
}

# What the user said, or what there is: bytes, and where the figure comes from.
resolve_memory <- function(memory) {
  if (is.null(memory) || identical(memory, "available")) return(available_memory())
  list(bytes = parse_memory(memory, "memory"), source = "given")
}

# What this process may still use: the least of what the machine, the container and R
# itself leave. `root` stands for `/` in tests.
available_memory <- function(root = "/", free = free_memory(root),
                             limit = vector_heap_left()) {
  if (is.na(free)) {
    stop_agbudget(
      "bad_argument", "`memory` must be given, in bytes or as text such as \"8GB\": how ",
      "much is free cannot be found without the package ps."
    )
  }
  left <- c("free RAM" = free, "R's own limit" = limit,
            "the container's limit" = container_memory_left(root))
  least <- which.min(left)
  list(bytes = max(0, left[[least]]), source = names(left)[[least]])
}

free_memory <- function(root = "/") {
  if (identical(root, "/") && requireNamespace("ps", quietly = TRUE)) {
    free <- tryCatch(ps::ps_system_memory()$avail, error = function(e) NULL)
    if (is_number(free)) return(as.double(free))
  }
  lines <- read_lines(file.path(root, "proc/meminfo"))
  line <- grep("^MemAvailable:[ \t]*[0-9]+ kB", lines, value = TRUE)
  if (length(line) == 0L) return(NA_real_)
  as.numeric(gsub("[^0-9]", "", line[[1L]])) * 1024
}

# What R_MAX_VSIZE, or R's own default on some systems, leaves of the vector heap. A full
# collection first: only what is reachable is taken for good.
vector_heap_left <- function(limit = vector_heap_limit()) {
  if (!is.finite(limit)) return(Inf)
  limit - 8 * gc()[2L, 1L]
}

vector_heap_limit <- function() {
  if (exists("mem.maxVSize", baseenv())) {  # since R 4.2
    return(get("mem.maxVSize", baseenv())() * 2^20)
  }
  parse_vsize(Sys.getenv("R_MAX_VSIZE"))
}

# As R_Decode2Long() of R's src/main/arithmetic.c reads the variable.
parse_vsize <- function(text) {
  parts <- regmatches(text, regexec("^([0-9]+)([GMKk]?)$", text))[[1L]]
  if (length(parts) == 0L) return(Inf)
  unit <- c(1, 2^30, 2^20, 2^10, 1e3)[[match(parts[[3L]], c("", "G", "M", "K", "k"))]]
  as.numeric(parts[[2L]]) * unit
}

# What the control groups of this process leave, version 2 and 1: the least over the
# group and those around it. Inside a container the path may be the host's, of which
# only the top is mounted; levels that are not there do not count.
container_memory_left <- function(root = "/") {
  groups <- read_lines(file.path(root, "proc/self/cgroup"))
  groups <- regmatches(groups, regexec("^[0-9]+:([^:]*):(/.*)$", groups))
  left <- Inf
  for (group in groups[lengths(groups) == 3L]) {
    controllers <- strsplit(group[[2L]], ",", fixed = TRUE)[[1L]]
    version <- if (group[[2L]] == "") 2L else if ("memory" %in% controllers) 1L else next
    left <- min(left, vapply(parent_paths(group[[3L]]), group_left, 0, version, root))
  }
  left
}

group_files <- list(
  list(folder = "sys/fs/cgroup/memory", limit = "memory.limit_in_bytes",
       usage = "memory.usage_in_bytes", cache = "total_inactive_file"),
  list(folder = "sys/fs/cgroup", limit = "memory.max", usage = "memory.current",
       cache = "inactive_file")
)

# Usage holds files that the kernel drops before anything is killed; they are free.
group_left <- function(path, version, root) {
  files <- group_files[[version]]
  folder <- file.path(root, files$folder, path)
  limit <- read_count(file.path(folder, files$limit))
  # No limit is "max", or in version 1 about 2^63.
  if (is.na(limit) || limit >= 2^62) return(Inf)
  usage <- read_count(file.path(folder, files$usage))
  line <- grep(paste0("^", files$cache, " [0-9]+$"),
               read_lines(file.path(folder, "memory.stat")), value = TRUE)
  cache <- if (length(line) > 0L) as.numeric(sub(".* ", "", line[[1L]])) else 0
  if (is.na(usage)) limit else limit - max(0, usage - cache)
}

# "/a/b": "/a/b", "/a", "/".
parent_paths <- function(path) {
  paths <- path
  while (path != "/") {
    path <- dirname(path)
    paths <- c(paths, path)
  }
  paths
}

read_lines <- function(file) {
  if (!file.exists(file)) return(character())
  tryCatch(readLines(file, warn = FALSE), error = function(e) character(),
           warning = function(w) character())
}

read_count <- function(file) {
  line <- read_lines(file)
  if (length(line) == 0L || !grepl("^[0-9]+$", line[[1L]])) return(NA_real_)
  as.numeric(line[[1L]])
}
