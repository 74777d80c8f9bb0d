#' The memory that training a model needs
#'
#' Runs one training step of a ggmlR model's own code on matrices that have shapes but
#' no values, in a heap that only counts, and reports the smallest vector heap in
#' which ggmlR can train it. Nothing is allocated, and ggmlR need not be installed: a
#' model of 10^12 parameters is answered as fast as a small one.
#'
#' @param model The model's code, as it is written for ggmlR: an `ag_sequential()`, a
#'   layer, a list or environment with `forward` and `parameters` (or `params`), or a
#'   function of the batch. It is evaluated with ggmlR's constructors, operations,
#'   `ag_param()` and `ag_tensor()` bound to symbolic ones, in a mask over the caller's
#'   environment; functions of yours that it calls get the same names, and code that you
#'   hand on through functions of your own is traced back to where it was written. Or an
#'   [ag_architecture()], or a live ggmlR model.
#' @param batch_size Columns of one batch (for attention: the length of the sequence).
#' @param optimizer `"adam"` is ggmlR's `optimizer_adam()`, `"sgd"` is
#'   `optimizer_sgd(momentum = 0.9)`, `"sgd_plain"` is `optimizer_sgd()`. The last
#'   allocates its velocity too, though it never uses it.
#' @param loss The loss that is put on the model's output: `ag_mse_loss()`,
#'   `ag_cross_entropy_loss()` or `ag_softmax_cross_entropy_loss()`, with a target
#'   matrix of the output's shape.
#' @param input Rows of one batch (features). Found from the first layer where that is
#'   clear (linear, batch norm, layer norm, attention, or a matrix product with the
#'   batch on its right); an embedding takes indices, one row.
#' @param loop `"retained"` is the loop that ggmlR documents, which leaves `out`, `loss`
#'   and `grads` bound while the next step runs; `"released"` does each step inside a
#'   function that leaves nothing bound.
#' @param accumulate_steps Micro-batches to accumulate before an update, as in ggmlR's
#'   optimizers. Above 1 the loop calls `opt$step()` without an argument and
#'   `opt$zero_grad()` only after an update.
#' @param memory What training may take above an idle R with ggmlR loaded, for a verdict:
#'   bytes, or text such as `"8GB"` (10^9 bytes each) or `"8 GiB"` (2^30 bytes each);
#'   `"available"` is what this process may still use, see [ag_max_batch_size()]. `NULL`
#'   asks for no verdict.
#'
#' @return An object of class `ag_training_budget`, a list of
#' \describe{
#'   \item{`heap_bytes`}{the smallest vector heap (what `R_MAX_VSIZE` bounds), above an
#'     idle R, in which ggmlR can train this model with this batch: the peak over
#'     building the model and three updates (bytes).}
#'   \item{`components`}{named bytes at that peak: `batch_and_targets`, `weights`,
#'     `superseded_weights`, `gradients`, `optimizer_state`, `activations`,
#'     `activation_gradients`, `temporaries`, and R's own `bookkeeping`. They add up to
#'     `heap_bytes`. At a peak while the model is built, `bookkeeping` may be below 0: the
#'     idle R that is subtracted has the training loop's code loaded.}
#'   \item{`peak`}{where it is: `phase` (`"setup"`, `"forward"`, `"backward"` or
#'     `"step"`), `step`, `operation` and `layer`.}
#'   \item{`timeline`}{a data frame with a row an operation: `step`, `phase`, `layer`,
#'     `operation`, `live_bytes` (the highest while it ran), and the components then.}
#'   \item{`layers`}{a data frame with a row a layer: `layer`, `kind`, `rows` and `cols`
#'     of its output, `parameters` (scalars) and `tape_bytes`.}
#'   \item{`tape`}{what ggmlR's `ag_tape_memory()` would report between `backward()` and
#'     the optimizer's step: `nodes`, `bytes_total`, `bytes_snapshots` (activations),
#'     `bytes_fields`, `bytes_inputs` (operands) and `by_op`, in bytes of
#'     `object.size()`.}
#'   \item{`resident_bytes`}{the likely peak of an ordinary R process's resident memory
#'     over three updates, above that of an idle R: see below (bytes).}
#'   \item{`other_loop_bytes`}{`heap_bytes` of the other loop.}
#' }
#' and of the call's `model` (`layers`, `parameters`), `batch_size`, `input`,
#' `optimizer`, `loss`, `loop` and `accumulate_steps`.
#'
#' Where `memory` is given, also
#' \describe{
#'   \item{`memory`, `memory_source`}{bytes, and where they come from: `"given"`,
#'     `"free RAM"`, `"R's own limit"` or `"the container's limit"`.}
#'   \item{`verdict`}{`"fits"`; `"fits_with_limit"`, if R can train the model in this
#'     memory but would grow past it before it collects its garbage, unless
#'     `R_MAX_VSIZE` is set as `r_max_vsize` says; or `"does_not_fit"`.}
#'   \item{`fits`}{`heap_bytes <= memory`.}
#'   \item{`spare_bytes`}{`memory - heap_bytes`; negative: what is missing.}
#'   \item{`max_batch_size`}{the largest batch that fits, as [ag_max_batch_size()] finds
#'     it; 0 where none does, `NA` where the model runs with some batch sizes only.}
#'   \item{`resident_long_bytes`}{`resident_bytes` of a training of 40 updates, by which
#'     the verdict is given; of three where the model has too many operations.}
#'   \item{`r_max_vsize`, `r_max_vsize_bytes`, `r_vsize`}{what to set the environment
#'     variable `R_MAX_VSIZE` to before R starts, so that R trains the model and, should
#'     the script want more, stops with an error instead of being killed: `heap_bytes` (or
#'     the 2.5 MB that R's compiler takes, if that is more), 6250 KiB for an idle R with
#'     ggmlR loaded, and the fifth of its initial heap that R wants to spare when it
#'     grows. Add what else the script holds. Where R's initial heap of 64 MiB is too
#'     much beside `memory`, `r_vsize` is what to set `R_VSIZE` to as well; else it is
#'     `"64M"`, which R takes by itself.}
#' }
#'
#' @section How right it is:
#' Against the smallest heap in which ggmlR really trains, measured by bisecting
#' `R_MAX_VSIZE` for 47 models of every layer, loss, optimizer and loop, `heap_bytes` was
#' within 0.19 %, but for one that takes 16 MB (0.36 %, which is 0.06 MB), the median
#' within 0.04 % (ggmlR 0.8.8.1, R 4.2.2; the table is in the README,
#' `inst/scripts/measure_training_memory.R` makes it). One forward pass stands for all: a
#' model that does something else from pass to pass, such as a cache that grows or a layer
#' that is frozen after a while, is counted by the one that was run.
#'
#' @section What is counted:
#' R's vector heap: the data of every matrix and vector that is reachable at a moment,
#' and the one being allocated. That includes the batch and the targets, what frames of
#' ggmlR's operations keep, intermediate gradients, the weights that an optimizer's step
#' replaced while the tape still holds them, and the hash tables and lists that hold all
#' of these together. A value that needs no gradient is on no tape: it counts for as long
#' as the model's code refers to it, by a variable, an argument of a call that still runs,
#' a list, a closure or an environment. What the model's code leaves bound counts too.
#' Not followed are fields and attributes that you add to a tensor, variables outside of
#' the forward function that are set and cleared within one pass, and values that R's
#' evaluator alone holds, such as the elements of a list that is being made; a default
#' argument counts until its function returns, though R lets go of it where its variable
#' is bound anew.
#'
#' Not counted: what an idle R with ggmlR loaded takes itself; cons cells, environments
#' and closures, which are on R's other heap; and what the collector has not released
#' yet. An ordinary R process therefore grows past this figure, to about
#' `resident_bytes`. A model that needs less
#' than about 2.5 MB is bounded by what R's byte-code compiler takes while it compiles
#' the training loop, not by the model.
#'
#' @section What an ordinary R takes:
#' R collects lazily: a process whose heap is not bounded by `R_MAX_VSIZE` grows to 1.2 to
#' 3 times `heap_bytes`, small models by most. `resident_bytes` replays the run's
#' allocations on R's own collector: when it collects and which of its three generations,
#' what older values keep alive, how it raises its limit from the initial 64 MB
#' (`?Memory`, `src/main/memory.c`); and on glibc's `malloc()`: what it maps, what it cuts
#' from its heap, and what it gives back (`mallopt(3)`).
#'
#' It is a likely figure, not a bound. The order of collections is chaotic: a few
#' kilobytes more at one moment can move every later collection. Nodes and small vectors
#' that R's evaluator leaves behind are estimates, so models of hundreds of layers with
#' tiny matrices, where R's cells take more than the matrices, can be far off. Against the
#' kernel's high-water mark of 45 real trainings (R 4.2.2, glibc 2.36), half were within
#' 0.4 %, and all that took 50 MB or more within 6 %. Of the others, which is where the
#' start of R itself weighs, two models of 200 and 600 tiny layers took 35 and 47 MB where
#' 11 and 42 were predicted.
#'
#' It stands for three updates, like the measurements. A longer training goes on growing
#' for some ten updates or more: after 40, nine measured models took 4 to 86 % more, small
#' ones most. Another C library's allocator, another BLAS, and an R that has already grown
#' give other figures.
#'
#' @section Sources:
#' The rules mirror ggmlR 0.8.8.1 on the CPU and R 4.2: operations, losses, `backward()`
#' and optimizers `R/autograd.R`; layers `R/ag_layers.R`; selection `R/ag_select.R`;
#' checkpoints `R/ag_checkpoint.R`; the tape's report `R/ag_tape_memory.R`. R's sizes
#' are those of `src/main/memory.c`, its reuse of temporaries that of
#' `src/main/arithmetic.c`.
#'
#' Initial weights count as what `init` of `ag_linear()` makes them from: random numbers,
#' the QR decomposition of an orthogonal matrix, or what a function or matrix of yours
#' takes.
#'
#' @seealso [ag_estimate_training_memory()] for ggmlR's own estimate from shapes alone,
#'   [ag_architecture()] for the layers of a model.
#' @export
#' @examples
#' ag_training_budget(
#'   ag_sequential(
#'     ag_linear(784L, 256L, activation = "relu"),
#'     ag_batch_norm(256L),
#'     ag_dropout(0.2),
#'     ag_linear(256L, 10L)
#'   ),
#'   batch_size = 512, optimizer = "adam", loss = "softmax_cross_entropy"
#' )
#'
#' # a model of one's own: a residual block from ggmlR's operations
#' budget <- ag_training_budget({
#'   W <- ag_param(matrix(rnorm(64 * 64, sd = 0.1), 64, 64))
#'   list(
#'     forward = function(x) ag_add(x, ag_relu(ag_matmul(W, x))),
#'     parameters = function() list(W = W)
#'   )
#' }, batch_size = 256)
#' budget$heap_bytes
#' budget$components
#'
#' # does it fit?
#' model <- ag_architecture(ag_sequential(
#'   ag_linear(1024L, 1024L, activation = "relu"),
#'   ag_linear(1024L, 10L)
#' ))
#' budget <- ag_training_budget(model, batch_size = 4096, memory = "200MB")
#' budget
#' budget$max_batch_size
#' budget$r_max_vsize
#'
#' # for other code: plain lists and vectors, ready for a JSON encoder
#' str(as.list(budget, timeline = FALSE)[c("verdict", "heap_bytes", "components")])
#' if (requireNamespace("jsonlite", quietly = TRUE)) {
#'   jsonlite::toJSON(as.list(budget, timeline = FALSE), auto_unbox = TRUE, digits = NA)
#' }
ag_training_budget <- function(model, batch_size = 32L,
                               optimizer = c("adam", "sgd", "sgd_plain"),
                               loss = c("mse", "cross_entropy", "softmax_cross_entropy"),
                               input = NULL, loop = c("retained", "released"),
                               accumulate_steps = 1L, memory = NULL) {
  optimizer <- check_choice(optimizer, "optimizer", optimizers)
  loss <- check_choice(loss, "loss", losses)
  loop <- check_choice(loop, "loop", loops)
  batch_size <- check_count(batch_size, "batch_size")
  accumulate_steps <- check_count(accumulate_steps, "accumulate_steps", max = 1000)
  if (!is.null(memory)) memory <- resolve_memory(memory)
  architecture <- as_architecture(substitute(model), parent.frame(), input)
  budget <- new_budget(architecture, batch_size, optimizer, loss, loop, accumulate_steps)
  if (is.null(memory)) return(budget)
  # A long training, unless that would take seconds.
  updates <- if (nrow(budget$timeline) < 2e4) 40L else 3L
  resident_long <- replayed_figure(
    architecture, batch_size, optimizer, loss, loop, accumulate_steps,
    function(...) run_training_resident(..., updates)
  )
  add_verdict(budget, memory, function(batch_size) {
    heap_need(architecture, batch_size, optimizer, loss, loop, accumulate_steps)
  }, resident_long)
}

