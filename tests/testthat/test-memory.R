bad_memory_class <- "agbudget_error_bad_argument"

test_that("memory is read as people write it", {
  expect_identical(parse_memory("8GB"), 8e9)
  expect_identical(parse_memory("8 GB"), 8e9)
  expect_identical(parse_memory("8GiB"), 2^33)
  expect_identical(parse_memory("512 MiB"), 2^29)
  expect_identical(parse_memory("1.5 TB"), 1.5e12)
  expect_identical(parse_memory("1.5TiB"), 1.5 * 2^40)
  expect_identical(parse_memory("100 kB"), 1e5)
  expect_identical(parse_memory("100 KB"), 1e5)
  expect_identical(parse_memory("1KiB"), 1024)
  expect_identical(parse_memory("2 PB"), 2e15)
  expect_identical(parse_memory("7 B"), 7)
  expect_identical(parse_memory("1000"), 1000)
  expect_identical(parse_memory("1e9"), 1e9)
  expect_identical(parse_memory(" .5 MB\t"), 5e5)
  expect_identical(parse_memory("0"), 0)
})

test_that("a number is bytes", {
  expect_identical(parse_memory(0), 0)
  expect_identical(parse_memory(1000L), 1000)
  expect_identical(parse_memory(2^53), 2^53)
})

test_that("decimal fractions of a unit are whole bytes", {
  for (tenths in 1:99) {
    expect_identical(parse_memory(paste0(tenths / 10, "GB")), tenths * 1e8)
    expect_identical(parse_memory(paste0(tenths / 10, " kB")), tenths * 100)
  }
})

test_that("memory is read alike in every locale", {
  old <- Sys.getlocale("LC_ALL")
  on.exit(suppressWarnings(Sys.setlocale("LC_ALL", old)))
  old_options <- options(OutDec = ",")
  on.exit(options(old_options), add = TRUE)
  for (locale in c("C", "tr_TR.UTF-8", "de_DE.UTF-8")) {
    suppressWarnings(Sys.setlocale("LC_ALL", locale))
    expect_identical(parse_memory("1.5 GiB"), 1.5 * 2^30)
    expect_identical(parse_memory("1 TiB"), 2^40)
    expect_error(parse_memory("1gib"), "\"1GB\" (10^9) or \"1GiB\" (2^30)", fixed = TRUE,
                 class = bad_memory_class)
  }
})

test_that("what could mean two things is refused with both", {
  for (text in c("8G", "8g", "8gb", "8Gb", "8 gB", "8 Gib", "8GIB")) {
    expect_error(parse_memory(text), "\"8GB\" (10^9) or \"8GiB\" (2^30)", fixed = TRUE,
                 class = bad_memory_class)
  }
  expect_error(parse_memory("1.5g"), "\"1.5GB\" (10^9) or \"1.5GiB\" (2^30)",
               fixed = TRUE, class = bad_memory_class)
  expect_error(parse_memory("64k"), "\"64kB\" (10^3) or \"64KiB\" (2^10)", fixed = TRUE,
               class = bad_memory_class)
  expect_error(parse_memory("2m"), "\"2MB\" (10^6) or \"2MiB\" (2^20)", fixed = TRUE,
               class = bad_memory_class)
})

test_that("anything else is an error that names the argument", {
  invalid <- rawToChar(as.raw(c(0x38, 0xff)))
  bad <- list(
    -1, Inf, -Inf, NaN, NA, NA_real_, NA_character_, TRUE, c(1, 2), numeric(),
    character(), "", " ", "GB", "-5GB", "+5GB", "5 parsecs", "5 GBs", "1,5 GB", "1 000",
    "0x10", "Inf", "NaN", "1e400", "1e", "1..5GB", ".", c("1GB", "2GB"), list(1), sum,
    factor("8GB"), quote(x), 1i, as.raw(1), Sys.Date(), invalid
  )
  for (x in bad) {
    expect_error(parse_memory(x, "memory"), "`memory` must be", fixed = TRUE,
                 class = bad_memory_class)
  }
  expect_snapshot(error = TRUE, {
    parse_memory("8G")
    parse_memory(-1)
    parse_memory("5 parsecs")
  })
})

# What is available ----------------------------------------------------------------

# A file tree that stands for `/`.
fake_root <- function(files) {
  root <- tempfile("root")
  for (path in names(files)) {
    dir.create(dirname(file.path(root, path)), FALSE, recursive = TRUE)
    writeLines(files[[path]], file.path(root, path))
  }
  root
}

test_that("free memory is read from Linux's own file", {
  root <- fake_root(list("proc/meminfo" = c(
    "MemTotal:       24683620 kB", "MemFree:        21914148 kB",
    "MemAvailable:   23403300 kB"
  )))
  expect_identical(free_memory(root), 23403300 * 1024)
  expect_identical(free_memory(fake_root(list("proc/meminfo" = "MemTotal: 1 kB"))),
                   NA_real_)
  expect_identical(free_memory(tempfile()), NA_real_)
})

test_that("a container's limit counts, version 2", {
  root <- fake_root(list(
    "proc/self/cgroup" = "0::/user/job",
    "sys/fs/cgroup/user/job/memory.max" = "max",
    "sys/fs/cgroup/user/job/memory.current" = "300",
    "sys/fs/cgroup/user/memory.max" = "1000",
    "sys/fs/cgroup/user/memory.current" = "400",
    "sys/fs/cgroup/user/memory.stat" = c("anon 300", "inactive_file 50", "active_file 50")
  ))
  expect_identical(container_memory_left(root), 650)
})

