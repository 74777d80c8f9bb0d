# How ag_linear() gets its initial weights: what that takes while the model is built, what
# stays, and what is refused.

# Where building a layer of `rows` x `cols` peaks, and what is left of it at the end, in
# matrices of that size.
built <- function(layer, rows = 1000L, cols = 1000L) {
  budget <- eval(bquote(ag_training_budget(
    .(layer), batch_size = 1L, optimizer = "sgd_plain", input = .(cols)
  )))
  timeline <- budget$timeline
  matrices <- timeline$live_bytes - timeline$bookkeeping
  setup <- matrices[timeline$operation %in% c("build", "R matrix")]
  # At the first forward pass plain SGD has a velocity, beside the batch.
  start <- timeline$live_bytes[timeline$phase == "forward"][[1L]]
  c(peak = max(setup), kept = start - 8 * rows * cols) / (8 * rows * cols)
}

expect_built <- function(layer, peak, kept = 1, ...) {
  found <- built(layer, ...)
  expect_equal(found[["peak"]], peak, tolerance = 0.01, info = deparse1(layer))
  expect_equal(found[["kept"]], kept, tolerance = 0.02, info = deparse1(layer))
}

# The peaks are the smallest heaps in which ggmlR 0.8.8.1 makes these layers; what is
# kept is what gc() says of them, before and after a step has replaced the weight.
test_that("building a layer takes what it takes in ggmlR", {
  expect_built(quote(ag_linear(1000L, 1000L)), 2)
  expect_built(quote(ag_linear(1000L, 1000L, gain = 2)), 2)
  expect_built(quote(ag_linear(1000L, 1000L, init = "orthogonal")), 7)
  expect_built(quote(ag_linear(1000L, 1000L, init = "orthogonal", gain = 2)), 7)
  expect_built(quote(ag_linear(1000L, 500L, init = "orthogonal")), 7, rows = 500L)
  expect_built(quote(ag_linear(500L, 1000L, init = "orthogonal")), 7, cols = 500L)
})

test_that("what a function makes becomes the weight, without a copy", {
  expect_built(quote(ag_linear(1000L, 1000L, init = function(out, inp) {
    matrix(0, out, inp)
  })), 1.5)
  expect_built(quote(ag_linear(1000L, 1000L, init = function(out, inp) {
    matrix(rnorm(out * inp), out, inp)
  })), 2)
  expect_built(quote(ag_linear(1000L, 1000L, init = function(out, inp) {
    matrix(0L, out, inp)
  })), 1.5)
  expect_built(quote(ag_linear(1000L, 1000L, init = function(out, inp) {
    factors <- qr(matrix(rnorm(out * inp), out, inp))
    qr.Q(factors) * rep(sign(diag(qr.R(factors))), each = out)
  })), 7)
})

test_that("a matrix is copied, and stays with the layer", {
  expect_built(quote(ag_linear(1000L, 1000L, init = matrix(0, 1000, 1000))), 2, 2)
  expect_built(quote(ag_linear(1000L, 1000L, init = matrix(0L, 1000, 1000))), 2, 1.5)
  expect_built(quote({
    W <- matrix(0, 1000, 1000)
    ag_linear(1000L, 1000L, init = function(out, inp) W)
  }), 2, 2)
  # Once, however many layers are made from it.
  tied <- quote({
    W <- matrix(0, 1000, 1000)
    ag_sequential(ag_linear(1000L, 1000L, init = W), ag_linear(1000L, 1000L, init = W))
  })
  expect_equal(built(tied)[["peak"]], 3, tolerance = 0.01)
  # The caller's own matrix too.
  W <- matrix(0, 1000, 1000)
  budget <- ag_training_budget(ag_linear(1000L, 1000L, init = W), batch_size = 1L)
  expect_equal(budget$components[["weights"]] / 8e6, 2, tolerance = 0.01)
})

test_that("a function from outside the model's code makes symbolic values too", {
  env <- new.env(parent = globalenv())
  env$ag_training_budget <- ag_training_budget
  budget <- eval(quote({
    he <- function(out, inp) matrix(rnorm(out * inp, sd = sqrt(2 / inp)), out, inp)
    ag_training_budget(ag_linear(5e4, 3e4, init = he))
  }), env)
  expect_identical(budget$model$parameters, 5e4 * 3e4 + 3e4)
})

