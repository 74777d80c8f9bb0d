model <- ag_architecture(ag_sequential(
  ag_linear(784L, 256L, activation = "relu"), ag_linear(256L, 10L)
))

with_resident <- function(budget, bytes, memory, source = "given") {
  budget$resident_bytes <- bytes
  add_verdict(budget, list(bytes = memory, source = source), function(batch_size) {
    heap_need(model, batch_size)
  })
}

test_that("without `memory` there is no verdict", {
  budget <- ag_training_budget(model)
  expect_length(intersect(verdict_fields, names(budget)), 0L)
  expect_false(any(grepl("memory", format(budget))))
})

test_that("the verdict's figures are the budget's", {
  budget <- ag_training_budget(model, 512, memory = "1GB")
  expect_identical(budget$memory, 1e9)
  expect_identical(budget$memory_source, "given")
  expect_identical(budget$spare_bytes, 1e9 - budget$heap_bytes)
  expect_true(budget$fits)
  expect_identical(budget$max_batch_size, ag_max_batch_size(model, "1GB"))
  short <- ag_training_budget(model, 51200, memory = "1GB")
  expect_false(short$fits)
  expect_identical(short$verdict, "does_not_fit")
  expect_identical(short$spare_bytes, 1e9 - short$heap_bytes)
  expect_lt(short$spare_bytes, 0)
  expect_identical(short$max_batch_size, budget$max_batch_size)
})

test_that("the boundary is exact", {
  need <- ag_training_budget(model, 64)$heap_bytes
  at <- ag_training_budget(model, 64, memory = need)
  expect_true(at$fits)
  expect_identical(at$spare_bytes, 0)
  expect_identical(at$max_batch_size, 64)
  below <- ag_training_budget(model, 64, memory = need - 1)
  expect_identical(below$verdict, "does_not_fit")
  expect_identical(below$spare_bytes, -1)
  expect_identical(below$max_batch_size, 63)
})

test_that("there are three verdicts, for R collects lazily", {
  budget <- ag_training_budget(model, 512)
  need <- budget$heap_bytes
  expect_identical(with_resident(budget, 1.5 * need, 2 * need)$verdict, "fits")
  limited <- with_resident(budget, 1.5 * need, 1.2 * need)
  expect_identical(limited$verdict, "fits_with_limit")
  expect_true(limited$fits)
  expect_identical(with_resident(budget, 1.5 * need, 0.9 * need)$verdict, "does_not_fit")
  # R's own limit is one that R keeps to.
  own <- with_resident(budget, 1.5 * need, 1.2 * need, "R's own limit")
  expect_identical(own$verdict, "fits")
})

test_that("R_MAX_VSIZE is idle R, the need or the compiler's, and what is to spare", {
  budget <- ag_training_budget(model, 4096, memory = "1GB")
  total <- 6250 * 1024 + budget$heap_bytes
  expect_gt(total, 2^26)
  expect_identical(budget$r_max_vsize_bytes, 1024 * ceiling((total + 0.2 * 2^26) / 1024))
  expect_identical(budget$r_max_vsize, paste0(budget$r_max_vsize_bytes / 1024, "K"))
  expect_identical(budget$r_vsize, "64M")
  # R's usual start is enough, and R does not go below it.
  small <- ag_training_budget(model, 64, memory = "1GB")
  expect_identical(small$r_max_vsize, "65536K")
  # Where that is too much beside the memory, R has to start lower.
  tight <- ag_training_budget(model, 64, memory = small$heap_bytes)
  expect_identical(tight$r_vsize, "1M")
  expect_identical(
    tight$r_max_vsize_bytes,
    1024 * ceiling((6250 * 1024 + small$heap_bytes + 0.2 * 2^20) / 1024)
  )
  tiny <- ag_training_budget(ag_linear(1L, 1L), 1, memory = "3MB")
  expect_identical(
    tiny$r_max_vsize_bytes, 1024 * ceiling((6250 * 1024 + 2.5e6 + 0.2 * 2^20) / 1024)
  )
  huge <- heap_settings(1e15, 2e15)
  expect_match(huge$r_max_vsize, "^[0-9]+K$")
  expect_identical(parse_vsize(huge$r_max_vsize), huge$r_max_vsize_bytes)
})

test_that("the verdict is that of a long training", {
  budget <- ag_training_budget(model, 512, memory = "1GB")
  expect_gte(budget$resident_long_bytes, budget$resident_bytes)
  # What three updates fit into and forty do not.
  between <- (budget$resident_bytes + budget$resident_long_bytes) / 2
  expect_identical(
    ag_training_budget(model, 512, memory = between)$verdict,
    if (budget$resident_long_bytes > between) "fits_with_limit" else "fits"
  )
})