optimizers <- c("adam", "sgd", "sgd_plain")
losses <- c("mse", "cross_entropy", "softmax_cross_entropy")
loops <- c("retained", "released")

component_names <- c(
  "batch_and_targets", "weights", "superseded_weights", "gradients",
  "optimizer_state", "activations", "activation_gradients", "temporaries",
  "bookkeeping"
)

# Replays a traced program; the core's message becomes an error. `run` is the binding:
# run_training_program() for the whole record, run_training_peak() for its peak alone.
run_program <- function(program, rows, batch_size, indices, optimizer = "adam",
                        loss = "mse", loop = "retained", accumulate_steps = 1,
                        run = run_training_program) {
  record <- run(
    program, rows, batch_size, indices, match(optimizer, optimizers) - 1L,
    match(loss, losses) - 1L, loop == "retained", as.integer(accumulate_steps)
  )
  if (is.character(record)) {
    stop_agbudget(
      "too_large", "The model is too large for exact byte counts: ", record, "."
    )
  }
  record
}

new_budget <- function(architecture, batch_size, optimizer, loss, loop,
                       accumulate_steps) {
  program <- trace_forward(architecture, batch_size)
  input <- architecture$input
  run <- function(loop, binding) {
    run_program(program, input$rows, batch_size, input$indices, optimizer, loss, loop,
                accumulate_steps, binding)
  }
  record <- run(loop, run_training_program)
  described <- program_layers(program)
  layers <- layer_table(described, record$tape$layer_bytes)
  timeline <- timeline_frame(record$timeline, described$label)
  at_peak <- function(column) .subset2(timeline, column)[[record$peak]]
  components <- record$components
  names(components) <- component_names
  budget <- list(
    heap_bytes = at_peak("live_bytes"),
    components = components,
    peak = list(phase = at_peak("phase"), step = at_peak("step"),
                operation = at_peak("operation"), layer = at_peak("layer")),
    timeline = timeline,
    layers = layers,
    tape = tape_report(record$tape),
    resident_bytes = record$resident_bytes,
    other_loop_bytes = run(loops[loops != loop], run_training_peak),
    model = list(
      layers = sum(layers$kind != "loss"), parameters = sum(layers$parameters)
    ),
    batch_size = batch_size, input = input$rows, optimizer = optimizer, loss = loss,
    loop = loop, accumulate_steps = accumulate_steps
  )
  class(budget) <- "ag_training_budget"
  budget
}

