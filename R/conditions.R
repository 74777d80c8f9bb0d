# Every condition that the package raises on its own behalf is made here, so
# that each carries a class to catch it by: `agbudget_error_<kind>` within
# `agbudget_error`, and the same for warnings.

stop_agbudget <- function(kind, ..., data = list()) {
  stop(new_condition("error", kind, paste0(...), data))
}

warn_agbudget <- function(kind, ..., data = list()) {
  warning(new_condition("warning", kind, paste0(...), data))
}

# A condition that is no error, for the code that waits for it further up.
signal_agbudget <- function(kind, ...) {
  condition <- list(message = "", call = NULL, ...)
  class(condition) <- c(paste0("agbudget_", kind), "condition")
  stop(condition)
}

new_condition <- function(type, kind, message, data) {
  base <- paste0("agbudget_", type)
  structure(
    class = c(paste0(base, "_", kind), base, type, "condition"),
    c(list(message = message, call = NULL), data)
  )
}