inits <- alist(
  NULL, "o", "g", "x", c("glorot_uniform", "orthogonal"), NA_character_, character(0),
  matrix(1, 2, 3), matrix(1L, 2, 3), matrix(TRUE, 2, 3), matrix(1, 3, 2),
  matrix(NaN, 2, 3), matrix(c(1, Inf), 2, 3), 1:6, array(1, c(2, 3, 1)),
  data.frame(1, 2, 3), ag_param(matrix(1, 2, 3)),
  function(out, inp) matrix(1, out, inp), function(out, inp) matrix(1, inp, out),
  function(out, inp) matrix(runif(out * inp), out, inp), function(out, inp) 1,
  function(out) 1, function(out, inp) NULL, function(...) matrix(1, ...),
  function(out, inp) ag_param(matrix(1, out, inp)),
  function(out, inp) matrix(NA_real_, out, inp), sqrt
)

gains <- alist(1L, 2, 2L, 0, -1, NULL, NA, "a", Inf, c(1, 2), TRUE, factor(1))

test_that("initial weights are taken exactly where ggmlR takes them", {
  skip_if_not_installed("ggmlR")
  calls <- c(
    lapply(inits, function(init) bquote(ag_linear(3L, 2L, init = .(init)))),
    lapply(gains, function(gain) bquote(ag_linear(3L, 2L, gain = .(gain)))),
    lapply(gains, function(gain) bquote(ag_linear(3L, 2L, init = "o", gain = .(gain)))),
    lapply(gains, function(gain) {
      bquote(ag_linear(3L, 2L, init = matrix(0, 2, 3), gain = .(gain)))
    })
  )
  for (call in calls) {
    model <- bquote({
      layer <- .(call)
      list(forward = layer$forward, parameters = layer$params)
    })
    ours <- tryCatch({
      budget_of(list(code = model, input = 3L, batch = 4L, loss = "mse"))
      TRUE
    }, error = function(e) FALSE)
    expect_identical(ours, ggmlr_trains(model, 3L, 4L), info = deparse1(call))
  }
})

test_that("what is refused is named", {
  refused <- alist(
    "`init`" = ag_linear(3L, 2L, init = NULL),
    "`init`" = ag_linear(3L, 2L, init = "normal"),
    "a 2 x 3 matrix" = ag_linear(3L, 2L, init = matrix(0, 3, 2)),
    "a function that returns a 3 x 2 double matrix" =
      ag_linear(3L, 2L, init = function(out, inp) matrix(0, inp, out)),
    "found Inf" = ag_linear(3L, 2L, init = matrix(Inf, 2, 3)),
    "`gain`" = ag_linear(3L, 2L, gain = c(1, 2)),
    "`gain` of `ag_linear\\(\\)` must be 1" =
      ag_linear(3L, 2L, init = matrix(0, 2, 3), gain = 2)
  )
  for (i in seq_along(refused)) {
    expect_error(
      eval(bquote(ag_training_budget(.(refused[[i]])))), names(refused)[[i]],
      class = "agbudget_error_bad_argument", info = deparse1(refused[[i]])
    )
  }
  expect_error(
    ag_training_budget(ag_linear(1e5, 1e5, init = "orthogonal")), "2\\^31 - 1",
    class = "agbudget_error_bad_dimension"
  )
})

test_that("symbolic factors have the shapes of real ones", {
  for (shape in list(c(7, 4), c(4, 7), c(5, 5))) {
    real <- qr(matrix(stats::rnorm(prod(shape)), shape[[1L]], shape[[2L]]))
    for (complete in c(TRUE, FALSE)) {
      found <- NULL
      ag_training_budget({
        factors <- qr(matrix(rnorm(prod(shape)), shape[[1L]], shape[[2L]]))
        found <<- list(
          q = dim(qr.Q(factors, complete)), r = dim(qr.R(factors, complete = complete)),
          rank = factors$rank, other = qr.Q(qr(diag(3)))
        )
        ag_linear(2L, 2L)
      })
      expect_equal(found$q, dim(qr.Q(real, complete)))
      expect_equal(found$r, dim(qr.R(real, complete)))
      expect_equal(found$rank, real$rank)
      expect_identical(found$other, qr.Q(qr(diag(3))))
    }
  }
})
