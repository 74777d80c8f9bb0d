# Models that exist: ggmlR's own tensors and layers, which hold values already, and
# the user's modules around them. Their shapes are read, their code is run with
# symbolic tensors; no value is touched.

is_live_tensor <- function(x) {
  is.environment(x) && inherits(x, "ag_tensor") && !inherits(x, "agbudget_tensor")
}

from_ggmlr <- function(f) {
  if (!is.function(f) || is.primitive(f)) return(FALSE)
  identical(environmentName(topenv(environment(f))), "ggmlR")
}

live_layer_class <- function(x) {
  if (inherits(x, "agbudget_layer")) return(NULL)
  known <- c("ag_sequential", "ag_dropout", "ag_batch_norm", "ag_layer_norm",
             "ag_embedding", "ag_multihead_attention")
  if (is.environment(x)) {
    found <- intersect(class(x), known)
    return(if (length(found) > 0L) found[[1L]])
  }
  if (is.list(x) && from_ggmlr(x[["forward"]]) && is_live_tensor(x[["W"]])) "ag_linear"
}

# Tensors ------------------------------------------------------------------------

# A live tensor is part of the built model. One that only turns up in a forward pass
# ends the pass: it is added to what was built, and the pass begins again.
live_tensor <- function(trace, tensor, drawn = FALSE) {
  known <- find_converted(trace, tensor)
  if (!is.null(known)) return(known)
  trace$live <- TRUE
  if (trace$pass > 0L) restart_pass_with(tensor)
  data <- tensor$data
  if (!identical(tensor$device %||% "cpu", "cpu") || is.null(data)) {
    refuse("ag_device", gpu_reason)
  }
  shape <- if (is.matrix(data)) dim(data) else c(length(data), 1)
  parameter <- new_parameter(shape[[1L]], shape[[2L]], drawn, "ag_param()")
  remember_converted(trace, tensor, parameter)
}

live_tensor_id <- function(trace, tensor) {
  symbolic <- live_tensor(trace, tensor)
  symbolic$requires_grad <- isTRUE(tensor$requires_grad)
  operand_id(trace, symbolic, "tensor", "ag_param()")
}

restart_pass_with <- function(object) signal_agbudget("restart", object = object)

# The symbolic stand-ins made so far, so that what is shared stays shared.
find_converted <- function(trace, object) {
  for (entry in trace$converted[[converted_key(object)]]) {
    if (identical(entry$from, object)) return(entry$to)
  }
  NULL
}

remember_converted <- function(trace, object, symbolic) {
  key <- converted_key(object)
  if (is.null(trace$converted)) trace$converted <- new.env(parent = emptyenv())
  entry <- list(from = object, to = symbolic)
  trace$converted[[key]] <- c(trace$converted[[key]], list(entry))
  symbolic
}

# Lists are copied freely, so `ag_linear()`'s is known by its weight.
converted_key <- function(object) {
  if (is.list(object)) object_address(object$W) else object_address(object)
}

# Layers and modules ---------------------------------------------------------------

# The symbolic counterpart of a model, a layer, a function or a list of these; other
# values as they are.
as_symbolic <- function(x) {
  trace <- current_trace("ag_training_budget()")
  if (inherits(x, c("agbudget_layer", "agbudget_value")) || is_live_tensor(x)) return(x)
  class <- live_layer_class(x)
  convert <- if (!is.null(class)) {
    function(x) live_layer(trace, class, x)
  } else if (is_user_function(x)) {
    rehome
  } else if (is_user_environment(x)) {
    lazily_symbolic
  } else if (is.list(x) && !is.object(x)) {
    return(symbolic_list(x))
  } else {
    return(x)
  }
  find_converted(trace, x) %||% remember_converted(trace, x, convert(x))
}

