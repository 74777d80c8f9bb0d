# A trace records what one evaluation of a model's code does. The model's code
# calls ggmlR's functions by name; here those names are bound to functions that
# append an instruction to a program in the core and answer with a symbolic tensor.
#
# A trace first builds the model (pass 0), then makes any number of forward passes, each
# of which takes the place of the one before.

the <- new.env(parent = emptyenv())
the$trace <- NULL

new_trace <- function() {
  trace <- new.env(parent = emptyenv())
  trace$program <- program_new()
  trace$pass <- 0L
  trace$passes <- 0L
  trace$open <- 0L
  trace$hosts <- list()
  trace$masks <- list()
  trace$captured <- list()
  trace$parameters <- list()
  trace$unrecorded <- FALSE
  trace
}

# Evaluates `code` with `trace` as the one that operations append to. The user's
# code may draw random numbers of its own; the stream is left as it was.
with_trace <- function(trace, code) {
  outer <- the$trace
  seed <- globalenv()[[".Random.seed"]]
  on.exit({
    the$trace <- outer
    if (!is.null(seed)) {
      assign(".Random.seed", seed, envir = globalenv())
    } else if (!is.null(globalenv()[[".Random.seed"]])) {
      rm(".Random.seed", envir = globalenv())
    }
  })
  the$trace <- trace
  force(code)
}

# `if (x > 0)` fails within base R, which knows nothing of symbolic values.
explaining_conditions <- function(code) {
  withCallingHandlers(code, error = function(error) {
    statement <- conditionCall(error)
    if (inherits(error, "agbudget_error") || !is.call(statement)) return()
    if (!as.character(statement[[1L]])[[1L]] %in% c("if", "while")) return()
    for (frame in rev(sys.frames())) {
      condition <- tryCatch(eval(statement[[2L]], frame), error = function(e) NULL)
      if (inherits(condition, "agbudget_value")) {
        no_values(paste0("`", statement[[1L]], " (", deparse1(statement[[2L]]), ")`"))
      }
    }
  })
}

current_trace <- function(caller) {
  trace <- the$trace
  if (is.null(trace)) {
    stop_agbudget(
      "no_values", "`", caller, "` was called on a symbolic model outside ",
      "ag_training_budget() or ag_architecture(); it has shapes but no values."
    )
  }
  trace
}

# Starts a forward pass on what building left.
begin_pass <- function(trace) {
  trace$pass <- trace$passes <- trace$passes + 1L
  trace$open <- 0L
  trace$unrecorded <- FALSE
  trace$arguments <- list()
  trace$captured <- list()
  recent <- function(host) host$pass == 0L || host$pass == trace$pass - 1L
  if (length(trace$hosts) > 0L) trace$hosts <- Filter(recent, trace$hosts)
  program_begin_forward(trace$program)
}

resume_building <- function(trace) {
  trace$pass <- 0L
  trace$unrecorded <- FALSE
  program_resume_building(trace$program)
}

# Appends an instruction and returns the new value: id, rows, columns, and whether
# it requires a gradient. `call` is what to name in a message about shapes.
append_value <- function(trace, operation, operands, attributes, call) {
  if (trace$unrecorded) bind_values(trace)
  value <- program_append(trace$program, operation, operands, attributes)
  if (is.character(value)) stop_from_core(value, trace, call)
  if (value[[4L]] == 0 && trace$pass != 0L && !operation %in% c("input", "data")) {
    trace$unrecorded <- TRUE
  }
  value
}

# A value that needs no gradient is on no tape: it lives as long as the user's code
# refers to it. Tells the program what is referred to while the next operation runs.
bind_values <- function(trace) {
  frames <- sys.frames()
  trace$arguments <- program_bind(
    trace$program, frames, trace$outer_frames, trace$captured, trace, trace$pass,
    trace$hosts, outer_environments(trace), trace$arguments
  )
}

# Where the model was built, which bind_survivors() looks at once.
outer_environments <- function(trace) c(trace$masks, trace$outside)

# The tape keeps a checkpoint's function, and that the environment it was defined in.
capture_environment <- function(trace, begin, fn) {
  home <- environment(fn)
  if (!is.null(home)) trace$captured[[as.character(begin)]] <- home
}

