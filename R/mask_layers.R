# ggmlR's layers (R/ag_layers.R, ag_linear() in R/autograd.R) with symbolic
# parameters. The fields and the closures are ggmlR's: lists and environments with
# `forward` and `params` or `parameters`.

# A constructor's call in messages about its arguments, whatever these are. It is handed
# down unevaluated.
layer_call <- function(name, ...) {
  text <- vapply(list(...), function(value) {
    if (is_number(value)) sprintf("%.15g", value) else describe(value)
  }, "")
  paste0(name, "(", paste(text, collapse = ", "), ")")
}

# What every environment-based layer has.
new_layer_environment <- function(class, fields, expects = NULL) {
  env <- list2env(fields, parent = emptyenv())
  env$training <- TRUE
  env$expects <- expects
  class(env) <- c(class, "ag_layer", "agbudget_layer")
  env
}

# What a layer expects of a batch, where its first operation tells: the rows, and
# whether they are indices.
expected_input <- function(layer) {
  if (!inherits(layer, "agbudget_layer")) return(NULL)
  if (is.environment(layer)) .subset2(layer, "expects") else attr(layer, "expects")
}

# Each layer is made from its parameters, so that a live layer's can be put in.

activation_code <- function(activation) {
  if (is.null(activation)) return(0L)
  if (!is.character(activation) || length(activation) != 1L) {
    stop_agbudget(
      "bad_argument", "`activation` of `ag_linear()` must be `NULL` or one string, not ",
      describe(activation), "."
    )
  }
  # ggmlR takes any other name as no activation.
  match(activation, c("relu", "sigmoid", "tanh", "softmax"), 0L)
}

linear_layer <- function(weight, bias, activation) {
  # ggmlR looks at `activation` when the layer first runs.
  delayedAssign("code", activation_code(activation))
  rows <- tensor_rows(weight)
  cols <- tensor_cols(weight)
  call <- sprintf("ag_linear(%.15g, %.15g)", cols, rows)
  layer <- new_layer("linear", call)
  forward <- function(x) {
    expect_rows(x, cols)
    in_layer(layer, emit("linear", list(x = x, W = weight, b = bias), code, call))
  }
  parameters <- function() list(W = weight, b = bias)
  module <- list(W = weight, b = bias, forward = forward, params = parameters)
  class(module) <- "agbudget_layer"
  attr(module, "expects") <- list(rows = cols, indices = FALSE)
  module
}

dropout_layer <- function(rate) {
  call <- sprintf("ag_dropout(%.15g)", rate)
  layer <- new_layer("dropout", call)
  env <- new_layer_environment("ag_dropout", list(rate = rate))
  env$forward <- function(x) {
    if (!env$training || env$rate == 0 || inherits(x, "agbudget_probe")) return(x)
    in_layer(layer, emit("dropout", list(x = x), call = call))
  }
  env$parameters <- function() list()
  env
}

batch_norm_layer <- function(gamma, beta, eps, momentum) {
  rows <- tensor_rows(gamma)
  call <- sprintf("ag_batch_norm(%.15g)", rows)
  layer <- new_layer("batch_norm", call)
  env <- new_layer_environment("ag_batch_norm", list(
    gamma = gamma, beta = beta,
    running_mean = new_buffer(rows, call), running_var = new_buffer(rows, call),
    num_features = rows, eps = eps, momentum = momentum
  ), list(rows = rows, indices = FALSE))
  env$forward <- function(x) {
    expect_rows(x, rows)
    operands <- list(x = x, gamma = env$gamma, beta = env$beta,
                     running_mean = env$running_mean, running_var = env$running_var)
    in_layer(layer, emit("batch_norm", operands, as.numeric(env$training), call))
  }
  env$parameters <- function() list(gamma = env$gamma, beta = env$beta)
  env
}

# A matrix of one column that the model holds without training it.
new_buffer <- function(rows, call) {
  trace <- current_trace(call)
  value <- append_value(trace, "buffer", integer(), c(rows, 1), call)
  symbolic_value(value[[1L]], trace, c(rows, 1))
}

layer_norm_layer <- function(rows, gamma, beta, eps) {
  call <- sprintf("ag_layer_norm(%.15g)", rows)
  affine <- !is.null(gamma)
  layer <- new_layer("layer_norm", call)
  env <- new_layer_environment("ag_layer_norm", list(
    normalized_shape = rows, eps = eps, elementwise_affine = affine,
    gamma = gamma, beta = beta
  ), list(rows = rows, indices = FALSE))
  env$forward <- function(x) {
    expect_rows(x, rows)
    operands <- list(x = x)
    if (affine) operands <- list(x = x, gamma = env$gamma, beta = env$beta)
    in_layer(layer, emit("layer_norm", operands, rows, call))
  }
  env$parameters <- function() {
    if (affine) list(gamma = env$gamma, beta = env$beta) else list()
  }
  env
}

