# Random models, as code that ggmlR and ag_training_budget() both run, and what
# ggmlR's tape holds of one.
#
# A writer collects the statements of a model: those that build it, and those of its
# forward pass, with the shape of every value they bind. A rule adds one operation or
# layer to some value that is there; it returns FALSE where none fits.

one_of <- function(x) x[[sample.int(length(x), 1L)]]
by_chance <- function(p) stats::runif(1L) < p

new_writer <- function(batch) {
  w <- new.env(parent = emptyenv())
  w$batch <- batch
  w$count <- 0L
  w$setup <- list()
  w$parameters <- list()  # calls that give a list of parameters each
  w$tied <- list()  # parameters that may be used again: name, rows, cols
  w$statements <- list()
  w$values <- list()
  w$used <- character()
  w
}

fresh_name <- function(w, prefix) {
  w$count <- w$count + 1L
  as.name(paste0(prefix, w$count))
}

add_setup <- function(w, name, code) {
  w$setup <- c(w$setup, list(call("<-", name, code)))
  name
}

add_value <- function(w, code, rows, cols, rule) {
  name <- fresh_name(w, "h")
  w$statements <- c(w$statements, list(call("<-", name, code)))
  w$values <- c(w$values, list(list(name = name, rows = rows, cols = cols)))
  w$used <- c(w$used, rule)
  TRUE
}

# A value that is there: most often the newest, so that models are deep.
some_value <- function(w, fits = function(value) TRUE) {
  fitting <- Filter(fits, w$values)
  if (length(fitting) == 0L) return(NULL)
  if (by_chance(0.6)) fitting[[length(fitting)]] else one_of(fitting)
}

# Rows (or columns) such that a matrix with `other` columns takes well over 1 kB.
some_extent <- function(other) {
  other <- max(other, 1L)
  low <- max(1L, ceiling(260 / other))
  sample(seq(low, low + 14L), 1L)
}

random_matrix <- function(rows, cols) {
  bquote(matrix(runif(.(rows * cols), -0.5, 0.5), .(rows), .(cols)))
}

# A parameter of that shape: a new one, frozen at times, or one that is used already.
some_parameter <- function(w, rows, cols) {
  same <- Filter(function(p) p$rows == rows && p$cols == cols, w$tied)
  if (length(same) > 0L && by_chance(0.5)) return(one_of(same)$name)
  name <- add_setup(w, fresh_name(w, "W"), call("ag_param", random_matrix(rows, cols)))
  if (by_chance(0.15)) w$setup <- c(w$setup, list(bquote(.(name)$requires_grad <- FALSE)))
  w$parameters <- c(w$parameters, list(call("list", name)))
  w$tied <- c(w$tied, list(list(name = name, rows = rows, cols = cols)))
  name
}

# A constant: made with the model or in the forward pass, as a tensor or a matrix.
some_constant <- function(w, rows, cols) {
  code <- random_matrix(rows, cols)
  if (by_chance(0.5)) code <- call("ag_tensor", code)
  if (by_chance(0.5)) code else add_setup(w, fresh_name(w, "C"), code)
}

some_operand <- function(w, rows, cols) {
  same <- function(value) value$rows == rows && value$cols == cols
  value <- some_value(w, same)
  kind <- stats::runif(1L)
  if (kind < 0.45 && !is.null(value)) return(value$name)
  if (kind < 0.75) some_parameter(w, rows, cols) else some_constant(w, rows, cols)
}

# A layer made with the model; its parameters are the optimizer's.
add_layer <- function(w, code, own = "parameters") {
  name <- add_setup(w, fresh_name(w, "layer"), code)
  w$parameters <- c(w$parameters, list(bquote(.(call("$", name, as.name(own)))())))
  name
}

rules <- list()

rules$matmul <- function(w) {
  x <- some_value(w)
  if (by_chance(0.7)) {
    rows <- some_extent(x$cols)
    W <- some_operand(w, rows, x$rows)
    return(add_value(w, bquote(ag_matmul(.(W), .(x$name))), rows, x$cols, "matmul"))
  }
  cols <- some_extent(x$rows)
  W <- some_operand(w, x$cols, cols)
  add_value(w, bquote(ag_matmul(.(x$name), .(W))), x$rows, cols, "matmul")
}

