# ggmlR's operations (R/autograd.R, R/ag_select.R, R/ag_checkpoint.R) on symbolic
# tensors.

# An operation on one tensor that keeps its shape passes an unknown batch on.
emit_elementwise <- function(operation, x) {
  if (inherits(x, "agbudget_probe")) return(x)
  emit(operation, list(x = x))
}

# ag_scale() and ag_pow(), whose second argument R recycles over `x`.
emit_recycled <- function(operation, x, value, argument) {
  if (is_scalar(value) && is.null(dim(value))) return(emit_elementwise(operation, x))
  call <- paste0("ag_", operation, "()")
  # Longer ones are kept for the backward pass.
  operands <- list(x = x)
  if (!check_recycled(value, x, argument, call)) operands$value <- value
  if (inherits(x, "agbudget_probe")) x else emit(operation, operands, call = call)
}

# Returns whether `value` is a single number.
check_recycled <- function(value, x, argument, call) {
  numbers <- is_symbolic(value) ||
    ((is.numeric(value) || is.logical(value)) && !is.object(value) && !anyNA(value))
  n <- value_length(value)
  if (!numbers || n == 0) {
    stop_option(argument, call, "a number, or numbers to recycle over `x`", value)
  }
  if (!inherits(x, "agbudget_probe")) {
    shape <- operand_shape(x)
    same <- is.null(dim(value)) || identical(as.numeric(dim(value)), as.numeric(shape))
    if (!same || n > prod(shape)) {
      stop_option(argument, call, paste(
        "a number, or numbers that R recycles over", shape_text(shape)
      ), value)
    }
  }
  n == 1
}

check_bound <- function(bound, argument) {
  if (is_symbolic(bound) && length(bound) == 1L) return(invisible())
  if (!is_scalar(bound)) stop_option(argument, "ag_clamp()", "a number", bound)
}

emit_reduction <- function(operation, x, dim) {
  call <- paste0("ag_", operation, "()")
  emit(operation, list(x = x), reduced_dim(dim, call), call)
}

# 0 for all. ggmlR takes whatever is not 1 for 2.
reduced_dim <- function(dim, call) {
  if (is.null(dim)) return(0)
  along <- if (is.atomic(dim) && !is.object(dim) && length(dim) == 1L) dim == 1L else NA
  if (is.na(along)) stop_option("dim", call, "`NULL`, 1 or 2", dim)
  if (along) 1 else 2
}

# as.integer() of a single value; anything else as it is.
as_extent <- function(x) {
  if (!is.atomic(x) || is.object(x) || length(x) != 1L) return(x)
  whole <- suppressWarnings(trunc(as.numeric(x)))
  if (is.na(whole)) x else whole
}

# Constants that select among `count` rows or columns, from 0. Fractions are cut off.
check_indices <- function(index, count, argument, call) {
  if (is.object(index) || !(is.numeric(index) || is.logical(index))) return(invisible())
  outside <- is.na(index) | index <= -1 | index >= count
  if (any(outside)) {
    stop_agbudget(
      "bad_argument", "`", argument, "` of `", call, "` must hold whole numbers from 0 ",
      "to ", count_text(count - 1), "; found ", format(index[outside][[1L]]), "."
    )
  }
}

# ag_softmax_cross_entropy_loss() takes integers, plain vectors and a single row for
# class indices, whatever else their shape.
class_loss <- function(logits, target) {
  operation <- "softmax_cross_entropy_loss"
  call <- paste0("ag_", operation, "()")
  indices <- FALSE
  if (!inherits(logits, "agbudget_probe")) {
    shape <- operand_shape(logits)
    indices <- holds_classes(target, shape)
    if (indices && length(target) == prod(shape) && shape[[1L]] > 1) {
      stop_option(
        "target", call, "a matrix of doubles, or a class index for each column", target
      )
    }
    if (indices) check_indices(target, shape[[1L]], "target", call)
  }
  emit(operation, list(logits = logits, target = target), as.numeric(indices), call)
}

holds_classes <- function(target, shape) {
  if (is_symbolic(target)) {
    return(element_bytes(target) == 4L && !identical(dim(target), shape))
  }
  if (is.object(target) || !(is.numeric(target) || is.logical(target))) return(FALSE)
  is.integer(target) || (is.numeric(target) && is.null(dim(target))) ||
    (is.matrix(target) && nrow(target) == 1L && shape[[1L]] > 1)
}

checkpoint <- function(fn, ...) {
  call <- "ag_checkpoint()"
  if (!is.function(fn)) {
    stop_agbudget(
      "bad_operand", "`fn` of `", call, "` must be a function, not ", describe(fn), "."
    )
  }
  trace <- current_trace(call)
  # Nothing is recorded while the model is built.
  if (trace$pass == 0L) return(fn(...))
  is_input <- function(x) {
    inherits(x, "agbudget_value") || is_live_tensor(x) || is.numeric(x) || is.logical(x)
  }
  inputs <- Filter(is_input, list(...))
  ids <- vapply(inputs, function(x) as.integer(operand_id(trace, x, "...", call)), 0L)
  # What was switched before the function runs is not switched again when it is rerun.
  tensor_ids(trace$program, trace$parameters, trace, trace$pass)
  begin <- append_value(trace, "checkpoint_begin", ids, numeric(), call)
  capture_environment(trace, begin[[1L]], fn)
  trace$open <- trace$open + 1L
  result <- fn(...)
  trace$open <- trace$open - 1L
  if (inherits(result, "agbudget_probe")) return(result)
  if (!is_input(result)) {
    stop_agbudget(
      "bad_model", "The function of `", call, "` must return a tensor or a numeric ",
      "matrix, not ", describe(result), "."
    )
  }
  is_plain <- !inherits(result, "ag_tensor")
  if (is_plain) result <- as_column(result, call)
  emit("checkpoint_end", list(result = result), as.numeric(is_plain), call)
}

