#' Batch sizes, optimizers and loops side by side
#'
#' Makes a budget of a ggmlR model for every combination of batch size, optimizer and
#' loop.
#'
#' @inheritParams ag_training_budget
#' @param batch_size Batch sizes, any number of them.
#' @param optimizer,loop One or more of the choices of [ag_training_budget()]; all of them
#'   unless given.
#' @param memory As in [ag_training_budget()]; adds a column `fits`.
#'
#' @return A data frame of class `ag_comparison`, a row a combination, the batch size
#'   varying fastest:
#' \describe{
#'   \item{`batch_size`, `optimizer`, `loop`}{the combination.}
#'   \item{`heap_bytes`}{the smallest vector heap that can train it (bytes).}
#'   \item{`resident_bytes`}{the likely peak of an ordinary R's resident memory above an
#'     idle R (bytes), as in [ag_training_budget()].}
#'   \item{`batch_and_targets` to `bookkeeping`}{the components of `heap_bytes`.}
#'   \item{`peak_phase`}{`"setup"`, `"forward"`, `"backward"` or `"step"`.}
#'   \item{`fits`}{where `memory` is given: `heap_bytes <= memory`.}
#' }
#' Its print is a table in binary units, its plot the need against the batch size.
#' @seealso [ag_training_budget()] for what the figures mean, [ag_max_batch_size()] for
#'   the largest batch that fits.
#' @export
#' @examples
#' model <- ag_architecture(ag_sequential(
#'   ag_linear(784L, 256L, activation = "relu"),
#'   ag_linear(256L, 10L)
#' ))
#' comparison <- ag_compare(
#'   model, batch_size = c(64, 256, 1024), optimizer = c("adam", "sgd"),
#'   memory = "48 MiB"
#' )
#' comparison
#' comparison[comparison$fits, c("batch_size", "optimizer", "loop")]
#' plot(comparison)
ag_compare <- function(model, batch_size = c(16, 32, 64, 128, 256),
                       optimizer = c("adam", "sgd", "sgd_plain"),
                       loop = c("retained", "released"),
                       loss = c("mse", "cross_entropy", "softmax_cross_entropy"),
                       input = NULL, accumulate_steps = 1L, memory = NULL) {
  batch_size <- check_counts(batch_size, "batch_size")
  optimizer <- check_choices(optimizer, "optimizer", optimizers)
  loop <- check_choices(loop, "loop", loops)
  loss <- check_choice(loss, "loss", losses)
  accumulate_steps <- check_count(accumulate_steps, "accumulate_steps", max = 1000)
  if (!is.null(memory)) memory <- resolve_memory(memory)$bytes
  architecture <- as_architecture(substitute(model), parent.frame(), input)
  combinations <- expand.grid(
    batch_size = batch_size, loop = loop, optimizer = optimizer, stringsAsFactors = FALSE
  )
  rows <- lapply(seq_len(nrow(combinations)), function(i) {
    run <- combinations[i, ]
    budget <- new_budget(
      architecture, run$batch_size, run$optimizer, loss, run$loop, accumulate_steps
    )
    new_data_frame(c(
      list(
        batch_size = run$batch_size, optimizer = run$optimizer, loop = run$loop,
        heap_bytes = budget$heap_bytes,
        resident_bytes = budget$resident_bytes %||% NA_real_
      ),
      as.list(budget$components),
      list(peak_phase = budget$peak$phase)
    ))
  })
  table <- do.call(rbind, rows)
  if (!is.null(memory)) table$fits <- table$heap_bytes <= memory
  structure(
    table, class = c("ag_comparison", "data.frame"), loss = loss,
    accumulate_steps = accumulate_steps, memory = memory
  )
}

check_counts <- function(x, argument) {
  if (!is.numeric(x) || is.object(x) || length(x) == 0L) {
    stop_agbudget(
      "bad_argument", "`", argument, "` must be one or more whole numbers, not ",
      describe(x), "."
    )
  }
  x <- unname(x)
  checked <- vapply(seq_along(x), function(i) {
    check_count(x[[i]], if (length(x) == 1L) argument else paste0(argument, "[", i, "]"))
  }, 0)
  unique(checked)
}

check_choices <- function(x, argument, choices) {
  if (!is.character(x) || length(x) == 0L) return(check_choice(x, argument, choices))
  unique(vapply(x, check_choice, "", argument, choices, USE.NAMES = FALSE))
}

comparison_columns <- c("batch_size", "optimizer", "loop", "heap_bytes")

#' @export
format.ag_comparison <- function(x, ...) {
  shown <- list(
    batch = count_text(x$batch_size), optimizer = x$optimizer, loop = x$loop,
    heap = bytes_text(x$heap_bytes)
  )
  if (!is.null(x$resident_bytes) && !all(is.na(x$resident_bytes))) {
    shown$resident <- bytes_text(x$resident_bytes)
  }
  if (!is.null(x$peak_phase)) shown$peak <- x$peak_phase
  if (all(component_names %in% names(x))) {
    components <- do.call(cbind, unclass(x)[component_names])
    most <- max.col(components, ties.method = "first")
    share <- components[cbind(seq_along(most), most)] / x$heap_bytes
    shown$`most of it` <- paste0(
      component_labels[component_names[most]], ", ", round(100 * share), " %"
    )
  }
  memory <- attr(x, "memory")
  if (!is.null(x$fits)) {
    outgrows <- !is.null(memory) & x$resident_bytes > (memory %||% Inf)
    yes <- ifelse(outgrows %in% TRUE, "with R_MAX_VSIZE", "yes")
    shown$fits <- ifelse(x$fits, yes, "no")
  }
  loss <- attr(x, "loss")
  c(
    paste0(
      "<ag_comparison> ", count_text(nrow(x)),
      if (nrow(x) == 1L) " combination" else " combinations",
      if (!is.null(loss)) paste0(", ", loss, " loss"),
      if (!is.null(memory)) paste0(", memory ", bytes_text(memory))
    ),
    if (nrow(x) > 0L) {
      table_lines(
        as.data.frame(shown, optional = TRUE, stringsAsFactors = FALSE),
        left = c("optimizer", "loop", "peak", "most of it", "fits")
      )
    }
  )
}

#' @export
print.ag_comparison <- function(x, ...) {
  if (!all(comparison_columns %in% names(x))) return(NextMethod())
  cat(format(x), sep = "\n")
  invisible(x)
}
