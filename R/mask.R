# The names that a model's code finds: ggmlR's constructors and operations, and the
# few functions of base and stats that would otherwise fill whole matrices.

# An environment over `parent` in which ggmlR's names are symbolic.
new_mask <- function(parent) {
  list2env(c(mask_operations, mask_layers, mask_values, mask_refused), parent = parent)
}

# Operations: R/autograd.R, R/ag_select.R and R/ag_checkpoint.R of ggmlR -------------

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
  inputs <- list(...)
  probes <- vapply(inputs, inherits, NA, "agbudget_probe")
  if (any(probes)) return(fn(...))
  ids <- vapply(inputs, function(x) as.integer(operand_id(trace, x, "...", call)), 0L)
  append_value(trace, "checkpoint_begin", ids, numeric(), call)
  result <- fn(...)
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
  if (!is.numeric(index) || length(index) != ncol(x)) {
    stop_agbudget(
      "bad_operand", "`index` of `ag_gather()` must be a number for each of the ",
      count_text(ncol(x)), " columns, not ", describe(index), "."
    )
  }
}

mask_operations <- list(
  ag_matmul = function(A, B) {
    if (inherits(B, "agbudget_probe")) probe_found(ncol(A))
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
    symbolic_vector(ncol(x), bytes = 4L)
  },
  ag_sample_normal = function(mu, log_std) {
    drawn <- symbolic_vector(prod(dim(mu)), drawn = TRUE)
    noise <- new_symbolic(dim(mu), TRUE, list(drawn))
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
  ag_default_device = function() "cpu"
)

# Values: ag_param(), ag_tensor() and what fills matrices -----------------------------

# `ag_tensor(data)`, where a vector becomes a matrix of one column.
new_constant <- function(data) {
  call <- "ag_tensor()"
  trace <- current_trace(call)
  id <- operand_id(trace, as_column(data, call), "data", call)
  new_tensor(trace, append_value(trace, "tensor", id, numeric(), call))
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
    call <- "ag_param()"
    trace <- current_trace(call)
    data <- as_column(data, call)
    id <- operand_id(trace, data, "data", call)
    attributes <- c(dim(data), 0)
    value <- append_value(trace, "parameter", as.integer(id), attributes, call)
    new_tensor(trace, value, "agbudget_parameter")
  },
  ag_tensor = function(data, device = "cpu", dtype = "f32") new_constant(data),
  matrix = function(data = NA, nrow = NULL, ncol = NULL, byrow = FALSE,
                    dimnames = NULL) {
    if (inherits(data, "agbudget_tensor")) no_values("matrix()")
    shape <- wanted_extents(value_length(data), nrow, ncol)
    if (is_symbolic(data) || prod(shape) >= symbolic_from) {
      bytes <- if (is_symbolic(data)) data[["bytes"]] else if (is.double(data)) 8L else 4L
      return(new_symbolic(shape, TRUE, list(data), bytes))
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
  rep = function(x, ...) {
    if (is_symbolic(x)) return(rep.agbudget_matrix(x, ...))
    counts <- list(...)
    n <- counts$length.out %||%
      (length(x) * prod(unlist(counts[names(counts) %in% c("", "times", "each")] %||% 1)))
    if (length(n) == 1L && is.numeric(x) && n >= symbolic_from) {
      return(symbolic_vector(n))
    }
    base::rep(x, ...)
  },
  rep_len = function(x, length.out) {
    if (!is_symbolic(x) && length.out < symbolic_from) return(base::rep_len(x, length.out))
    symbolic_vector(length.out)
  },
  runif = function(n, min = 0, max = 1) symbolic_vector(n, drawn = TRUE),
  rnorm = function(n, mean = 0, sd = 1) symbolic_vector(n, drawn = TRUE),
  rbinom = function(n, size, prob) symbolic_vector(n, bytes = 4L, drawn = TRUE)
)

symbolic_triangle <- function(triangle, x, diag) {
  if (is_symbolic(x) || length(x) >= symbolic_from) {
    return(new_symbolic(dim(x), TRUE, bytes = 4L))
  }
  triangle(x, diag)
}

# What is not modelled ------------------------------------------------------------

gpu_reason <- "only the CPU path is modelled; on a GPU the values live in its memory"
loop_reason <- paste(
  "it belongs to the training loop, which ag_training_budget() runs itself; give it",
  "the model only"
)
buffer_reason <- "it keeps values in a backend buffer, outside R's heap"
file_reason <- "it reads or writes values, and a symbolic model has none"

refuse <- function(name, reason) {
  stop_agbudget("not_modelled", "`", name, "()` is not modelled: ", reason, ".")
}

refused_names <- c(
  ag_flash_attention = "it computes in a backend graph, outside R's heap",
  ag_buffer = buffer_reason, ag_buffer_free = buffer_reason,
  ag_buffer_read = buffer_reason, ag_buffer_write = buffer_reason,
  ag_get_rows = buffer_reason,
  ag_capture = gpu_reason, ag_capture_free = gpu_reason, ag_capture_set = gpu_reason,
  ag_capture_step = gpu_reason,
  ag_graph_mode = gpu_reason, ag_local_mode = gpu_reason,
  ag_matmul_precision = gpu_reason, ag_dtype = gpu_reason,
  ag_grad = "it asks for values, and a symbolic tensor has none",
  ag_gradcheck = "it asks for values, and a symbolic tensor has none",
  ag_sample_categorical = "it asks for values, and a symbolic tensor has none",
  ag_load_model = file_reason, ag_save_model = file_reason,
  ag_state_dict = file_reason, ag_load_state_dict = file_reason,
  with_grad_tape = loop_reason, backward = loop_reason,
  optimizer_adam = loop_reason, optimizer_sgd = loop_reason,
  ag_dataloader = loop_reason, dp_train = loop_reason
)

mask_refused <- lapply(
  stats::setNames(names(refused_names), names(refused_names)),
  function(name) {
    reason <- refused_names[[name]]
    function(...) refuse(name, reason)
  }
)
