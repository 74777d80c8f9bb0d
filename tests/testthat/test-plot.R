model <- ag_architecture(ag_sequential(
  ag_linear(784L, 256L, activation = "relu"), ag_batch_norm(256L), ag_dropout(0.2),
  ag_linear(256L, 10L)
))
budget <- ag_training_budget(model, 512, loss = "softmax_cross_entropy")
limited <- ag_training_budget(model, 512, loss = "softmax_cross_entropy",
                              memory = "48 MiB")
short <- ag_training_budget(
  ag_sequential(
    ag_linear(512L, 512L, activation = "relu"), ag_linear(512L, 512L, activation = "relu")
  ),
  batch_size = 64, memory = "20 MiB"
)

drawn <- function(code, width = 7, height = 5) {
  file <- tempfile(fileext = ".pdf")
  grDevices::pdf(file, width, height)
  on.exit({
    grDevices::dev.off()
    unlink(file)
  })
  force(code)
}

test_that("plots look as they did", {
  skip_if_not_installed("vdiffr")
  deep <- ag_architecture(do.call(ag_sequential, lapply(1:30, function(i) {
    ag_linear(64L, 64L, activation = "tanh")
  })))
  vdiffr::expect_doppelganger("a budget", function() plot(budget))
  vdiffr::expect_doppelganger("a budget with memory", function() plot(limited))
  vdiffr::expect_doppelganger("a budget that does not fit", function() plot(short))
  vdiffr::expect_doppelganger("building the model", function() plot(budget, step = 0))
  vdiffr::expect_doppelganger("a deep model", function() {
    plot(ag_training_budget(deep, 256, memory = "8 GiB"))
  })
  vdiffr::expect_doppelganger("a comparison", function() {
    plot(ag_compare(model, 2^(4:11), memory = "60 MiB"))
  })
  vdiffr::expect_doppelganger("a comparison on linear axes", function() {
    plot(ag_compare(ag_multihead_attention(64L, 8L), c(100, 200, 300), "adam"))
  })
})

test_that("plot() returns what it drew, invisibly, and restores the device", {
  drawn({
    before <- graphics::par(no.readonly = TRUE)[c("mai", "mgp", "tcl", "xpd", "new")]
    result <- withVisible(plot(limited))
    expect_false(result$visible)
    expect_identical(result$value, limited)
    comparison <- ag_compare(model, c(16, 512))
    result <- withVisible(plot(comparison))
    expect_false(result$visible)
    expect_identical(result$value, comparison)
    after <- graphics::par(no.readonly = TRUE)[names(before)]
    expect_identical(after[names(after) != "new"], before[names(before) != "new"])
  })
})

test_that("every step, loop, optimizer, memory and size of a picture can be drawn", {
  for (size in list(c(7, 5), c(3.5, 3), c(12, 8))) {
    drawn({
      for (step in unique(budget$timeline$step)) expect_no_error(plot(budget, step))
      for (memory in c(1, 0.5, 0.999, 1, 1.001, 1.1, 1.3, 1.6, 2, 1e6)) {
        limited$memory <- memory * limited$heap_bytes
        expect_no_error(plot(limited, main = "a title", ylim = c(0, 1e8)))
        expect_no_error(plot(limited))
      }
      expect_no_error(plot(ag_training_budget(ag_linear(1L, 1L), 1)))
      for (batches in list(7, c(1, 2), c(1, 1000, 31), 1:60)) {
        for (memory in list(NULL, 1, "50 MiB", "1TB")) {
          expect_no_error(plot(ag_compare(model, batches, "sgd", memory = memory)))
        }
      }
    }, size[[1L]], size[[2L]])
  }
  drawn({
    graphics::par(mfrow = c(1, 2))
    expect_no_error(plot(budget))
    expect_no_error(plot(budget))
  })
})

test_that("a comparison that lost rows can be drawn, one that lost columns cannot", {
  comparison <- ag_compare(model, c(16, 64), memory = "20 MiB")
  drawn({
    expect_no_error(plot(comparison[comparison$fits, ]))
    expect_error(plot(comparison[c("batch_size", "loop")]), "no column `optimizer`",
                 class = "agbudget_error_bad_argument")
    expect_error(plot(comparison[FALSE, ]), "no row",
                 class = "agbudget_error_bad_argument")
  })
})

test_that("a step that was not run is an error", {
  for (step in list(-1, 4, 1.5, "1", NA, c(1, 2))) {
    expect_error(plot(budget, step = step), "`step` must be one of the steps",
                 class = "agbudget_error_bad_argument")
  }
})

test_that("thinning keeps the peak", {
  events <- data.frame(step = 1, live_bytes = c(1:5000, 9999, 5000:1))
  thin <- thin_events(events)
  expect_lte(nrow(thin), 1500L)
  expect_identical(max(thin$live_bytes), 9999)
  expect_identical(thin_events(events[1:1500, ]), events[1:1500, ])
})

test_that("ticks are round numbers of one binary unit", {
  expect_identical(byte_ticks(c(0, 45 * 2^20))$labels,
                   paste(c(0, 10, 20, 30, 40, 50), "MiB"))
  expect_match(byte_ticks(c(0, 3 * 2^30))$labels, " GiB$")
  expect_match(byte_ticks(c(0, 900))$labels, " B$")
  expect_match(byte_ticks(c(0, 2^62))$labels, " PiB$")
})

test_that("labels are spread apart in their order and stay inside", {
  set.seed(3)
  for (i in 1:50) {
    at <- stats::runif(6, 0, 4)
    placed <- spread_apart(at, 0.2, c(0, 4))
    expect_identical(order(placed), order(at))
    expect_gte(min(diff(sort(placed))), 0.2 - 1e-9)
    expect_gte(min(placed), -1e-9)
    expect_lte(max(placed), 4 + 1e-9)
  }
  expect_equal(spread_apart(c(1, 1), 0.2, c(0, 4)), c(1.1, 0.9))
  expect_identical(spread_apart(2, 0.2, c(0, 4)), 2)
})

test_that("neighbours of the stack differ in luminance or hatching", {
  rgb <- grDevices::col2rgb(component_colours) / 255
  luminance <- colSums(rgb * c(0.2126, 0.7152, 0.0722))
  expect_true(all(abs(diff(luminance)) > 0.1))
  expect_identical(names(component_colours), component_names)
  expect_identical(names(component_hatching), component_names)
})