# `B` equal in shape, a column, a row, one element where ggmlR takes it, or a number.
add_additive <- function(w, name) {
  x <- some_value(w)
  form <- one_of(c("equal", "equal", "column", "row", "number", "first"))
  one <- if (x$rows == 1L || x$cols == 1L) c(1L, 1L) else c(x$rows, 1L)
  shape <- switch(form, equal = c(x$rows, x$cols), column = one, row = c(1L, x$cols))
  other <- switch(form,
    number = 0.5,
    first = some_operand(w, x$rows, x$cols),
    some_operand(w, shape[[1L]], shape[[2L]])
  )
  code <- if (form == "first") call(name, other, x$name) else call(name, x$name, other)
  add_value(w, code, x$rows, x$cols, paste0(name, " ", form))
}

rules$add <- function(w) add_additive(w, "ag_add")
rules$sub <- function(w) add_additive(w, "ag_sub")

rules$mul <- function(w) {
  x <- some_value(w)
  form <- one_of(c("equal", "column", "row", "one", "wider", "taller"))
  shape <- switch(form,
    equal = c(x$rows, x$cols), column = c(x$rows, 1L), row = c(1L, x$cols),
    one = c(1L, 1L), wider = c(x$rows, some_extent(x$rows)),
    taller = c(some_extent(x$cols), x$cols)
  )
  if (form == "wider" && x$cols != 1L || form == "taller" && x$rows != 1L) return(FALSE)
  other <- some_operand(w, shape[[1L]], shape[[2L]])
  operands <- if (by_chance(0.5)) list(x$name, other) else list(other, x$name)
  add_value(w, as.call(c(as.name("ag_mul"), operands)), max(x$rows, shape[[1L]]),
            max(x$cols, shape[[2L]]), paste0("ag_mul ", form))
}

# A constant that fits neither way round is recycled all the same.
rules$recycle <- function(w) {
  x <- some_value(w, function(value) value$rows > 2L)
  if (is.null(x)) return(FALSE)
  constant <- some_constant(w, x$rows - 1L, x$cols)
  add_value(w, bquote(ag_mul(.(x$name), .(constant))), x$rows, x$cols, "recycle")
}

elementwise <- list(
  quote(ag_scale(x, 0.3)), quote(ag_relu(x)), quote(ag_sigmoid(x)), quote(ag_tanh(x)),
  quote(ag_softmax(x)), quote(ag_log_softmax(x)), quote(ag_log(x)), quote(ag_exp(x)),
  quote(ag_pow(x, 2)), quote(ag_pow(x, -0.5)), quote(ag_clamp(x, -0.2, 0.2)),
  quote(ag_clamp(x, lo = 0))
)

rules$elementwise <- function(w) {
  x <- some_value(w)
  code <- one_of(elementwise)
  code[[2L]] <- x$name
  add_value(w, code, x$rows, x$cols, as.character(code[[1L]]))
}

rules$reduce <- function(w) {
  x <- some_value(w)
  operation <- one_of(c("ag_sum", "ag_mean"))
  dim <- one_of(list(NULL, 1L, 2L, 1, 2))
  code <- call(operation, x$name)
  if (!is.null(dim)) code$dim <- dim
  if (by_chance(0.3)) code$keepdim <- TRUE
  shape <- if (is.null(dim)) c(1L, 1L) else if (dim == 1) c(x$rows, 1L) else c(1L, x$cols)
  add_value(w, code, shape[[1L]], shape[[2L]], paste(operation, dim))
}

rules$reshape <- function(w) {
  x <- some_value(w)
  n <- x$rows * x$cols
  rows <- one_of(Filter(function(d) n %% d == 0L, seq_len(n)))
  cols <- n %/% rows
  code <- one_of(list(
    bquote(ag_reshape(.(x$name), .(rows), .(cols))),
    bquote(ag_reshape(.(x$name), -1L, .(cols))),
    bquote(ag_reshape(.(x$name), .(rows), -1L))
  ))
  add_value(w, code, rows, cols, "reshape")
}

rules$transpose <- function(w) {
  x <- some_value(w)
  add_value(w, bquote(ag_transpose(.(x$name))), x$cols, x$rows, "transpose")
}

rules$slice_rows <- function(w) {
  x <- some_value(w)
  n <- sample.int(x$rows, 1L)
  from <- sample.int(x$rows - n + 1L, 1L) - 1L
  add_value(w, bquote(ag_slice_rows(.(x$name), .(from), .(n))), n, x$cols, "slice_rows")
}

