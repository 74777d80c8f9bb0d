quietly <- function(...) ag_estimate_training_memory(..., quiet = TRUE)

params_of <- function(shapes) quietly(shapes)$params

note <- paste(
  "path B stores gradients and optimizer state as R double (8 bytes);",
  "an f32 estimate would be half this. ag_dtype() does not apply."
)

documented <- list(c(512, 512), c(512, 512), c(512, 512))

# The one warning and the value of a call that has both.
with_warning <- function(expr) {
  caught <- list()
  value <- withCallingHandlers(expr, warning = function(w) {
    caught <<- c(caught, list(w))
    invokeRestart("muffleWarning")
  })
  list(value = value, warnings = caught)
}

expect_not_a_budget <- function(expr, message) {
  seen <- with_warning(expr)
  expect_length(seen$warnings, 1L)
  expect_s3_class(
    seen$warnings[[1L]],
    c("agbudget_warning_not_a_budget", "agbudget_warning", "warning", "condition"),
    exact = TRUE
  )
  expect_match(conditionMessage(seen$warnings[[1L]]), message, fixed = TRUE)
  invisible(seen$value)
}

# ---- result -------------------------------------------------------------------

test_that("the documented example has ggmlR's figures", {
  expect_identical(
    quietly(documented, batch_size = 64),
    list(
      params = 786432, weights = 6291456, gradients = 6291456, optimizer = 12582912,
      activations = 6291456 * 0.01 * 64, total = 25165824 + 6291456 * 0.01 * 64,
      bytes_per_scalar = 8, note = note
    )
  )
})

test_that("the result is invisible with and without a report", {
  expect_invisible(quietly(documented))
  capture.output(expect_invisible(ag_estimate_training_memory(documented)))
})

test_that("defaults are batch 32, Adam and a hundredth", {
  expect_identical(
    quietly(list(c(3, 4))),
    quietly(list(c(3, 4)), batch_size = 32L, optimizer = "adam", activation_frac = 0.01)
  )
  expect_identical(formals(ag_estimate_training_memory)$batch_size, 32L)
})

test_that("each optimizer keeps its number of copies", {
  state <- function(optimizer) quietly(list(100), optimizer = optimizer)$optimizer
  expect_identical(state("adam"), 1600)
  expect_identical(state("sgd"), 800)
  expect_identical(state("sgd_plain"), 0)
})

test_that("only activations depend on the batch, and in proportion", {
  once <- quietly(documented, 32)
  twice <- quietly(documented, 64)
  expect_identical(twice$activations, 2 * once$activations)
  fixed <- c("params", "weights", "gradients", "optimizer", "bytes_per_scalar", "note")
  expect_identical(twice[fixed], once[fixed])
  expect_identical(twice$total - twice$activations, once$total - once$activations)
})

test_that("terms are multiplied and added in ggmlR's order", {
  result <- quietly(list(17), 2.3, activation_frac = 1 / 3)
  expect_identical(result$activations, 136 * (1 / 3) * 2.3)
  # Added from the other end, these are not the same.
  sum <- quietly(list(0.7), 7, activation_frac = 0.3)
  expect_identical(
    sum$total, sum$weights + sum$gradients + sum$optimizer + sum$activations
  )
  expect_false(
    sum$total == sum$activations + sum$optimizer + sum$gradients + sum$weights
  )
  expect_identical(
    with_warning(quietly(list(1e306), 1e-10, activation_frac = 1e10))$value$activations,
    Inf
  )
})

# ---- shapes -------------------------------------------------------------------

test_that("a single numeric vector is one shape", {
  expect_identical(params_of(c(3, 4)), 12)
  expect_identical(params_of(5L), 5)
  expect_identical(params_of(array(1:8, c(2, 2, 2))), prod(1:8))
})