column_index <- function(x, index) {
  if (is_symbolic(index)) return(invisible())
  shape <- operand_shape(x)
  if (!is.numeric(index) || length(index) != shape[[2L]]) {
    stop_agbudget(
      "bad_operand", "`index` of `ag_gather()` must be a number for each of the ",
      count_text(shape[[2L]]), " columns, not ", describe(index), "."
    )
  }
  if (anyNA(index) || any(index != round(index) | index < 0 | index >= shape[[1L]])) {
    stop_agbudget(
      "bad_operand", "`index` of `ag_gather()` must hold whole numbers from 0 to ",
      count_text(shape[[1L]] - 1), "."
    )
  }
}

mask_operations <- list(
  ag_matmul = function(A, B) {
    if (inherits(B, "agbudget_probe")) probe_found(operand_shape(A)[[2L]])
    emit("matmul", list(A = A, B = B))
  },
  ag_add = function(A, B) emit("add", list(A = A, B = B)),
  ag_sub = function(A, B) emit("sub", list(A = A, B = B)),
  ag_mul = function(A, B) emit("mul", list(A = A, B = B)),
  ag_scale = function(x, scalar) emit_recycled("scale", x, scalar, "scalar"),
  ag_relu = function(x) emit_elementwise("relu", x),
  ag_sigmoid = function(x) emit_elementwise("sigmoid", x),
  ag_tanh = function(x) emit_elementwise("tanh", x),
  ag_softmax = function(x) emit_elementwise("softmax", x),
  ag_log_softmax = function(x) emit_elementwise("log_softmax", x),
  ag_log = function(x) emit_elementwise("log", x),
  ag_exp = function(x) emit_elementwise("exp", x),
  ag_pow = function(x, p) emit_recycled("pow", x, p, "p"),
  ag_clamp = function(x, lo = -Inf, hi = Inf) {
    check_bound(lo, "lo")
    check_bound(hi, "hi")
    emit_elementwise("clamp", x)
  },
  ag_sum = function(x, dim = NULL, keepdim = FALSE) emit_reduction("sum", x, dim),
  ag_mean = function(x, dim = NULL, keepdim = FALSE) emit_reduction("mean", x, dim),
  ag_reshape = function(x, nrow, ncol) {
    call <- "ag_reshape()"
    extents <- c(
      check_count(as_extent(nrow), "nrow", min = -1, of = paste0(" of `", call, "`")),
      check_count(as_extent(ncol), "ncol", min = -1, of = paste0(" of `", call, "`"))
    )
    emit("reshape", list(x = x), extents, call)
  },
  ag_transpose = function(x) emit("transpose", list(x = x)),
  ag_slice_rows = function(x, from, n) {
    call <- "ag_slice_rows()"
    extents <- c(
      check_count(from, "from", min = 0, of = paste0(" of `", call, "`")),
      check_count(n, "n", of = paste0(" of `", call, "`"))
    )
    emit("slice_rows", list(x = x), extents, call)
  },
  ag_concat_rows = function(a, b) emit("concat_rows", list(a = a, b = b)),
  ag_gather = function(x, index) {
    if (!inherits(x, "agbudget_probe")) column_index(x, index)
    emit("gather", list(x = x))
  },
  ag_max = function(x) emit("max", list(x = x)),
  ag_argmax = function(x) {
    trace <- current_trace("ag_argmax()")
    id <- operand_id(trace, x, "x", "ag_argmax()")
    append_value(trace, "argmax", id, numeric(), "ag_argmax()")
    symbolic_vector(operand_shape(x)[[2L]], bytes = 4L)
  },
  ag_sample_normal = function(mu, log_std) {
    shape <- operand_shape(mu)
    spread <- operand_shape(log_std)
    if (spread[[1L]] != shape[[1L]] || !spread[[2L]] %in% c(1, shape[[2L]])) {
      stop_agbudget(
        "bad_shape", "`log_std` of `ag_sample_normal()` is ", shape_text(spread),
        "; expected the shape of `mu`, ", shape_text(shape), ", or one column."
      )
    }
    drawn <- symbolic_vector(prod(shape), drawn = TRUE)
    noise <- new_symbolic(shape, TRUE, list(drawn))
    mask_operations$ag_add(
      mu, mask_operations$ag_mul(new_constant(noise), mask_operations$ag_exp(log_std))
    )
  },
  ag_mse_loss = function(pred, target) {
    emit("mse_loss", list(pred = pred, target = target))
  },
  ag_cross_entropy_loss = function(pred, target) {
    emit("cross_entropy_loss", list(pred = pred, target = target))
  },
  ag_softmax_cross_entropy_loss = function(logits, target) {
    class_loss(logits, target)
  },
  ag_checkpoint = checkpoint,
  ag_to_device = function(tensor, device) {
    if (!identical(device, "cpu")) refuse("ag_to_device", gpu_reason)
    tensor
  },
  ag_device = function(device) {
    if (!identical(device, "cpu")) refuse("ag_device", gpu_reason)
    invisible("cpu")
  },
  ag_default_device = function() "cpu",
  ag_default_dtype = function() "f32"
)