# One figure of a run, by the binding that answers with it alone.
replayed_figure <- function(architecture, batch_size, optimizer, loss, loop,
                            accumulate_steps, binding) {
  program <- trace_forward(architecture, batch_size)
  input <- architecture$input
  run_program(program, input$rows, batch_size, input$indices, optimizer, loss, loop,
              accumulate_steps, binding)
}

timeline_frame <- function(timeline, labels) {
  names(timeline) <- c(timeline_names, component_names)
  timeline$layer <- labels[timeline$layer]
  new_data_frame(timeline)
}

timeline_names <- c("step", "phase", "layer", "operation", "live_bytes")

# ggmlR's names for ag_tape_memory()'s figures.
tape_report <- function(tape) {
  list(
    nodes = tape$nodes,
    bytes_total = tape$operands + tape$activations + tape$fields,
    bytes_snapshots = tape$activations,
    bytes_fields = tape$fields,
    bytes_inputs = tape$operands,
    by_op = new_data_frame(list(
      op = tape$op, nodes = tape$op_nodes, bytes = tape$op_bytes
    ))
  )
}

# Methods -----------------------------------------------------------------------

component_labels <- c(
  batch_and_targets = "batch and targets", weights = "weights",
  superseded_weights = "superseded weights", gradients = "gradients",
  optimizer_state = "optimizer state", activations = "activations",
  activation_gradients = "gradients of activations", temporaries = "temporaries",
  bookkeeping = "R's bookkeeping"
)

