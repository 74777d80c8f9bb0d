# Checks of what a user typed. Each names the argument, what must hold and what was
# found.

is_number <- function(x) {
  is.numeric(x) && !is.object(x) && length(x) == 1L && !is.na(x)
}

# What R's arithmetic takes for a number: `TRUE` is 1.
is_scalar <- function(x) {
  (is.numeric(x) || is.logical(x)) && !is.object(x) && length(x) == 1L && !is.na(x)
}

check_count <- function(x, argument, min = 1, max = .Machine$integer.max,
                        kind = "bad_argument", of = "") {
  if (is_number(x) && x >= min && x <= max && x == floor(x)) return(as.double(x))
  range <- if (is.finite(max)) {
    paste0("from ", count_text(min), " to ", count_text(max))
  } else {
    paste0("of at least ", count_text(min))
  }
  stop_agbudget(
    kind, "`", argument, "`", of, " must be a single whole number ", range, ", not ",
    describe(x), "."
  )
}

# A dimension of a layer, as ggmlR takes it: a whole number, integer or double.
check_dimension <- function(x, argument, call) {
  check_count(x, argument, kind = "bad_dimension", of = paste0(" of `", call, "`"))
}

check_choice <- function(x, argument, choices) {
  if (identical(x, choices)) return(choices[[1L]])
  if (is.character(x) && length(x) == 1L && !is.na(x)) {
    found <- pmatch(x, choices)
    if (!is.na(found)) return(choices[[found]])
  }
  stop_agbudget(
    "bad_argument", "`", argument, "` must be one of ",
    paste0("\"", choices, "\"", collapse = ", "), ", not ", describe(x), "."
  )
}

check_flag <- function(x, argument) {
  if (isTRUE(x) || isFALSE(x)) return(x)
  stop_agbudget(
    "bad_argument", "`", argument, "` must be `TRUE` or `FALSE`, not ", describe(x), "."
  )
}
