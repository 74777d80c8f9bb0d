# Runs the whole suite against the copy in build/lib. A skipped test counts as a failed
# one here: everything that a test could need has been installed.
#
# An argument, if given, is a regular expression that chooses test files by name.

filter <- commandArgs(trailingOnly = TRUE)
results_file <- Sys.getenv("AGBUDGET_TEST_RESULTS", file.path("build", "tests.csv"))

installed <- normalizePath(find.package("agbudget"))
if (dirname(installed) != normalizePath(file.path("build", "lib"))) {
  stop("the tests would run against ", installed, call. = FALSE)
}

results <- as.data.frame(testthat::test_dir(
  file.path("tests", "testthat"),
  filter = if (length(filter) > 0L) filter, perl = TRUE,
  package = "agbudget", load_package = "installed", reporter = "check",
  stop_on_failure = FALSE
))
# The reporter leaves its findings as a file among the sources.
unlink(file.path("tests", "testthat", "testthat-problems.rds"))

# `failed` counts expectations; an error outside of them is a column of its own.
broken <- results$failed > 0L | results$error
skipped <- results$skipped & !broken
counts <- c(
  passed = sum(!broken & !skipped), failed = sum(broken), skipped = sum(skipped),
  warnings = sum(results$warning), expectations = sum(results$passed)
)
utils::write.csv(as.data.frame(as.list(counts)), results_file, row.names = FALSE)

cat(sprintf(
  "tests: %d passed, %d failed, %d skipped (%d expectations, %d warnings)\n",
  counts["passed"], counts["failed"], counts["skipped"], counts["expectations"],
  counts["warnings"]
))
if (counts["failed"] + counts["skipped"] > 0L || counts["passed"] == 0L) {
  quit(status = 1L)
}
