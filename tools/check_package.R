# Builds the source package and checks it as CRAN would, without the PDF manual. Fails on
# every ERROR, WARNING or NOTE but the one that greets a new package.

folder <- file.path("build", "check")
unlink(folder, recursive = TRUE)
dir.create(folder, recursive = TRUE)
root <- normalizePath(".")

Sys.unsetenv(c("NOT_CRAN", "CI"))
Sys.setenv(
  # These two ask the network about the world (the clock, every URL, CRAN's index), not
  # about this package: an outage would be a NOTE.
  "_R_CHECK_SYSTEM_CLOCK_" = "0",
  "_R_CHECK_CRAN_INCOMING_REMOTE_" = "false",
  # Debian compiles R, hence every package, with flags that the check calls unportable.
  "_R_CHECK_COMPILATION_FLAGS_KNOWN_" = paste(
    "-Wformat -Werror=format-security -Wdate-time"
  ),
  MAKEFLAGS = paste0("-j", max(1L, parallel::detectCores(), na.rm = TRUE))
)

r_cmd <- function(...) {
  old <- setwd(folder)
  on.exit(setwd(old))
  system2(file.path(R.home("bin"), "R"), c("CMD", ...))
}

if (r_cmd("build", shQuote(root)) != 0L) {
  quit(status = 1L)
}
source_package <- list.files(folder, "^agbudget_.*[.]tar[.]gz$")
r_cmd("check", "--as-cran", "--no-manual", source_package)

log <- readLines(file.path(folder, "agbudget.Rcheck", "00check.log"), warn = FALSE)
starts <- grep("^[*]+ ", log)
blocks <- Map(
  function(first, last) log[first:last], starts, c(starts[-1L] - 1L, length(log))
)
verdict <- function(block) {
  # A long step prints its verdict on a line of its own, after its parts.
  found <- regmatches(block, regexpr("(OK|NOTE|WARNING|ERROR)$", block))
  if (length(found) > 0L) found[[1L]] else ""
}
is_greeting <- function(block) {
  body <- block[nzchar(trimws(block))][-1L]
  grepl("checking CRAN incoming feasibility", block[[1L]], fixed = TRUE) &&
    all(grepl("^(Maintainer: .*|New submission)$", body))
}

verdicts <- vapply(blocks, verdict, "")
blocks <- blocks[nzchar(verdicts)]
verdicts <- verdicts[nzchar(verdicts)]
summary_line <- grepl("^[*] DONE|^Status:", vapply(blocks, `[[`, "", 1L))
bad <- verdicts != "OK" & !vapply(blocks, is_greeting, NA) & !summary_line
finished <- any(grepl("^[*] DONE", log))

for (block in blocks[bad]) {
  writeLines(c("", "FINDING", block))
}
cat(sprintf(
  "\nR CMD check: %d steps without a finding, %d with one%s\n",
  sum(!bad & !summary_line), sum(bad), if (finished) "" else ", and it did not finish"
))
utils::write.csv(
  data.frame(passed = sum(!bad & !summary_line), failed = sum(bad) + !finished),
  file.path("build", "check.csv"),
  row.names = FALSE
)
quit(status = as.integer(any(bad) || !finished))
