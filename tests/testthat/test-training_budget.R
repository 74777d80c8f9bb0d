small <- quote(ag_sequential(
  ag_linear(20L, 30L, activation = "relu"), ag_linear(30L, 5L)
))

budget <- function(code = small, ...) {
  eval(as.call(c(list(quote(ag_training_budget), code), list(...))))
}

test_that("the result has what the help page says", {
  b <- budget(batch_size = 16)
  expect_s3_class(b, "ag_training_budget", exact = TRUE)
  expect_named(b, c(
    "heap_bytes", "components", "peak", "timeline", "layers", "tape", "resident_bytes",
    "other_loop_bytes", "model", "batch_size", "input", "optimizer", "loss", "loop",
    "accumulate_steps"
  ))
  expect_named(b$components, component_names)
  expect_named(b$peak, c("phase", "step", "operation", "layer"))
  expect_named(b$timeline, c(
    "step", "phase", "layer", "operation", "live_bytes", component_names
  ))
  expect_named(
    b$layers, c("layer", "kind", "rows", "cols", "parameters", "tape_bytes")
  )
  expect_named(b$tape, c(
    "nodes", "bytes_total", "bytes_snapshots", "bytes_fields", "bytes_inputs", "by_op"
  ))
  expect_identical(b$model$parameters, 20 * 30 + 30 + 30 * 5 + 5)
  expect_identical(b$input, 20)
  expect_identical(b$batch_size, 16)
  expect_identical(b$optimizer, "adam")
  expect_identical(b$loss, "mse")
  expect_identical(b$loop, "retained")
})

varied <- list(
  small, quote(ag_linear(3L, 2L)), quote(ag_sequential(ag_embedding(50L, 8L))),
  quote(ag_sequential(ag_linear(16L, 16L), ag_batch_norm(16L), ag_dropout(0.2),
                      ag_layer_norm(16L), ag_multihead_attention(16L, 2L)))
)

test_that("components add up to the bytes, at the peak and at every moment", {
  for (code in varied) {
    for (optimizer in c("adam", "sgd", "sgd_plain")) {
      for (loss in losses) {
        for (loop in loops) {
          b <- budget(code, optimizer = optimizer, loss = loss, loop = loop)
          expect_identical(sum(b$components), b$heap_bytes)
          expect_identical(rowSums(b$timeline[component_names]), b$timeline$live_bytes,
                           ignore_attr = TRUE)
          expect_identical(max(b$timeline$live_bytes), b$heap_bytes)
          expect_true(all(b$components >= 0))
          peak <- b$timeline[which.max(b$timeline$live_bytes), ]
          expect_identical(b$peak$operation, peak$operation)
          expect_identical(b$peak$phase, peak$phase)
          expect_identical(b$peak$step, peak$step)
          expect_identical(b$peak$layer, peak$layer)
        }
      }
    }
  }
})

test_that("each loop's budget knows the other's, and releasing never needs more", {
  for (code in varied) {
    retained <- budget(code, batch_size = 200)
    released <- budget(code, batch_size = 200, loop = "released")
    expect_identical(retained$other_loop_bytes, released$heap_bytes)
    expect_identical(released$other_loop_bytes, retained$heap_bytes)
    expect_lte(released$heap_bytes, retained$heap_bytes)
  }
})

test_that("the tape's parts add up, and by operation too", {
  tape <- budget(batch_size = 64)$tape
  expect_identical(
    tape$bytes_total, tape$bytes_snapshots + tape$bytes_fields + tape$bytes_inputs
  )
  expect_identical(sum(tape$by_op$bytes), tape$bytes_total)
  expect_identical(sum(tape$by_op$nodes), tape$nodes)
  expect_identical(order(-tape$by_op$bytes), seq_along(tape$by_op$bytes))
})

test_that("events come in the order in which training runs", {
  timeline <- budget()$timeline
  phases <- rle(paste(timeline$step, timeline$phase))$values
  expect_identical(phases, c("0 setup", outer(c("forward", "backward", "step"), 1:3,
                                              function(phase, step) paste(step, phase))))
})

# Arguments -----------------------------------------------------------------------

