# Three models are trained for real under R_MAX_VSIZE: with the prediction and 0.5 % more
# they train, with 0.5 % less they do not.

live_cases <- list(
  list(
    name = "dense, momentum", input = 256, batch = 1024, target = 64,
    model = 'ag_sequential(ag_linear(256L, 256L, "relu"), ag_linear(256L, 64L))',
    loss = "mse", optimizer = "sgd", loop = "retained"
  ),
  list(
    name = "norms and dropout, released", input = 128, batch = 700, target = 10,
    model = paste(
      "ag_sequential(ag_linear(128L, 256L, activation = \"tanh\"), ag_batch_norm(256L),",
      "ag_dropout(0.2), ag_layer_norm(256L), ag_linear(256L, 10L))"
    ),
    loss = "softmax_cross_entropy", optimizer = "adam", loop = "released"
  ),
  list(
    name = "residual attention", input = 32, batch = 256, target = 32,
    model = paste(
      "local({",
      "attention <- ag_multihead_attention(32L, 2L)",
      "out <- ag_linear(32L, 32L)",
      "list(",
      "forward = function(x) out$forward(ag_add(attention$forward(x), x)),",
      "parameters = function() c(attention$parameters(), out$params()))",
      "})",
      sep = "\n"
    ),
    loss = "cross_entropy", optimizer = "sgd_plain", loop = "retained"
  )
)

load_runs <- function() {
  scripts <- system.file("scripts", package = "agbudget")
  if (!nzchar(scripts)) skip("the measuring scripts are not installed")
  runs <- new.env(parent = globalenv())
  runs$script_directory <- function() scripts
  sys.source(file.path(scripts, "training_runs.R"), runs)
  runs
}

test_that("a little more than predicted trains, a little less does not", {
  skip_on_cran()
  skip_on_os(c("windows", "mac", "solaris"))
  skip_if_not_installed("ggmlR")
  runs <- load_runs()
  steps <- 3L
  idle <- runs$smallest_heap_kb(
    c(runs$tiny_case, list(then_hold = runs$yardstick_bytes / 8)), steps,
    (runs$yardstick_bytes + 6.3 * 2^20) / 1024
  ) - runs$yardstick_bytes / 1024

  for (case in live_cases) {
    predicted <- budget_of(
      c(case[c("input", "batch", "loss")], list(code = str2lang(case$model))),
      optimizer = case$optimizer, loop = case$loop
    )$heap_bytes
    trains <- function(factor) {
      heap_kb <- idle + factor * predicted / 1024
      !is.null(runs$train_in_process(case, steps, heap_kb))
    }
    expect_true(trains(1.005), info = case$name)
    expect_false(trains(0.995), info = case$name)
  }
})
