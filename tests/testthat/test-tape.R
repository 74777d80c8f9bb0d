# The tape of ag_training_budget() against ggmlR's own report of a real one.

expect_same_tape <- function(model, info = "") {
  difference <- tape_difference(model)
  expect(
    length(difference) == 0L,
    paste0(info, difference, "\n", if (length(difference)) show_model(model))
  )
}

test_that("random models leave the tape that ggmlR reports", {
  skip_if_not_installed("ggmlR")
  seed <- as.integer(Sys.getenv("AGBUDGET_SEED", sample.int(1e6L, 1L)))
  models <- as.integer(Sys.getenv("AGBUDGET_MODELS", 250L))
  cat("\nseed of the random models:", seed, "\n")
  used <- character()
  for (i in seq_len(models)) {
    set.seed(seed + i)
    model <- random_model()
    used <- c(used, model$rules)
    expect_same_tape(model, paste0("seed ", seed + i, ": "))
  }
  if (models >= 250L) {
    for (rule in c("ag_add column", "ag_add row", "ag_sub column", "ag_mul row", "matmul",
                   "ag_log", "checkpoint", "attention", "embedding", "max", "gather",
                   "ag_sum 1", "ag_mean 2", "sequential", "ag_batch_norm")) {
      expect_true(rule %in% used, info = rule)
    }
  }
})

# One model for each operation, so that every one is compared whatever the seed.
model_of <- function(code, input = 20L, batch = 30L, loss = "mse", vocabulary = NULL) {
  list(code = code, input = input, batch = batch, loss = loss, vocabulary = vocabulary)
}

test_that("every operation on its own leaves the tape that ggmlR reports", {
  skip_if_not_installed("ggmlR")
  operations <- alist(
    ag_matmul(A, h), ag_matmul(h, B), ag_matmul(h, ag_transpose(h)),
    ag_add(h, A20), ag_add(h, column), ag_add(h, row), ag_add(A20, h), ag_add(h, 2),
    ag_add(2, h), ag_add(h, h),
    ag_sub(h, A20), ag_sub(h, column), ag_sub(h, row), ag_sub(A20, h), ag_sub(h, 2),
    ag_mul(h, A20), ag_mul(h, column), ag_mul(h, row), ag_mul(row, h),
    ag_mul(column, row),
    ag_mul(h, matrix(1, 1, 1)), ag_mul(h, h),
    ag_scale(h, 2), ag_relu(h), ag_sigmoid(h), ag_tanh(h), ag_softmax(h),
    ag_log_softmax(h), ag_log(h), ag_exp(h), ag_pow(h, 3), ag_clamp(h, -1, 1),
    ag_sum(h), ag_sum(h, 1), ag_sum(h, 2), ag_sum(h, dim = 1L, keepdim = TRUE),
    ag_mean(h), ag_mean(h, 1), ag_mean(h, 2), ag_reshape(h, 30L, 20L),
    ag_reshape(h, -1, 12L), ag_reshape(h, 50, -1L), ag_transpose(h),
    ag_slice_rows(h, 3, 12), ag_concat_rows(h, A20), ag_concat_rows(A20, h),
    ag_gather(h, rep_len(0:2, 30)), ag_max(h), ag_sample_normal(h, column),
    ag_mse_loss(h, matrix(0, 20, 30)),
    ag_cross_entropy_loss(ag_softmax(h), matrix(0, 20, 30)),
    ag_softmax_cross_entropy_loss(h, matrix(0, 20, 30)),
    ag_softmax_cross_entropy_loss(h, rep_len(0:4, 30)),
    ag_softmax_cross_entropy_loss(h, matrix(rep_len(0:4, 30), 1L)),
    ag_softmax_cross_entropy_loss(h, rep_len(c(0, 3), 30)),
    ag_checkpoint(function(u) ag_tanh(ag_matmul(A, u)), h),
    ag_checkpoint(function(u, v) ag_relu(ag_add(u, v)), h, v = A20),
    ag_checkpoint(function(u) u, h),
    ag_checkpoint(function(u) ag_checkpoint(function(v) ag_exp(ag_add(v, h)), u), h),
    ag_argmax(h), h
  )
  for (operation in operations) {
    last <- if (identical(operation, quote(ag_argmax(h)))) quote(h) else quote(out)
    for (loss in c("mse", "softmax_cross_entropy")) {
      code <- bquote({
        W <- ag_param(matrix(runif(400), 20, 20))
        A <- ag_param(matrix(runif(800), 40, 20))
        B <- ag_tensor(matrix(runif(900), 30, 30))
        A20 <- ag_param(matrix(runif(600), 20, 30))
        column <- ag_param(matrix(runif(20), 20, 1))
        row <- ag_param(matrix(runif(30), 1, 30))
        list(
          forward = function(x) {
            h <- ag_matmul(W, x)
            out <- .(operation)
            .(last)
          },
          parameters = function() list(W, A, A20, column, row)
        )
      })
      expect_same_tape(model_of(code, loss = loss), paste0(deparse1(operation), ": "))
    }
  }
})

