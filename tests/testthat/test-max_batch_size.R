mlp <- quote(ag_sequential(
  ag_linear(784L, 256L, activation = "relu"), ag_linear(256L, 10L)
))

need_at <- function(architecture, batch_size, ...) {
  ag_training_budget(architecture, batch_size, ...)$heap_bytes
}

# The clause itself: need(B) <= memory < need(B + 1).
expect_largest <- function(architecture, memory, ...) {
  largest <- ag_max_batch_size(architecture, memory, ...)
  expect_lte(need_at(architecture, largest, ...), memory)
  expect_gt(need_at(architecture, largest + 1, ...), memory)
  invisible(largest)
}

test_that("the batch found fits and one more does not", {
  # See Lightning-AI/pytorch-lightning#18426: the finder doubled, and did not try.
  models <- list(
    dense = eval(bquote(ag_architecture(.(mlp)))),
    `batch norm` = ag_architecture(ag_sequential(
      ag_linear(64L, 64L), ag_batch_norm(64L), ag_dropout(0.3), ag_linear(64L, 8L)
    )),
    `layer norm` = ag_architecture(ag_sequential(
      ag_linear(64L, 64L), ag_layer_norm(64L)
    )),
    embedding = ag_architecture(ag_sequential(
      ag_embedding(500L, 64L), ag_linear(64L, 8L)
    )),
    attention = ag_architecture(ag_sequential(
      ag_multihead_attention(32L, 4L), ag_linear(32L, 8L)
    ))
  )
  for (architecture in models) {
    for (memory in c(2e7, 123456789, 2^33, 1e12)) {
      expect_largest(architecture, memory)
      expect_largest(architecture, memory, optimizer = "sgd_plain", loop = "released",
                     loss = "softmax_cross_entropy", accumulate_steps = 2)
    }
  }
})

test_that("a search finds what trying every batch finds", {
  set.seed(20)
  for (i in 1:25) {
    widths <- as.numeric(sample.int(40L, 3L))
    architecture <- eval(bquote(ag_architecture(ag_sequential(
      ag_linear(.(widths[[1L]]), .(widths[[2L]]), activation = "relu"),
      ag_batch_norm(.(widths[[2L]])),
      ag_linear(.(widths[[2L]]), .(widths[[3L]]))
    ))))
    run <- list(
      optimizer = sample(optimizers, 1L), loop = sample(loops, 1L),
      loss = sample(losses, 1L)
    )
    needs <- vapply(1:150, function(batch) {
      do.call(heap_need, c(list(architecture, batch), run))
    }, 0)
    # On a need to the byte, one byte less, and in between.
    memories <- c(needs[c(1L, 2L, 77L)], needs[c(2L, 50L)] - 1,
                  stats::runif(3, needs[[1L]], needs[[149L]]))
    for (memory in memories) {
      brute <- max(which(needs <= memory))
      found <- do.call(ag_max_batch_size, c(list(architecture, memory), run))
      expect_identical(found, as.numeric(brute))
    }
  }
})

test_that("the light need is the budget's", {
  architecture <- eval(bquote(ag_architecture(.(mlp))))
  for (loop in loops) {
    for (optimizer in optimizers) {
      expect_identical(
        heap_need(architecture, 77, optimizer, "cross_entropy", loop, 2),
        need_at(architecture, 77, optimizer = optimizer, loss = "cross_entropy",
                loop = loop, accumulate_steps = 2)
      )
    }
  }
})

test_that("the model's code and an architecture give the same", {
  # Code is evaluated where it was written.
  width <- 32L
  found <- ag_max_batch_size(ag_linear(width, width), "10MB", optimizer = "sgd")
  architecture <- ag_architecture(ag_linear(width, width))
  expect_identical(found, ag_max_batch_size(architecture, 1e7, optimizer = "sgd"))
})

test_that("the answer can be used as a batch size", {
  found <- ag_max_batch_size(ag_linear(8L, 8L), "1MB")
  expect_type(found, "double")
  expect_null(attributes(found))
  expect_identical(found, floor(found))
  expect_s3_class(ag_training_budget(ag_linear(8L, 8L), found), "ag_training_budget")
})

