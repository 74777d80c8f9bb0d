model <- ag_architecture(ag_sequential(
  ag_linear(784L, 256L, activation = "relu"), ag_linear(256L, 10L)
))

test_that("every combination is a row, with the budget's own figures", {
  table <- ag_compare(model, batch_size = c(32, 256), loss = "softmax_cross_entropy",
                      accumulate_steps = 2)
  expect_s3_class(table, c("ag_comparison", "data.frame"), exact = TRUE)
  expect_identical(nrow(table), 12L)
  expect_false(anyDuplicated(table[c("batch_size", "optimizer", "loop")]) > 0)
  expect_identical(
    names(table),
    c("batch_size", "optimizer", "loop", "heap_bytes", "resident_bytes",
      component_names, "peak_phase")
  )
  for (i in seq_len(nrow(table))) {
    budget <- ag_training_budget(
      model, table$batch_size[[i]], table$optimizer[[i]], "softmax_cross_entropy",
      loop = table$loop[[i]], accumulate_steps = 2
    )
    expect_identical(table$heap_bytes[[i]], budget$heap_bytes)
    expect_identical(unlist(unclass(table)[component_names])[[paste0("weights", i)]],
                     budget$components[["weights"]])
    expect_identical(table$peak_phase[[i]], budget$peak$phase)
  }
  expect_equal(rowSums(as.data.frame(table)[component_names]), table$heap_bytes,
               ignore_attr = TRUE)
})

test_that("the defaults are five batches, three optimizers, two loops", {
  table <- ag_compare(ag_linear(8L, 8L))
  expect_identical(nrow(table), 30L)
  expect_identical(unique(table$batch_size), c(16, 32, 64, 128, 256))
})

test_that("a choice given twice is made once", {
  table <- ag_compare(model, c(32, 32L), c("adam", "ad"), "released")
  expect_identical(nrow(table), 1L)
  expect_identical(table$optimizer, "adam")
})

test_that("memory adds what fits", {
  table <- ag_compare(model, c(64, 1024), memory = "20MB")
  expect_identical(table$fits, table$heap_bytes <= 2e7)
  expect_true(any(table$fits) && !all(table$fits))
  expect_null(ag_compare(model, 64)$fits)
})

test_that("it prints as a table", {
  table <- ag_compare(model, c(64, 1024), c("adam", "sgd"), memory = "20MB")
  expect_snapshot({
    print(table)
    print(ag_compare(model, 64, "adam", "released"))
    print(table[table$fits, ])
    print(table[FALSE, ])
    print(table[c("batch_size", "loop")])
  })
  table$resident_bytes <- 2 * table$heap_bytes
  expect_match(format(table)[[2L]], "resident")
  expect_length(format(table), nrow(table) + 2L)
})

test_that("bad arguments are errors that name them", {
  bad <- function(pattern, ...) {
    expect_error(ag_compare(model, ...), pattern, fixed = TRUE,
                 class = "agbudget_error_bad_argument")
  }
  for (batch in list(numeric(), "32", NULL, TRUE, factor(1), list(1))) {
    bad("`batch_size` must be", batch_size = batch)
  }
  bad("`batch_size` must be", batch_size = 0)
  bad("`batch_size[2]` must be", batch_size = c(1, 1.5))
  bad("`batch_size[1]` must be", batch_size = c(NA, 1))
  bad("`optimizer` must be one of", optimizer = c("adam", "lion"))
  bad("`optimizer` must be one of", optimizer = character())
  bad("`loop` must be one of", loop = 1)
  bad("`loss` must be one of", loss = "hinge")
  bad("`accumulate_steps` must be", accumulate_steps = 0)
  bad("`input` must be", input = -1)
  bad("`memory` must be", memory = "8G")
})