rules$concat_rows <- function(w) {
  x <- some_value(w)
  other <- some_value(w, function(value) value$cols == x$cols)
  rows <- other$rows
  b <- other$name
  if (by_chance(0.4)) {
    rows <- some_extent(x$cols)
    b <- some_operand(w, rows, x$cols)
  }
  add_value(w, bquote(ag_concat_rows(.(x$name), .(b))), x$rows + rows, x$cols,
            "concat_rows")
}

rules$gather <- function(w) {
  x <- some_value(w)
  index <- bquote(rep_len(c(0, .(x$rows - 1L)), .(x$cols)))
  add_value(w, bquote(ag_gather(.(x$name), .(index))), 1L, x$cols, "gather")
}

rules$max <- function(w) {
  x <- some_value(w)
  add_value(w, bquote(ag_max(.(x$name))), 1L, x$cols, "max")
}

rules$sample_normal <- function(w) {
  x <- some_value(w)
  log_std <- some_operand(w, x$rows, if (by_chance(0.5)) x$cols else 1L)
  add_value(w, bquote(ag_sample_normal(.(x$name), .(log_std))), x$rows, x$cols,
            "sample_normal")
}

# A loss within the model: of a value that is there, against a constant.
rules$loss <- function(w) {
  x <- some_value(w)
  loss <- one_of(c("ag_mse_loss", "ag_cross_entropy_loss",
                   "ag_softmax_cross_entropy_loss"))
  target <- some_operand(w, x$rows, x$cols)
  if (by_chance(0.3)) {
    softmax <- loss == "ag_softmax_cross_entropy_loss"
    target <- if (softmax) bquote(rep_len(0, .(x$cols))) else 0.5
  }
  add_value(w, call(loss, x$name, target), 1L, 1L, loss)
}

rules$linear <- function(w) {
  x <- some_value(w)
  rows <- some_extent(x$cols)
  code <- bquote(ag_linear(.(x$rows), .(rows)))
  activation <- one_of(list(NULL, "relu", "sigmoid", "tanh", "softmax", "none"))
  if (!is.null(activation)) code$activation <- activation
  layer <- add_layer(w, code, "params")
  add_value(w, bquote(.(layer)$forward(.(x$name))), rows, x$cols,
            paste("linear", activation))
}

rules$same_shape_layer <- function(w) {
  x <- some_value(w)
  code <- one_of(list(
    quote(ag_dropout(0.3)), quote(ag_dropout(0)), bquote(ag_batch_norm(.(x$rows))),
    bquote(ag_layer_norm(.(x$rows))),
    bquote(ag_layer_norm(.(x$rows), elementwise_affine = FALSE))
  ))
  layer <- add_layer(w, code)
  if (by_chance(0.2)) w$setup <- c(w$setup, list(bquote(ag_eval(.(layer)))))
  times <- if (by_chance(0.2)) 2L else 1L
  for (i in seq_len(times)) {
    add_value(w, bquote(.(layer)$forward(.(x$name))), x$rows, x$cols,
              as.character(code[[1L]]))
  }
  TRUE
}

rules$embedding <- function(w) {
  x <- some_value(w)
  rows <- some_extent(x$cols)
  vocabulary <- sample(5:40, 1L)
  layer <- add_layer(w, bquote(ag_embedding(.(vocabulary), .(rows))))
  index <- bquote(rep_len(0:.(vocabulary - 1L), .(x$cols)))
  if (by_chance(0.3)) index <- bquote(ag_tensor(matrix(.(index), 1L)))
  add_value(w, bquote(.(layer)$forward(.(index))), rows, x$cols, "embedding")
}

rules$attention <- function(w) {
  x <- some_value(w, function(value) value$rows <= 80L && value$cols <= 80L)
  if (is.null(x)) return(FALSE)
  heads <- one_of(Filter(function(d) x$rows %% d == 0L && d <= 4L, seq_len(x$rows)))
  code <- bquote(ag_multihead_attention(.(x$rows), .(heads)))
  if (by_chance(0.3)) code$dropout <- 0.2
  if (by_chance(0.3)) code$bias <- FALSE
  layer <- add_layer(w, code)
  arguments <- list(x$name)
  if (by_chance(0.4)) {
    keys <- some_operand(w, x$rows, if (by_chance(0.5)) x$cols else some_extent(x$rows))
    arguments <- c(arguments, keys, if (by_chance(0.7)) keys)
    if (length(arguments) == 2L && by_chance(0.5)) names(arguments) <- c("", "k")
  }
  if (by_chance(0.4)) arguments$causal_mask <- TRUE
  add_value(w, as.call(c(bquote(.(layer)$forward), arguments)), x$rows, x$cols,
            "attention")
}

