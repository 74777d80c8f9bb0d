# Usage, from the package's root: Rscript bench/instructions.R
# How the work for a layer grows with the model, in instructions: unlike time, they are
# the same on any machine, whatever else it does, and know nothing of its caches. R's
# collections are among them. Needs valgrind; takes some minutes.

# Instructions of an R that makes so many budgets of a model of so many layers.
instructions <- function(layers, calls) {
  script <- tempfile(fileext = ".R")
  on.exit(unlink(script))
  writeLines(c(
    "library(agbudget)",
    "budget <- function(layers) {",
    "  model <- lapply(seq_len(layers), function(i) {",
    "    call('ag_linear', 64L, 64L, activation = 'relu')",
    "  })",
    "  eval(call('ag_training_budget', as.call(c(quote(ag_sequential), model)), 64))",
    "}",
    # R compiles a function when it has been called twice.
    "for (i in 1:3) budget(10)",
    sprintf("for (i in seq_len(%.0f)) budget(%.0f)", calls, layers)
  ), script)
  output <- system2(file.path(R.home("bin"), "R"), c(
    "-d", shQuote("valgrind --tool=callgrind --callgrind-out-file=/dev/null"),
    "--vanilla", "--no-echo", "-f", shQuote(script)
  ), stdout = TRUE, stderr = TRUE)
  count <- grep("I +refs:", output, value = TRUE)
  if (!is.null(attr(output, "status")) || length(count) != 1L) {
    stop("valgrind failed:\n", paste(output, collapse = "\n"))
  }
  as.numeric(gsub("[^0-9]", "", sub(".*refs:", "", count)))
}

in_all <- 10000
start <- instructions(10, 0)
layers <- c(10, 100, 1000, in_all)
in_budgets <- vapply(layers, function(n) instructions(n, in_all / n), 0) - start
per_layer <- in_budgets / in_all
cat(sprintf("  %6d layers: %7.0f instructions a layer\n", layers, per_layer), sep = "")
ratio <- per_layer[[length(layers)]] / per_layer[[1L]]
cat(sprintf("%-58s %12.2f  (bar: <= 1.5) %s\n",
            "instructions a layer, 10,000 layers / 10 layers", ratio,
            if (ratio <= 1.5) "ok" else "NOT MET"))
