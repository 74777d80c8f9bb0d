# Checks ag_max_batch_size() against ggmlR: for each case the batch it returns must
# really train when the heap is bounded to an idle R plus the memory, and a batch 3 %
# larger (one more at least) must not.
#
#   Rscript verify_max_batch_size.R [--cases FILE] [--only REGEX]
#
# A case is one of measure_training_memory.R's without `batch`, and with `memory`, as
# ag_max_batch_size() takes it. The default is max_batch_cases.json, one case for each
# kind of layer.

script_directory <- function() {
  file <- grep("^--file=", commandArgs(FALSE), value = TRUE)
  dirname(normalizePath(sub("^--file=", "", file)))
}

source(file.path(script_directory(), "training_runs.R"))

largest_batch <- function(case) {
  eval(bquote(agbudget::ag_max_batch_size(
    .(parse(text = case$model)[[1L]]), .(case$memory), optimizer = .(case$optimizer),
    loss = .(case$loss), loop = .(case$loop)
  )))
}

trains_with <- function(case, batch, heap_kb) {
  case$batch <- batch
  !is.null(train_in_process(case, steps = 3L, heap_kb))
}

verify_case <- function(case, idle_bytes) {
  batch <- largest_batch(case)
  larger <- max(batch + 1, ceiling(1.03 * batch))
  heap_kb <- floor((idle_bytes + agbudget:::parse_memory(case$memory)) / 1024)
  fits <- trains_with(case, batch, heap_kb)
  larger_fits <- trains_with(case, larger, heap_kb)
  cat(sprintf(
    "| %s | %s | %s | %s | %s | %s | %s |\n", case$name, case$memory, case$optimizer,
    format(batch), if (fits) "trains" else "DOES NOT TRAIN", format(larger),
    if (larger_fits) "TRAINS" else "does not train"
  ))
  fits && !larger_fits
}

main <- function(arguments) {
  option <- function(name, default) {
    at <- match(paste0("--", name), arguments)
    if (is.na(at)) default else arguments[[at + 1L]]
  }
  cases <- jsonlite::read_json(
    option("cases", file.path(script_directory(), "max_batch_cases.json"))
  )
  cases <- Filter(function(case) grepl(option("only", ""), case$name), cases)
  idle <- measure_idle(steps = 3L)
  cat("| model | memory | optimizer | batch returned | R says | 3 % more | R says |\n")
  cat("|---|---:|---|---:|---|---:|---|\n")
  right <- vapply(cases, verify_case, NA, idle$heap_bytes)
  cat("\n", sum(right), " of ", length(right), " as predicted.\n", sep = "")
  if (!all(right)) quit(status = 1L)
}

main(commandArgs(TRUE))