test_that("where not even one fits it is 0, with the shortfall", {
  # See Lightning-AI/pytorch-lightning#3103 and huggingface/accelerate#1934.
  architecture <- eval(bquote(ag_architecture(.(mlp))))
  budget <- ag_training_budget(architecture, 1)
  expect_warning(
    found <- ag_max_batch_size(architecture, budget$heap_bytes - 1),
    class = "agbudget_warning_does_not_fit"
  )
  expect_identical(found, 0)
  expect_identical(ag_max_batch_size(architecture, budget$heap_bytes), 1)
  warned <- tryCatch(ag_max_batch_size(architecture, "1MB"), warning = identity)
  expect_s3_class(warned, "agbudget_warning_does_not_fit")
  expect_s3_class(warned, "agbudget_warning")
  expect_identical(warned$shortfall_bytes, budget$heap_bytes - 1e6)
  expect_identical(warned$component, names(which.max(budget$components)))
  shortfall <- count_text(warned$shortfall_bytes)
  expect_match(conditionMessage(warned), paste(shortfall, "bytes"), fixed = TRUE)
  expect_warning(expect_identical(ag_max_batch_size(architecture, 0), 0),
                 class = "agbudget_warning_does_not_fit")
  expect_snapshot(ag_max_batch_size(architecture, "1MB"))
})

test_that("a margin of 0.1 of 1,000 bytes behaves as 900", {
  # See Lightning-AI/pytorch-lightning#20447.
  expect_identical(usable_memory(1000, 0.1), 900)
  expect_identical(usable_memory(1000, 0.9), 100)
  expect_identical(usable_memory(1000, 0.7), 300)
  expect_identical(usable_memory(100, 0.07), 93)
  expect_identical(usable_memory(2^53 - 1, 0), 2^53 - 1)
  architecture <- ag_architecture(ag_linear(4L, 4L))
  for (k in c(1e4, 1e6)) {
    expect_identical(ag_max_batch_size(architecture, 1000 * k, margin = 0.1),
                     ag_max_batch_size(architecture, 900 * k))
  }
  need <- need_at(architecture, 50)
  expect_identical(ag_max_batch_size(architecture, need * 10, margin = 0.9), 50)
  bad <- list(-0.1, 1, 1.5, NA, NA_real_, NaN, Inf, "0.1", c(0, 0.1), NULL, TRUE)
  for (margin in bad) {
    expect_error(ag_max_batch_size(architecture, 1e9, margin = margin),
                 "`margin` must be", class = "agbudget_error_bad_argument")
  }
})

test_that("a cap that binds is the answer", {
  architecture <- ag_architecture(ag_linear(4L, 4L))
  free <- ag_max_batch_size(architecture, "1GB")
  expect_identical(ag_max_batch_size(architecture, "1GB", max = 100), 100)
  expect_identical(ag_max_batch_size(architecture, "1GB", max = 1), 1)
  expect_identical(ag_max_batch_size(architecture, "1GB", max = free), free)
  expect_identical(ag_max_batch_size(architecture, "1GB", max = free + 1), free)
  expect_identical(ag_max_batch_size(architecture, "1GB", max = 2^31 - 1), free)
  expect_identical(ag_max_batch_size(architecture, 2^60, max = 2^31 - 1), 2^31 - 1)
  for (max in list(0, -1, 1.5, NA, "10", c(1, 2), NULL, 2^31, -Inf, NaN)) {
    expect_error(ag_max_batch_size(architecture, "1GB", max = max), "`max` must be",
                 class = "agbudget_error_bad_argument")
  }
})

test_that("a need that does not grow ends at `max`, or asks for it", {
  expect_identical(largest_fitting(function(batch) 10, 10, 64), 64)
  expect_identical(largest_fitting(function(batch) 10, 9, 64), 0)
  architecture <- ag_architecture(ag_linear(4L, 4L))
  expect_error(ag_max_batch_size(architecture, 2^60), "`max` must be given",
               class = "agbudget_error_bad_argument")
  expect_snapshot(ag_max_batch_size(architecture, 2^60), error = TRUE)
})

