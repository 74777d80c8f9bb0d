# How many matrices of a parameter's size each optimizer keeps beside it.
state_copies <- c(adam = 2, sgd = 1, sgd_plain = 0)

estimate_note <- paste0(
  "path B stores gradients and optimizer state as R double (8 bytes); ",
  "an f32 estimate would be half this. ag_dtype() does not apply."
)

report_lines <- c(
  heading = "Training memory estimate (%s, batch %d)\n",
  params = "  parameters      : %s\n",
  weights = "  weights         : %8.2f MB\n",
  gradients = "  gradients       : %8.2f MB\n",
  optimizer = "  optimizer (x%d)  : %8.2f MB\n",
  activations = "  activations     : %8.2f MB\n",
  total = "  total           : %8.2f MB\n",
  note = "  note: %s\n"
)
report_page <- paste(report_lines, collapse = "")

#' Memory for a training run, from parameter shapes
#'
#' A drop-in replacement for the function of the same name in ggmlR 0.8.8.1.
#' From the shapes of the parameters it adds up what ggmlR's formula counts for
#' training with the `ag_*` functions: the weights, one gradient for each, the
#' optimizer's state, and the activations as a share of the weights times the
#' batch. Every figure is the same as ggmlR's to the last bit, and so is the
#' printed report.
#'
#' The formula knows nothing about the model but its shapes, and what training
#' really needs can be several times more, or less.
#'
#' Arithmetic is R's: dimensions are multiplied in extended precision, counts
#' and bytes are doubles, exact up to 2^53 and `Inf` where a double ends.
#'
#' @section Units:
#' Every figure of the result but `params` (a number of scalars) is in bytes.
#' The report prints "MB" as ggmlR does; it means 1024^2 bytes, that is MiB.
#'
#' @section Conditions:
#' The two errors about `shapes` read as ggmlR's do. Other arguments with which
#' nothing can be computed, such as `activation_frac = "a"`, are errors of class
#' `agbudget_error_bad_argument`. All are of class `agbudget_error`.
#'
#' Some arguments have a result in ggmlR that is no amount of memory: a
#' `batch_size` or `activation_frac` that is missing, negative, infinite, empty
#' or no number, or shapes with more parameters than a double can count. The
#' result is then still ggmlR's, with a warning of class
#' `agbudget_warning_not_a_budget`.
#'
#' @param shapes A list with one numeric vector of dimensions for each
#'   parameter, or a single such vector. Dimensions are positive; `integer64`
#'   ones are read as the integers they are, whether or not bit64 is loaded.
#' @param batch_size Rows in a batch. Activations are proportional to it, and
#'   nothing else depends on it. A vector gives a table: `activations` and
#'   `total` have one figure for each batch size.
#' @param optimizer `"adam"` (two matrices of state for each parameter), `"sgd"`
#'   (one, the velocity) or `"sgd_plain"` (none). May be abbreviated.
#' @param activation_frac Bytes of activations for each byte of weights and each
#'   row of the batch.
#' @param quiet `TRUE` to print no report.
#'
#' @return Invisibly, a list:
#'   \item{params}{number of parameters (scalars)}
#'   \item{weights, gradients, optimizer, activations}{bytes of each term}
#'   \item{total}{their sum in bytes}
#'   \item{bytes_per_scalar}{8: all of it is R's doubles}
#'   \item{note}{why 8, in the words of the report}
#'
#' @examples
#' # Three dense layers, 512 wide, Adam, 64 rows in a batch
#' layers <- list(c(512, 512), c(512, 512), c(512, 512))
#' ag_estimate_training_memory(layers, batch_size = 64)
#'
#' # Total for several batch sizes, in MiB
#' sizes <- c(32, 64, 128)
#' ag_estimate_training_memory(layers, sizes, quiet = TRUE)$total / 1024^2
#' @export
ag_estimate_training_memory <- function(shapes,
                                        batch_size = 32L,
                                        optimizer = c("adam", "sgd", "sgd_plain"),
                                        activation_frac = 0.01,
                                        quiet = FALSE) {
  # match.arg() takes most of a small call's time; the default needs none of it.
  optimizer <- if (identical(optimizer, names(state_copies))) {
    "adam"
  } else {
    match.arg(optimizer)
  }
  if (is.numeric(shapes)) shapes <- list(shapes)
  if (!is.list(shapes) || length(shapes) == 0L) stop_not_shapes()
  params <- count_parameters(shapes, classed_shape_size)
  if (is.null(params)) stop_bad_dimension()

  copies <- state_copies[[optimizer]]
  # Arguments in the order in which ggmlR's function evaluates them. Of NaN and
  # NA, which one a sum of both gives is up to the compiler: R's has to decide.
  plain <- is.finite(params * 8) &&
    is_plain_fraction(activation_frac) && is_plain_numbers(batch_size)
  memory <- if (plain) {
    training_memory(
      params, copies, activation_frac, as.double(batch_size), estimate_note
    )
  } else {
    activation_frac <- read_integer64(activation_frac)
    generic_memory(params, copies, activation_frac, batch_size)
  }

  if (!isTRUE(quiet)) {
    batch_size <- read_integer64(batch_size)
    if (plain && fits_one_page(batch_size)) {
      print_page(memory, optimizer, copies, batch_size)
    } else {
      print_lines(memory, optimizer, copies, batch_size)
    }
  }
  if (!plain || !is_budget(memory, batch_size)) {
    warn_unless_budget(memory, batch_size, activation_frac)
  }
  invisible(memory)
}