live_layer <- function(trace, class, x) {
  trace$live <- TRUE
  tensor <- function(field, drawn = FALSE) {
    if (!is.null(x[[field]])) live_tensor(trace, x[[field]], drawn)
  }
  weight <- function(field) tensor(field, drawn = TRUE)
  layer <- switch(class,
    ag_linear = linear_layer(weight("W"), tensor("b"), environment(x$forward)$activation),
    ag_dropout = dropout_layer(x$rate),
    ag_batch_norm = batch_norm_layer(tensor("gamma"), tensor("beta"), x$eps, x$momentum),
    ag_layer_norm = layer_norm_layer(
      x$normalized_shape, tensor("gamma"), tensor("beta"), x$eps
    ),
    ag_embedding = embedding_layer(weight("weight")),
    ag_multihead_attention = attention_layer(
      list(W_q = weight("W_q"), W_k = weight("W_k"), W_v = weight("W_v"),
           W_o = weight("W_o")),
      tensor("b_o"), x$n_heads, x$dropout
    ),
    ag_sequential = sequential_layer(lapply(x$layers, as_symbolic))
  )
  if (is.environment(layer)) layer$training <- isTRUE(x$training)
  layer
}

symbolic_list <- function(x) {
  for (i in seq_along(x)) {
    symbolic <- as_symbolic(x[[i]])
    if (!identical(symbolic, x[[i]])) x[[i]] <- symbolic
  }
  x
}

is_user_environment <- function(x) {
  is.environment(x) && !is_live_tensor(x) && !isNamespace(x) &&
    !identical(x, globalenv()) && !identical(x, baseenv())
}

# A function of the user's: not one of a package, unless that package builds on ggmlR.
is_user_function <- function(x) {
  if (!is.function(x) || is.primitive(x)) return(FALSE)
  home <- environment(x)
  top <- topenv(home)
  if (!isNamespace(top)) return(TRUE)
  if (!identical(home, top)) return(!environmentName(top) %in% c("ggmlR", "base"))
  "ggmlR" %in% names(getNamespaceImports(top))
}

# An environment with the same fields, each converted when it is first read: an
# object may hold itself, and much that the forward pass never reads.
lazily_symbolic <- function(env) {
  trace <- current_trace("ag_training_budget()")
  copy <- new.env(parent = parent.env(env))
  attributes(copy) <- attributes(env)
  remember_converted(trace, env, copy)
  lapply(ls(env, all.names = TRUE), function(name) {
    delayedAssign(name, as_symbolic(get(name, envir = env)), assign.env = copy)
  })
  copy
}

# A function of the user's that was defined outside the model's code: the same
# function, with ggmlR's names symbolic and what it refers to converted. Names that
# the user has defined are left to the user.
rehome <- function(f) {
  home <- environment(f)
  used <- all.names(as.call(c(quote(`function`), formals(f), body(f))), unique = TRUE)
  mask <- new.env(parent = home)
  for (name in used) {
    if (name == "..." || name %in% names(formals(f))) next
    found <- get0(name, envir = home)
    ours <- mask_bindings[[name]]
    if (!is.null(ours) && !is_user_function(found)) {
      assign(name, ours, envir = mask)
    } else if (!is.null(found)) {
      delay_symbolic(name, found, mask)
    }
  }
  environment(f) <- mask
  f
}

delay_symbolic <- function(name, value, mask) {
  if (!is.function(value) && !is.environment(value) && !is.list(value)) return()
  if (is.function(value) && !is_user_function(value)) return()
  delayedAssign(name, as_symbolic(value), assign.env = mask)
}

# What went wrong in a module that was not written for symbolic tensors.
stop_unreadable <- function(error) {
  stop_agbudget(
    "unreadable_model", "The model's forward pass cannot be run with symbolic tensors: ",
    conditionMessage(error), " Pass the code that makes the model instead, as in ",
    "ag_training_budget({ W <- ag_param(...); list(forward = ..., parameters = ...) })."
  )
}

# Parameter shapes -------------------------------------------------------------------