test_that("any list of numeric vectors is read", {
  expect_identical(params_of(list(w = c(3L, 4L), b = 5)), 17)
  expect_identical(params_of(structure(list(c(3, 4), 5L), class = "model")), 17)
  expect_identical(params_of(data.frame(a = 1:2, b = c(3, 4))), 14)
  expect_identical(params_of(pairlist(c(3, 4), 5L)), 17)
  expect_identical(params_of(list(matrix(1:4, 2), c(a = 2, b = 3))), 30)
  expect_identical(params_of(matrix(list(2, 3, 4, 5), 2)), 14)
})

test_that("integer products and sums do not overflow", {
  expect_silent(square <- quietly(list(c(65536L, 65536L))))
  expect_identical(square$params, 4294967296)
  expect_identical(square$weights, 34359738368)
  expect_silent(three <- quietly(rep(list(.Machine$integer.max), 3L)))
  expect_identical(three$params, 6442450941)
})

test_that("batch times dimensions is exact to the double", {
  large <- quietly(list(c(65536L, 65536L)), 2000000L, activation_frac = 1L)
  expect_identical(large$activations, 68719476736000000)
})

test_that("products are prod()'s, extended precision and overflow included", {
  dims <- list(
    c(2^53 - 1, 3, 1 / 4, 4), c(.Machine$double.xmax, 4, 0.25), c(1 / 3, 7, 11, 13.1),
    c(1e-200, 1e-200), c(1e-310, 1e10),
    c(.Machine$double.xmax, 1 + 1.25 * 2^-27, 1 - 1.25 * 2^-27 + 2^-53)
  )
  for (d in dims) {
    expect_identical(suppressWarnings(params_of(list(d))), prod(d))
  }
})

test_that("shapes are added in their order", {
  sizes <- list(1e16, 1, 1, 0.3)
  expect_identical(params_of(sizes), 1e16 + 1 + 1 + 0.3)
  expect_identical(params_of(rev(sizes)), 0.3 + 1 + 1 + 1e16)
})

test_that("compact sequences are read without writing them out", {
  dims <- 1:1500
  expect_identical(suppressWarnings(params_of(list(dims))), Inf)
  expect_identical(params_of(list(1:20)), prod(1:20))
  expect_error(params_of(list(0:2000)), "positive dimensions")
  expect_error(params_of(list(-1000:5)), "positive dimensions")
  expect_identical(params_of(list(as.double(1:20))), prod(1:20))
})

test_that("a compact sequence is still compact afterwards", {
  storage <- function(x) capture.output(.Internal(inspect(x)))[1L]
  dims <- 1:1500
  skip_if_not(grepl("compact", storage(dims)))
  suppressWarnings(quietly(list(dims)))
  expect_match(storage(dims), "compact", fixed = TRUE)
})

test_that("long lists allocate nothing for each shape", {
  skip_if_not(capabilities("profmem"))
  shapes <- rep(list(c(3L, 4L), c(5, 6)), 1e5)
  invisible(quietly(shapes))
  log <- tempfile()
  on.exit(unlink(log))
  utils::Rprofmem(log, threshold = 1000)
  invisible(quietly(shapes))
  utils::Rprofmem(NULL)
  vectors <- grep("^[0-9]+ :", readLines(log), value = TRUE)
  bytes <- as.numeric(sub(" .*", "", vectors))
  expect_lt(sum(bytes), 1e5)
})

test_that("shapes that are no list of vectors stop as in ggmlR", {
  expected <- "ggmlR: `shapes` must be a non-empty list of dimension vectors."
  for (shapes in list(NULL, list(), "a", TRUE, factor("3"), as.Date("2024-01-01"),
    mean, quote(f(3)), expression(3), globalenv(), data.frame(), 2i)) {
    error <- expect_error(params_of(shapes), class = "agbudget_error_bad_argument")
    expect_identical(conditionMessage(error), expected)
    expect_null(conditionCall(error))
    expect_s3_class(error, "agbudget_error")
  }
})

