# Arguments of operations and layers: taken where ggmlR trains with them, refused by name
# where it stops or computes nonsense.

with_call <- function(call) {
  bquote({
    W <- ag_param(matrix(0.5, 3, 3))
    list(
      forward = function(x) {
        h <- ag_matmul(W, x)
        .(call)
      },
      parameters = function() list(W)
    )
  })
}

budget_with <- function(call) {
  budget_of(list(code = with_call(call), input = 3L, batch = 4L, loss = "mse"))
}

layer_with <- function(constructor, ...) {
  layer <- as.call(c(as.name(constructor), list(3L), list(...)))
  bquote(.(layer)$forward(h))
}

test_that("odd arguments are taken where ggmlR takes them", {
  skip_if_not_installed("ggmlR")
  calls <- alist(
    ag_scale(h, matrix(2)), ag_scale(h, matrix(2, 3, 4)), ag_scale(h, c(1, 2, 3)),
    ag_scale(h, 1:5), ag_scale(h, 1:13), ag_scale(h, matrix(2, 4, 3)),
    ag_scale(h, ag_tensor(matrix(2))), ag_scale(h, NULL), ag_scale(h, numeric()),
    ag_scale(h, "2"), ag_scale(h, TRUE), ag_scale(h), ag_scale(h, factor(2)),
    ag_scale(h, array(1, c(3, 4, 1))), ag_scale(h, array(1, 12)),
    ag_scale(ag_sum(h), matrix(2)),
    ag_pow(h, matrix(2, 3, 4)), ag_pow(h, matrix(2)), ag_pow(h, 1:3), ag_pow(h, "2"),
    ag_pow(h, NULL), ag_pow(h), ag_pow(h, TRUE),
    ag_clamp(h), ag_clamp(h, NULL), ag_clamp(h, c(0, 1)), ag_clamp(h, "0"),
    ag_clamp(h, hi = list(1)), ag_clamp(h, FALSE, TRUE), ag_clamp(h, 1, 0),
    ag_clamp(h, ag_tensor(0)), ag_clamp(h, -Inf, 3),
    ag_sum(h, 3), ag_sum(h, 0), ag_sum(h, TRUE), ag_sum(h, "1"), ag_sum(h, "a"),
    ag_sum(h, NA), ag_sum(h, c(1, 2)), ag_sum(h, numeric()), ag_sum(h, matrix(1)),
    ag_sum(h, 1.5), ag_mean(h, 3), ag_mean(h, ag_tensor(1)),
    ag_sum(h, 1, keepdim = stop("not used")),
    ag_reshape(h, 2.5, 6), ag_reshape(h, "2", 6), ag_reshape(h, -1, -1),
    ag_reshape(h, NA, 2), ag_reshape(h, c(2, 3), 2), ag_reshape(h, TRUE, 12),
    ag_reshape(h, -2, -6), ag_reshape(h, 12), ag_reshape(h, matrix(2), 6),
    ag_slice_rows(h, 1.5, 1), ag_slice_rows(h, TRUE, 1),
    ag_slice_rows(h, matrix(1), matrix(1)), ag_slice_rows(h, 1), ag_relu(h, h),
    ag_relu(), ag_add(h), ag_mean(h, axis = 1)
  )
  options <- c(
    lapply(alist("a", "1", 0, TRUE, Inf, 1e-3), function(x) {
      list(layer_with("ag_batch_norm", eps = x), layer_with("ag_layer_norm", eps = x),
           layer_with("ag_batch_norm", momentum = x))
    }),
    lapply(alist(1, "yes", NA, NULL, TRUE, FALSE), function(x) {
      list(layer_with("ag_layer_norm", elementwise_affine = x))
    }),
    lapply(alist(NULL, NA, "a", "0.1", -1, 0, FALSE, 0.5, numeric()), function(x) {
      list(layer_with("ag_multihead_attention", 1L, dropout = x))
    }),
    lapply(alist(NULL, NA, "a", "TRUE", "T", "yes", c(TRUE, FALSE), 0, 1, 2,
                 matrix(TRUE), list(TRUE), "false"), function(x) {
      list(layer_with("ag_multihead_attention", 1L, bias = x))
    }),
    lapply(alist(NULL, NA, "a", 1, TRUE, c(TRUE, TRUE)), function(x) {
      list(bquote(ag_multihead_attention(3L, 1L)$forward(h, causal_mask = .(x))))
    }),
    lapply(alist(NULL, NA, "a", "0.1", matrix(0.1), -1, 0, TRUE, FALSE, numeric(), 1,
                 Inf, list(0.5)), function(x) {
      list(bquote(ag_dropout(.(x))$forward(h)))
    }),
    lapply(alist(NA_character_, c("relu", "tanh"), "none", NULL), function(x) {
      list(layer_with("ag_linear", 3L, activation = x))
    })
  )
  for (call in c(calls, unlist(options, recursive = FALSE))) {
    code <- with_call(call)
    ours <- tryCatch({
      budget_with(call)
      TRUE
    }, error = function(e) FALSE)
    expect_identical(ours, ggmlr_trains(code, 3L, 4L), info = deparse1(call))
  }
})

