#' The largest batch that fits
#'
#' Searches for the largest batch with which a ggmlR model can be trained in the memory
#' given, by running [ag_training_budget()]'s symbolic step. Nothing is allocated and
#' nothing is trained.
#'
#' @param model The model's code or an [ag_architecture()], as for
#'   [ag_training_budget()].
#' @param memory What training may take above an idle R with ggmlR loaded: bytes, or text
#'   with a unit, `"8GB"` (10^9 bytes each) or `"8 GiB"` (2^30 bytes each); kB, MB, GB,
#'   TB, PB, KiB, MiB, GiB, TiB, PiB and B are known. `"8G"` or `"8gb"` could mean either
#'   and is an error. `NULL` or `"available"` is what this process may still use, see
#'   below.
#' @param ... Further arguments of [ag_training_budget()], by name: `optimizer`, `loss`,
#'   `input`, `loop`, `accumulate_steps`.
#' @param margin Share of `memory` to leave free, at least 0 and below 1.
#' @param max Largest batch to consider, for instance the number of examples there are.
#'
#' @return A whole number B, ready to be used as a batch size, such that
#'   `heap_bytes` of [ag_training_budget()] at B is at most `memory * (1 - margin)`, and
#'   at B + 1 is more. Both are checked at the answer; nothing is inferred from a
#'   formula.
#'
#'   Where not even a batch of 1 fits it is 0, with a warning of class
#'   `agbudget_warning_does_not_fit` that carries `shortfall_bytes` and the dominating
#'   `component`. Where every batch up to `max` fits it is `max`; if `max` is infinite
#'   then, which takes a need that hardly grows with the batch, an error of class
#'   `agbudget_error_bad_argument` asks for it.
#'
#' @section What this process may still use:
#' The least of three figures, each in bytes:
#' * free RAM, as the package ps reports it, or else `MemAvailable` of Linux's
#'   `/proc/meminfo`;
#' * R's own limit on its vector heap (`mem.maxVSize()`, set by the environment variable
#'   `R_MAX_VSIZE`), less what is reachable on that heap now: `gc()` is called to find
#'   out;
#' * on Linux, what the limits of the control groups around this process leave (version 1
#'   and 2; containers and batch systems set them), where files in the kernel's cache
#'   that it can drop count as free.
#'
#' @section How much to leave free:
#' The answer is the largest batch with which R *can* train the model, collecting its
#' garbage as often as it takes. Left alone, R collects lazily and grows past that. Set
#' `R_MAX_VSIZE` as [ag_training_budget()]'s `r_max_vsize` says to hold it there, or
#' leave a `margin`.
#'
#' @seealso [ag_training_budget()] for where the memory goes, [ag_compare()] for several
#'   batch sizes and optimizers side by side.
#' @export
#' @examples
#' ag_max_batch_size(
#'   ag_sequential(
#'     ag_linear(784L, 256L, activation = "relu"),
#'     ag_linear(256L, 10L)
#'   ),
#'   memory = "512 MiB", optimizer = "adam", loss = "softmax_cross_entropy"
#' )
#'
#' # leave a fifth of it free, and do not go past the data
#' model <- ag_architecture(ag_multihead_attention(64L, 8L))
#' ag_max_batch_size(model, "1GB", optimizer = "sgd", margin = 0.2, max = 5000)
ag_max_batch_size <- function(model, memory = NULL, ..., margin = 0, max = Inf) {
  run <- check_run(list(...))
  margin <- check_margin(margin)
  if (!identical(max, Inf)) max <- check_count(max, "max")
  memory <- resolve_memory(memory)$bytes
  limit <- usable_memory(memory, margin)
  architecture <- as_architecture(substitute(model), parent.frame(), run$input)
  need <- function(batch_size) {
    heap_need(architecture, batch_size, run$optimizer, run$loss, run$loop,
              run$accumulate_steps)
  }
  largest <- largest_fitting(need, limit, min(max, .Machine$integer.max))
  if (largest == 0) {
    warn_does_not_fit(
      new_budget(architecture, 1, run$optimizer, run$loss, run$loop,
                 run$accumulate_steps),
      limit
    )
  }
  if (largest == .Machine$integer.max && is.infinite(max)) {
    stop_agbudget(
      "bad_argument", "`max` must be given: a batch of ", count_text(largest),
      ", the largest there is, still fits into ", bytes_text(limit), "."
    )
  }
  largest
}