test_that("dimensions that are not positive and finite stop as in ggmlR", {
  expected <- "ggmlR: each shape must be a vector of positive dimensions."
  for (dims in list(0, 0L, -1, -1L, c(3, 0), c(3L, 0L), NA, NA_integer_, NA_real_, NaN,
    Inf, -Inf, c(2, NaN), NULL, numeric(), integer(), "3", TRUE, list(3), 2i,
    as.raw(3L), factor("3"), as.Date("2024-01-01"), .POSIXct(1), data.frame(a = 1),
    as.difftime(3, units = "mins"), mean, quote(x), structure(0, class = "x"),
    structure(c(2, NA), class = "x"), structure(numeric(), class = "x"))) {
    error <- expect_error(
      params_of(list(c(2, 3), dims)),
      class = "agbudget_error_bad_dimension"
    )
    expect_identical(conditionMessage(error), expected)
    expect_null(conditionCall(error))
  }
  expect_error(params_of(numeric()), expected, fixed = TRUE)
  expect_error(params_of(c(3, 0)), expected, fixed = TRUE)
})

test_that("a class decides through its methods", {
  registerS3method("as.double", "agbudget_test_doubled", function(x, ...) {
    2 * as.double(unclass(x))
  })
  registerS3method("is.numeric", "agbudget_test_text", function(x) FALSE)
  registerS3method("prod", "agbudget_test_text", function(...) stop("not reached"))
  doubled <- structure(c(3, 5), class = "agbudget_test_doubled")
  expect_identical(params_of(list(doubled, 1L)), 61)
  expect_identical(params_of(list(structure(3:5, class = "any"))), 60)
  expect_identical(params_of(list(I(c(3, 5)))), 15)
  text <- structure(c(3, 5), class = "agbudget_test_text")
  expect_error(params_of(list(text)), class = "agbudget_error_bad_dimension")
})

test_that("an error in a class's method names the shape", {
  registerS3method("as.double", "agbudget_test_broken", function(x, ...) {
    stop("no lengths in here")
  })
  registerS3method("is.finite", "agbudget_test_unsure", function(x) NA)
  registerS3method("as.double", "agbudget_test_pair", function(x, ...) x)
  registerS3method("Summary", "agbudget_test_pair", function(...) c(1, 2))
  registerS3method("Ops", "agbudget_test_pair", function(e1, e2) FALSE)
  error <- expect_error(
    params_of(list(1, structure(3, class = "agbudget_test_broken"))),
    class = "agbudget_error_bad_argument"
  )
  expect_identical(
    conditionMessage(error), "`shapes[[2]]` must be numeric: no lengths in here"
  )
  expect_error(
    params_of(list(structure(3, class = "agbudget_test_unsure"))),
    "`shapes[[1]]`",
    fixed = TRUE, class = "agbudget_error_bad_argument"
  )
  expect_error(
    params_of(list(structure(3, class = "agbudget_test_pair"))),
    "`shapes[[1]]`",
    fixed = TRUE, class = "agbudget_error_bad_argument"
  )
})

# ---- integer64 ----------------------------------------------------------------

# The doubles whose bits are small integers are the multiples of the smallest one.
integer64 <- function(x) structure(x * 2^-1074, class = "integer64")
integer64_na <- structure(-0, class = "integer64")

test_that("integer64 dimensions are the integers they are", {
  expect_identical(params_of(list(integer64(c(5, 6)), 2)), 32)
  expect_identical(params_of(integer64(7)), 7)
  expect_identical(params_of(list(integer64(2^33 + 1))), 2^33 + 1)
  for (dims in list(integer64(0), integer64_na, integer64(numeric()))) {
    expect_error(params_of(list(dims)), class = "agbudget_error_bad_dimension")
  }
})

