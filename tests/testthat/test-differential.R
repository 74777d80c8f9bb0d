test_that("random calls end as they do in ggmlR", {
  skip_if_not_installed("ggmlR")
  skip_if_not_installed("bit64")
  seed <- as.integer(Sys.getenv("AGBUDGET_SEED", sample.int(1e6L, 1L)))
  cat(sprintf("\ndifferential test: seed %d (set AGBUDGET_SEED to repeat it)\n", seed))
  calls <- 3000L
  result <- seed_kept(run_differential(
    calls, seed,
    ours = ag_estimate_training_memory,
    reference = ggmlR::ag_estimate_training_memory
  ))
  expect_identical(
    result$agreed, calls,
    info = paste(vapply(result$failures, describe_failure, ""), collapse = "\n\n")
  )
})

test_that("the comparison notices what it is there to notice", {
  skip_if_not_installed("ggmlR")
  reference <- ggmlR::ag_estimate_training_memory
  notices <- function(broken, args = list(shapes = quote(list(c(512, 512)))),
                      ours = ag_estimate_training_memory) {
    call <- list(args = args, options = list(digits = 7L))
    expect_identical(compare_call(call, ours, reference), NULL)
    expect_gt(length(compare_call(call, broken, reference)), 0L)
  }
  notices(function(...) {
    value <- ag_estimate_training_memory(...)
    value$total <- value$total * (1 + .Machine$double.eps)
    invisible(value)
  })
  notices(function(...) {
    value <- ag_estimate_training_memory(...)
    value
  })
  notices(function(...) {
    cat(" ")
    ag_estimate_training_memory(...)
  })
  notices(function(...) {
    warning("one more")
    ag_estimate_training_memory(...)
  })
  notices(function(...) suppressWarnings(ag_estimate_training_memory(...)),
    args = list(shapes = quote(list(3)), batch_size = quote(NA))
  )
  notices(function(...) stop("another error"),
    args = list(shapes = quote(list(0)))
  )
  notices(function(...) stop("non-numeric argument to binary operator"),
    args = list(shapes = quote(list(3)), activation_frac = "a")
  )
})
