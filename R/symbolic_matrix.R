# R vectors and matrices without values: what `matrix(rnorm(n), r, c)` and the like
# give inside a model's code, so that initial weights are never drawn. Arithmetic
# keeps track of shapes; asking for a value is an error.

new_symbolic <- function(shape, has_dim, sources = list(), bytes = 8L, drawn = FALSE) {
  trace <- current_trace("matrix()")
  if (!is.numeric(shape) || anyNA(shape) || any(shape < 0 | shape != floor(shape))) {
    stop_agbudget(
      "bad_dimension", "A matrix or vector must have whole numbers of rows and columns, ",
      "none below 0, not ", paste(shape, collapse = " x "), "."
    )
  }
  sources <- Filter(is_symbolic, sources)
  ids <- vapply(sources, function(x) operand_id(trace, x, "data", "matrix()"), 0L)
  value <- append_value(
    trace, "host", ids, c(shape, bytes, has_dim, drawn), "matrix()"
  )
  symbolic_value(value[[1L]], trace, shape, has_dim, bytes)
}

symbolic_value <- function(id, trace, shape, has_dim = TRUE, bytes = 8L,
                           pass = trace$pass) {
  structure(
    list(id = as.integer(id), trace = trace, pass = pass, shape = shape,
         has_dim = has_dim, bytes = bytes),
    class = c("agbudget_matrix", "agbudget_value")
  )
}

not_conformable <- function(call, x, y) {
  stop_agbudget(
    "bad_shape", "The operands of `", call, "` are ", shape_text(x), " and ",
    shape_text(y), ", which do not go together."
  )
}

is_symbolic <- function(x) inherits(x, "agbudget_matrix")

symbolic_vector <- function(n, bytes = 8L, drawn = FALSE) {
  if (length(n) != 1L) n <- length(n)
  shape <- c(check_count(n, "n", min = 0, max = Inf), 1)
  new_symbolic(shape, FALSE, bytes = bytes, drawn = drawn)
}

# The value of a tensor: a matrix of its shape.
symbolic_data <- function(tensor) {
  trace <- current_trace("$data")
  id <- operand_id(trace, tensor, "x", "$data")
  data <- append_value(trace, "data", id, numeric(), "$data")
  symbolic_value(data[[1L]], trace, dim(tensor))
}

# A real matrix or vector becomes a constant of the program where it is first used. One
# that two passes meet is bound outside the forward pass, and so part of the model.
host_id <- function(trace, x, call) {
  if (length(x) < 100L) return(append_host(trace, x, call))
  key <- object_address(x)
  known <- trace$hosts[[key]]
  if (!is.null(known)) {
    if (known$pass == 0L || known$pass == trace$pass) return(known$id)
    restart_pass_with(x)
  }
  id <- append_host(trace, x, call)
  # The object is kept, so that no other can get its address.
  trace$hosts[[key]] <- list(object = x, pass = trace$pass, id = id)
  id
}

append_host <- function(trace, x, call) {
  shape <- if (is.matrix(x)) dim(x) else c(length(x), 1)
  attributes <- c(shape, element_bytes(x), is.matrix(x), 0)
  as.integer(append_value(trace, "host", integer(), attributes, call)[[1L]])
}

# Adds a constant of the model's own to what was built.
build_host <- function(trace, x) {
  trace$hosts[[object_address(x)]] <- NULL
  host_id(trace, x, "matrix()")
}

element_bytes <- function(x) {
  if (is_symbolic(x)) x[["bytes"]] else if (is.double(x)) 8L else 4L
}

value_length <- function(x) if (is_symbolic(x)) prod(x[["shape"]]) else length(x)

#' @export
dim.agbudget_matrix <- function(x) if (x[["has_dim"]]) x[["shape"]]

#' @export
is.matrix.agbudget_matrix <- function(x) x[["has_dim"]]

#' @export
is.numeric.agbudget_matrix <- function(x) TRUE

#' @export
is.na.agbudget_matrix <- function(x) {
  new_symbolic(x[["shape"]], x[["has_dim"]], list(x), bytes = 4L)
}

#' @export
anyNA.agbudget_matrix <- function(x, recursive = FALSE) no_values("anyNA()")

#' @export
mean.agbudget_matrix <- function(x, ...) no_values("mean()")

#' @export
length.agbudget_matrix <- function(x) prod(x[["shape"]])

#' @export
t.agbudget_matrix <- function(x) new_symbolic(rev(x[["shape"]]), TRUE, list(x))

#' @export
rep.agbudget_matrix <- function(x, ..., times = 1L, each = 1L, length.out = NULL) {
  n <- length.out %||% (value_length(x) * each * times)
  new_symbolic(c(n, 1), FALSE, list(x))
}