# A residual block, as a module of the user's own within a sequential model.
rules$sequential <- function(w) {
  x <- some_value(w)
  rows <- some_extent(x$cols)
  block <- bquote(local({
    inner <- ag_linear(.(x$rows), .(x$rows), "relu")
    list(
      forward = function(x) ag_add(inner$forward(x), x),
      parameters = function() inner$params()
    )
  }))
  code <- bquote(ag_sequential(
    .(block), ag_linear(.(x$rows), .(rows)),
    ag_sequential(list(ag_batch_norm(.(rows)), ag_dropout(0.1))),
    ag_layer_norm(.(rows))
  ))
  layer <- add_layer(w, code)
  if (by_chance(0.2)) w$setup <- c(w$setup, list(bquote(ag_eval(.(layer)))))
  add_value(w, bquote(.(layer)$forward(.(x$name))), rows, x$cols, "sequential")
}

# Statements of a function of its own, over what is there.
rules$checkpoint <- function(w) {
  x <- some_value(w)
  outer_values <- w$values
  outer_statements <- w$statements
  argument <- fresh_name(w, "u")
  w$statements <- list()
  inside <- list(list(name = argument, rows = x$rows, cols = x$cols))
  captured <- if (by_chance(0.4)) list(one_of(outer_values)) else list()
  w$values <- c(captured, inside)
  for (i in seq_len(sample(0:3, 1L))) add_step(w)
  last <- w$values[[length(w$values)]]
  body <- as.call(c(as.name("{"), w$statements, list(last$name)))
  formals <- formals(function(u) NULL)
  names(formals) <- as.character(argument)
  fn <- call("function", formals, body)
  w$values <- outer_values
  w$statements <- outer_statements
  code <- bquote(ag_checkpoint(.(fn), .(x$name)))
  if (by_chance(0.2)) names(code) <- c("", "", as.character(argument))
  add_value(w, code, last$rows, last$cols, "checkpoint")
}

add_step <- function(w) {
  for (attempt in 1:20) {
    if (rules[[sample.int(length(rules), 1L)]](w)) return(invisible())
  }
}

# A random model: its code, the batch, and the loss that is put on it.
random_model <- function(steps = sample(2:9, 1L)) {
  batch <- one_of(list(1L, sample(3:25, 1L), sample(150:260, 1L)))
  w <- new_writer(batch)
  rows <- some_extent(batch)
  w$values <- list(list(name = quote(x), rows = rows, cols = batch))
  if (by_chance(0.8)) rules$linear(w)
  for (i in seq_len(steps)) add_step(w)
  last <- w$values[[length(w$values)]]
  forward <- as.call(c(as.name("{"), w$statements, list(last$name)))
  parameters <- as.call(c(as.name("c"), quote(list()), w$parameters))
  model <- one_of(list(
    bquote(list(forward = function(x) .(forward), parameters = function() .(parameters))),
    bquote(list(forward = function(x) .(forward), params = function() .(parameters))),
    bquote(list2env(list(
      forward = function(x) .(forward), parameters = function() .(parameters)
    ))),
    bquote(function(x) .(forward))
  ))
  list(
    code = as.call(c(as.name("{"), w$setup, list(model))),
    input = rows, batch = batch, rules = w$used,
    loss = one_of(c("mse", "cross_entropy", "softmax_cross_entropy"))
  )
}

# ggmlR's tape between backward() and the optimizer's step -------------------------

ggmlr_environment <- function() {
  names <- getNamespaceExports("ggmlR")
  list2env(mget(names, envir = asNamespace("ggmlR"), inherits = TRUE),
           parent = globalenv())
}

# Calls `report` with the tape of one step of `model` there.
with_ggmlr_tape <- function(model, report) {
  ggmlr <- ggmlr_environment()
  built <- eval(model$code, ggmlr)
  forward <- if (is.function(built)) built else built$forward
  x <- if (is.null(model$vocabulary)) {
    ggmlr$ag_tensor(random_values(model$input, model$batch))
  } else {
    ggmlr$ag_tensor(matrix(sample.int(model$vocabulary, model$batch, TRUE) - 1, 1L))
  }
  loss_of <- ggmlr[[paste0("ag_", model$loss, "_loss")]]
  tape <- get(".ag_tape", asNamespace("ggmlR"))
  on.exit(tape$nodes <- list())
  suppressWarnings({
    ggmlr$with_grad_tape({
      out <- forward(x)
      loss <- loss_of(out, random_values(nrow(out$data), ncol(out$data)))
    })
    gradients <- ggmlr$backward(loss)
  })
  report(tape$nodes)
}

