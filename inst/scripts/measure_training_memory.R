# Measures the memory that ggmlR really needs to train a model, and prints it
# beside what agbudget predicts.
#
#   Rscript measure_training_memory.R --cases visible_truth.json,own_cases.json
#   Rscript measure_training_memory.R --cases own_truth.json --stored
#   Rscript measure_training_memory.R --batch 512 --input 784 --target 10 \
#     --loss softmax_cross_entropy --optimizer adam --loop retained \
#     --model 'ag_sequential(ag_linear(784L, 256L, "relu"), ag_linear(256L, 10L))'
#
#   --cases FILES   cases to measure, JSON, several files with commas between
#   --only REGEX    of those, the ones whose name matches
#   --stored        take the measured figures from the files, measure nothing
#   --rss           also the resident memory of an ordinary run
#   --output FILE   write cases and figures there, as JSON
#   --steps N       training steps in a run (3)
#
# A case: name; model (ggmlR code, one string or one a line); input (rows of a
# batch) or vocab (the batch is then word indices); batch (columns); target
# (rows of the target, or rows and columns); loss; optimizer (adam; sgd, which
# has momentum 0.9; sgd_plain); loop (retained; released); accumulate_steps
# (micro-batches to an update, with the retained loop; 1).
#
# What is measured. R_MAX_VSIZE bounds R's vector heap, and before R gives up it
# frees all that it can. So the smallest bound under which a run still finishes
# is what the run really needs. It is found by bisection, to 0.05 %, each try a
# process of its own (train_once.R). R itself is then subtracted: the smallest
# bound under which the same process, having trained a model of two weights,
# can hold a vector of 40 MiB, less the 40 MiB.

script_directory <- function() {
  file <- grep("^--file=", commandArgs(FALSE), value = TRUE)
  dirname(normalizePath(sub("^--file=", "", file)))
}

source(file.path(script_directory(), "training_runs.R"))

# ---- The prediction ---------------------------------------------------------

can_predict <- function() {
  requireNamespace("agbudget", quietly = TRUE) &&
    "ag_training_budget" %in% getNamespaceExports("agbudget")
}

predict_bytes <- function(case) {
  if (!can_predict()) return(NA_real_)
  code <- parse(text = case$model)
  model <- if (length(code) == 1L) code[[1L]] else as.call(c(as.name("{"), as.list(code)))
  call <- bquote(agbudget::ag_training_budget(
    .(model),
    batch_size = .(case$batch), optimizer = .(case$optimizer), loss = .(case$loss),
    loop = .(case$loop), input = .(if (is.null(case$vocab)) case$input else 1L),
    accumulate_steps = .(if (is.null(case$accumulate_steps)) 1 else case$accumulate_steps)
  ))
  tryCatch(eval(call, new.env(parent = globalenv()))$heap_bytes, error = function(e) {
    message("No prediction for \"", case$name, "\": ", conditionMessage(e))
    NA_real_
  })
}

# ---- Cases ------------------------------------------------------------------

read_cases <- function(files) {
  cases <- unlist(lapply(files, jsonlite::read_json), recursive = FALSE)
  lapply(cases, function(case) {
    case <- Filter(Negate(is.null), case)
    case$model <- paste(unlist(case$model), collapse = "\n")
    case$target <- unlist(case$target)
    case
  })
}

case_from_command_line <- function(options) {
  required <- c("model", "batch", "target")
  missing <- setdiff(required, names(options))
  if (length(missing)) {
    stop("Give --cases FILE, or --", paste(missing, collapse = ", --"), call. = FALSE)
  }
  defaults <- list(name = "model", loss = "mse", optimizer = "adam", loop = "retained")
  case <- utils::modifyList(defaults, options)
  for (field in intersect(c("input", "vocab", "batch"), names(case))) {
    case[[field]] <- as.numeric(case[[field]])
  }
  case$target <- as.numeric(strsplit(case$target, ",")[[1L]])
  case
}

check_case <- function(case) {
  choices <- list(
    loss = c("mse", "cross_entropy", "softmax_cross_entropy"),
    optimizer = c("adam", "sgd", "sgd_plain"), loop = c("retained", "released")
  )
  for (field in names(choices)) {
    if (!isTRUE(case[[field]] %in% choices[[field]])) {
      stop("The case \"", case$name, "\": ", field, " must be one of ",
        paste(choices[[field]], collapse = ", "), call. = FALSE)
    }
  }
  if (is.null(case$input) && is.null(case$vocab)) {
    stop("The case \"", case$name, "\" needs input or vocab", call. = FALSE)
  }
  case
}