test_that("integer64 is read alike with bit64 and without", {
  skip_if_not_installed("bit64")
  script <- tempfile(fileext = ".R")
  on.exit(unlink(script))
  writeLines(c(
    deparse(call(".libPaths", .libPaths())),
    "integer64 <- function(x) structure(x * 2^-1074, class = 'integer64')",
    "run <- function() {",
    "  estimate <- agbudget::ag_estimate_training_memory",
    "  a <- estimate(list(integer64(c(5, 6))), integer64(c(a = 3, b = 4)))",
    "  b <- estimate(list(3), 2, activation_frac = integer64(c(a = 2)))",
    "  c <- suppressWarnings(estimate(3, structure(-0, class = 'integer64')))",
    "  list(a[1:6], lapply(b[1:6], as.double), c[1:6])",
    "}",
    "text <- function() capture.output(value <<- run())",
    "without <- text(); first <- value",
    "stopifnot(!isNamespaceLoaded('bit64'))",
    "loadNamespace('bit64')",
    "with <- text()",
    "stopifnot(identical(without, with))",
    "first[[2]] <- lapply(first[[2]], as.double)",
    "stopifnot(all.equal(first, value), identical(first[-2], value[-2]))",
    "stopifnot(first[[1]]$activations[2] == 240 * 0.01 * 4)",
    "stopifnot(is.na(first[[3]]$total))",
    "cat('all the same')"
  ), script)
  output <- system2(
    file.path(R.home("bin"), "Rscript"), c("--vanilla", shQuote(script)),
    stdout = TRUE, stderr = TRUE
  )
  expect_identical(output[length(output)], "all the same")
})

# ---- other arguments ----------------------------------------------------------

test_that("the optimizer is matched as match.arg() does", {
  state <- function(optimizer) quietly(list(100), optimizer = optimizer)$optimizer
  expect_identical(state("a"), 1600)
  expect_identical(state("sgd_"), 0)
  expect_identical(state("sgd"), 800)
  expect_identical(state(NULL), 1600)
  expect_identical(state(c("adam", "sgd", "sgd_plain")), 1600)
  expect_identical(state(c(name = "sgd")), 800)
})

test_that("a wrong optimizer is match.arg()'s error", {
  like <- function(optimizer = c("adam", "sgd", "sgd_plain")) match.arg(optimizer)
  for (wrong in list("x", "s", "", NA_character_, character(), 1, factor("sgd"),
    c("sgd", "adam"), list("sgd"))) {
    expected <- tryCatch(like(wrong), error = conditionMessage)
    expect_error(quietly(list(3), optimizer = wrong), expected, fixed = TRUE)
  }
})

test_that("a wrapper's default optimizer is used", {
  wrapper <- function(optimizer = "sgd") quietly(list(100), optimizer = optimizer)
  expect_identical(wrapper()$optimizer, 800)
})

test_that("arguments are evaluated late and in ggmlR's order", {
  expect_error(quietly(stop("shapes"), optimizer = "x"), "should be one of")
  expect_error(quietly(stop("shapes"), stop("batch")), "^shapes$")
  expect_error(quietly(list(0), stop("batch")), "positive dimensions")
  expect_error(quietly(list(3), stop("batch"), activation_frac = "a"), "activation_frac")
  expect_error(
    quietly(list(3), stop("batch"), activation_frac = stop("fraction")), "^fraction$"
  )
  expect_error(
    ag_estimate_training_memory(list(3), stop("batch"), quiet = stop("quiet")), "^batch$"
  )
  expect_error(
    ag_estimate_training_memory(list(3), mean, quiet = stop("quiet")), "`batch_size`"
  )
  expect_error(ag_estimate_training_memory(list(3), quiet = stop("quiet")), "^quiet$")
  expect_error(ag_estimate_training_memory(), "\"shapes\" is missing")
})

test_that("a vector of batches gives a table without a warning", {
  expect_silent(table <- quietly(list(100), c(8, 16, 0)))
  expect_identical(table$activations, 800 * 0.01 * c(8, 16, 0))
  expect_identical(table$total, 3200 + 800 * 0.01 * c(8, 16, 0))
  expect_length(table$weights, 1L)
})