test_that("every argument is checked, by class", {
  refused <- alist(
    batch_size = 0, batch_size = -1, batch_size = 2.5, batch_size = NA,
    batch_size = NA_real_, batch_size = Inf, batch_size = "32", batch_size = c(1, 2),
    batch_size = NULL, batch_size = 2^31, batch_size = list(1), batch_size = TRUE,
    batch_size = numeric(), batch_size = factor(1),
    optimizer = "adamw", optimizer = 1, optimizer = NA_character_, optimizer = NULL,
    optimizer = character(), optimizer = c("sgd", "adam"),
    loss = "huber", loss = NULL, loss = c("mse", "mse"),
    loop = "for", loop = NULL, loop = FALSE,
    input = 0, input = 1.5, input = "20", input = NA, input = c(20, 20), input = -20,
    accumulate_steps = 0, accumulate_steps = 1.5, accumulate_steps = "2",
    accumulate_steps = NULL, accumulate_steps = 1e6
  )
  for (i in seq_along(refused)) {
    argument <- names(refused)[[i]]
    call <- as.call(c(quote(ag_training_budget), small, refused[i]))
    error <- expect_error(
      eval(call), class = "agbudget_error_bad_argument", info = deparse1(call)
    )
    expect_s3_class(error, "agbudget_error")
    expect_match(conditionMessage(error), paste0("`", argument, "`"), fixed = TRUE)
  }
})

test_that("optimizer, loss and loop may be abbreviated as match.arg() allows", {
  expect_identical(budget(loss = "soft")$loss, "softmax_cross_entropy")
  expect_identical(budget(optimizer = "sgd")$optimizer, "sgd")
  expect_identical(budget(loop = "rel")$loop, "released")
})

test_that("what is no model is an error that says what was found", {
  for (code in alist(
    NULL, 1, "model", list(), list(forward = 1), list(forward = function(x) x),
    matrix(0, 2, 2), ag_param(matrix(0, 2, 2)), NA,
    list(ag_linear(2L, 2L)), ag_sequential(ag_linear(3L, 3L))
  )) {
    expect_error(budget(code), class = "agbudget_error_bad_model", info = deparse1(code))
  }
  expect_error(ag_training_budget(), "`model`", class = "agbudget_error_bad_argument")
  expect_error(
    budget(quote(function(x) 1), input = 2), class = "agbudget_error_bad_model"
  )
  expect_error(
    budget(quote(list(forward = function(x) ag_relu(x), parameters = function() list(1))),
           input = 2),
    class = "agbudget_error_bad_model"
  )
})

test_that("dimensions of layers are checked", {
  refused <- alist(
    ag_linear(0L, 2L), ag_linear(2L, -2L), ag_linear(NA, 2L), ag_linear(2.5, 2L),
    ag_linear("a", 2L), ag_linear(c(1L, 2L), 2L), ag_batch_norm(0L), ag_layer_norm(NULL),
    ag_embedding(10L, 0L), ag_embedding(1e10, 2L), ag_multihead_attention(10L, 3L),
    ag_multihead_attention(0L, 1L)
  )
  for (code in refused) {
    expect_error(budget(code), class = "agbudget_error_bad_dimension",
                 info = deparse1(code))
  }
  for (rate in list(-0.1, 1, NA, "a", c(0.1, 0.2), NULL)) {
    expect_error(
      eval(bquote(ag_training_budget(
        ag_sequential(ag_linear(2L, 2L), ag_dropout(.(rate)))
      ))),
      class = "agbudget_error_bad_argument"
    )
  }
})

test_that("the rows of a batch are found, or must be given", {
  expect_identical(budget(quote(ag_batch_norm(7L)))$input, 7)
  expect_identical(budget(quote(ag_layer_norm(7L)))$input, 7)
  expect_identical(budget(quote(ag_multihead_attention(8L, 2L)))$input, 8)
  expect_identical(budget(quote(ag_embedding(7L, 3L)))$input, 1)
  dropout_first <- quote(ag_sequential(ag_dropout(0.1), ag_linear(9L, 3L)))
  expect_identical(budget(dropout_first)$input, 9)
  expect_identical(
    budget(quote({
      W <- ag_param(matrix(0, 4, 6))
      function(x) ag_matmul(W, ag_relu(x))
    }))$input, 6
  )
  unclear <- quote(function(x) ag_add(x, x))
  expect_error(budget(unclear), class = "agbudget_error_unknown_input")
  expect_identical(budget(unclear, input = 3)$input, 3)
  expect_error(
    budget(quote(function(x) ag_reshape(x, ncol(x$data), -1L))),
    class = "agbudget_error_unknown_input"
  )
})

# What others have got wrong ---------------------------------------------------------

