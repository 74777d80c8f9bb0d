test_that("an architecture is evaluated once and stands for its code", {
  evaluated <- 0
  architecture <- ag_architecture({
    evaluated <<- evaluated + 1
    ag_sequential(ag_linear(20L, 30L, activation = "relu"), ag_linear(30L, 5L))
  })
  expect_s3_class(architecture, "ag_architecture", exact = TRUE)
  for (batch_size in c(1, 32, 500)) {
    expect_identical(
      ag_training_budget(architecture, batch_size)$heap_bytes,
      ag_training_budget(
        ag_sequential(ag_linear(20L, 30L, activation = "relu"), ag_linear(30L, 5L)),
        batch_size
      )$heap_bytes
    )
  }
  expect_identical(evaluated, 1)
})

test_that("the table has a row for each layer in the order in which it runs", {
  table <- as.data.frame(ag_architecture(ag_sequential(
    ag_linear(20L, 30L, activation = "relu"), ag_batch_norm(30L), ag_dropout(0.1),
    ag_layer_norm(30L), ag_multihead_attention(30L, 3L),
    list(forward = function(x) ag_exp(x), parameters = function() list())
  )))
  expect_s3_class(table, "data.frame", exact = TRUE)
  expect_identical(table$layer, c(
    "linear_1", "batch_norm_1", "dropout_1", "layer_norm_1", "attention_1", "module_1",
    "loss"
  ))
  expect_identical(table$rows[1:6], rep(30, 6))
  expect_identical(table$parameters, c(630, 60, 0, 60, 4 * 900 + 30, 0, 0))
})

test_that("tape bytes are what one more unit of batch adds", {
  architecture <- ag_architecture(ag_sequential(
    ag_linear(20L, 30L, activation = "relu"), ag_linear(30L, 5L)
  ))
  table <- as.data.frame(architecture)
  at <- function(batch_size) {
    ag_training_budget(architecture, batch_size)$layers$tape_bytes
  }
  expect_equal(table$tape_bytes, at(101) - at(100))
  # x; W x, the bias expanded, the sum, relu's mask and its result, which the next layer
  # takes as its operand
  expect_identical(table$tape_bytes[[1L]], 8 * (20 + 4 * 30))
})

test_that("a layer that runs twice has one row, a nested one its own", {
  table <- as.data.frame(ag_architecture({
    shared <- ag_linear(6L, 6L)
    ag_sequential(shared, ag_sequential(shared, ag_relu_layer <- list(
      forward = function(x) ag_relu(x), parameters = function() list()
    )))
  }))
  expect_identical(sum(table$layer == "linear_1"), 1L)
  expect_identical(sum(table$parameters), 42)
})

test_that("input may be changed later", {
  architecture <- ag_architecture(function(x) ag_relu(x), input = 10)
  expect_identical(ag_training_budget(architecture)$input, 10)
  expect_identical(ag_training_budget(architecture, input = 20)$input, 20)
  expect_identical(ag_training_budget(architecture)$input, 10)
  expect_error(ag_architecture(function(x) ag_relu(x)),
               class = "agbudget_error_unknown_input")
})

test_that("an architecture of another session is an error", {
  file <- tempfile()
  on.exit(unlink(file))
  saveRDS(ag_architecture(ag_linear(4L, 2L)), file)
  restored <- readRDS(file)
  expect_error(ag_training_budget(restored), class = "agbudget_error_stale_architecture")
  expect_error(print(restored), class = "agbudget_error_stale_architecture")
})

test_that("it prints as a table", {
  architecture <- ag_architecture(ag_sequential(
    ag_linear(784L, 256L, activation = "relu"), ag_batch_norm(256L), ag_dropout(0.2),
    ag_linear(256L, 10L)
  ))
  expect_identical(capture.output(returned <- withVisible(print(architecture))),
                   format(architecture))
  expect_false(returned$visible)
  expect_match(format(architecture)[[1L]], "4 layers, 204,042 parameters", fixed = TRUE)
  expect_snapshot(architecture)
})
