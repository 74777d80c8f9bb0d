# Runs of real trainings with ggmlR, each in an R process of its own (train_once.R), and
# the smallest heap in which one finishes. Sourced by the scripts beside it, which have
# `script_directory()`.

tolerance <- 0.0005
yardstick_bytes <- 40 * 1024^2

tiny_case <- list(
  name = "tiny", model = "ag_sequential(ag_linear(1L, 1L), ag_linear(1L, 1L))",
  input = 1, batch = 1, target = 1, loss = "mse", optimizer = "adam", loop = "retained"
)

# ---- One run ----------------------------------------------------------------

# Without `heap_kb` the heap is unbounded. Returns the run's resident high-water
# mark, or NULL where the heap was too small.
train_in_process <- function(case, steps, heap_kb = NULL) {
  one_run <- file.path(script_directory(), "train_once.R")
  case_file <- tempfile(fileext = ".R")
  errors_file <- tempfile()
  on.exit(unlink(c(case_file, errors_file)))
  dput(case, case_file)

  # A small initial heap, so that R collects early and the bound alone decides.
  bound <- if (!is.null(heap_kb)) {
    c("R_VSIZE=262144", sprintf("R_MAX_VSIZE=%.0fK", heap_kb))
  }
  output <- suppressWarnings(system2(
    file.path(R.home("bin"), "Rscript"),
    c("--vanilla", shQuote(one_run),
      shQuote(case_file), steps),
    stdout = TRUE, stderr = errors_file,
    env = c(bound, paste0("R_LIBS=", shQuote(paste(.libPaths(), collapse = ":"))),
      "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1")
  ))
  trained <- grep("^trained hwm_kb=", output, value = TRUE)
  if (length(trained) == 1L) {
    return(as.numeric(sub(".*=", "", trained)) * 1024)
  }
  errors <- readLines(errors_file)
  exhausted <- "vector memory exhausted|cannot allocate vector"
  if (!any(grepl(exhausted, errors))) {
    stop("The case \"", case$name, "\" does not train:\n",
      paste(utils::tail(errors, 5L), collapse = "\n"), call. = FALSE)
  }
  NULL
}

# ---- The smallest heap ------------------------------------------------------

# `guess_kb` only saves runs: a bracket around it is widened until it holds.
smallest_heap_kb <- function(case, steps, guess_kb) {
  trains <- function(heap_kb) !is.null(train_in_process(case, steps, heap_kb))
  step <- 0.004
  if (trains(guess_kb * (1 + step))) {
    high <- guess_kb * (1 + step)
    low <- guess_kb * (1 - step)
    while (trains(low)) {
      high <- low
      step <- 4 * step
      low <- high / (1 + step)
    }
  } else {
    low <- guess_kb * (1 + step)
    high <- low * (1 + 4 * step)
    while (!trains(high)) {
      low <- high
      step <- 4 * step
      high <- low * (1 + 4 * step)
    }
  }
  while (high / low > 1 + tolerance) {
    middle <- round((low + high) / 2)
    if (trains(middle)) high <- middle else low <- middle
  }
  (low + high) / 2
}

# What R and the loaded ggmlR need by themselves, in a run of `steps` steps.
measure_idle <- function(steps) {
  case <- c(tiny_case, list(then_hold = yardstick_bytes / 8))
  guess_kb <- (yardstick_bytes + 8 * 1024^2) / 1024
  list(
    heap_bytes = smallest_heap_kb(case, steps, guess_kb) * 1024 - yardstick_bytes,
    rss_bytes = train_in_process(tiny_case, steps)
  )
}

# The bracket starts at an earlier measurement or the prediction; without either,
# at three quarters of what an unbounded run touches.
measure_case <- function(case, idle, steps, with_rss, predicted) {
  rss <- train_in_process(case, steps) - idle$rss_bytes
  guess <- c(case$min_heap_bytes, predicted, max(0.75 * rss, 1e6))
  guess <- guess[!is.na(guess)][1L]
  heap_kb <- smallest_heap_kb(case, steps, (guess + idle$heap_bytes) / 1024)
  case$min_heap_bytes <- round(heap_kb * 1024 - idle$heap_bytes)
  if (with_rss) case$rss_bytes <- rss
  case
}
