# Whether a budget fits into the memory there is, and what to do about it.

# The smallest vector heap of an R that has ggmlR 0.8.8.1 loaded and has trained a model
# of two weights, above what that model takes (R 4.2.2): R_MAX_VSIZE=6301K.
idle_heap_bytes <- 6301 * 2^10

# What R's byte-code compiler takes for a moment while it compiles the training loop.
compiler_bytes <- 2.5e6

# R loads the code of ggmlR's functions when they are first called; as a training run
# needs more of them, it takes up to 0.13 MB more than the idle R above.
code_bytes <- 2^18

# Below this, where R's heap starts, R_MAX_VSIZE binds only if R_VSIZE is lower too.
initial_heap_bytes <- 2^26

# The value of R_MAX_VSIZE: what R needs to run the job, in units of 1024 bytes.
r_max_vsize <- function(heap_bytes) {
  kib <- ceiling((idle_heap_bytes + code_bytes + max(heap_bytes, compiler_bytes)) / 2^10)
  list(bytes = kib * 2^10, setting = paste0(formatC(kib, format = "f", digits = 0L), "K"))
}

verdict_fields <- c(
  "memory", "memory_source", "verdict", "fits", "spare_bytes", "max_batch_size",
  "r_max_vsize", "r_max_vsize_bytes"
)
verdicts <- c("fits", "fits_with_limit", "does_not_fit")

# Adds the verdict's fields. R that collects lazily grows to `resident_bytes`, unless its
# own limit is what bounds it already.
add_verdict <- function(budget, memory, need) {
  setting <- r_max_vsize(budget$heap_bytes)
  budget$memory <- memory$bytes
  budget$memory_source <- memory$source
  budget$fits <- budget$heap_bytes <= memory$bytes
  budget$spare_bytes <- memory$bytes - budget$heap_bytes
  budget$max_batch_size <- searched_batch_size(need, memory$bytes)
  budget$r_max_vsize <- setting$setting
  budget$r_max_vsize_bytes <- setting$bytes
  outgrows <- memory$source != "R's own limit" &&
    isTRUE(budget$resident_bytes > memory$bytes)
  budget$verdict <- verdicts[[if (!budget$fits) 3L else if (outgrows) 2L else 1L]]
  budget
}

# NA where the model does not run at some other batch size, such as one that reshapes to
# fixed extents: that is no reason to withhold the budget at the size that was asked for.
searched_batch_size <- function(need, limit) {
  tryCatch(
    largest_fitting(need, limit, .Machine$integer.max),
    error = function(e) NA_real_
  )
}

# One line that a person can act on.
verdict_text <- function(x) {
  if (x$verdict == "fits") {
    larger <- isTRUE(x$max_batch_size > x$batch_size)
    return(paste0(
      "fits with ", bytes_text(x$spare_bytes), " to spare",
      if (larger) paste0("; up to batch ", count_text(x$max_batch_size), " fits")
    ))
  }
  if (x$verdict == "fits_with_limit") {
    return(paste0(
      "fits where ", if (x$r_max_vsize_bytes < initial_heap_bytes) "R_VSIZE=1M and ",
      "R_MAX_VSIZE is set to ", x$r_max_vsize,
      " (an ordinary R would grow to about ", bytes_text(x$resident_bytes), ")"
    ))
  }
  ways <- c(
    if (isTRUE(x$max_batch_size > 0)) {
      paste0("batch ", count_text(x$max_batch_size), " fits")
    } else if (isTRUE(x$max_batch_size == 0) && x$batch_size > 1) {
      "not even batch 1 fits"
    },
    if (x$loop == "retained" && x$other_loop_bytes <= x$memory) {
      "the released loop would fit"
    }
  )
  paste(c(paste("short by", bytes_text(-x$spare_bytes)), ways), collapse = "; ")
}

verdict_line <- function(x) {
  if (is.null(x$verdict)) return(character())
  source <- if (x$memory_source == "given") "" else paste0(" (", x$memory_source, ")")
  paste0("  memory ", bytes_text(x$memory), source, ": ", verdict_text(x))
}
