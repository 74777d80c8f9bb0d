#' The layers of a model and what each keeps
#'
#' Evaluates the code of a ggmlR model once, with shapes in place of values, and
#' returns an object that [ag_training_budget()] takes in place of the code. Its
#' print is a table: each layer in the order in which it runs, its output shape, its
#' parameters, and the bytes that the gradient tape keeps for one more unit of batch.
#'
#' @inheritParams ag_training_budget
#' @return An object of class `ag_architecture`. It belongs to the R session that made
#'   it. `as.data.frame()` gives the printed table: `layer`, `kind`, `rows` and `cols`
#'   of the output at a batch of 32, `parameters` (scalars), and `tape_bytes`: what a
#'   33rd column adds to what the tape keeps for that layer (bytes).
#' @seealso [ag_training_budget()] for what training it needs.
#' @export
#' @examples
#' ag_architecture(ag_sequential(
#'   ag_linear(784L, 256L, activation = "relu"),
#'   ag_batch_norm(256L),
#'   ag_dropout(0.2),
#'   ag_linear(256L, 10L)
#' ))
ag_architecture <- function(model, input = NULL) {
  as_architecture(substitute(model), parent.frame(), input)
}

# Evaluates `code` in the mask over `env`, or takes what it gives where that is an
# architecture already.
as_architecture <- function(code, env, input = NULL) {
  if (is.name(code) && !nzchar(code)) {
    stop_agbudget("bad_argument", "`model` must be given: the code of a model.")
  }
  # Handed on as an argument that has not been used: go back to where it was written.
  while (is.name(code) && !is.null(argument <- unused_argument(code, env))) {
    code <- argument$code
    env <- argument$env
  }
  tryCatch(
    build_architecture(new_trace(), code, env, input),
    stackOverflowError = function(error) stop_too_deep()
  )
}

build_architecture <- function(trace, code, env, input) {
  with_trace(trace, {
    value <- explaining_conditions(evaluate_model(trace, code, env))
    if (inherits(value, "ag_architecture")) {
      check_alive(value)
      if (!is.null(input)) value$input <- as_input(input, value$input)
      return(value)
    }
    trace$own_code <- !is_built_in(value)
    trace$outside <- env
    module <- as_module(trace, value)
    parameters <- parameter_ids(trace, module)
    input <- as_input(input, find_input(trace, module))
  })
  architecture <- list(
    trace = trace, module = module, parameters = parameters, input = input
  )
  class(architecture) <- "ag_architecture"
  architecture
}

# Made of ggmlR's layers alone, with no code of the user's in it.
is_built_in <- function(value) {
  if (!inherits(value, "agbudget_layer")) return(FALSE)
  # A user may replace a layer's function.
  home <- environment(.subset2(value, "forward"))
  if (is.null(home) || !identical(topenv(home), topenv())) return(FALSE)
  layers <- if (is.environment(value)) .subset2(value, "layers")
  for (layer in layers) if (!is_built_in(layer)) return(FALSE)
  TRUE
}

# Code held in a variable, as by quote(), is the model's code too.
evaluate_model <- function(trace, code, env) {
  mask <- new_mask(code, env)
  # The variables that the code leaves are the model's as well.
  trace$masks <- c(trace$masks, mask)
  value <- eval(code, mask)
  if (is.language(value)) evaluate_model(trace, value, env) else value
}

check_alive <- function(architecture) {
  program <- architecture$trace$program
  if (typeof(program) == "externalptr" && program_is_alive(program)) {
    return(invisible(architecture))
  }
  stop_agbudget(
    "stale_architecture", "`model` is an `ag_architecture` that was saved and loaded, ",
    "or is none; make it again with ag_architecture()."
  )
}