test_that("inside a container the host's path is not there, but the top is", {
  root <- fake_root(list(
    "proc/self/cgroup" = "0::/docker/0123abc",
    "sys/fs/cgroup/memory.max" = "2147483648",
    "sys/fs/cgroup/memory.current" = "1048576"
  ))
  expect_identical(container_memory_left(root), 2147483648 - 1048576)
  version_1 <- fake_root(list(
    "proc/self/cgroup" = c("9:name=systemd:/", "4:memory,hugetlb:/docker/01ab", "0::/"),
    "sys/fs/cgroup/memory/memory.limit_in_bytes" = "1073741824",
    "sys/fs/cgroup/memory/memory.usage_in_bytes" = "73741824",
    "sys/fs/cgroup/memory/memory.stat" = "total_inactive_file 1000"
  ))
  expect_identical(container_memory_left(version_1), 1e9 + 1000)
})

test_that("the lowest level of a hierarchy counts, and no limit is no limit", {
  root <- fake_root(list(
    "proc/self/cgroup" = c("3:cpuset:/", "4:memory:/a/b"),
    "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes" = "9223372036854771712",
    "sys/fs/cgroup/memory/a/b/memory.usage_in_bytes" = "5",
    "sys/fs/cgroup/memory/a/memory.limit_in_bytes" = "500",
    "sys/fs/cgroup/memory/a/memory.usage_in_bytes" = "600"
  ))
  expect_identical(container_memory_left(root), -100)
  expect_identical(available_memory(root, free = 1e9, limit = Inf)$bytes, 0)
  no_limit <- fake_root(list("proc/self/cgroup" = "0::/"))
  expect_identical(container_memory_left(no_limit), Inf)
  expect_identical(container_memory_left(tempfile()), Inf)
  odd <- fake_root(list(
    "proc/self/cgroup" = c("0::/../up", "garbage", "0::relative"),
    "sys/fs/cgroup/memory.max" = "what"
  ))
  expect_identical(container_memory_left(odd), Inf)
})

test_that("the least of RAM, R's limit and the container's is what is available", {
  root <- fake_root(list(
    "proc/self/cgroup" = "0::/", "sys/fs/cgroup/memory.max" = "3000",
    "sys/fs/cgroup/memory.current" = "1000"
  ))
  expect_identical(available_memory(root, free = 5000, limit = Inf),
                   list(bytes = 2000, source = "the container's limit"))
  expect_identical(available_memory(root, free = 500, limit = Inf),
                   list(bytes = 500, source = "free RAM"))
  expect_identical(available_memory(root, free = 5000, limit = 10),
                   list(bytes = 10, source = "R's own limit"))
})

test_that("where nothing says what is free, the argument is asked for", {
  expect_error(available_memory(free = NA_real_, limit = Inf), "`memory` must be given",
               class = bad_memory_class)
})

test_that("R's own limit is less what its heap holds", {
  expect_identical(vector_heap_left(Inf), Inf)
  held <- 8 * gc()[2L, 1L]
  expect_equal(1e12 - vector_heap_left(1e12), held, tolerance = 0.05)
  block <- numeric(1e7)
  expect_equal(1e12 - vector_heap_left(1e12) - 8 * length(block), held, tolerance = 0.05)
})

test_that("R_MAX_VSIZE is read as R reads it", {
  expect_identical(parse_vsize("500M"), 500 * 2^20)
  expect_identical(parse_vsize("2G"), 2^31)
  expect_identical(parse_vsize("10K"), 10240)
  expect_identical(parse_vsize("10k"), 1e4)
  expect_identical(parse_vsize("12345"), 12345)
  expect_identical(parse_vsize(""), Inf)
  expect_identical(parse_vsize("lots"), Inf)
})

test_that("this process may use something", {
  memory <- resolve_memory(NULL)
  expect_gt(memory$bytes, 0)
  expect_true(is.finite(memory$bytes))
  expect_identical(resolve_memory("available")$source, memory$source)
  expect_identical(resolve_memory("1 kB"), list(bytes = 1000, source = "given"))
})

test_that("a process started under R_MAX_VSIZE knows it", {
  skip_on_cran()
  skip_if_not(exists("mem.maxVSize", baseenv()))
  code <- paste0(
    ".libPaths(", paste(deparse(.libPaths()), collapse = ""), ");",
    "m <- agbudget:::available_memory(); cat(m$bytes, m$source, sep = '|')"
  )
  script <- tempfile(fileext = ".R")
  on.exit(unlink(script))
  writeLines(code, script)
  said <- system2(file.path(R.home("bin"), "Rscript"), c("--vanilla", script),
                  env = "R_MAX_VSIZE=100M", stdout = TRUE, stderr = FALSE)
  said <- strsplit(said[[length(said)]], "|", fixed = TRUE)[[1L]]
  expect_identical(said[[2L]], "R's own limit")
  expect_gt(as.numeric(said[[1L]]), 80e6)
  expect_lt(as.numeric(said[[1L]]), 100 * 2^20)
})
