# Which shapes go together: as in ggmlR, where two steps of training run or stop.

test_that("matrices go together exactly where they do in ggmlR", {
  skip_if_not_installed("ggmlR")
  operations <- c("ag_add", "ag_sub", "ag_mul", "ag_matmul", "ag_concat_rows",
                  "ag_mse_loss", "ag_cross_entropy_loss", "ag_sample_normal")
  shapes <- list(c(1, 1), c(1, 4), c(3, 1), c(3, 4), c(4, 3), c(2, 4), c(6, 4), c(3, 2))
  for (operation in operations) {
    for (shape in shapes) {
      for (maker in c("ag_param", "ag_tensor", "identity")) {
        parameters <- if (maker == "ag_param") quote(list(W, V)) else quote(list(W))
        for (arguments in list(alist(h, V), alist(V, h))) {
          code <- bquote({
            W <- ag_param(matrix(0.5, 3, 3))
            V <- .(as.name(maker))(matrix(0.5, .(shape[[1L]]), .(shape[[2L]])))
            list(
              forward = function(x) {
                h <- ag_matmul(W, x)
                .(as.call(c(as.name(operation), arguments)))
              },
              parameters = function() .(parameters)
            )
          })
          expect_identical(
            budget_runs(code, 3L, 4L), ggmlr_trains(code, 3L, 4L), info = deparse1(code)
          )
        }
      }
    }
  }
})

# R recycles these with a warning, or a target says less than the output: no model that
# is meant works so.
test_that("vectors that do not fit are errors", {
  for (call in alist(
    ag_add(h, c(1, 2, 3, 4, 5)), ag_sub(c(1, 2, 3, 4, 5), h), ag_mul(h, 2),
    ag_mse_loss(h, c(1, 2, 3, 4, 5)), ag_softmax_cross_entropy_loss(h, c(0, 1)),
    ag_softmax_cross_entropy_loss(h, matrix(0, 1, 2)), ag_matmul(h, 2)
  )) {
    code <- bquote({
      W <- ag_param(matrix(0.5, 3, 3))
      function(x) {
        h <- ag_matmul(W, x)
        .(call)
      }
    })
    expect_error(
      budget_of(list(code = code, input = 3L, batch = 4L, loss = "mse")),
      class = "agbudget_error_bad_shape"
    )
  }
})

test_that("layers say what they expected and what came", {
  expect_error(
    ag_training_budget(ag_sequential(ag_linear(784L, 256L), ag_linear(100L, 10L))),
    "`ag_linear\\(100, 10\\)`.*expects an input of 100 rows; found 256 rows",
    class = "agbudget_error_bad_shape"
  )
  for (layer in alist(ag_batch_norm(7L), ag_layer_norm(7L), ag_linear(7L, 2L),
                      ag_multihead_attention(8L, 2L))) {
    expect_error(
      eval(bquote(ag_training_budget(ag_sequential(ag_linear(3L, 5L), .(layer))))),
      "expects an input of . rows; found 5 rows \\(5 x 32\\)",
      class = "agbudget_error_bad_shape"
    )
  }
  expect_error(
    ag_training_budget(ag_linear(784L, 256L), input = 100),
    "784", class = "agbudget_error_bad_shape"
  )
})

test_that("operations check what ggmlR checks", {
  refused <- alist(
    ag_slice_rows(h, 2, 2), ag_slice_rows(h, -1, 2), ag_slice_rows(h, 0, 0),
    ag_slice_rows(h, 0.5, 2), ag_gather(h, c(0, 1, 2)), ag_gather(h, c(0, 1, 2, 3)),
    ag_gather(h, c(0, 1, 2, 0.5)), ag_gather(h, c(0, 1, 2, NA)),
    ag_gather(h, letters[1:4]),
    ag_sample_normal(h, matrix(0, 1, 4)), ag_reshape(h, 5, -1), ag_reshape(h, 5L, 7L),
    ag_concat_rows(h, matrix(0, 2, 3)), ag_add(h, NULL), ag_relu("a"),
    ag_checkpoint("no function", h)
  )
  for (call in refused) {
    code <- bquote({
      W <- ag_param(matrix(0.5, 3, 3))
      function(x) {
        h <- ag_matmul(W, x)
        .(call)
      }
    })
    expect_error(
      budget_of(list(code = code, input = 3L, batch = 4L, loss = "mse")),
      class = "agbudget_error", info = deparse1(call)
    )
  }
})