# A model as something with `forward` and `parameters`, however it was written.
as_module <- function(trace, value) {
  own <- value
  value <- as_symbolic(value)
  if (inherits(value, "agbudget_layer")) {
    return(list(
      forward = .subset2(value, "forward"),
      parameters = function() module_parameters(value), expects = expected_input(value)
    ))
  }
  if (is.function(value)) {
    return(list(forward = value, parameters = NULL))
  }
  is_module <- (is.list(value) || is.environment(value)) && is.function(value$forward)
  if (!is_module) {
    stop_agbudget(
      "bad_model", "`model` must be the code of a model: a layer, an ",
      "`ag_sequential()`, a list or environment with `forward` and `parameters`, or a ",
      "function of the batch; found ", describe(value), "."
    )
  }
  if (!is.function(value$parameters) && !is.function(value$params)) {
    stop_agbudget(
      "bad_model", "`model` has no function `parameters` (or `params`), so an ",
      "optimizer would have nothing to train."
    )
  }
  # A live module's own closure knows its own tensors.
  list(forward = value$forward, parameters = function() module_parameters(own))
}

# The rows of one batch: what the first layer expects, unless the user says.
find_input <- function(trace, module) {
  if (!is.null(module$expects)) return(module$expects)
  trace$probing <- TRUE
  on.exit(trace$probing <- FALSE)
  tryCatch(
    run_pass(trace, function() {
      module$forward(new_probe())
      list(rows = NULL, indices = FALSE)
    }),
    agbudget_input_found = function(found) found[c("rows", "indices")]
  )
}

stop_too_deep <- function() {
  stop_agbudget(
    "too_deep", "The model is nested too deeply, or holds itself: R's stack is exhausted."
  )
}

# Begins a pass and runs `forward` in it, again where the pass found parts of the
# model that building it had not shown.
run_pass <- function(trace, forward) {
  trace$outer_frames <- sys.nframe()
  repeat {
    begin_pass(trace)
    result <- tryCatch(
      explaining_conditions(forward()),
      agbudget_restart = function(restart) restart,
      error = function(error) {
        if (inherits(error, "stackOverflowError")) stop_too_deep()
        if (inherits(error, "agbudget_error") || !isTRUE(trace$live)) stop(error)
        stop_unreadable(error)
      }
    )
    if (inherits(result, "agbudget_restart")) {
      resume_building(trace)
      found <- result$object
      if (is_live_tensor(found)) live_tensor(trace, found) else build_host(trace, found)
    } else if (trace$passes == 1L && length(trace$hosts) > 0L) {
      # Once more, to see which of the constants are the model's own.
      next
    } else {
      return(result)
    }
  }
}

as_input <- function(input, found) {
  rows <- if (is.null(input)) found$rows else check_count(input, "input")
  if (is.null(rows)) {
    stop_agbudget(
      "unknown_input", "`input` must be given: the model's first operation does not ",
      "say how many rows (features) a batch has."
    )
  }
  list(rows = rows, indices = isTRUE(found$indices))
}

# One forward pass with a batch of `batch_size` columns; returns the program.
trace_forward <- function(architecture, batch_size) {
  trace <- architecture$trace
  with_trace(trace, {
    output <- run_pass(trace, function() {
      attributes <- c(architecture$input$rows, batch_size)
      x <- append_value(trace, "input", integer(), attributes, "input")
      architecture$module$forward(new_tensor(trace, x))
    })
    if (trace$open != 0L || nzchar(program_layer_label(trace$program))) {
      stop_agbudget(
        "bad_model", "The model's forward pass caught an error that left a layer or an ",
        "`ag_checkpoint()` half done; what it would keep in memory is not known."
      )
    }
    if (!inherits(output, "agbudget_tensor")) {
      stop_agbudget(
        "bad_model", "The model's forward pass must return a tensor, not ",
        describe(output), "."
      )
    }
    bind_survivors(trace, architecture$module)
    # The loss asks whether it is to be differentiated.
    output <- operand_id(trace, output, "pred", "the loss")
    program_end_layer(trace$program, output)
    # Going back asks what is wanted then, whatever was wanted when a parameter was used.
    if (trace$own_code) parameter_ids(trace, architecture$module)
    parameters <- architecture$parameters %||% program_built_parameters(trace$program)
    failure <- program_finish(trace$program, output, parameters)
    if (is.character(failure)) stop_from_core(failure, trace, "ag_checkpoint()")
    trace$program
  })
}