embedding_layer <- function(weight) {
  call <- sprintf("ag_embedding(%.15g, %.15g)", tensor_cols(weight), tensor_rows(weight))
  layer <- new_layer("embedding", call)
  env <- new_layer_environment("ag_embedding", list(
    weight = weight, vocab_size = tensor_cols(weight), dim = tensor_rows(weight)
  ), list(rows = 1, indices = TRUE))
  env$forward <- function(idx) {
    expect_rows(idx, 1, indices = TRUE)
    check_indices(idx, tensor_cols(env$weight), "idx", call)
    in_layer(layer, emit("embedding", list(idx = idx, weight = env$weight), call = call))
  }
  env$parameters <- function() list(weight = env$weight)
  env
}

# `weights` are W_q, W_k, W_v and W_o.
attention_layer <- function(weights, b_o, heads, dropout) {
  d <- tensor_cols(weights$W_q)
  call <- sprintf("ag_multihead_attention(%.15g, %.15g)", d, heads)
  layer <- new_layer("attention", call)
  env <- new_layer_environment("ag_multihead_attention", c(weights, list(
    b_o = b_o, d_model = d, n_heads = heads, dropout = dropout
  )), list(rows = d, indices = FALSE))
  env$forward <- function(q, k = q, v = k, causal_mask = FALSE) {
    for (x in list(q, k, v)) expect_rows(x, d)
    operands <- list(q = q, k = k, v = v, W_q = env$W_q, W_k = env$W_k,
                     W_v = env$W_v, W_o = env$W_o)
    if (!is.null(env$b_o)) operands$b_o <- env$b_o
    options <- c(heads, env$training && env$dropout > 0, isTRUE(causal_mask))
    in_layer(layer, emit("attention", operands, options, call))
  }
  env$parameters <- function() {
    parameters <- list(W_q = env$W_q, W_k = env$W_k, W_v = env$W_v, W_o = env$W_o)
    if (!is.null(env$b_o)) parameters$b_o <- env$b_o
    parameters
  }
  env
}

# ggmlR's constructors -----------------------------------------------------------

mask_layers <- list()

mask_layers$ag_linear <- function(in_features, out_features, activation = NULL,
                                  init = "glorot_uniform", gain = 1) {
  delayedAssign("call", layer_call("ag_linear", in_features, out_features))
  rows <- check_dimension(out_features, "out_features", call)
  cols <- check_dimension(in_features, "in_features", call)
  weight <- if (identical(gain, 1) && identical(init, "glorot_uniform")) {
    new_parameter(rows, cols, drawn = TRUE, call)
  } else {
    initial_weight(init, gain, rows, cols, call)
  }
  bias <- new_parameter(rows, 1, drawn = FALSE, call)
  linear_layer(weight, bias, activation)
}

mask_layers$ag_dropout <- function(rate) {
  number <- tryCatch(suppressWarnings(as.double(rate)), error = function(e) rate)
  if (!is_number(number) || number < 0 || number >= 1) {
    stop_option("rate", "ag_dropout()", "a number in [0, 1)", rate)
  }
  dropout_layer(number)
}

stop_option <- function(argument, call, expected, found) {
  stop_agbudget(
    "bad_argument", "`", argument, "` of `", call, "` must be ", expected, ", not ",
    describe(found), "."
  )
}

check_eps <- function(eps, call) {
  if (!is_scalar(eps) || eps < 0) stop_option("eps", call, "a number of at least 0", eps)
}

mask_layers$ag_batch_norm <- function(num_features, eps = 1e-5, momentum = 0.1) {
  delayedAssign("call", layer_call("ag_batch_norm", num_features))
  rows <- check_dimension(num_features, "num_features", call)
  gamma <- new_parameter(rows, 1, drawn = FALSE, call)
  beta <- new_parameter(rows, 1, drawn = FALSE, call)
  check_eps(eps, "ag_batch_norm()")
  if (!is_scalar(momentum)) {
    stop_option("momentum", "ag_batch_norm()", "a number", momentum)
  }
  batch_norm_layer(gamma, beta, eps, momentum)
}

mask_layers$ag_layer_norm <- function(normalized_shape, eps = 1e-5,
                                      elementwise_affine = TRUE) {
  delayedAssign("call", layer_call("ag_layer_norm", normalized_shape))
  rows <- check_dimension(normalized_shape, "normalized_shape", call)
  check_eps(eps, "ag_layer_norm()")
  gamma <- beta <- NULL
  if (isTRUE(elementwise_affine)) {
    gamma <- new_parameter(rows, 1, drawn = FALSE, call)
    beta <- new_parameter(rows, 1, drawn = FALSE, call)
  }
  layer_norm_layer(rows, gamma, beta, eps)
}

mask_layers$ag_embedding <- function(vocab_size, dim) {
  delayedAssign("call", layer_call("ag_embedding", vocab_size, dim))
  cols <- check_dimension(vocab_size, "vocab_size", call)
  rows <- check_dimension(dim, "dim", call)
  embedding_layer(new_parameter(rows, cols, drawn = TRUE, call))
}

