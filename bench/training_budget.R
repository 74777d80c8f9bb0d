# Usage, from the package's root: Rscript bench/training_budget.R
# The symbolic step beside a real one, and its cost as models grow. Needs bench and
# ggmlR; ratios are of minimal times, for a busy machine only ever adds to those.

library(agbudget)

report <- function(what, value, bar, met) {
  verdict <- if (met) "ok" else "NOT MET"
  cat(sprintf("%-58s %12s  (bar: %s) %s\n", what, value, bar, verdict))
}

seconds <- function(run) {
  start <- bench::hires_time()
  run()
  bench::hires_time() - start
}

# The fastest call of each function, of so many `calls` in each turn. They take turns,
# for a machine that slows down for a while should slow them all down.
fastest <- function(runs, calls, turns = 5L) {
  for (run in runs) run()
  turn <- function(run, n) min(replicate(n, seconds(run)))
  apply(replicate(turns, mapply(turn, runs, calls)), 1L, min)
}

budget_of <- function(model, batch_size = 64, ...) {
  eval(bquote(function() ag_training_budget(.(model), .(batch_size), ...)))
}

mlp <- quote(ag_sequential(
  ag_linear(784L, 256L, activation = "relu"), ag_linear(256L, 10L)
))

# One real training step: forward, backward, Adam.
real_step <- function(batch_size) {
  model <- eval(mlp, asNamespace("ggmlR"))
  optimizer <- ggmlR::optimizer_adam(model$parameters())
  x <- ggmlR::ag_tensor(matrix(stats::runif(784 * batch_size), 784L, batch_size))
  y <- matrix(0.1, 10L, batch_size)
  function() {
    ggmlR::with_grad_tape({
      loss <- ggmlR::ag_softmax_cross_entropy_loss(model$forward(x), y)
    })
    optimizer$step(ggmlR::backward(loss))
    optimizer$zero_grad()
  }
}

bench_real_step <- function() {
  ggmlR::ag_device("cpu")
  runs <- list(
    real = real_step(512L), budget = budget_of(mlp, 512, "adam", "softmax_cross_entropy")
  )
  time <- fastest(runs, calls = c(3, 100))
  ratio <- time[["real"]] / time[["budget"]]
  report("784-256-10, batch 512: real step / budget",
         sprintf("%.0f x", ratio), ">= 200 x", ratio >= 200)
  cat(sprintf("  real step %.1f ms, budget %.2f ms\n",
              1e3 * time[["real"]], 1e3 * time[["budget"]]))
}

deep <- function(layers) {
  bquote(do.call(ag_sequential, lapply(seq_len(.(layers)), function(i) {
    ag_linear(64L, 64L, activation = "relu")
  })))
}

# Two figures: the fastest call, which for a small model is one that R's garbage collector
# left alone; and the time for budgets of 10,000 layers in all, whatever the size of one.
bench_growth <- function(in_all = 10000) {
  layers <- c(10, 100, 1000, in_all)
  runs <- lapply(layers, function(n) budget_of(deep(n)))
  repeated <- Map(function(run, n) {
    function() for (i in seq_len(in_all / n)) run()
  }, runs, layers)
  per_layer <- rbind(
    "a call" = fastest(runs, calls = pmax(1, 300 / layers)) / layers,
    "10,000 layers in all" = fastest(repeated, calls = rep(1, length(layers))) / in_all
  )
  for (i in seq_along(layers)) {
    cat(sprintf("  %6d layers: %7.1f us a layer, %7.1f with collections\n", layers[[i]],
                1e6 * per_layer[[1L, i]], 1e6 * per_layer[[2L, i]]))
  }
  ratio <- per_layer[, length(layers)] / per_layer[, 1L]
  report("time a layer, 10,000 layers / 10 layers",
         paste(sprintf("%.2f", ratio), collapse = ", "), "<= 1.5", all(ratio <= 1.5))
}

bench_size <- function() {
  wide <- function(n) {
    bquote(ag_sequential(ag_linear(.(n), .(n), activation = "relu"), ag_linear(.(n), 10)))
  }
  runs <- list(small = budget_of(wide(10)), large = budget_of(wide(1e6)))
  stopifnot(runs$large()$model$parameters > 1e12)
  time <- fastest(runs, calls = c(50, 50))
  ratio <- time[["large"]] / time[["small"]]
  report("10^12 parameters / 220 parameters: time", sprintf("%.2f", ratio), "<= 1.5",
         ratio <= 1.5)
  bytes <- vapply(runs, function(run) {
    as.numeric(bench::mark(run(), iterations = 1, check = FALSE)$mem_alloc)
  }, 0)
  allocated <- bytes[["large"]] / bytes[["small"]]
  report("10^12 parameters / 220 parameters: bytes allocated in R",
         sprintf("%.2f", allocated), "<= 1.5", allocated <= 1.5)
  cat(sprintf("  %.0f kB allocated\n", bytes[["large"]] / 1e3))
}

bench_search <- function() {
  search <- eval(bquote(function() ag_max_batch_size(.(deep(50)), "8GiB")))
  spent <- min(replicate(5, seconds(search)))
  report("largest batch of a 50-layer model", sprintf("%.0f ms", 1e3 * spent), "< 500 ms",
         spent < 0.5)
}

bench_real_step()
bench_growth()
bench_size()
bench_search()