random_values <- function(rows, cols) matrix(stats::runif(rows * cols), rows, cols)

# What ag_tape_memory() reports, and the same walk without the numbers, flags and
# lengths that closures hold.
ggmlr_tape <- function(model) {
  with_ggmlr_tape(model, function(nodes) {
    list(all = ggmlR::ag_tape_memory(quiet = TRUE), matrices = tape_matrices(nodes))
  })
}

tape_matrices <- function(nodes) {
  seen <- new.env(parent = emptyenv())
  bytes_of <- function(objects) {
    small <- vapply(objects, function(o) length(o) <= 2L && is.null(dim(o)), NA)
    internal(".ag_bytes_new")(objects[!small], seen)
  }
  sums <- c(bytes_inputs = 0, bytes_snapshots = 0, bytes_fields = 0)
  for (node in nodes) {
    tensors <- Filter(internal("is_ag_tensor"), node$inputs)
    sums <- sums + c(
      bytes_of(lapply(tensors, function(tensor) tensor$data)),
      bytes_of(internal(".ag_node_snapshots")(node)),
      bytes_of(internal(".ag_node_fields")(node))
    )
  }
  as.list(sums)
}

internal <- function(name) get(name, asNamespace("ggmlR"))

budget_of <- function(model, ...) {
  eval(as.call(list(
    quote(ag_training_budget), model$code, batch_size = model$batch, loss = model$loss,
    input = model$input, ...
  )))
}

show_model <- function(model) {
  paste(c(
    paste0("input ", model$input, ", batch ", model$batch, ", loss ", model$loss),
    deparse(model$code)
  ), collapse = "\n")
}

# What differs between the two tapes, as a sentence; empty where nothing does.
tape_difference <- function(model) {
  ours <- budget_of(model)$tape
  tape <- ggmlr_tape(model)
  real <- tape$all
  if (ours$nodes != real$nodes) {
    return(paste0("nodes: ", ours$nodes, ", ggmlR ", real$nodes))
  }
  counts <- function(by_op) {
    by_op <- by_op[order(by_op$op), ]
    stats::setNames(as.integer(by_op$nodes), by_op$op)
  }
  if (!identical(counts(ours$by_op), counts(real$by_op))) {
    return(paste0("operations: ", deparse1(counts(ours$by_op)), ", ggmlR ",
                  deparse1(counts(real$by_op))))
  }
  fields <- c("bytes_total", "bytes_snapshots", "bytes_fields", "bytes_inputs")
  for (field in fields) {
    if (abs(ours[[field]] - real[[field]]) > 1000 * real$nodes) {
      return(paste0(field, ": ", ours[[field]], ", ggmlR ", real[[field]]))
    }
  }
  # Sharper: at least ggmlR's matrices alone, and no more than with its numbers.
  matrices <- tape$matrices
  for (field in names(matrices)) {
    if (ours[[field]] < matrices[[field]] || ours[[field]] > real[[field]]) {
      return(paste0(field, ": ", ours[[field]], ", ggmlR ", matrices[[field]], " to ",
                    real[[field]]))
    }
  }
  character()
}

# Whether two steps of training run.
ggmlr_trains <- function(code, input, batch) {
  ggmlr <- ggmlr_environment()
  run <- function() {
    model <- eval(code, ggmlr)
    optimizer <- ggmlr$optimizer_adam(model$parameters())
    x <- ggmlr$ag_tensor(matrix(0.5, input, batch))
    for (step in 1:2) {
      ggmlr$with_grad_tape({
        out <- model$forward(x)
        loss <- ggmlr$ag_mse_loss(out, 0 * out$data)
      })
      optimizer$step(ggmlr$backward(loss))
      optimizer$zero_grad()
    }
    TRUE
  }
  tryCatch(suppressWarnings(run()), error = function(e) FALSE)
}

budget_runs <- function(code, input, batch) {
  tryCatch(
    {
      budget_of(list(code = code, input = input, batch = batch, loss = "mse"))
      TRUE
    },
    agbudget_error_bad_shape = function(e) FALSE
  )
}