mask_layers$ag_multihead_attention <- function(d_model, n_heads, dropout = 0,
                                               bias = TRUE) {
  delayedAssign("call", layer_call("ag_multihead_attention", d_model, n_heads))
  d <- check_dimension(d_model, "d_model", call)
  heads <- check_dimension(n_heads, "n_heads", call)
  if (d %% heads != 0) {
    stop_agbudget(
      "bad_dimension", "`d_model` of `", call, "` must be a multiple of `n_heads`."
    )
  }
  weights <- lapply(
    c(W_q = 1, W_k = 2, W_v = 3, W_o = 4),
    function(i) new_parameter(d, d, drawn = TRUE, call)
  )
  has_bias <- tryCatch(
    if (bias) TRUE else FALSE,
    error = function(e) {
      stop_option("bias", "ag_multihead_attention()", "`TRUE` or `FALSE`", bias)
    }
  )
  b_o <- if (has_bias) new_parameter(d, 1, drawn = FALSE, call)
  # Below 0 it is as 0.
  if (!is_scalar(dropout) || dropout >= 1) {
    stop_option("dropout", "ag_multihead_attention()", "a number in [0, 1)", dropout)
  }
  attention_layer(weights, b_o, heads, dropout)
}

mask_layers$ag_sequential <- function(...) {
  layers <- list(...)
  if (length(layers) == 1L && is.list(layers[[1L]]) && !is.environment(layers[[1L]])) {
    if (inherits(layers[[1L]], "agbudget_layer")) {
      stop_agbudget(
        "bad_model", "`ag_sequential()` with a single `ag_linear()` cannot run in ",
        "ggmlR: it takes that layer's list for a list of layers. Use the layer ",
        "itself, or `ag_sequential(list(layer))`."
      )
    }
    layers <- layers[[1L]]
  }
  sequential_layer(lapply(layers, function(layer) {
    if (inherits(layer, "agbudget_layer")) layer else as_symbolic(layer)
  }))
}

sequential_layer <- function(layers) {
  modules <- lapply(layers, function(layer) {
    if (inherits(layer, "agbudget_layer")) layer else new_layer("module", "module")
  })
  expects <- if (length(layers) > 0L) expected_input(layers[[1L]])
  env <- new_layer_environment("ag_sequential", list(layers = layers), expects)
  env$forward <- function(x) {
    # No variable for the list: frames are searched for values.
    for (i in seq_along(modules)) {
      x <- run_module(.subset2(env, "layers")[[i]], modules[[i]], x)
    }
    x
  }
  env$parameters <- function() {
    parameters <- lapply(.subset2(env, "layers"), named_parameters)
    prefix <- rep.int(seq_along(parameters), lengths(parameters))
    names <- unlist(lapply(parameters, names))
    parameters <- unlist(parameters, recursive = FALSE, use.names = FALSE)
    if (length(parameters) == 0L) return(list())
    names(parameters) <- paste0("layer", prefix, "_", names)
    parameters
  }
  env
}

# ggmlR collects by name, so it never sees a parameter without one.
named_parameters <- function(layer) {
  own <- module_parameters(layer)
  names <- names(own)
  if (is.null(names)) return(list())
  if (all(nzchar(names)) && !anyDuplicated(names)) return(own)
  own[nzchar(names) & !duplicated(names)]
}

# Runs a layer of the user's own as a layer of its own in tables and messages.
run_module <- function(layer, module, x) {
  if (inherits(layer, "agbudget_layer")) return(.subset2(layer, "forward")(x))
  if (!(is.list(layer) || is.environment(layer)) || !is.function(layer$forward)) {
    stop_agbudget(
      "bad_model", "Each layer of `ag_sequential()` must have a function `forward`; ",
      "found ", describe(layer), "."
    )
  }
  if (inherits(x, "agbudget_probe")) return(layer$forward(x))
  in_layer(module, layer$forward(x))
}

# A layer's parameters as ggmlR's .layer_params() finds them.
module_parameters <- function(layer) {
  if (inherits(layer, "agbudget_layer")) {
    return(.subset2(layer, if (is.list(layer)) "params" else "parameters")())
  }
  if (is.environment(layer) && is.function(layer$parameters)) return(layer$parameters())
  if (is.list(layer) && is.function(layer[["params"]])) return(layer[["params"]]())
  if (is.list(layer) && is.function(layer[["parameters"]])) {
    return(layer[["parameters"]]())
  }
  list()
}

set_training <- function(model, training) {
  if (is.environment(model)) {
    model$training <- training
    if (inherits(model, "ag_sequential")) {
      for (layer in model$layers) {
        if (is.environment(layer) && !is.null(layer$training)) layer$training <- training
      }
    }
  }
  invisible(model)
}

mask_layers$ag_train <- function(model) set_training(model, TRUE)
mask_layers$ag_eval <- function(model) set_training(model, FALSE)
