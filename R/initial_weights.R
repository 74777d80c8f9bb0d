# The initial weights of ag_linear(), as ggmlR's .ag_linear_init() makes them: what is
# live while it does decides the peak of building a large layer.

initial_weight <- function(init, gain, rows, cols, call) {
  if (!is_number(gain) || is.infinite(gain)) {
    stop_agbudget(
      "bad_argument", "`gain` of `ag_linear()` must be a finite number, not ",
      describe(gain), "."
    )
  }
  if (is.character(init)) {
    init <- check_choice(init, "init", c("glorot_uniform", "orthogonal"))
    weight <- if (init == "orthogonal") {
      orthogonal_matrix(rows, cols)
    } else {
      drawn_matrix(rows, cols)
    }
    if (gain != 1) weight <- gain * weight
    return(parameter_from(weight, "ag_linear()"))
  }
  if (gain != 1) {
    stop_agbudget(
      "bad_argument", "`gain` of `ag_linear()` must be 1 where `init` is no string, not ",
      describe(gain), ": a function or a matrix has its own scale."
    )
  }
  given_weight(init, rows, cols, call)
}

# What `init` gives is copied unless nothing else can refer to it; the copied matrix
# stays, since the layer's closures hold the call's frame, and so `init`.
given_weight <- function(init, rows, cols, call) {
  trace <- current_trace(call)
  shape <- c(rows, cols)
  # What the function makes has a higher id.
  last <- new_symbolic(c(0, 1), FALSE)[["id"]]
  given <- if (is.function(init)) init(rows, cols) else init
  check_given(given, shape, is.function(init))
  id <- operand_id(trace, given, "init", call)
  fresh <- is.function(init) &&
    (if (is_symbolic(given)) id > last else length(given) < symbolic_from)

  # The logical matrix of is.finite().
  append_value(trace, "host", id, c(shape, 4L, TRUE, FALSE), call)
  bytes <- element_bytes(given)
  copied <- function(id, bytes) {
    copy <- append_value(trace, "host", id, c(shape, bytes, TRUE, FALSE), call)
    as.integer(copy[[1L]])
  }
  # storage.mode(W) <- "double" copies what is shared, and then what is no double.
  if (!fresh) {
    append_value(trace, "buffer", id, shape, call)
    id <- copied(id, bytes)
  }
  if (bytes != 8L) id <- copied(id, 8L)
  new_parameter(rows, cols, drawn = FALSE, call, source = id)
}

check_given <- function(given, shape, is_result) {
  if (!is.matrix(given) || !is.numeric(given) || any(dim(given) != shape)) {
    stop_agbudget(
      "bad_argument", "`init` of `ag_linear()` must be \"glorot_uniform\", ",
      "\"orthogonal\", a ", shape_text(shape), " matrix, or a function(out, in) that ",
      "returns one, not ", if (is_result) "a function that returns ", describe(given), "."
    )
  }
  if (!is_symbolic(given) && !all(is.finite(given))) {
    stop_agbudget(
      "bad_argument", "`init` of `ag_linear()` must hold finite numbers only; found ",
      format(given[!is.finite(given)][[1L]]), "."
    )
  }
}

# A vector of random numbers, made a matrix.
drawn_matrix <- function(rows, cols) {
  new_symbolic(c(rows, cols), TRUE, list(symbolic_vector(rows * cols, drawn = TRUE)))
}

# .ag_orthogonal(): the factor Q of a tall random matrix, its columns' signs set.
orthogonal_matrix <- function(rows, cols) {
  long <- max(rows, cols)
  short <- min(rows, cols)
  factors <- symbolic_qr(drawn_matrix(long, short))
  symbolic_qr_r(factors, complete = FALSE)
  orthogonal <- symbolic_qr_q(factors, complete = FALSE)
  # The product lands in rep(s, each = n).
  signed <- new_symbolic(c(long, short), TRUE, list(orthogonal, factors$qr))
  if (rows >= cols) return(signed)
  new_symbolic(c(rows, cols), TRUE, list(signed, factors$qr))
}

# LINPACK's decomposition in base R ----------------------------------------------------

# qr.default() makes a double of `x` while its caller holds `x`, and .Fortran() a copy
# of that, which is the result.
symbolic_qr <- function(x) {
  shape <- operand_shape(x)
  if (prod(shape) > .Machine$integer.max) {
    stop_agbudget(
      "bad_dimension", "`x` of `qr()` must have at most 2^31 - 1 elements, but is ",
      shape_text(shape), "."
    )
  }
  stored <- new_symbolic(shape, TRUE, list(x))
  qr <- new_symbolic(shape, TRUE, list(x, stored))
  qraux <- symbolic_vector(shape[[2L]])
  parts <- list(qr = qr, rank = min(shape), qraux = qraux, pivot = seq_len(shape[[2L]]))
  class(parts) <- "qr"
  parts
}

# qr.Q() has a unit matrix multiplied by qr.qy(), which makes a double of it; the factors
# lose their attributes; .Fortran() copies both, and the unit matrix again for the result.
symbolic_qr_q <- function(factors, complete) {
  qr <- factors$qr
  rows <- dim(qr)[[1L]]
  shape <- c(rows, if (complete) rows else min(dim(qr)))
  unit <- new_symbolic(shape, TRUE, list(qr))
  stored <- new_symbolic(shape, TRUE, list(unit))
  plain <- new_symbolic(c(length(qr), 1), FALSE, list(qr))
  plain_copy <- new_symbolic(c(length(qr), 1), FALSE, list(plain))
  stored_copy <- new_symbolic(shape, TRUE, list(stored))
  new_symbolic(shape, TRUE, list(qr, unit, stored, plain, plain_copy, stored_copy))
}

# qr.R(): `R[row(R) > col(R)] <- 0` on a copy.
symbolic_qr_r <- function(factors, complete) {
  qr <- factors$qr
  shape <- c(if (complete) dim(qr)[[1L]] else min(dim(qr)), dim(qr)[[2L]])
  upper <- new_symbolic(shape, TRUE, list(qr))
  row <- new_symbolic(shape, TRUE, list(upper), bytes = 4L)
  col <- new_symbolic(shape, TRUE, list(upper), bytes = 4L)
  new_symbolic(shape, TRUE, list(row, col, upper, qr), bytes = 4L)
  upper
}

is_symbolic_qr <- function(x) inherits(x, "qr") && is_symbolic(.subset2(x, "qr"))