stop_not_shapes <- function() {
  stop_agbudget(
    "bad_argument",
    "ggmlR: `shapes` must be a non-empty list of dimension vectors."
  )
}

stop_bad_dimension <- function() {
  stop_agbudget(
    "bad_dimension",
    "ggmlR: each shape must be a vector of positive dimensions."
  )
}

# `value` is what R's generics make of an argument that has been forced before,
# so an error in here is theirs and not one of the caller's own expression.
naming <- function(what, value) {
  tryCatch(value, error = function(e) {
    stop_agbudget(
      "bad_argument", what, " must be numeric: ", conditionMessage(e),
      data = list(parent = e)
    )
  })
}

# Called from C++ for a shape with a class, whose methods decide what it is.
classed_shape_size <- function(shape, position) {
  what <- sprintf("`shapes[[%.0f]]`", position)
  valid <- naming(what, is_classed_shape(shape))
  if (!valid) stop_bad_dimension()
  naming(what, {
    size <- prod(as.double(shape))
    if (!is.double(size) || length(size) != 1L) {
      stop("the product of its dimensions is not one number")
    }
    size
  })
}

is_classed_shape <- function(shape) {
  if (!is.numeric(shape) || length(shape) == 0L) {
    return(FALSE)
  }
  if (any(!is.finite(shape)) || any(shape <= 0)) FALSE else TRUE
}

is_plain_numbers <- function(x) is.null(attributes(x)) && is.numeric(x)

is_plain_fraction <- function(x) {
  is_plain_numbers(x) && length(x) == 1L && is.finite(x) && x >= 0
}

# While bit64 is not loaded, R takes the bits of an integer64 for a double.
read_integer64 <- function(x) {
  if (!is.object(x) || !inherits(x, "integer64") || isNamespaceLoaded("bit64")) {
    return(x)
  }
  values <- integer64_as_double(x)
  attributes(values) <- attributes(unclass(x))
  values
}

# What ggmlR's arithmetic carries over (names, dims, classes) is R's to decide:
# here R computes, step by step in ggmlR's order.
generic_memory <- function(params, copies, activation_frac, batch_size) {
  memory <- training_memory(params, copies, 0, 0, estimate_note)
  by_row <- naming("`activation_frac`", memory$weights * activation_frac)
  batch_size <- read_integer64(batch_size)
  rows <- naming("`batch_size`", as.double(batch_size))
  both <- "`activation_frac` (with `batch_size`)"
  activations <- naming(both, by_row * rows)
  fixed <- memory$weights + memory$gradients + memory$optimizer
  memory$total <- naming(both, fixed + activations)
  memory$activations <- activations
  memory
}