test_that("what would compute nonsense is refused, by name", {
  refused <- alist(
    scalar = ag_scale(h, NA), scalar = ag_scale(h, c(1, NaN)), p = ag_pow(h, NA),
    lo = ag_clamp(h, NA), hi = ag_clamp(h, 0, NaN),
    eps = ag_batch_norm(3L, eps = -1)$forward(h), eps = ag_batch_norm(3L, NULL),
    eps = ag_layer_norm(3L, eps = NA)$forward(h),
    momentum = ag_batch_norm(3L, momentum = NA)$forward(h),
    dropout = ag_multihead_attention(3L, 1L, dropout = 1)$forward(h),
    rate = ag_dropout(c(0.1, 0.2))$forward(h), dim = ag_sum(h, NA),
    nrow = ag_reshape(h, "a", 2), bias = ag_multihead_attention(3L, 1L, bias = "yes"),
    activation = ag_linear(3L, 3L, activation = TRUE)$forward(h)
  )
  for (i in seq_along(refused)) {
    expect_error(
      budget_with(refused[[i]]), paste0("`", names(refused)[[i]], "` of `ag_"),
      class = "agbudget_error_bad_argument", info = deparse1(refused[[i]])
    )
  }
})

test_that("a factor or an exponent for every element stays with the graph", {
  skip_if_not_installed("ggmlR")
  for (call in alist(ag_scale(h, matrix(2, 30, 40)), ag_scale(h, rep(2, 30)),
                     ag_pow(h, matrix(2, 30, 40)), ag_scale(h, 2))) {
    code <- bquote({
      W <- ag_param(matrix(0.5, 30, 30))
      function(x) {
        h <- ag_matmul(W, x)
        .(call)
      }
    })
    model <- list(code = code, input = 30L, batch = 40L, loss = "mse")
    expect_identical(tape_difference(model), character(), info = deparse1(call))
  }
  kept <- function(call) budget_with(call)$tape$bytes_snapshots
  expect_gt(kept(quote(ag_scale(h, matrix(2, 3, 4)))), kept(quote(ag_scale(h, 2))))
  expect_gt(kept(quote(ag_pow(h, matrix(2, 3, 4)))), kept(quote(ag_pow(h, 2))))
})

test_that("a bias is a bias however it is asked for", {
  count <- function(bias) {
    layer <- bquote(ag_multihead_attention(8L, 2L, bias = .(bias)))
    eval(bquote(ag_training_budget(.(layer))))$model$parameters
  }
  for (bias in list(TRUE, 1, "T")) expect_identical(count(bias), 4 * 64 + 8)
  for (bias in list(FALSE, 0, "false")) expect_identical(count(bias), 4 * 64)
})

test_that("the activation is looked at when a layer first runs", {
  # So a loop's variable has its last value, as in ggmlR.
  budget <- ag_training_budget({
    layers <- list()
    for (name in c("relu", "tanh", "none")) {
      layers <- c(layers, list(ag_linear(4L, 4L, activation = name)))
    }
    ag_sequential(layers)
  })
  expect_identical(budget$tape$nodes, 3 * 2 + 1)
  budget <- ag_training_budget({
    unused <- ag_linear(4L, 4L, activation = stop("looked at"))
    ag_linear(4L, 4L)
  })
  expect_s3_class(budget, "ag_training_budget")
})

targets <- alist(
  c(0L, 1L, 2L, 0L), c(0, 1, 2, 0), matrix(0, 1, 4), matrix(c(0L, 1L, 2L, 0L), 4, 1),
  matrix(c(0, 1, 2, 0), 4, 1), matrix(0, 3, 4), matrix(TRUE, 3, 4), matrix(0L, 3, 4),
  c(0, 1, 2, 3), matrix(3, 1, 4), c(0, 1, 2, 0, 1), matrix(0.5, 2, 4), "a", NULL,
  c(0.5, 1, 2, 0)
)