test_that("0 and fractions are budgets", {
  expect_silent(quietly(list(3), 0))
  expect_silent(quietly(list(3), 0.5))
  expect_silent(quietly(list(3), activation_frac = 0))
  expect_silent(quietly(list(3), activation_frac = 1L))
  expect_silent(quietly(list(3), activation_frac = c(0.1, 0.2)))
  expect_silent(quietly(list(3), "12"))
  expect_silent(quietly(list(3), TRUE))
})

test_that("names and dims are carried over as arithmetic does", {
  named <- quietly(list(3), c(a = 1, b = 2))
  expect_null(names(named$activations))
  frac <- c(a = 0.1, b = 0.2)
  expect_identical(quietly(list(3), activation_frac = frac)$total, 96 + 24 * frac * 32)
  grid <- matrix(1:4 / 7, 2, dimnames = list(NULL, c("p", "q")))
  expect_identical(quietly(list(3), 2, activation_frac = grid)$activations, 24 * grid * 2)
  share <- structure(0.25, class = "share", note = "kept")
  shared <- quietly(list(3), 2, activation_frac = share)
  expect_identical(shared$activations, 24 * share * 2)
  seen <- with_warning(quietly(list(3), 1:3, activation_frac = c(0.1, 0.2)))
  expect_identical(seen$value$activations, suppressWarnings(24 * c(0.1, 0.2) * 1:3))
  expect_match(conditionMessage(seen$warnings[[1L]]), "not a multiple")
})

# ---- what means nothing -------------------------------------------------------

test_that("a batch or fraction that means nothing has ggmlR's value and a warning", {
  flawed <- list(
    list(NA, " is NA"), list(NA_real_, " is NA"), list(NaN, " is NaN"),
    list(Inf, " is Inf"), list(-Inf, " is -Inf, below zero"),
    list(-3, " is -3, below zero"), list(c(1, NA), " is NA at position 2"),
    list(c(4, 2, -1), " is -1 at position 3, below zero")
  )
  for (flaw in flawed) {
    x <- flaw[[1L]]
    by_batch <- expect_not_a_budget(
      quietly(list(3), batch_size = x), paste0("`batch_size`", flaw[[2L]], ".")
    )
    expect_identical(by_batch$activations, 24 * 0.01 * as.double(x))
    by_frac <- expect_not_a_budget(
      quietly(list(3), activation_frac = x), paste0("`activation_frac`", flaw[[2L]], ".")
    )
    expect_identical(by_frac$total, 96 + 24 * x * 32)
  }
})

test_that("nothing at all for a batch or fraction warns, and has ggmlR's value", {
  for (x in list(NULL, numeric(), integer())) {
    text <- if (is.null(x)) " is NULL." else " is empty."
    by_batch <- expect_not_a_budget(quietly(list(3), x), paste0("`batch_size`", text))
    expect_identical(by_batch$total, numeric())
    by_frac <- expect_not_a_budget(
      quietly(list(3), activation_frac = x), paste0("`activation_frac`", text)
    )
    expect_identical(by_frac$activations, numeric())
    expect_identical(by_frac$weights, 24)
  }
})

test_that("a negative batch is noticed where nothing else shows it", {
  expect_not_a_budget(quietly(list(3), -1, activation_frac = 0), "`batch_size` is -1")
  both <- expect_not_a_budget(
    quietly(list(3), -1, activation_frac = -1),
    "`batch_size` is -1, below zero; `activation_frac` is -1, below zero."
  )
  expect_identical(both$activations, 24)
})

test_that("codes and dates taken for numbers are noticed", {
  by_factor <- expect_not_a_budget(
    quietly(list(3), factor("64")), "`batch_size` is of class factor, not a number."
  )
  expect_identical(by_factor$activations, 0.24)
  expect_not_a_budget(quietly(list(3), as.Date("2024-01-01")), "class Date")
  expect_not_a_budget(quietly(list(3), activation_frac = 1i), "class complex")
})