# The arguments in `...`, which are those of ag_training_budget() about the run.
check_run <- function(run) {
  known <- c("optimizer", "loss", "input", "loop", "accumulate_steps")
  given <- names(run) %||% rep("", length(run))
  if ("batch_size" %in% given) {
    stop_agbudget(
      "bad_argument", "`batch_size` is what ag_max_batch_size() finds; it must not be ",
      "given. `max` bounds it."
    )
  }
  unknown <- which(!given %in% known | duplicated(given))
  if (length(unknown) > 0L) {
    name <- given[[unknown[[1L]]]]
    stop_agbudget(
      "bad_argument", "`...` must be arguments of ag_training_budget(), each once and ",
      "by name (", paste0("`", known, "`", collapse = ", "), "), not ",
      if (name == "") describe(run[[unknown[[1L]]]]) else paste0("`", name, "`"), "."
    )
  }
  list(
    optimizer = check_choice(run$optimizer %||% optimizers, "optimizer", optimizers),
    loss = check_choice(run$loss %||% losses, "loss", losses),
    input = run$input,
    loop = check_choice(run$loop %||% loops, "loop", loops),
    accumulate_steps = check_count(
      run$accumulate_steps %||% 1, "accumulate_steps", max = 1000
    )
  )
}

check_margin <- function(margin) {
  if (is_number(margin) && margin >= 0 && margin < 1) return(as.double(margin))
  stop_agbudget(
    "bad_argument", "`margin` must be a single number of at least 0 and below 1, not ",
    describe(margin), "."
  )
}

# A tenth of 1000 bytes leaves 900, whatever the binary fractions.
usable_memory <- function(memory, margin) {
  if (margin == 0) memory else signif(memory - memory * margin, 15L)
}

# `heap_bytes` of one loop, and nothing else.
heap_need <- function(architecture, batch_size, optimizer = "adam", loss = "mse",
                      loop = "retained", accumulate_steps = 1) {
  replayed_figure(architecture, batch_size, optimizer, loss, loop, accumulate_steps,
                  run_training_peak)
}

# The largest batch from 1 to `cap` whose need is within `limit`, or 0.
#
# Need grows with the batch as a maximum of straight lines (with attention, of parabolas):
# it is convex. So the line through two batches that fit meets the limit at or beyond
# the answer, the line through one that fits and one that does not meets it before. Both
# close in within a few steps; every fourth halves the bracket, whatever the shape.
# The bracket itself makes the answer right, convex or not.
largest_fitting <- function(need, limit, cap) {
  low <- c(1, need(1))
  if (low[[2L]] > limit) return(0)
  # A batch too large for exact byte counts does not fit.
  evaluate <- function(batch) {
    c(batch, tryCatch(need(batch), agbudget_error_too_large = function(e) Inf))
  }
  before <- NULL
  high <- NULL
  while (is.null(high)) {
    if (low[[1L]] >= cap) return(cap)
    at <- evaluate(min(cap, low[[1L]] * 16))
    if (at[[2L]] > limit) {
      high <- at
    } else {
      before <- low
      low <- at
    }
  }
  step <- 1L
  while (high[[1L]] - low[[1L]] > 1) {
    guess <- NA_real_
    if (step %% 4L != 0L) {
      guess <- crossing(before, low, limit)
      if (is.na(guess) || guess >= high[[1L]]) guess <- crossing(low, high, limit)
    }
    if (is.na(guess)) guess <- floor((low[[1L]] + high[[1L]]) / 2)
    at <- evaluate(min(max(guess, low[[1L]] + 1), high[[1L]] - 1))
    if (at[[2L]] > limit) {
      high <- at
    } else {
      before <- low
      low <- at
    }
    step <- step + 1L
  }
  low[[1L]]
}

# Where the line through two points of (batch, need) meets the limit.
crossing <- function(a, b, limit) {
  if (is.null(a)) return(NA_real_)
  slope <- (b[[2L]] - a[[2L]]) / (b[[1L]] - a[[1L]])
  if (!is.finite(slope) || slope <= 0) return(NA_real_)
  floor(a[[1L]] + (limit - a[[2L]]) / slope)
}

warn_does_not_fit <- function(budget, limit) {
  shortfall <- budget$heap_bytes - limit
  dominating <- names(which.max(budget$components))
  warn_agbudget(
    "does_not_fit", "Not even a batch of 1 fits: it needs ",
    bytes_text(budget$heap_bytes), ", which is ", count_text(shortfall),
    " bytes more than the ", bytes_text(limit), " there are. Most of it is ",
    component_labels[[dominating]], ", ", bytes_text(budget$components[[dominating]]),
    ".", data = list(shortfall_bytes = shortfall, component = dominating)
  )
}
