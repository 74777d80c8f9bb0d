# lintr over every R file of the repository, not only the package's own.

lints <- c(
  lintr::lint_package("."),
  unlist(
    lapply(Filter(dir.exists, c("tools", "bench")), lintr::lint_dir),
    recursive = FALSE
  )
)
for (lint in lints) {
  cat(sprintf(
    "%s:%d:%d: %s [%s]\n",
    lint$filename, lint$line_number, lint$column_number, lint$message, lint$linter
  ))
}
cat(length(lints), "lints\n")
quit(status = as.integer(length(lints) > 0L))