test_that("every layer on its own leaves the tape that ggmlR reports", {
  skip_if_not_installed("ggmlR")
  layers <- alist(
    ag_linear(24, 17), ag_linear(24L, 17L, activation = "relu"),
    ag_linear(24L, 17L, "sigmoid"), ag_linear(24L, 17L, "tanh"),
    ag_linear(24L, 17L, "softmax"), ag_linear(24L, 17L, "gelu"),
    ag_linear(24L, 17L, init = "orthogonal"),
    ag_batch_norm(24L), ag_layer_norm(24L),
    ag_layer_norm(24L, elementwise_affine = FALSE),
    ag_multihead_attention(24L, 1L), ag_multihead_attention(24L, 4L),
    ag_multihead_attention(24L, 3L, dropout = 0.1),
    ag_multihead_attention(24L, 4L, bias = FALSE),
    ag_sequential(ag_linear(24L, 24L), ag_dropout(0.5), ag_linear(24L, 9L)),
    ag_sequential(list(ag_linear(24L, 5L))),
    ag_eval(ag_sequential(ag_batch_norm(24L), ag_dropout(0.4), ag_linear(24L, 5L))),
    ag_train(ag_eval(ag_sequential(ag_batch_norm(24L), ag_dropout(0.4))))
  )
  for (layer in layers) {
    for (batch in c(1L, 33L)) {
      expect_same_tape(model_of(layer, 24L, batch), paste0(deparse1(layer), ": "))
    }
  }
  embedding <- quote(ag_sequential(ag_embedding(70L, 24L), ag_linear(24L, 9L)))
  expect_same_tape(model_of(embedding, 1L, 40L, vocabulary = 70L))
})

test_that("attention's options leave the tape that ggmlR reports", {
  skip_if_not_installed("ggmlR")
  calls <- alist(
    a$forward(h, causal_mask = TRUE), a$forward(h, keys), a$forward(h, keys, keys),
    a$forward(h, v = h), a$forward(keys, h, h, causal_mask = TRUE)
  )
  for (call in calls) {
    code <- bquote({
      a <- ag_multihead_attention(24L, 4L, dropout = 0.2)
      keys <- ag_param(matrix(runif(24 * 11), 24, 11))
      W <- ag_linear(24L, 24L)
      list(
        forward = function(x) {
          h <- W$forward(x)
          .(call)
        },
        parameters = function() c(a$parameters(), W$params())
      )
    })
    expect_same_tape(model_of(code, 24L, 19L), paste0(deparse1(call), ": "))
  }
})

test_that("tied, frozen and unused parameters leave the tape that ggmlR reports", {
  skip_if_not_installed("ggmlR")
  tied <- quote({
    W <- ag_param(matrix(runif(900), 30, 30))
    list(
      forward = function(x) {
        for (i in 1:4) x <- ag_tanh(ag_matmul(W, x))
        ag_matmul(ag_transpose(W), x)
      },
      parameters = function() list(a = W, b = W)
    )
  })
  expect_same_tape(model_of(tied, 30L))
  frozen <- quote({
    a <- ag_linear(30L, 40L)
    b <- ag_linear(40L, 30L)
    unused <- ag_param(matrix(0, 50, 50))
    a$W$requires_grad <- FALSE
    a$b$requires_grad <- FALSE
    list(
      forward = function(x) b$forward(ag_relu(a$forward(x))),
      parameters = function() c(a$params(), b$params(), list(unused))
    )
  })
  expect_same_tape(model_of(frozen, 30L))
  all_frozen <- quote({
    a <- ag_linear(30L, 40L)
    for (p in a$params()) p$requires_grad <- FALSE
    a
  })
  expect_same_tape(model_of(all_frozen, 30L))
})

test_that("a checkpoint may stand in another, with dropout and outer tensors inside", {
  skip_if_not_installed("ggmlR")
  code <- quote({
    a <- ag_linear(30L, 30L, "relu")
    drop <- ag_dropout(0.5)
    norm <- ag_batch_norm(30L)
    list(
      forward = function(x) {
        outer <- a$forward(x)
        h <- ag_checkpoint(function(u) {
          inner <- ag_checkpoint(function(v) drop$forward(ag_add(v, outer)), u)
          norm$forward(inner)
        }, outer)
        h <- drop$forward(h)
        ag_checkpoint(function(u) drop$forward(a$forward(u)), h)
      },
      parameters = function() c(a$params(), norm$parameters())
    )
  })
  expect_same_tape(model_of(code, 30L))
})

test_that("a draw between checkpoints gives the next one a state of its own", {
  skip_if_not_installed("ggmlR")
  noises <- alist(
    h, ag_sample_normal(h, column), ag_add(h, matrix(rnorm(900), 30, 30)),
    ag_dropout(0.5)$forward(h), ag_mul(h, ag_tensor(matrix(runif(900), 30, 30)))
  )
  for (noise in noises) {
    code <- bquote({
      W <- ag_param(matrix(runif(900), 30, 30))
      column <- ag_param(matrix(0, 30, 1))
      list(
        forward = function(x) {
          h <- ag_checkpoint(function(u) ag_tanh(ag_matmul(W, u)), x)
          h <- .(noise)
          ag_checkpoint(function(u) ag_relu(ag_matmul(W, u)), h)
        },
        parameters = function() list(W, column)
      )
    })
    expect_same_tape(model_of(code, 30L), paste0(deparse1(noise), ": "))
  }
})