test_that("a model that runs with one batch size only has a budget all the same", {
  fixed <- ag_training_budget(
    list(
      forward = function(x) ag_reshape(ag_relu(x), 8L, 32L),
      parameters = function() list()
    ),
    batch_size = 32, input = 8, memory = "1GB"
  )
  expect_true(fixed$fits)
  expect_identical(fixed$max_batch_size, NA_real_)
  expect_match(verdict_line(fixed), "fits with .* to spare$")
})

test_that("one line says what to do", {
  retained <- ag_training_budget(model, 512)
  lines <- c(
    verdict_line(ag_training_budget(model, 512, memory = "1GB")),
    verdict_line(ag_training_budget(model, 60, memory = "16MB")),
    verdict_line(ag_training_budget(model, 512, memory = "24MB")),
    verdict_line(ag_training_budget(model, 512, memory = "14MB", loop = "released")),
    verdict_line(ag_training_budget(model, 512, memory = "1MB")),
    verdict_line(ag_training_budget(model, 1, memory = "1MB")),
    verdict_line(with_resident(retained, 4e7, 3e7)),
    verdict_line(with_resident(ag_training_budget(model, 8192), 7e8, 6e8, "free RAM"))
  )
  expect_snapshot(writeLines(lines))
  expect_match(lines[[1L]], "fits with .* to spare; up to batch [0-9,]+ fits")
  expect_match(lines[[3L]], "short by .*; batch [0-9]+ fits; the released loop would fit")
  expect_match(lines[[5L]], "not even batch 1 fits")
  expect_match(lines[[7L]], "fits where R_VSIZE=1M and R_MAX_VSIZE=[0-9]+K is set")
  expect_match(lines[[8L]], "(free RAM): fits where R_MAX_VSIZE=", fixed = TRUE)
  expect_snapshot(print(ag_training_budget(model, 512, memory = "24MB")))
})

test_that("bad memory is an error before anything runs", {
  for (memory in list("8G", -1, NA, c(1, 2), "much")) {
    expect_error(ag_training_budget(stop("not evaluated"), memory = memory),
                 "`memory` must be", class = "agbudget_error_bad_argument")
  }
})

test_that("memory = \"available\" is what this process may use", {
  budget <- ag_training_budget(model, memory = "available")
  expect_gt(budget$memory, 0)
  expect_true(budget$memory_source %in%
                c("free RAM", "R's own limit", "the container's limit"))
})

# as.list() -------------------------------------------------------------------------

is_plain <- function(x) {
  if (!is.null(attributes(x)) && !identical(names(attributes(x)), "names")) return(FALSE)
  if (is.list(x)) return(all(vapply(x, is_plain, NA)))
  is.atomic(x) && is.null(names(x))
}

test_that("as.list() gives plain lists and vectors under stable names", {
  budget <- ag_training_budget(model, 64, memory = "1GB")
  plain <- as.list(budget)
  expect_true(is_plain(plain))
  expect_true(all(c(
    "heap_bytes", "components", "peak", "timeline", "layers", "tape",
    "other_loop_bytes", "model", "batch_size", "input", "optimizer", "loss", "loop",
    "accumulate_steps", "resident_bytes", "memory", "memory_source", "verdict", "fits",
    "spare_bytes", "max_batch_size", "resident_long_bytes", "r_vsize", "r_max_vsize",
    "r_max_vsize_bytes"
  ) %in% names(plain)))
  expect_identical(names(plain$components), component_names)
  expect_identical(plain$timeline$live_bytes, budget$timeline$live_bytes)
  expect_identical(plain$heap_bytes, budget$heap_bytes)
  expect_null(as.list(budget, timeline = FALSE)$timeline)
  without <- as.list(ag_training_budget(model, 64))
  expect_setequal(names(without), names(plain))
  expect_identical(without$verdict, NA)
  expect_error(as.list(budget, timeline = NA), "`timeline` must be",
               class = "agbudget_error_bad_argument")
})

test_that("the list survives a JSON encoder", {
  skip_if_not_installed("jsonlite")
  for (memory in list(NULL, "1GB")) {
    plain <- as.list(ag_training_budget(model, 64, memory = memory))
    json <- jsonlite::toJSON(plain, auto_unbox = TRUE, digits = NA)
    back <- jsonlite::fromJSON(json)
    expect_setequal(names(back), names(plain))
    given <- !vapply(plain, identical, NA, NA)
    expect_equal(back[given], plain[given], ignore_attr = TRUE)
  }
})
