# ag_param(), ag_tensor(), and the functions of base and stats that would otherwise
# fill whole matrices.

# `ag_tensor(data)`, where a vector becomes a matrix of one column.
new_constant <- function(data) {
  call <- "ag_tensor()"
  trace <- current_trace(call)
  id <- operand_id(trace, as_column(data, call), "data", call)
  new_tensor(trace, append_value(trace, "tensor", id, numeric(), call))
}

# A parameter that holds `data`, a matrix.
parameter_from <- function(data, call) {
  source <- operand_id(current_trace(call), data, "data", call)
  new_parameter(nrow(data), ncol(data), drawn = FALSE, call, source)
}

check_device <- function(device, name) {
  if (!identical(device, "cpu")) refuse(name, gpu_reason)
}

as_column <- function(data, call) {
  if (!is.null(dim(data)) && length(dim(data)) == 2L) return(data)
  if (is_symbolic(data)) return(new_symbolic(c(length(data), 1), TRUE, list(data)))
  if (is.numeric(data) || is.logical(data)) {
    if (length(data) > 0L && is.null(dim(data))) return(matrix(data, ncol = 1L))
  }
  stop_agbudget(
    "bad_operand", "`data` of `", call, "` must be a numeric matrix or vector, not ",
    describe(data), "."
  )
}

# Values at which filling a real matrix would be worth avoiding.
symbolic_from <- 10000

wanted_extents <- function(n, nrow, ncol) {
  if (is.null(nrow) && is.null(ncol)) return(c(n, 1))
  if (is.null(nrow)) return(c(ceiling(n / ncol), ncol))
  if (is.null(ncol)) return(c(nrow, ceiling(n / nrow)))
  c(nrow, ncol)
}

mask_values <- list(
  ag_param = function(data, device = "cpu", dtype = "f32") {
    check_device(device, "ag_param")
    force(dtype)
    parameter_from(as_column(data, "ag_param()"), "ag_param()")
  },
  ag_tensor = function(data, device = "cpu", dtype = "f32") {
    check_device(device, "ag_tensor")
    force(dtype)
    new_constant(data)
  },
  matrix = function(data = NA, nrow = NULL, ncol = NULL, byrow = FALSE,
                    dimnames = NULL) {
    if (inherits(data, "agbudget_tensor")) no_values("matrix()")
    shape <- wanted_extents(value_length(data), nrow, ncol)
    if (is_symbolic(data) || prod(shape) >= symbolic_from) {
      return(new_symbolic(shape, TRUE, list(data), element_bytes(data)))
    }
    base::matrix(data, shape[[1L]], shape[[2L]], byrow = byrow, dimnames = dimnames)
  },
  array = function(data = NA, dim = length(data), dimnames = NULL) {
    if (length(dim) != 2L || (!is_symbolic(data) && prod(dim) < symbolic_from)) {
      return(base::array(data, dim, dimnames))
    }
    new_symbolic(dim, TRUE, list(data))
  },
  diag = function(x = 1, nrow = NULL, ncol = NULL, names = TRUE) {
    extent <- nrow %||% (if (length(x) == 1L && is.null(dim(x))) x else length(x))
    if (is.null(dim(x)) && is_number(extent) && extent^2 >= symbolic_from) {
      return(new_symbolic(c(extent, ncol %||% extent), TRUE))
    }
    if (is.null(nrow)) base::diag(x) else base::diag(x, nrow, ncol %||% nrow)
  },
  upper.tri = function(x, diag = FALSE) symbolic_triangle(base::upper.tri, x, diag),
  lower.tri = function(x, diag = FALSE) symbolic_triangle(base::lower.tri, x, diag),
  numeric = function(length = 0L) {
    if (length < symbolic_from) base::numeric(length) else symbolic_vector(length)
  },
  double = function(length = 0L) mask_values$numeric(length),
  rep = function(x, times = 1L, length.out = NULL, each = 1L, ...) {
    repeats <- if (length(times) == 1L) value_length(x) * each * times else sum(times)
    n <- length.out %||% repeats
    if (is_symbolic(x) || (is.numeric(x) && n >= symbolic_from)) {
      return(new_symbolic(c(n, 1), FALSE, list(x)))
    }
    base::rep(x, times = times, length.out = length.out %||% NA, each = each, ...)
  },
  rep_len = function(x, length.out) mask_values$rep(x, length.out = length.out),
  runif = function(n, min = 0, max = 1) symbolic_vector(n, drawn = TRUE),
  rnorm = function(n, mean = 0, sd = 1) symbolic_vector(n, drawn = TRUE),
  rbinom = function(n, size, prob) symbolic_vector(n, bytes = 4L, drawn = TRUE),
  `%*%` = function(x, y) {
    if (!is_symbolic(x) && !is_symbolic(y)) return(base::`%*%`(x, y))
    symbolic_product("%*%", x, y, operand_shape(x), operand_shape(y))
  },
  crossprod = function(x, y = x) {
    if (!is_symbolic(x) && !is_symbolic(y)) return(base::crossprod(x, y))
    symbolic_product("crossprod()", x, y, rev(operand_shape(x)), operand_shape(y))
  },
  tcrossprod = function(x, y = x) {
    if (!is_symbolic(x) && !is_symbolic(y)) return(base::tcrossprod(x, y))
    symbolic_product("tcrossprod()", x, y, operand_shape(x), rev(operand_shape(y)))
  },
  outer = function(X, Y, FUN = "*", ...) {
    if (!is_symbolic(X) && !is_symbolic(Y)) return(base::outer(X, Y, FUN, ...))
    new_symbolic(c(value_length(X), value_length(Y)), TRUE, list(X, Y))
  },
  # For orthogonal initial weights.
  qr = function(x, ...) if (is_symbolic(x)) symbolic_qr(x) else base::qr(x, ...),
  qr.Q = function(qr, complete = FALSE, ...) {
    if (!is_symbolic_qr(qr)) return(base::qr.Q(qr, complete, ...))
    symbolic_qr_q(qr, complete)
  },
  qr.R = function(qr, complete = FALSE, ...) {
    if (!is_symbolic_qr(qr)) return(base::qr.R(qr, complete, ...))
    symbolic_qr_r(qr, complete)
  },
  # `ggmlR::ag_linear()` is symbolic too.
  `::` = function(pkg, name) {
    pkg <- as.character(substitute(pkg))
    name <- as.character(substitute(name))
    ours <- if (pkg == "ggmlR") mask_bindings[[name]]
    ours %||% getExportedValue(pkg, name)
  }
)

symbolic_product <- function(call, x, y, x_shape, y_shape) {
  if (x_shape[[2L]] != y_shape[[1L]]) not_conformable(call, x_shape, y_shape)
  new_symbolic(c(x_shape[[1L]], y_shape[[2L]]), TRUE, list(x, y))
}

symbolic_triangle <- function(triangle, x, diag) {
  if (is_symbolic(x) || length(x) >= symbolic_from) {
    return(new_symbolic(dim(x), TRUE, bytes = 4L))
  }
  triangle(x, diag)
}
