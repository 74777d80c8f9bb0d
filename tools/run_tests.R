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

reporter <- testthat::CheckReporter$new()
results <- as.data.frame(testthat::test_dir(
  file.path("tests", "testthat"),
  filter = if (length(filter) > 0L) filter, perl = TRUE,
  package = "agbudget", load_package = "installed", reporter = reporter,
  stop_on_failure = FALSE
))
# The reporter leaves its findings as a file among the sources.
unlink(file.path("tests", "testthat", "testthat-problems.rds"))

# The table has one row a test, and leaves out what a file did outside of test_that();
# the reporter counts expectations, wherever they were.
broken <- results$failed > 0L | results$error
counts <- c(
  passed = sum(!broken & !results$skipped),
  failed = max(sum(broken), min(1L, reporter$problems$size())),
  skipped = reporter$skips$size(),
  warnings = reporter$warnings$size(),
  expectations = reporter$n_ok
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
