# Everything a caller can notice of one call: value, visibility, printed bytes,
# warnings, error.
observe <- function(fun, args, env = new.env(parent = globalenv())) {
  env$estimate <- fun
  seen <- list(value = NULL, visible = NA, warnings = list(), error = NULL)
  printed <- rawConnection(raw(), "wb")
  sink(printed)
  open <- TRUE
  on.exit({
    if (open) sink()
    close(printed)
  })
  result <- tryCatch(
    withCallingHandlers(
      withVisible(eval(as.call(c(quote(estimate), args)), env)),
      warning = function(w) {
        seen$warnings <<- c(seen$warnings, list(w))
        invokeRestart("muffleWarning")
      }
    ),
    error = function(e) {
      seen$error <<- e
      NULL
    }
  )
  sink()
  open <- FALSE
  seen$value <- result$value
  seen$visible <- result$visible
  seen$printed <- rawConnectionValue(printed)
  seen
}

printed_by <- function(expr) {
  printed <- rawConnection(raw(), "wb")
  on.exit(close(printed))
  sink(printed)
  tryCatch(force(expr), finally = sink())
  rawToChar(rawConnectionValue(printed))
}