# ---- The report -------------------------------------------------------------

mebibytes <- function(bytes) {
  ifelse(is.na(bytes), "NA", sprintf("%.2f", bytes / 1024^2))
}

table_row <- function(case, predicted, with_rss) {
  measured <- case$min_heap_bytes
  difference <- 100 * (predicted / measured - 1)
  cells <- c(
    case$name, format(case$batch), case$optimizer, case$loss, case$loop,
    mebibytes(measured), mebibytes(predicted),
    if (is.na(difference)) "NA" else sprintf("%+.3f", difference),
    if (with_rss) mebibytes(if (is.null(case$rss_bytes)) NA else case$rss_bytes)
  )
  paste0("| ", paste(cells, collapse = " | "), " |")
}

print_header <- function(with_rss) {
  heads <- c("model", "batch", "optimizer", "loss", "loop", "measured MiB",
    "predicted MiB", "difference %", if (with_rss) "resident MiB")
  right <- c(FALSE, TRUE, FALSE, FALSE, FALSE, rep(TRUE, length(heads) - 5L))
  cat("| ", paste(heads, collapse = " | "), " |\n|",
    paste(ifelse(right, "---:", "---"), collapse = "|"), "|\n", sep = "")
}

versions <- function() {
  list(
    ggmlR = as.character(utils::packageVersion("ggmlR")),
    R = as.character(getRversion()),
    platform = R.version$platform
  )
}

# One figure a case, with the case itself, so that the file can be measured anew.
write_results <- function(cases, file) {
  results <- lapply(cases, function(case) {
    case$model <- strsplit(case$model, "\n")[[1L]]
    c(case, list(
      measured_by = "inst/scripts/measure_training_memory.R",
      versions = versions()
    ))
  })
  jsonlite::write_json(results, file, auto_unbox = TRUE, pretty = 1, digits = NA)
}

# ---- Command line -----------------------------------------------------------

read_options <- function(arguments) {
  flags <- c("stored", "rss")
  options <- list()
  while (length(arguments)) {
    name <- sub("^--", "", arguments[1L])
    if (name %in% flags) {
      options[[name]] <- TRUE
      arguments <- arguments[-1L]
    } else {
      if (length(arguments) < 2L) stop("--", name, " needs a value", call. = FALSE)
      options[[name]] <- arguments[2L]
      arguments <- arguments[-(1:2)]
    }
  }
  options
}

main <- function() {
  options <- read_options(commandArgs(TRUE))
  with_rss <- isTRUE(options$rss)
  steps <- if (is.null(options$steps)) 3L else as.integer(options$steps)
  cases <- if (is.null(options$cases)) {
    list(case_from_command_line(options))
  } else {
    read_cases(strsplit(options$cases, ",")[[1L]])
  }
  cases <- lapply(cases, check_case)
  if (!is.null(options$only)) {
    cases <- Filter(function(case) grepl(options$only, case$name), cases)
  }
  idle <- if (!isTRUE(options$stored)) measure_idle(steps)

  print_header(with_rss)
  differences <- numeric()
  for (i in seq_along(cases)) {
    predicted <- predict_bytes(cases[[i]])
    if (!is.null(idle)) {
      cases[[i]] <- measure_case(cases[[i]], idle, steps, with_rss, predicted)
    }
    cat(table_row(cases[[i]], predicted, with_rss), "\n", sep = "")
    differences[i] <- 100 * abs(predicted / cases[[i]]$min_heap_bytes - 1)
    if (!is.null(options$output)) write_results(cases[seq_len(i)], options$output)
  }
  found <- versions()
  cat("\nggmlR ", found$ggmlR, ", R ", found$R, ", ", found$platform, ".", sep = "")
  if (!all(is.na(differences))) {
    cat(sprintf(" Difference at worst %.3f %%, median %.3f %%.",
      max(differences, na.rm = TRUE), stats::median(differences, na.rm = TRUE)))
  }
  cat("\n")
}

main()