test_that("more parameters than a double can count are noticed", {
  inf <- expect_not_a_budget(quietly(list(c(1e200, 1e200))), "`shapes` have more")
  expect_identical(inf$total, Inf)
  sum <- expect_not_a_budget(quietly(list(1e308, 1e308)), "`shapes` have more")
  expect_identical(sum$params, Inf)
  bytes <- expect_not_a_budget(quietly(list(1e308)), "`shapes` have more")
  expect_identical(bytes$params, 1e308)
  plain <- expect_not_a_budget(
    quietly(list(1e308, 1e308), c(1, NA), optimizer = "sgd_plain"),
    "`batch_size` is NA at position 2; `shapes` have more"
  )
  expect_identical(plain$optimizer, NaN)
  product <- expect_not_a_budget(
    quietly(list(3), 1e308, activation_frac = 10), "too large"
  )
  expect_identical(product$activations, Inf)
})

test_that("R's own warnings stay, beside the one warning", {
  seen <- with_warning(quietly(list(3), "many"))
  expect_length(seen$warnings, 2L)
  expect_identical(conditionMessage(seen$warnings[[1L]]), "NAs introduced by coercion")
  expect_s3_class(seen$warnings[[2L]], "agbudget_warning_not_a_budget")
})

test_that("the warning comes with the report printed", {
  printed <- printed_by(suppressWarnings(ag_estimate_training_memory(list(3), NA)))
  expect_match(printed, "batch NA", fixed = TRUE)
  expect_match(printed, "  total           :       NA MB\n", fixed = TRUE)
})

# ---- what cannot be computed --------------------------------------------------

test_that("what stops ggmlR with an error of R's own names the argument", {
  stops <- function(call, argument) {
    error <- expect_error(call, class = "agbudget_error_bad_argument")
    expect_s3_class(error, "agbudget_error")
    expect_match(
      conditionMessage(error), paste0("^`", argument, "`.* must be numeric: ")
    )
    expect_null(conditionCall(error))
    expect_s3_class(error$parent, "error")
  }
  for (x in list("a", list(1), list(), mean, quote(x), globalenv(), as.raw(1L),
    as.Date("2024-01-01"), .POSIXct(1))) {
    stops(quietly(list(3), activation_frac = x), "activation_frac")
  }
  for (x in list(mean, quote(x), globalenv(), list(1, 2:3), data.frame(a = 1:3))) {
    stops(quietly(list(3), batch_size = x), "batch_size")
  }
  grid <- matrix(1, 2, 2)
  stops(quietly(list(3), 1:8, activation_frac = grid), "activation_frac")
})

test_that("the message says what R found", {
  expect_error(
    quietly(list(3), activation_frac = "a"),
    "`activation_frac` must be numeric: non-numeric argument to binary operator",
    fixed = TRUE
  )
})

test_that("an error while printing names the argument, after what was printed", {
  by_row <- data.frame(a = c(0.1, 0.2))
  expect_s3_class(quietly(list(3), activation_frac = by_row)$total, "data.frame")
  printed <- printed_by(expect_error(
    ag_estimate_training_memory(list(3), activation_frac = by_row),
    "`activation_frac`",
    class = "agbudget_error_bad_argument"
  ))
  expect_match(printed, "optimizer (x2)", fixed = TRUE)
  expect_false(grepl("activations", printed, fixed = TRUE))
})

# ---- report -------------------------------------------------------------------

report <- paste0(
  "Training memory estimate (adam, batch 64)\n",
  "  parameters      : 786 432\n",
  "  weights         :     6.00 MB\n",
  "  gradients       :     6.00 MB\n",
  "  optimizer (x2)  :    12.00 MB\n",
  "  activations     :     3.84 MB\n",
  "  total           :    27.84 MB\n",
  "  note: ", note, "\n"
)

test_that("the report of the documented example", {
  printed <- printed_by(ag_estimate_training_memory(documented, batch_size = 64))
  expect_identical(printed, report)
  expect_snapshot(ag_estimate_training_memory(documented, batch_size = 64))
})

