# ggmlR's operations (R/autograd.R, R/ag_select.R, R/ag_checkpoint.R) on symbolic
# tensors.

# An operation on one tensor that keeps its shape passes an unknown batch on.
emit_elementwise <- function(operation, x) {
  if (inherits(x, "agbudget_probe")) return(x)
  emit(operation, list(x = x))
}

emit_reduction <- function(operation, x, dim) {
  call <- paste0("ag_", operation, "()")
  along <- if (is.null(dim)) 0 else if (isTRUE(dim == 1L)) 1 else 2
  emit(operation, list(x = x), along, call)
}

checkpoint <- function(fn, ...) {
  call <- "ag_checkpoint()"
  if (!is.function(fn)) {
    stop_agbudget(
      "bad_operand", "`fn` of `", call, "` must be a function, not ", describe(fn), "."
    )
  }
  trace <- current_trace(call)
  is_input <- function(x) {
    inherits(x, "agbudget_value") || is_live_tensor(x) || is.numeric(x) || is.logical(x)
  }
  inputs <- Filter(is_input, list(...))
  ids <- vapply(inputs, function(x) as.integer(operand_id(trace, x, "...", call)), 0L)
  begin <- append_value(trace, "checkpoint_begin", ids, numeric(), call)
  if (trace$pass != 0L) capture_frames(trace, begin[[1L]], fn)
  trace$open <- trace$open + 1L
  result <- fn(...)
  trace$open <- trace$open - 1L
  if (inherits(result, "agbudget_probe")) return(result)
  if (!inherits(result, "agbudget_tensor")) {
    stop_agbudget(
      "bad_model", "The function of `", call, "` must return a tensor, not ",
      describe(result), "."
    )
  }
  emit("checkpoint_end", list(result = result), call = call)
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
  ag_scale = function(x, scalar) emit_elementwise("scale", x),
  ag_relu = function(x) emit_elementwise("relu", x),
  ag_sigmoid = function(x) emit_elementwise("sigmoid", x),
  ag_tanh = function(x) emit_elementwise("tanh", x),
  ag_softmax = function(x) emit_elementwise("softmax", x),
  ag_log_softmax = function(x) emit_elementwise("log_softmax", x),
  ag_log = function(x) emit_elementwise("log", x),
  ag_exp = function(x) emit_elementwise("exp", x),
  ag_pow = function(x, p) emit_elementwise("pow", x),
  ag_clamp = function(x, lo = -Inf, hi = Inf) emit_elementwise("clamp", x),
  ag_sum = function(x, dim = NULL, keepdim = FALSE) emit_reduction("sum", x, dim),
  ag_mean = function(x, dim = NULL, keepdim = FALSE) emit_reduction("mean", x, dim),
  ag_reshape = function(x, nrow, ncol) {
    call <- "ag_reshape()"
    extents <- c(
      check_count(nrow, "nrow", min = -1, of = paste0(" of `", call, "`")),
      check_count(ncol, "ncol", min = -1, of = paste0(" of `", call, "`"))
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
    emit("softmax_cross_entropy_loss", list(logits = logits, target = target))
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