# The ids of what the optimizer trains. A plain function has no `parameters`: those
# are all that its code made. A live module's belong to the built model from here on.
parameter_ids <- function(trace, module) {
  if (is.null(module$parameters)) return(NULL)
  parameters <- module$parameters()
  if (!is.list(parameters)) {
    stop_agbudget(
      "bad_model", "`parameters()` of the model must return a list of parameters, not ",
      describe(parameters), "."
    )
  }
  trace$parameters <- parameters <- as.list(parameters)
  ids <- tensor_ids(trace$program, parameters, trace, trace$pass)
  are_parameters <- program_are_parameters(trace$program, ids)
  for (i in which(!are_parameters)) {
    parameter <- parameters[[i]]
    ids[[i]] <- if (inherits(parameter, "agbudget_parameter")) {
      operand_id(trace, parameter, "parameters", "parameters()")
    } else if (is_live_tensor(parameter)) {
      live_tensor_id(trace, parameter)
    } else {
      stop_agbudget(
        "bad_model", "`parameters()` of the model must return a list of `ag_param()`s; ",
        "element ", i, " is ", describe(parameter), "."
      )
    }
  }
  unique(ids)
}

# A row for each layer that ran.
layer_table <- function(layers, tape_bytes) {
  ran <- layers$kind != "model" | layers$parameters > 0 | tape_bytes > 0
  new_data_frame(list(
    layer = layers$label[ran], kind = layers$kind[ran],
    rows = layers$rows[ran], cols = layers$cols[ran],
    parameters = layers$parameters[ran], tape_bytes = tape_bytes[ran]
  ))
}

# data.frame() takes longer than the whole replay of a small model.
new_data_frame <- function(columns) {
  attr(columns, "row.names") <- .set_row_names(length(columns[[1L]]))
  class(columns) <- "data.frame"
  columns
}

#' @export
as.data.frame.ag_architecture <- function(x, ...) architecture_tables(x)$table

# The layer table at a batch of 32, and the one at 33 to tell what grows with the batch.
architecture_tables <- function(x) {
  check_alive(x)
  table_at <- function(batch_size) {
    program <- trace_forward(x, batch_size)
    record <- run_program(program, x$input$rows, batch_size, x$input$indices)
    layer_table(program_layers(program), record$tape$layer_bytes)
  }
  larger <- table_at(33)
  table <- table_at(32)
  table$tape_bytes <- larger$tape_bytes - table$tape_bytes
  list(table = table, larger = larger)
}

# An extent that is the batch, a multiple of it, or a number.
extent_text <- function(extent, larger) {
  multiple <- extent / 32
  grows <- larger == 33 * multiple & multiple == floor(multiple)
  times <- ifelse(multiple == 1, "batch", paste(count_text(multiple), "batch"))
  ifelse(grows, times, count_text(extent))
}

#' @export
format.ag_architecture <- function(x, ...) {
  tables <- architecture_tables(x)
  table <- tables$table
  shown <- data.frame(
    layer = table$layer, kind = table$kind,
    output = paste(
      extent_text(table$rows, tables$larger$rows), "x",
      extent_text(table$cols, tables$larger$cols)
    ),
    parameters = count_text(table$parameters),
    `tape per unit of batch` = bytes_text(table$tape_bytes),
    check.names = FALSE, stringsAsFactors = FALSE
  )
  c(
    paste0("<ag_architecture> ", counted_text(sum(table$kind != "loss"), "layer"), ", ",
           counted_text(sum(table$parameters), "parameter")),
    table_lines(shown, left = c("layer", "kind", "output"))
  )
}

#' @export
print.ag_architecture <- function(x, ...) {
  cat(format(x), sep = "\n")
  invisible(x)
}