#' @export
Ops.agbudget_matrix <- function(e1, e2) {
  operands <- if (missing(e2)) list(e1) else list(e1, e2)
  longest <- operands[[which.max(vapply(operands, value_length, 0))]]
  shaped <- Filter(function(x) !is.null(dim(x)), operands)
  if (length(shaped) == 2L && !all(dim(e1) == dim(e2))) {
    not_conformable(.Generic, dim(e1), dim(e2))
  }
  shape <- if (length(shaped) > 0L) dim(shaped[[1L]]) else c(value_length(longest), 1)
  logical <- .Generic %in% c("==", "!=", "<", ">", "<=", ">=", "&", "|", "!")
  new_symbolic(shape, length(shaped) > 0L, operands, if (logical) 4L else 8L)
}

#' @export
Math.agbudget_matrix <- function(x, ...) {
  new_symbolic(x[["shape"]], x[["has_dim"]], list(x))
}

#' @export
Summary.agbudget_matrix <- function(..., na.rm = FALSE) {
  no_values(paste0(.Generic, "()"))
}

#' @export
`[.agbudget_matrix` <- function(x, i, j, ..., drop = TRUE) {
  extent <- function(index, full) {
    beyond <- is.numeric(index) && !is_symbolic(index) && any(abs(index) > full)
    if (beyond || is.character(index)) {
      stop_agbudget(
        "bad_shape", "The subscript ", describe(index), " is out of bounds: there are ",
        count_text(full), "."
      )
    }
    if (is_symbolic(index)) return(value_length(index))
    if (is.logical(index)) return(sum(rep_len(index, full)))
    if (any(index < 0)) full - length(unique(index)) else length(index)
  }
  is_vector_index <- nargs() - (if (missing(drop)) 0L else 1L) == 2L
  if (is_vector_index) {
    n <- if (missing(i)) value_length(x) else extent(i, value_length(x))
    return(new_symbolic(c(n, 1), FALSE, list(x)))
  }
  shape <- x[["shape"]]
  if (!missing(i)) shape[[1L]] <- extent(i, shape[[1L]])
  if (!missing(j)) shape[[2L]] <- extent(j, shape[[2L]])
  keeps <- !drop || all(shape != 1)
  new_symbolic(if (keeps) shape else c(prod(shape), 1), keeps, list(x))
}

#' @export
c.agbudget_matrix <- function(...) {
  parts <- list(...)
  new_symbolic(c(sum(vapply(parts, value_length, 0)), 1), FALSE, parts)
}

#' @export
cbind.agbudget_matrix <- function(..., deparse.level = 1) bind(list(...), 1L)

#' @export
rbind.agbudget_matrix <- function(..., deparse.level = 1) bind(list(...), 2L)

# Matrices share the extent `along`; vectors are recycled to it.
bind <- function(parts, along) {
  shapes <- lapply(parts, dim)
  shared <- unlist(lapply(shapes, function(shape) shape[along]))
  if (length(unique(shared)) > 1L) {
    other <- shared[shared != shared[[1L]]]
    not_conformable("cbind() or rbind()", shared[[1L]], other[[1L]])
  }
  if (length(shared) == 0L) shared <- max(vapply(parts, value_length, 0))
  other <- sum(vapply(shapes, function(s) if (is.null(s)) 1 else s[[3L - along]], 0))
  new_symbolic(if (along == 1L) c(shared[[1L]], other) else c(other, shared[[1L]]), TRUE,
               parts)
}

#' @export
`[<-.agbudget_matrix` <- function(x, ..., value) x

#' @export
`[[.agbudget_matrix` <- function(x, i, ...) {
  if (is.character(i)) unclass(x)[[i]] else no_values("[[")
}

#' @export
as.matrix.agbudget_matrix <- function(x, ...) {
  if (x[["has_dim"]]) x else new_symbolic(x[["shape"]], TRUE, list(x))
}

#' @export
as.vector.agbudget_matrix <- function(x, mode = "any") {
  if (!mode %in% c("any", "numeric", "double")) no_values("as.vector()")
  new_symbolic(c(value_length(x), 1), FALSE, list(x))
}

#' @export
as.double.agbudget_matrix <- function(x, ...) as.vector.agbudget_matrix(x)

#' @export
as.integer.agbudget_matrix <- function(x, ...) {
  new_symbolic(c(value_length(x), 1), FALSE, list(x), bytes = 4L)
}

#' @export
as.logical.agbudget_matrix <- function(x, ...) no_values("as.logical()")

#' @export
as.character.agbudget_matrix <- function(x, ...) no_values("as.character()")

#' @export
format.agbudget_matrix <- function(x, ...) {
  shape <- if (x[["has_dim"]]) shape_text(x[["shape"]]) else count_text(value_length(x))
  paste0("<symbolic ", if (x[["has_dim"]]) "matrix" else "vector", ": ", shape, ">")
}

#' @export
print.agbudget_matrix <- function(x, ...) {
  cat(format(x), "\n", sep = "")
  invisible(x)
}