#' @export
format.ag_training_budget <- function(x, ...) {
  shown <- x$components != 0
  bytes <- x$components[shown]
  components <- table_lines(
    data.frame(
      component = component_labels[names(bytes)], bytes = bytes_text(bytes),
      share = percent_text(bytes / x$heap_bytes, digits = 1L),
      stringsAsFactors = FALSE
    ),
    left = "component", header = FALSE
  )
  c(
    paste0("<ag_training_budget> ", bytes_text(x$heap_bytes), " of vector heap to train"),
    paste0("  model  ", counted_text(x$model$layers, "layer"), ", ",
           counted_text(x$model$parameters, "parameter"), ", ",
           counted_text(x$input, "input row")),
    paste0("  run    batch ", count_text(x$batch_size), ", ", x$optimizer, ", ", x$loss,
           " loss, ", x$loop, " loop",
           if (x$accumulate_steps > 1) {
             paste0(", update every ", x$accumulate_steps, " batches")
           }),
    paste0("  peak   ", peak_text(x$peak)),
    verdict_line(x),
    components,
    resident_line(x),
    other_loop_lines(x)
  )
}

peak_text <- function(peak) {
  if (peak$phase == "setup") return("while the model is built")
  paste0(peak$phase, " of step ", peak$step, ", ", peak$operation, " in ", peak$layer)
}