test_that("a quiet call prints nothing, and only TRUE is quiet", {
  expect_identical(printed_by(quietly(documented, 64)), "")
  named <- c(a = TRUE)
  expect_identical(
    printed_by(ag_estimate_training_memory(documented, 64, quiet = named)), ""
  )
  for (loud in list(FALSE, NULL, NA, 1, "TRUE", c(TRUE, TRUE), logical())) {
    expect_identical(
      printed_by(ag_estimate_training_memory(documented, 64, quiet = loud)), report
    )
  }
})

test_that("the report says which optimizer and batch it is for", {
  printed <- printed_by(ag_estimate_training_memory(list(3), 7L, "sgd_"))
  expect_match(printed, "(sgd_plain, batch 7)\n", fixed = TRUE)
  expect_match(printed, "  optimizer (x0)  :     0.00 MB\n", fixed = TRUE)
})

test_that("the count follows digits, scipen and OutDec as format() does", {
  count <- function(n, ...) {
    old <- options(...)
    on.exit(options(old))
    lines <- capture.output(suppressWarnings(ag_estimate_training_memory(list(n))))
    expect_identical(
      lines[2L],
      paste0("  parameters      : ", suppressWarnings(format(n, big.mark = " ")))
    )
    lines[2L]
  }
  expect_match(count(1e5), "1e+05", fixed = TRUE)
  expect_match(count(1e5, scipen = 5L), "100 000", fixed = TRUE)
  comma <- count(1234567.25, digits = 10L, OutDec = ",")
  expect_match(comma, "1 234 567,25", fixed = TRUE)
  count(123456789, digits = 3L)
  count(786432, scipen = -10L)
  count(1234567, OutDec = " ")
  count(2^60, digits = 22L)
  count(1e300, scipen = 400L)
  count(999)
  count(1000)
})

test_that("a table of batches repeats its lines and an empty one has none", {
  lines <- capture.output(ag_estimate_training_memory(list(c(512, 512)), c(8, 16)))
  expect_identical(lines[1:2], c(
    "Training memory estimate (adam, batch 8)",
    " Training memory estimate (adam, batch 16)"
  ))
  expect_identical(sum(grepl("total  ", lines)), 2L)
  lines <- capture.output(suppressWarnings(ag_estimate_training_memory(list(3), NULL)))
  expect_false(any(grepl("Training|activations|total", lines)))
  expect_length(lines, 5L)
})

test_that("a batch beyond integers is printed as NA, with R's warning", {
  printed <- printed_by(
    expect_warning(ag_estimate_training_memory(list(3), 3e9), "integer range")
  )
  expect_match(printed, "batch NA", fixed = TRUE)
  printed <- printed_by(
    expect_warning(ag_estimate_training_memory(list(3), .Machine$integer.max), NA)
  )
  expect_match(printed, "batch 2147483647", fixed = TRUE)
})

# ---- session ------------------------------------------------------------------

test_that("the session's random numbers are left alone", {
  seed_kept({
    set.seed(42L)
    before <- .Random.seed
    quietly(documented)
    quietly(list(structure(3, class = "any"), 1:3), 1:3, activation_frac = c(0.1, 0.2, 1))
    try(quietly(list(0)), silent = TRUE)
    printed_by(ag_estimate_training_memory(documented))
    expect_identical(.Random.seed, before)
    rm(".Random.seed", envir = globalenv())
    quietly(documented)
    expect_false(exists(".Random.seed", globalenv(), inherits = FALSE))
  })
})

test_that("arguments are left as they were", {
  shapes <- list(c(a = 3L), matrix(2, 1, 1), structure(4, class = "any"))
  batch_size <- c(a = 1, b = 2)
  before <- serialize(list(shapes, batch_size), NULL)
  quietly(shapes, batch_size)
  expect_identical(serialize(list(shapes, batch_size), NULL), before)
})
