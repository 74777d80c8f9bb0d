# The core's own suite (tests/cpp, Catch2), built once in a temporary folder; each of its
# cases is one result here.

run_tool <- function(command, args) {
  # Inside R CMD check or make, MAKEFLAGS would promise a job server that is not there.
  output <- suppressWarnings(
    system2(command, shQuote(args), stdout = TRUE, stderr = TRUE, env = "MAKEFLAGS=")
  )
  list(output = output, ok = is.null(attr(output, "status")))
}

build_core <- function(folder) {
  cpp <- test_path("..", "cpp")
  src <- test_path("..", "..", "src")
  if (!file.exists(file.path(src, "bindings.cpp")) ||
        length(list.files(cpp, "^test_.*[.]cpp$")) == 0L) {
    skip("the sources of the C++ core are not beside the tests")
  }
  skip_if(!nzchar(Sys.which("cmake")), "CMake is missing")

  paths <- normalizePath(c(cpp, src), winslash = "/")
  configured <- run_tool("cmake", c(
    "-S", paths[[1L]], "-B", folder, paste0("-DAGBUDGET_SRC=", paths[[2L]])
  ))
  no_catch2 <- any(grepl("Catch2 version 2 is missing", configured$output))
  skip_if(no_catch2, "Catch2 is missing")
  if (!configured$ok) {
    return(configured)
  }
  run_tool("cmake", c("--build", folder, "--parallel", "2"))
}

# One element a case from Catch2's XML report: its name, whether it passed, its text. A
# case in which the process died has no OverallResult, and so did not pass.
read_cases <- function(report) {
  starts <- grep("^ *<TestCase ", report)
  next_starts <- c(starts[-1L], length(report) + 1L)[seq_along(starts)]
  Map(function(first, beyond) {
    lines <- report[seq(first, beyond - 1L)]
    lines <- head(lines, c(grep("</TestCase>", lines, fixed = TRUE), length(lines))[[1L]])
    name <- sub('.*? name="([^"]*)".*', "\\1", lines[[1L]], perl = TRUE)
    list(
      name = unescape_xml(name),
      passed = any(grepl('<OverallResult success="true"', lines, fixed = TRUE)),
      detail = unescape_xml(paste(lines, collapse = "\n"))
    )
  }, starts, next_starts)
}

unescape_xml <- function(text) {
  entities <- c("&quot;" = '"', "&lt;" = "<", "&gt;" = ">", "&amp;" = "&")
  for (entity in names(entities)) {
    text <- gsub(entity, entities[[entity]], text, fixed = TRUE)
  }
  text
}

core_folder <- tempfile("agbudget-core-")
core_built <- FALSE

test_that("the C++ core and its Catch2 suite build without R", {
  built <- build_core(core_folder)
  core_built <<- built$ok
  expect(built$ok, paste(tail(built$output, 40L), collapse = "\n"))
})

core_cases <- list()
if (core_built) {
  report_file <- file.path(core_folder, "report.xml")
  core_run <- run_tool(
    file.path(core_folder, "agbudget_core_tests"), c("-r", "xml", "-o", report_file)
  )
  core_cases <- read_cases(readLines(report_file, warn = FALSE))

  test_that("the Catch2 suite runs to its end", {
    expect_gt(length(core_cases), 0L)
    all_passed <- all(vapply(core_cases, `[[`, logical(1L), "passed"))
    expect(
      core_run$ok == all_passed, paste(c("", core_run$output), collapse = "\n")
    )
  })
}

for (case in core_cases) {
  test_that(paste("C++ core:", case$name), {
    expect(case$passed, case$detail)
  })
}

unlink(core_folder, recursive = TRUE)
