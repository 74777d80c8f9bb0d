# A little of everything the package does, small enough for valgrind and gctorture.
# Returns what the calls returned, printed and signalled, to be compared.

# One capture around all calls: under gctorture each would take longer than its call.
short_session <- function() {
  printed_to <- tempfile()
  on.exit(unlink(printed_to))
  sink(printed_to)
  results <- tryCatch(short_calls(), finally = sink())
  c(results, list(printed = readLines(printed_to)))
}

observe <- function(code) {
  signalled <- list()
  value <- tryCatch(
    withCallingHandlers(code, warning = function(w) {
      signalled[[1L]] <<- w
      invokeRestart("muffleWarning")
    }),
    error = function(e) list(class(e), conditionMessage(e))
  )
  list(value = value, warned = lapply(signalled, conditionMessage))
}

short_calls <- function() {
  estimate <- agbudget::ag_estimate_training_memory
  list(
    documented = observe(estimate(
      list(c(512, 512), c(512, 512), c(512, 512)),
      batch_size = 64
    )),
    integers = observe(estimate(list(c(3L, 4L), 5L), optimizer = "sgd", quiet = TRUE)),
    bare = observe(estimate(c(a = 7, b = 9), quiet = TRUE)),
    named = observe(estimate(list(w = c(2, 3), b = 2L), c(x = 1, y = 2), quiet = TRUE)),
    many = observe(estimate(rep(list(c(2L, 3L), c(4, 5)), 50L), quiet = TRUE)),
    compact = observe(estimate(list(1:9, seq_len(2000L)), quiet = TRUE)),
    pairlist = observe(estimate(pairlist(w = c(2, 3), b = 3L), quiet = TRUE)),
    integer64 = observe(estimate(list(bit64::as.integer64(c(3, 4))), quiet = TRUE)),
    several = observe(estimate(list(c(2, 3)), batch_size = c(a = 1, b = 2))),
    classed = observe(estimate(list(as.Date("2020-01-01"), factor("a")), quiet = TRUE)),
    huge = observe(estimate(list(rep(.Machine$double.xmax, 3L)), quiet = TRUE)),
    missing = observe(estimate(list(c(2, 3)), batch_size = NA, quiet = TRUE)),
    negative = observe(estimate(list(c(2, -3)), quiet = TRUE)),
    text = observe(estimate(list("a"), quiet = TRUE)),
    empty = observe(estimate(list(), quiet = TRUE))
  )
}

# Budgets, whose code is followed from frame to frame.
short_budgets <- function() {
  budget <- agbudget::ag_training_budget
  list(
    layers = observe(budget(ag_sequential(
      ag_linear(6L, 4L, activation = "relu", init = "orthogonal"), ag_batch_norm(4L),
      ag_dropout(0.1), ag_multihead_attention(4L, 2L)
    ), 4, memory = "1 GiB")),
    own = observe(budget({
      keep <- new.env()
      start <- matrix(stats::rnorm(144), 12, 12)
      W <- ag_param(start * 0.5)
      prepare <- function(y, ...) {
        parts <- list(ag_scale(y, 2), ag_scale(y, 3))
        y <- ag_add(parts[[1L]], parts[[2L]])
        ag_tanh(y)
      }
      list(
        forward = function(x) {
          keep$last <- prepare(ag_relu(x), ag_exp(x))
          h <- ag_checkpoint(function(h) ag_relu(ag_matmul(W, h)), keep$last)
          W$requires_grad <- FALSE
          h <- ag_matmul(W, h)
          W$requires_grad <- TRUE
          ag_mul(h, h$data)
        },
        parameters = function() list(W = W)
      )
    }, 5)),
    refused = observe(budget(ag_linear(3L, 2L, init = function(out, inp) "a")))
  )
}