indices <- alist(
  0:3, c(0, 1, 2, 3), 4:7, c(-1, 0, 1, 2), c(-2, 0, 1, 2), c(NA, 0L, 1L, 2L),
  c(0.5, 1, 2, 3), matrix(0, 2, 2), c(TRUE, FALSE, TRUE, TRUE), c(4.9, 0, 0, 0)
)

test_that("constant class and word indices must be there", {
  skip_if_not_installed("ggmlR")
  calls <- c(
    lapply(targets, function(x) bquote(ag_softmax_cross_entropy_loss(h, .(x)))),
    lapply(indices, function(x) bquote(ag_add(h, ag_embedding(5L, 3L)$forward(.(x)))))
  )
  for (call in calls) {
    ours <- tryCatch({
      budget_with(call)
      TRUE
    }, agbudget_error = function(e) FALSE)
    expect_identical(ours, ggmlr_trains(with_call(call), 3L, 4L), info = deparse1(call))
  }
  # These ggmlR takes for no class at all.
  for (target in list(c(-1, 0, 1, 2), c(NA, 0, 1, 2))) {
    expect_error(
      budget_with(bquote(ag_softmax_cross_entropy_loss(h, .(target)))),
      "`target` of .* whole numbers from 0 to 2; found (-1|NA)",
      class = "agbudget_error_bad_argument"
    )
  }
  expect_error(
    budget_with(quote(ag_softmax_cross_entropy_loss(h, matrix(0L, 3, 4)))),
    "`target` of .* a matrix of doubles", class = "agbudget_error_bad_argument"
  )
  expect_error(
    budget_with(quote(ag_embedding(5L, 3L)$forward(c(0, 5)))),
    "`idx` of `ag_embedding\\(5, 3\\)` .* 0 to 4; found 5",
    class = "agbudget_error_bad_argument"
  )
})

test_that("a GPU is refused wherever it can be named", {
  for (code in alist(ag_param(matrix(0, 2, 2), device = "gpu"),
                     ag_tensor(matrix(0, 2, 2), "gpu"))) {
    expect_error(
      eval(bquote(ag_training_budget(.(code)))), "not modelled",
      class = "agbudget_error_not_modelled"
    )
  }
})

checkpoints <- alist(
  ag_checkpoint(function(u) u$data, h),
  ag_checkpoint(function(u) 2 * u$data, h),
  ag_mul(h, ag_checkpoint(function(u) 2 * u$data, h)),
  ag_mse_loss(h, ag_checkpoint(function(u) 2 * u$data, h)),
  {
    ag_checkpoint(function(u) 2 * u$data, h)
    h
  },
  {
    t <- ag_checkpoint(function(u) 2 * u$data, h)
    t$requires_grad <- FALSE
    ag_mul(h, t)
  },
  {
    t <- ag_checkpoint(function(u) c(1, 2, 3), h)
    t$requires_grad <- FALSE
    ag_add(h, t)
  },
  ag_checkpoint(function(u) ag_add(u, ag_checkpoint(function(v) 2 * v$data, u)), h),
  ag_checkpoint(function(u) ag_mse_loss(u, ag_checkpoint(function(v) v$data, u)), h)
)

test_that("a checkpoint may return a matrix, unless a gradient must pass", {
  skip_if_not_installed("ggmlR")
  for (call in checkpoints) {
    ours <- tryCatch({
      budget_with(call)
      TRUE
    }, agbudget_error_bad_model = function(e) FALSE)
    expect_identical(ours, ggmlr_trains(with_call(call), 3L, 4L), info = deparse1(call))
  }
  expect_error(
    budget_with(checkpoints[[1L]]), "`ag_checkpoint\\(\\)`.*no gradient can pass",
    class = "agbudget_error_bad_model"
  )
  expect_error(
    budget_with(quote(ag_checkpoint(function(u) "a", h))),
    "must return a tensor or a numeric matrix", class = "agbudget_error_bad_model"
  )
})

test_that("a checkpoint made while the model is built just calls its function", {
  seen <- NULL
  ag_training_budget({
    seen <<- ag_checkpoint(function(n) list(n), 3L)
    ag_linear(4L, 4L)
  })
  expect_identical(seen, list(3L))
})

test_that("such a checkpoint leaves the tape that ggmlR reports", {
  skip_if_not_installed("ggmlR")
  code <- quote({
    W <- ag_param(matrix(0.5, 30, 30))
    function(x) {
      h <- ag_matmul(W, x)
      ag_mse_loss(h, ag_checkpoint(function(u) matrix(0.5, 30, 40), h))
    }
  })
  model <- list(code = code, input = 30L, batch = 40L, loss = "mse")
  expect_identical(tape_difference(model), character())
})