resident_line <- function(x) {
  # Small trainings stay within what R has at its start.
  long <- x$resident_long_bytes
  resident <- long %||% x$resident_bytes
  if (is.null(resident) || resident < x$heap_bytes) return(character())
  paste0("  An ordinary R, which collects lazily, grows to about ", bytes_text(resident),
         if (is.null(long)) " in three updates." else " in a long training.")
}

# Worth saying where it is more than 5 %.
other_loop_lines <- function(x) {
  change <- x$other_loop_bytes / x$heap_bytes - 1
  if (abs(change) <= 0.05) return(character())
  percent <- percent_text(abs(change))
  if (x$loop == "retained") {
    return(c(
      paste0("  The released loop would need ", bytes_text(x$other_loop_bytes), " (",
             percent, " less):"),
      "  do each step inside a function, so that `out`, `loss` and `grads` go with it."
    ))
  }
  paste0("  The retained loop of ggmlR's documentation would need ",
         bytes_text(x$other_loop_bytes), " (", percent, " more).")
}

#' @export
print.ag_training_budget <- function(x, ...) {
  cat(format(x), sep = "\n")
  invisible(x)
}

#' @export
summary.ag_training_budget <- function(object, ...) {
  structure(list(budget = object), class = "summary.ag_training_budget")
}

#' @export
print.summary.ag_training_budget <- function(x, ...) {
  budget <- x$budget
  print(budget)
  layers <- budget$layers
  cat("\nLayers:\n")
  cat(table_lines(data.frame(
    layer = layers$layer, kind = layers$kind,
    output = paste0(count_text(layers$rows), " x ", count_text(layers$cols)),
    parameters = count_text(layers$parameters), tape = bytes_text(layers$tape_bytes),
    stringsAsFactors = FALSE
  ), left = c("layer", "kind", "output")), sep = "\n")
  tape <- budget$tape
  cat("\nGradient tape between backward() and the step: ", count_text(tape$nodes),
      " nodes, ", bytes_text(tape$bytes_total), "\n", sep = "")
  cat(table_lines(data.frame(
    operation = tape$by_op$op, nodes = count_text(tape$by_op$nodes),
    bytes = bytes_text(tape$by_op$bytes), stringsAsFactors = FALSE
  ), left = "operation"), sep = "\n")
  invisible(x)
}

#' @export
as.data.frame.ag_training_budget <- function(x, ...) {
  new_data_frame(c(
    list(
      batch_size = x$batch_size, optimizer = x$optimizer, loss = x$loss, loop = x$loop,
      parameters = x$model$parameters, heap_bytes = x$heap_bytes
    ),
    as.list(x$components),
    list(peak_phase = x$peak$phase, peak_operation = x$peak$operation,
         peak_layer = x$peak$layer)
  ))
}

#' @param x An `ag_training_budget`.
#' @param timeline Whether to include the timeline, which has a row an operation.
#' @param ... Ignored.
#' @details
#' `as.list()` gives the same fields under the same names as plain lists and vectors, for
#' other code or a JSON encoder: no classes, data frames as lists of columns, named
#' numbers as lists of numbers. Names are stable: fields may be added, none is renamed.
#' What was not asked for, such as the verdict without `memory`, is `NA`.
#' @rdname ag_training_budget
#' @export
as.list.ag_training_budget <- function(x, timeline = TRUE, ...) {
  timeline <- check_flag(timeline, "timeline")
  fields <- unclass(x)
  if (!timeline) fields$timeline <- NULL
  absent <- setdiff(c("resident_bytes", verdict_fields), names(fields))
  fields[absent] <- NA
  plain <- function(field) {
    if (is.list(field) || !is.null(names(field))) lapply(as.list(field), plain) else field
  }
  lapply(fields, plain)
}

# Columns padded to a common width, two spaces in front.
table_lines <- function(table, left = character(), header = TRUE) {
  columns <- lapply(names(table), function(name) {
    cells <- c(if (header) name, table[[name]])
    formatC(cells, width = if (name %in% left) -max(nchar(cells)) else max(nchar(cells)))
  })
  sub(" +$", "", paste0("  ", do.call(paste, c(columns, list(sep = "  ")))))
}