#' The shapes of a model's parameters
#'
#' The dimensions of each parameter of a model, for [ag_estimate_training_memory()]. A
#' parameter that is used twice is listed once; a frozen one (`requires_grad` is
#' `FALSE`) is listed too.
#'
#' @param model A live ggmlR model: an `ag_sequential()`, a layer, or a list or
#'   environment with a function `parameters` (or `params`). Or an [ag_architecture()],
#'   an `ag_param()`, a matrix or array, or a list of these, nested or not.
#' @param ... Not used.
#' @return A list of integer (or, beyond 2^31 - 1, double) vectors of dimensions, named
#'   where the parameters have names.
#' @seealso [ag_estimate_training_memory()], which takes it.
#' @export
#' @examples
#' weights <- list(matrix(0, 512, 784), matrix(0, 512, 1))
#' ag_estimate_training_memory(ag_parameter_shapes(weights))
#'
#' ag_parameter_shapes(ag_architecture(
#'   ag_sequential(ag_linear(784L, 256L), ag_linear(256L, 10L))
#' ))
#'
#' # a module of another framework: one line
#' # torch:  shapes <- lapply(module$parameters, function(p) p$shape)
#' # keras:  shapes <- lapply(keras::get_weights(model), function(w) c(dim(w)))
ag_parameter_shapes <- function(model, ...) {
  if (missing(model)) stop_agbudget("bad_argument", "`model` must be given.")
  found <- collect_parameters(model, "model")
  if (length(found) == 0L) {
    stop_agbudget("bad_model", "`model` has no parameters.")
  }
  tensors <- lapply(found, function(parameter) parameter$object)
  is_tensor <- vapply(tensors, is.environment, NA)
  found <- found[!(is_tensor & duplicated_objects(tensors))]
  shapes <- lapply(found, function(parameter) parameter$shape)
  if (all(names(shapes) == "")) unname(shapes) else shapes
}

architecture_parameters <- function(architecture) {
  with_trace(architecture$trace, {
    parameters <- architecture$module$parameters
    if (!is.null(parameters)) return(parameters())
    program <- architecture$trace$program
    built <- program_values(program, program_built_parameters(program))
    lapply(seq_len(nrow(built)), function(i) {
      symbolic_value(i, architecture$trace, built[i, ], pass = 0L)
    })
  })
}

duplicated_objects <- function(tensors) {
  ids <- vapply(tensors, function(tensor) {
    if (inherits(tensor, "agbudget_tensor")) return(as.numeric(tensor_value(tensor)))
    if (is.environment(tensor)) as.numeric(tensor[["id"]]) else NA_real_
  }, 0)
  duplicated(ids)
}

collect_parameters <- function(x, where) {
  one <- function(shape) list(list(object = x, shape = whole(shape)))
  if (inherits(x, "ag_architecture")) {
    check_alive(x)
    return(collect_parameters(architecture_parameters(x), where))
  }
  if (inherits(x, "agbudget_value")) return(one(dim(x)))
  if (is_live_tensor(x)) return(one(dim(x$data) %||% length(x$data)))
  if (is.numeric(x) && is.array(x)) return(one(dim(x)))
  if ((is.list(x) || is.environment(x)) && length(parameters <- own_parameters(x)) > 0L) {
    return(collect_parameters(parameters, where))
  }
  if (is.list(x) && !is.data.frame(x) && !has_parameters(x)) {
    parts <- lapply(seq_along(x), function(i) {
      collect_parameters(x[[i]], paste0(where, "[[", i, "]]"))
    })
    names(parts) <- names(x)
    return(unlist(lapply(seq_along(parts), function(i) {
      part <- parts[[i]]
      own <- names(part) %||% character(length(part))
      prefix <- names(x)[[i]] %||% ""
      separator <- if (nzchar(prefix)) ifelse(nzchar(own), ".", "") else ""
      stats::setNames(part, paste0(prefix, separator, own))
    }), recursive = FALSE))
  }
  if (has_parameters(x)) return(list())
  stop_agbudget(
    "bad_model", "`", where, "` must be a model, a parameter, a matrix, an array, or a ",
    "list of these, not ", describe(x), "."
  )
}

has_parameters <- function(x) {
  (is.list(x) || is.environment(x)) &&
    (is.function(x[["parameters"]]) || is.function(x[["params"]]))
}

own_parameters <- function(x) if (has_parameters(x)) module_parameters(x) else list()

whole <- function(shape) {
  if (all(shape <= .Machine$integer.max)) as.integer(shape) else as.double(shape)
}