test_that("tied weights are counted once, and both uses' activations stay", {
  tied <- budget(quote({
    W <- ag_param(matrix(0, 200, 200))
    list(forward = function(x) ag_matmul(W, ag_matmul(W, x)),
         parameters = function() list(a = W, b = W))
  }), batch_size = 50)
  apart <- budget(quote({
    W <- ag_param(matrix(0, 200, 200))
    V <- ag_param(matrix(0, 200, 200))
    list(forward = function(x) ag_matmul(V, ag_matmul(W, x)),
         parameters = function() list(a = W, b = V))
  }), batch_size = 50)
  expect_identical(tied$model$parameters, 40000)
  expect_identical(apart$model$parameters, 80000)
  weight <- 40000 * 8 + 8
  expect_identical(max(tied$timeline$weights), weight)
  expect_identical(max(apart$timeline$weights), 2 * weight)
  expect_lt(max(tied$timeline$optimizer_state), max(apart$timeline$optimizer_state))
  # mse's difference, and the outputs of both products
  activation <- 200 * 50 * 8 + 8
  expect_gte(max(tied$timeline$activations), 3 * activation)
})

test_that("frozen parameters have weights and state, but no gradients", {
  model <- function(freeze) {
    bquote({
      a <- ag_linear(300L, 300L)
      b <- ag_linear(300L, 10L)
      if (.(freeze)) for (p in a$params()) p$requires_grad <- FALSE
      ag_sequential(a, b)
    })
  }
  frozen <- budget(model(TRUE), batch_size = 8)
  trained <- budget(model(FALSE), batch_size = 8)
  layer <- 300 * 300 * 8 + 8 + 300 * 8 + 8
  expect_identical(max(frozen$timeline$weights), max(trained$timeline$weights))
  expect_identical(frozen$model$parameters, trained$model$parameters)
  expect_gte(
    max(trained$timeline$gradients) - max(frozen$timeline$gradients), layer
  )
  # optimizer_adam() makes its moments of every parameter it is given.
  setup <- function(b) max(b$timeline$optimizer_state[b$timeline$step == 1])
  expect_gte(setup(frozen), 2 * layer)
  expect_lt(frozen$heap_bytes, trained$heap_bytes)
})

test_that("running statistics are counted, without gradient or state", {
  normed <- budget(quote(ag_sequential(ag_linear(10L, 5000L), ag_batch_norm(5000L))))
  plain <- budget(quote(ag_linear(10L, 5000L)))
  column <- 5000 * 8 + 8
  weights <- function(b) b$timeline$weights[[nrow(b$timeline)]]
  state <- function(b) b$timeline$optimizer_state[b$timeline$step == 1][[1L]]
  expect_identical(weights(normed) - weights(plain), 4 * column)  # gamma, beta, mean, var
  expect_identical(state(normed) - state(plain), 2 * 2 * column)
  expect_identical(normed$model$parameters - plain$model$parameters, 2 * 5000)
})

test_that("one layer applied 100 times: activations 100 times, weights once", {
  applied <- function(times) {
    budget(bquote({
      layer <- ag_linear(64L, 64L, activation = "relu")
      list(
        forward = function(x) {
          for (i in seq_len(.(times))) x <- layer$forward(x)
          x
        },
        parameters = function() layer$params()
      )
    }), batch_size = 100)
  }
  once <- applied(1L)
  often <- applied(100L)
  expect_identical(often$model$parameters, once$model$parameters)
  expect_identical(max(often$timeline$weights), max(once$timeline$weights))
  # matmul's result, the bias expanded, the sum, the mask, relu's result
  matrix_bytes <- 64 * 100 * 8 + 8
  held <- often$tape$bytes_total - once$tape$bytes_total
  expect_gte(held, 99 * 5 * matrix_bytes)
  expect_lt(held, 99 * (5 * matrix_bytes + 3000))
  expect_identical(nrow(often$layers), nrow(once$layers))
})

# Size ----------------------------------------------------------------------------

test_that("a model of 10^12 parameters is answered, in no memory to speak of", {
  large <- quote(ag_sequential(ag_linear(1e6, 1e6), ag_linear(1e6, 10)))
  small <- quote(ag_sequential(ag_linear(10, 10), ag_linear(10, 10)))
  b <- budget(large)
  expect_identical(b$model$parameters, 1e12 + 1e6 + 1e7 + 10)
  expect_gt(b$heap_bytes, 8e12 * 8)
  expect_lt(as.numeric(object.size(b)), 1e6)
})

test_that("byte counts are exact beyond 2^31 and 2^32", {
  b <- budget(quote(ag_linear(65536L, 65536L)), batch_size = 1)
  expect_identical(b$model$parameters, 4294967296 + 65536)
  expect_identical(
    max(b$timeline$weights), 4294967296 * 8 + 8 + 65536 * 8 + 8
  )
})