test_that("the search holds for needs of any shape", {
  cap <- .Machine$integer.max
  shapes <- list(
    line = function(b) 1000 + 24 * b,
    kink = function(b) max(5e6 + b, 900 * b),
    parabola = function(b) 100 + 3 * b + 8 * b^2,
    stairs = function(b) 4096 * ceiling(b / 100),
    concave = function(b) 1e4 * sqrt(b),
    flat = function(b) if (b < 1e6) 7 else 7 + b,
    cliff = function(b) if (b < 3333) b else Inf,
    dip = function(b) 10 * b + (b == 1) * 5
  )
  for (name in names(shapes)) {
    need <- shapes[[name]]
    for (limit in c(20, 1234, 5e6, 98765432, 2e9)) {
      calls <- 0
      counted <- function(b) {
        calls <<- calls + 1
        need(b)
      }
      found <- largest_fitting(counted, limit, cap)
      expect_lte(calls, 80)
      if (found == 0) {
        expect_gt(need(1), limit)
      } else {
        expect_lte(need(found), limit)
        if (found < cap) expect_gt(need(found + 1), limit)
      }
    }
  }
  # A straight line takes a few evaluations, not one a bit.
  calls <- 0
  counted <- function(b) {
    calls <<- calls + 1
    1000 + 24 * b
  }
  expect_identical(largest_fitting(counted, 1000 + 24 * 1e6, cap), 1e6)
  expect_lte(calls, 10)
})

test_that("a batch too large for exact byte counts does not fit", {
  architecture <- ag_architecture(ag_multihead_attention(64L, 8L))
  found <- expect_largest(architecture, 2^52)
  expect_gt(found, 1e6)
  huge <- ag_architecture(ag_linear(2^29, 2^30))
  expect_error(ag_max_batch_size(huge, "1GB"), class = "agbudget_error_too_large")
})

test_that("a model that runs with some batch sizes only says so itself", {
  fixed <- quote(list(
    forward = function(x) ag_reshape(ag_relu(x), 8L, 32L), parameters = function() list()
  ))
  expect_error(eval(bquote(ag_max_batch_size(.(fixed), "1GB", input = 8))),
               class = "agbudget_error_bad_shape")
  picky <- quote(list(
    forward = function(x) {
      if (isTRUE(ncol(x) > 100)) stop("no more than 100, please")
      ag_relu(x)
    },
    parameters = function() list()
  ))
  expect_error(eval(bquote(ag_max_batch_size(.(picky), "1GB", input = 8))),
               "no more than 100, please")
  expect_identical(
    eval(bquote(ag_max_batch_size(.(picky), "1GB", input = 8, max = 100))), 100
  )
})

test_that("bad arguments of the run are errors that name them", {
  architecture <- ag_architecture(ag_linear(4L, 4L))
  bad <- function(pattern, ...) {
    expect_error(ag_max_batch_size(architecture, "1GB", ...), pattern, fixed = TRUE,
                 class = "agbudget_error_bad_argument")
  }
  bad("`batch_size` is what ag_max_batch_size() finds", batch_size = 32)
  bad("`batch`", batch = 32)
  bad("\"adam\"", "adam")
  bad("`optimiser`", optimiser = "adam")
  bad("`loop`", loop = "released", loop = "retained")
  bad("`optimizer` must be one of", optimizer = "lion")
  bad("`loss` must be one of", loss = 1)
  bad("`loop` must be one of", loop = "while")
  bad("`input` must be", input = 0)
  bad("`accumulate_steps` must be", accumulate_steps = 0)
  expect_error(ag_max_batch_size(architecture, "8G"), "`memory` must be",
               class = "agbudget_error_bad_argument")
  expect_snapshot(error = TRUE, {
    ag_max_batch_size(architecture, "1GB", batch_size = 32)
    ag_max_batch_size(architecture, "1GB", "adam")
    ag_max_batch_size(architecture, "1GB", margin = 1)
    ag_max_batch_size(architecture, "1GB", max = 0)
  })
})

test_that("by default it is what this process may use", {
  architecture <- ag_architecture(ag_linear(64L, 64L))
  found <- ag_max_batch_size(architecture)
  memory <- available_memory()$bytes
  expect_equal(found, ag_max_batch_size(architecture, memory), tolerance = 0.2)
})

test_that("a model of 50 layers is searched in well under a second", {
  skip_on_cran()
  architecture <- ag_architecture(do.call(ag_sequential, lapply(1:50, function(i) {
    ag_linear(128L, 128L, activation = "relu")
  })))
  spent <- system.time(ag_max_batch_size(architecture, "8GiB"))
  expect_lt(spent[["user.self"]] + spent[["sys.self"]], 0.5)
})
