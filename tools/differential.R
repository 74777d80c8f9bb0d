# Usage, from the package's root: Rscript tools/differential.R [calls] [seed]
# Compares this package's ag_estimate_training_memory() with ggmlR's, call by call.

arguments <- commandArgs(trailingOnly = TRUE)
calls <- if (length(arguments) >= 1L) as.integer(arguments[1L]) else 100000L
seed <- if (length(arguments) >= 2L) as.integer(arguments[2L]) else 1L

source("tests/testthat/helper-observe.R")
source("tests/testthat/helper-differential.R")

result <- run_differential(
  calls, seed,
  ours = agbudget::ag_estimate_training_memory,
  reference = ggmlR::ag_estimate_training_memory
)
for (failure in result$failures) cat(describe_failure(failure), "\n\n")
cat(sprintf(
  "seed %d: %d of %d calls agree with ggmlR %s\n",
  seed, result$agreed, calls, as.character(utils::packageVersion("ggmlR"))
))
if (result$agreed < calls) quit(status = 1L)