test_that("a model too large for exact counts is a clear error", {
  for (code in alist(
    ag_linear(2147483647L, 2147483647L),
    ag_sequential(ag_linear(2L, 2147483647L), ag_linear(2147483647L, 2L)),
    {
      W <- ag_param(matrix(0, 2^31, 2^31))
      function(x) ag_matmul(W, x)
    }
  )) {
    error <- expect_error(budget(code, batch_size = 2147483647L),
                          class = "agbudget_error_too_large", info = deparse1(code))
    expect_match(conditionMessage(error), "too large")
  }
})

test_that("cost grows with the number of operations, not with sizes", {
  deep <- function(n) {
    budget(bquote(ag_sequential(lapply(1:.(n), function(i) ag_linear(4L, 4L)))))
  }
  expect_identical(deep(500L)$model$layers, 500L)
  expect_identical(nrow(deep(500L)$layers), 501L)
})

# Against real trainings -------------------------------------------------------------

# Measured with ggmlR 0.8.8.1 in R 4.2.2, by inst/scripts/measure_training_memory.R: the
# smallest R_MAX_VSIZE with which a training of three steps finishes, less what a model
# of two weights needs.
measured_cases <- function(name) {
  skip_if_not_installed("jsonlite")
  file <- system.file("scripts", name, package = "agbudget")
  if (!nzchar(file)) skip("the measured cases are not installed")
  jsonlite::read_json(file)
}

prediction_for <- function(case) {
  code <- parse(text = paste(unlist(case$model), collapse = "\n"))
  budget(
    as.call(c(as.name("{"), as.list(code))),
    batch_size = case$batch, optimizer = case$optimizer, loss = case$loss,
    loop = case$loop, input = if (is.null(case$vocab)) case$input else 1,
    accumulate_steps = case$accumulate_steps %||% 1
  )$heap_bytes
}

test_that("measured cases are met within 0.25 %, the median within 0.1 %", {
  for (name in c("visible_truth.json", "own_truth.json")) {
    cases <- measured_cases(name)
    expect_gte(length(cases), 13L)
    off <- vapply(cases, function(case) {
      predicted <- prediction_for(case)
      difference <- predicted - case$min_heap_bytes
      expect(
        abs(difference) <= max(0.0025 * case$min_heap_bytes, 1e5),
        sprintf("%s: measured %.0f, predicted %.0f (%+.3f %%)", case$name,
                case$min_heap_bytes, predicted, 100 * difference / case$min_heap_bytes)
      )
      abs(difference) / case$min_heap_bytes
    }, 0)
    expect_lte(stats::median(off), 0.001)
  }
})

# Printing ---------------------------------------------------------------------------

printed <- quote(ag_sequential(
  ag_linear(784L, 256L, activation = "relu"), ag_batch_norm(256L), ag_dropout(0.2),
  ag_linear(256L, 10L)
))

test_that("the print leads with the answer and fits on a screen", {
  b <- budget(printed, batch_size = 512, loss = "softmax_cross_entropy")
  lines <- format(b)
  expect_type(lines, "character")
  expect_match(lines[[1L]], bytes_text(b$heap_bytes), fixed = TRUE)
  expect_match(lines[[4L]], "peak")
  expect_lte(length(lines), 24L)
  expect_lte(max(nchar(lines)), 90L)
  expect_identical(capture.output(returned <- withVisible(print(b))), lines)
  expect_identical(returned$value, b)
  expect_false(returned$visible)
})

test_that("the other loop is mentioned where it matters only", {
  expect_match(format(budget(printed, batch_size = 2048)), "released loop would need",
               all = FALSE)
  expect_match(format(budget(printed, batch_size = 2048, loop = "released")),
               "retained loop", all = FALSE)
  expect_no_match(format(budget(quote(ag_linear(2000L, 2000L)), batch_size = 1)),
                  "loop would need")
})

test_that("units are binary, from base R's formatter", {
  expect_identical(
    bytes_text(c(0, 1, 1023, 1024, 1536, 1024^2, 1024^3, 1024^4 * 2.5)),
    c("0 B", "1 B", "1023 B", "1 KiB", "1.5 KiB", "1 MiB", "1 GiB", "2.5 TiB")
  )
})