# When the forward pass is over: what the model and its checkpoints still refer to.
bind_survivors <- function(trace, module) {
  for (begin in names(trace$captured)) {
    program_capture(
      trace$program, as.integer(begin), trace$captured[[begin]], trace, trace$pass,
      trace$hosts, outer_environments(trace)
    )
  }
  # The frames of this pass are not to be kept.
  trace$captured <- trace$arguments <- list()
  if (!trace$own_code && !program_makes_matrices(trace$program)) return()
  program_survive(
    trace$program, c(module[c("forward", "parameters")], trace$masks), trace,
    trace$pass, trace$hosts, list(trace$outside)
  )
}

stop_from_core <- function(failure, trace, call) {
  kind <- attr(failure, "kind")
  if (identical(kind, "too_large")) {
    stop_agbudget(
      "too_large", "The model is too large for exact byte counts: ", failure,
      " at `", call, "`."
    )
  }
  label <- program_layer_label(trace$program)
  where <- if (nzchar(label)) paste0(" (layer ", label, ")")
  colon <- if (startsWith(failure, "expects")) " " else ": "
  stop_agbudget(kind, "`", call, "`", where, colon, failure, ".")
}

# Operations ------------------------------------------------------------------

# Appends an operation of ggmlR's on tensors or matrices and returns its result.
emit <- function(operation, operands, attributes = numeric(),
                 call = paste0("ag_", operation, "()")) {
  trace <- current_trace(call)
  ids <- operand_ids(trace, operands, call)
  new_tensor(trace, append_value(trace, operation, ids, attributes, call))
}

operand_ids <- function(trace, operands, call) {
  ids <- tensor_ids(trace$program, operands, trace, trace$pass)
  if (!anyNA(ids)) return(ids)
  for (i in which(is.na(ids))) {
    ids[[i]] <- other_operand_id(trace, operands[[i]], names(operands)[[i]], call)
  }
  ids
}

operand_id <- function(trace, x, argument, call) {
  operands <- list(x)
  names(operands) <- argument
  operand_ids(trace, operands, call)
}

# Of an operand that is no symbolic tensor, or one that must not be used here.
other_operand_id <- function(trace, x, argument, call) {
  if (inherits(x, "agbudget_value")) {
    if (!identical(.subset2(x, "trace"), trace)) stop_stale(call, "call")
    pass <- .subset2(x, "pass")
    if (pass != 0L && pass != trace$pass) stop_stale(call, "forward pass")
    return(.subset2(x, "id"))
  }
  if (inherits(x, "agbudget_probe")) probe_failed(x)
  if (is.numeric(x) || is.logical(x)) return(host_id(trace, x, call))
  if (is_live_tensor(x)) return(live_tensor_id(trace, x))
  stop_agbudget(
    "bad_operand", "`", argument, "` of `", call, "` must be a tensor or a numeric ",
    "matrix, not ", describe(x), "."
  )
}

# Rows and columns of whatever may be an operand.
operand_shape <- function(x) {
  if (is_live_tensor(x)) x <- x$data
  dim(x) %||% c(length(x), 1)
}

# A value of one forward pass, or of one call, means nothing in another.
stop_stale <- function(call, origin) {
  stop_agbudget(
    "stale_tensor", "`", call, "` got a tensor that was made in another ", origin,
    "; a model must not keep tensors from one to the next."
  )
}

# Symbolic tensors --------------------------------------------------------------

# Reference semantics as in ggmlR: `p$requires_grad <- FALSE` freezes a parameter
# wherever it is used from then on. `value` is what the program answered with.
new_tensor <- function(trace, value, class = tensor_class) {
  make_tensor(value, trace, trace$pass, class)
}

tensor_value <- function(x) as.integer(.subset2(x, "value")[[1L]])
tensor_rows <- function(x) .subset2(x, "value")[[2L]]
tensor_cols <- function(x) .subset2(x, "value")[[3L]]

tensor_class <- c("agbudget_tensor", "agbudget_value", "ag_tensor")
parameter_class <- c("agbudget_parameter", tensor_class)

# Drawn at random, zeros, or what the value `source` holds.
new_parameter <- function(rows, cols, drawn, call, source = integer()) {
  trace <- current_trace(call)
  value <- append_value(trace, "parameter", source, c(rows, cols, drawn), call)
  new_tensor(trace, value, parameter_class)
}

no_values <- function(what) {
  stop_agbudget(
    "no_values", what, " asks for values, but a symbolic tensor has a shape only: ",
    "nothing is computed while a memory budget is made."
  )
}

#' @export
dim.agbudget_tensor <- function(x) .subset2(x, "value")[2:3]

