# Usage, from the package's root: Rscript bench/training_budget.R
# The symbolic step beside a real one, and its cost as models grow. Needs bench and
# ggmlR; ratios are of minimal times, for a busy machine only ever adds to those.

library(agbudget)

report <- function(what, value, bar, met) {
  verdict <- if (met) "ok" else "NOT MET"
  cat(sprintf("%-58s %12s  (bar: %s) %s\n", what, value, bar, verdict))
}

seconds <- function(times) as.numeric(min(times))

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
  step <- real_step(512L)
  step()
  budget <- eval(bquote(function() {
    ag_training_budget(.(mlp), 512, "adam", "softmax_cross_entropy")
  }))
  real <- seconds(bench::mark(step(), iterations = 10, filter_gc = FALSE)$time[[1L]])
  ours <- seconds(bench::mark(
    budget(), min_iterations = 50, filter_gc = FALSE, check = FALSE
  )$time[[1L]])
  ratio <- real / ours
  report("784-256-10, batch 512: real step / budget",
         sprintf("%.0f x", ratio), ">= 200 x", ratio >= 200)
  cat(sprintf("  real step %.1f ms, budget %.2f ms\n", 1e3 * real, 1e3 * ours))
}

deep <- function(layers) {
  bquote(do.call(ag_sequential, lapply(seq_len(.(layers)), function(i) {
    ag_linear(64L, 64L, activation = "relu")
  })))
}

time_of <- function(code, batch_size = 64, iterations = 10) {
  run <- eval(bquote(function() ag_training_budget(.(code), .(batch_size))))
  run()
  bench::mark(run(), min_iterations = iterations, filter_gc = FALSE, check = FALSE)
}

bench_growth <- function() {
  layers <- c(10, 100, 1000, 10000)
  per_layer <- vapply(layers, function(n) {
    seconds(time_of(deep(n), iterations = max(3, 300 / n))$time[[1L]]) / n
  }, 0)
  for (i in seq_along(layers)) {
    cat(sprintf("  %6d layers: %7.1f us a layer\n", layers[[i]], 1e6 * per_layer[[i]]))
  }
  ratio <- per_layer[[length(layers)]] / per_layer[[1L]]
  report("time a layer, 10,000 layers / 10 layers", sprintf("%.2f", ratio), "<= 1.5",
         ratio <= 1.5)
}

bench_size <- function() {
  wide <- function(n) {
    bquote(ag_sequential(ag_linear(.(n), .(n), activation = "relu"), ag_linear(.(n), 10)))
  }
  small <- time_of(wide(10), iterations = 50)
  large <- time_of(wide(1e6), iterations = 50)
  stopifnot(eval(bquote(ag_training_budget(.(wide(1e6)))))$model$parameters > 1e12)
  ratio <- seconds(large$time[[1L]]) / seconds(small$time[[1L]])
  report("10^12 parameters / 220 parameters: time", sprintf("%.2f", ratio), "<= 1.5",
         ratio <= 1.5)
  allocated <- as.numeric(large$mem_alloc) / as.numeric(small$mem_alloc)
  report("10^12 parameters / 220 parameters: bytes allocated in R",
         sprintf("%.2f", allocated), "<= 1.5", allocated <= 1.5)
  cat(sprintf("  %.0f kB allocated\n", as.numeric(large$mem_alloc) / 1e3))
}

bench_search <- function() {
  search <- eval(bquote(function() ag_max_batch_size(.(deep(50)), "8GiB")))
  timed <- bench::mark(search(), min_iterations = 5, filter_gc = FALSE)
  spent <- seconds(timed$time[[1L]])
  report("largest batch of a 50-layer model", sprintf("%.0f ms", 1e3 * spent), "< 500 ms",
         spent < 0.5)
}

bench_real_step()
bench_growth()
bench_size()
bench_search()