test_that("printing does not change", {
  expect_snapshot({
    b <- ag_training_budget(
      ag_sequential(
        ag_linear(784L, 256L, activation = "relu"), ag_batch_norm(256L), ag_dropout(0.2),
        ag_linear(256L, 10L)
      ),
      batch_size = 512, optimizer = "adam", loss = "softmax_cross_entropy"
    )
    b
    summary(b)
    ag_training_budget(ag_linear(1e6, 1e6), batch_size = 1, optimizer = "sgd_plain",
                       loop = "released", accumulate_steps = 4)
  })
  expect_s3_class(summary(budget()), "summary.ag_training_budget")
})

test_that("messages do not change", {
  expect_snapshot(error = TRUE, {
    ag_training_budget(ag_sequential(ag_linear(784L, 256L), ag_linear(100L, 10L)))
    ag_training_budget(ag_linear(784L, 256L), batch_size = 1.5)
    ag_training_budget(ag_linear(784L, 256L), optimizer = "adamw")
    ag_training_budget(ag_linear(784L, 0L))
    ag_training_budget(ag_flash_attention(1, 2, 3))
    ag_training_budget(function(x) ag_add(x, x))
    ag_training_budget(1)
    ag_training_budget(ag_linear(2147483647, 2147483647))
    ag_training_budget({
      W <- ag_param(matrix(0, 3, 4))
      function(x) ag_matmul(W, ag_matmul(W, x))
    })
  })
})

test_that("as.data.frame() gives a row of figures", {
  row <- as.data.frame(budget(batch_size = 64))
  expect_s3_class(row, "data.frame", exact = TRUE)
  expect_identical(nrow(row), 1L)
  expect_identical(sum(row[component_names]), row$heap_bytes)
  both <- rbind(row, as.data.frame(budget(batch_size = 128)))
  expect_identical(both$batch_size, c(64, 128))
})

# What must never reach the core ---------------------------------------------------

test_that("tensors of another call, half-done layers and derived parameters are errors", {
  kept <- NULL
  keep <- function(x) kept <<- x
  ag_training_budget({
    W <- ag_param(matrix(1, 3, 3))
    keep(W)
    function(x) ag_matmul(W, x)
  })
  stale <- function(code) {
    expect_error(eval(code), class = "agbudget_error_stale_tensor")
  }
  stale(quote(ag_training_budget(function(x) ag_matmul(kept, x), input = 3)))
  stale(quote(ag_training_budget(
    list(forward = function(x) ag_relu(x), parameters = function() list(kept)), input = 3
  )))
  bad <- function(code) {
    expect_error(budget(code, input = 3), class = "agbudget_error_bad_model")
  }
  bad(quote({
    W <- ag_param(matrix(1, 3, 3))
    list(forward = function(x) ag_matmul(W, x), parameters = function() list(ag_relu(W)))
  }))
  bad(quote({
    W <- ag_param(matrix(1, 3, 3))
    function(x) {
      failing <- function(x) stop("half way", ag_matmul(W, x))
      tryCatch(ag_checkpoint(failing, x), error = function(e) ag_matmul(W, x))
    }
  }))
  expect_error(
    budget(quote(ag_linear(3L, 3L, activation = character()))),
    class = "agbudget_error_bad_argument"
  )
})

test_that("a matrix of the caller's counts once, however often it is used", {
  position <- matrix(0.1, 200, 200)
  used <- function(times) {
    eval(bquote(ag_training_budget({
      W <- ag_param(matrix(rnorm(200 * 200), 200, 200))
      list(
        forward = function(x) {
          h <- ag_matmul(W, x)
          for (i in seq_len(.(times))) h <- ag_add(h, position)
          h
        },
        parameters = function() list(W = W)
      )
    }, batch_size = 200, optimizer = "sgd_plain", loop = "released")))
  }
  # Each addition keeps its result, and its gradient waits: no copy of `position`.
  grown <- used(21)$heap_bytes - used(1)$heap_bytes
  expect_lt(abs(grown - 20 * 200 * 200 * 8), 20 * 1000)
})

test_that("a model handed on through functions is read where it was written", {
  width <- 40L
  outer_function <- function(m, ...) inner_function(m, ...)
  inner_function <- function(model, ...) ag_training_budget(model, ...)$heap_bytes
  direct <- ag_training_budget(ag_linear(width, 2L), 16)$heap_bytes
  expect_identical(outer_function(ag_linear(width, 2L), 16), direct)
  held <- list(quote(ag_linear(40L, 2L)))
  expect_identical(ag_training_budget(held[[1L]], 16)$heap_bytes, direct)
  makers <- list(dense = function(n) ag_linear(n, 2L))
  expect_identical(ag_training_budget(makers$dense(40L), 16)$heap_bytes, direct)
})