#' @export
length.agbudget_tensor <- function(x) tensor_rows(x) * tensor_cols(x)

#' @export
`$.agbudget_tensor` <- function(x, name) {
  switch(name,
    data = symbolic_data(x),
    grad = ,
    grad_fn = NULL,
    id = tensor_value(x),
    device = "cpu",
    dtype = "f32",
    .subset2(x, name)
  )
}

#' @export
`$<-.agbudget_tensor` <- function(x, name, value) {
  if (name == "data") {
    refuse("$<-", "the `data` of a tensor is replaced by it outside of any operation")
  }
  if (name == "requires_grad" && !isTRUE(value) && !isFALSE(value)) {
    stop_agbudget(
      "bad_argument", "`requires_grad` of a tensor must be `TRUE` or `FALSE`, not ",
      describe(value), "."
    )
  }
  assign(name, value, envir = x)
  x
}

#' @export
format.agbudget_tensor <- function(x, ...) {
  kind <- if (inherits(x, "agbudget_parameter")) "parameter" else "tensor"
  paste0("<symbolic ", kind, ": ", shape_text(dim(x)), ">")
}

#' @export
print.agbudget_tensor <- function(x, ...) {
  cat(format(x), "\n", sep = "")
  invisible(x)
}

#' @export
as.matrix.agbudget_tensor <- function(x, ...) no_values("as.matrix()")

#' @export
as.double.agbudget_tensor <- function(x, ...) no_values("as.numeric()")

#' @export
as.integer.agbudget_tensor <- function(x, ...) no_values("as.integer()")

#' @export
as.vector.agbudget_tensor <- function(x, mode = "any") no_values("as.vector()")

#' @export
Ops.agbudget_tensor <- function(e1, e2) {
  stop_agbudget(
    "no_values", "`", .Generic, "` does not work on tensors; use an operation such ",
    "as ag_add(), ag_sub(), ag_mul() or ag_scale()."
  )
}

#' @export
Math.agbudget_tensor <- function(x, ...) no_values(paste0(.Generic, "()"))

#' @export
Summary.agbudget_tensor <- function(..., na.rm = FALSE) {
  no_values(paste0(.Generic, "()"))
}

# Layers ------------------------------------------------------------------------

# What a layer is called in messages and tables: its kind and a number, given when
# it first runs in a pass. A layer that runs again keeps its name.
new_layer <- function(kind, call) {
  layer <- new.env(hash = FALSE, parent = emptyenv())
  layer$kind <- kind
  layer$call <- call
  layer$pass <- -1L
  layer
}

# Runs `code`, which returns a tensor, as part of `layer`.
in_layer <- function(layer, code) {
  trace <- current_trace(layer$call)
  # Run while the model is built, it is no layer of the forward pass.
  if (trace$pass == 0L) return(code)
  if (layer$pass != trace$pass) {
    layer$pass <- trace$pass
    layer$index <- program_begin_layer(trace$program, layer$kind, layer$call)
  } else {
    program_resume_layer(trace$program, layer$index)
  }
  result <- code
  if (inherits(result, "agbudget_tensor")) {
    program_end_layer(trace$program, tensor_value(result))
  } else if (!inherits(result, "agbudget_probe")) {
    stop_agbudget(
      "bad_model", "The forward pass of layer ", program_layer_label(trace$program),
      " must return a tensor, not ", describe(result), "."
    )
  }
  result
}

# The probe ---------------------------------------------------------------------

# Stands for a batch whose rows are not known yet. The first layer that expects a
# number of rows ends the probing with it; operations that keep the shape pass it on.
new_probe <- function() structure(list(), class = "agbudget_probe")

probe_found <- function(rows, indices = FALSE) {
  if (!isTRUE(the$trace$probing)) stop_stale("forward()", "forward pass")
  signal_agbudget("input_found", rows = rows, indices = indices)
}

probe_failed <- function(probe) probe_found(NULL)

# Whatever a model asks of the batch itself, it does not say how many rows it wants.

#' @export
dim.agbudget_probe <- function(x) probe_failed(x)

#' @export
`$.agbudget_probe` <- function(x, name) probe_failed(x)

#' @export
as.matrix.agbudget_probe <- function(x, ...) probe_failed(x)

#' @export
Ops.agbudget_probe <- function(e1, e2) probe_failed(e1)

expect_rows <- function(x, rows, indices = FALSE) {
  if (inherits(x, "agbudget_probe")) probe_found(rows, indices)
}