# format(big.mark = " ") takes most of a report's time, so that all but whole
# numbers below 10^digits are left to it; with OutDec = " " it warns.
format_count <- function(n) {
  if (identical(getOption("OutDec"), " ")) {
    return(format(n, big.mark = " "))
  }
  grouped <- group_thousands(format(n))
  if (nzchar(grouped)) grouped else format(n, big.mark = " ")
}

mebibytes <- function(bytes) bytes / 1024^2

fits_one_page <- function(batch_size) {
  length(batch_size) == 1L && isTRUE(abs(batch_size) <= .Machine$integer.max)
}

print_page <- function(memory, optimizer, copies, batch_size) {
  cat(sprintf(
    report_page,
    optimizer, as.integer(batch_size),
    format_count(memory$params),
    mebibytes(memory$weights),
    mebibytes(memory$gradients),
    copies, mebibytes(memory$optimizer),
    mebibytes(memory$activations),
    mebibytes(memory$total),
    memory$note
  ))
}

# Line by line, because a vector repeats its lines and an empty one has none,
# and because what can be printed before an error is printed in ggmlR too.
print_lines <- function(memory, optimizer, copies, batch_size) {
  line <- function(name, ...) sprintf(report_lines[[name]], ...)
  both <- "`activation_frac` (with `batch_size`)"
  cat(naming("`batch_size`", line("heading", optimizer, as.integer(batch_size))))
  cat(line("params", format_count(memory$params)))
  cat(line("weights", mebibytes(memory$weights)))
  cat(line("gradients", mebibytes(memory$gradients)))
  cat(line("optimizer", copies, mebibytes(memory$optimizer)))
  cat(naming(both, line("activations", mebibytes(memory$activations))))
  cat(naming(both, line("total", mebibytes(memory$total))))
  cat(line("note", memory$note))
}

is_budget <- function(memory, batch_size) {
  length(batch_size) > 0L && all(batch_size >= 0) && all(is.finite(memory$total))
}

warn_unless_budget <- function(memory, batch_size, activation_frac) {
  flaws <- c(
    argument_flaw("batch_size", batch_size),
    argument_flaw("activation_frac", activation_frac),
    shapes_flaw(memory)
  )
  if (length(flaws) == 0L && !all(is.finite(as_numbers(memory$total)))) {
    flaws <- "`batch_size` times `activation_frac` is too large for a double"
  }
  if (length(flaws) > 0L) {
    warn_agbudget(
      "not_a_budget", "This is no amount of memory: ",
      paste(flaws, collapse = "; "), "."
    )
  }
}

shapes_flaw <- function(memory) {
  if (is.finite(memory$params) && is.finite(memory$weights)) {
    return(NULL)
  }
  "`shapes` have more parameters than a double can count bytes for (Inf)"
}

argument_flaw <- function(name, x) {
  problem <- if (is.null(x)) {
    " is NULL"
  } else if (is_no_number(x)) {
    paste0(" is of class ", class(x)[1L], ", not a number")
  } else {
    value_flaw(as_numbers(x))
  }
  if (!is.null(problem)) paste0("`", name, "`", problem)
}

value_flaw <- function(values) {
  if (length(values) == 0L) {
    return(" is empty")
  }
  at <- which(!is.finite(values) | values < 0)
  if (length(at) == 0L) {
    return(NULL)
  }
  value <- values[at[1L]]
  where <- if (length(values) > 1L) sprintf(" at position %d", at[1L])
  paste0(" is ", format(value), where, if (isTRUE(value < 0)) ", below zero")
}

# Classed values that arithmetic takes for their codes: factors, dates, times.
is_no_number <- function(x) {
  is.complex(x) || (is.object(x) && is.atomic(x) && !is.numeric(x))
}

as_numbers <- function(x) {
  tryCatch(suppressWarnings(as.double(unlist(x))), error = function(e) NA_real_)
}
