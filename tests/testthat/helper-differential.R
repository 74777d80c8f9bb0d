# Random calls of ag_estimate_training_memory(), and what may differ between
# ggmlR's function and this package's. Shared with tools/differential.R.

pick <- function(choices) choices[[sample.int(length(choices), 1L)]]

chance <- function(p) stats::runif(1L) < p

random_dims <- function() {
  n <- pick(list(1L, 2L, 2L, 2L, 3L, 4L, 7L))
  pick(list(
    quote(sample.int(4096L, n)),
    quote(as.double(sample.int(4096L, n))),
    quote(ceiling(stats::runif(n) * 2^sample.int(60L, 1L))),
    quote(stats::runif(n) * 100),
    quote(10^stats::runif(n, -320, 308.2)),
    quote(rep(.Machine$integer.max, n)),
    quote(stats::setNames(sample.int(99L, n), letters[seq_len(n)])),
    quote(matrix(as.double(sample.int(9L, 6L)), 2L)),
    quote(seq_len(n)),
    quote(1:700),
    quote(c(65536L, 65536L)),
    quote(c(.Machine$double.xmax, 1 + stats::runif(2L) * 2^-50, 1 - 2^-51))
  )) |> eval()
}

random_odd_dims <- function() {
  pick(list(
    quote(0L), quote(c(3, 0)), quote(-2L), quote(c(4, -1)), quote(NA_integer_),
    quote(c(2L, NA)), quote(NA_real_), quote(c(NaN, 1)), quote(Inf), quote(-Inf),
    quote(NULL), quote(numeric()), quote(integer()), quote("a"), quote(TRUE),
    quote(2i), quote(list(3)), quote(as.raw(3L)), quote(mean), quote(quote(x)),
    quote(factor("8")), quote(as.Date("2024-01-01")), quote(.POSIXct(9e8)),
    quote(as.difftime(3, units = "mins")), quote(data.frame(a = 1:2)),
    quote(stats::ts(2:4)), quote(structure(c(3, 5), class = "extent")),
    quote(structure(3:5, class = "extent")), quote(structure(c(3, NA), class = "x")),
    quote(structure(c(2, 0), class = "x")), quote(structure(numeric(), class = "x")),
    quote(structure(c(3, 5), class = c("AsIs", "numeric"))), quote(I(4:6)),
    quote(table(c(1, 1, 2))), quote(numeric_version("1.2")),
    quote(as.POSIXlt(.POSIXct(9e8, "UTC"))), quote(structure(list(1), class = "extent")),
    quote(noquote(c(7, 3))), quote(as.hexmode(7L)), quote(globalenv())
  )) |> eval()
}

random_integer64 <- function() {
  values <- pick(list(
    quote(c(5, 6)), quote(2^sample.int(52L, 3L)), quote(2^33 + 1), quote(c(3, 0)),
    quote(-4), quote(c(2, NA)), quote(numeric()), quote(c(2^60, 3))
  ))
  bit64::as.integer64(eval(values))
}

random_element <- function() {
  if (chance(0.04)) {
    random_odd_dims()
  } else if (chance(0.06) && requireNamespace("bit64", quietly = TRUE)) {
    random_integer64()
  } else {
    random_dims()
  }
}

random_shapes <- function() {
  elements <- function() lapply(seq_len(sample.int(6L, 1L)), function(i) random_element())
  if (chance(0.6)) {
    return(elements())
  }
  pick(list(
    quote(random_dims()), quote(random_dims()), quote(random_element()),
    quote(random_odd_dims()), quote(random_integer64()),
    quote(stats::setNames(elements(), NULL)), quote(list()), quote(NULL),
    quote(list(w = random_dims(), b = random_dims())), quote("a"), quote(factor("a")),
    quote(structure(elements(), class = "model_shapes")),
    quote(structure(elements(), dim = NULL, note = "kept")),
    quote(data.frame(a = 1:3, b = c(2.5, 4, 8))), quote(data.frame()),
    quote(data.frame(a = 1:2, b = c("x", "y"))),
    quote({
      nested <- data.frame(a = 1:2)
      nested$inner <- data.frame(b = 3:4)
      nested
    }),
    quote(pairlist(3L, random_dims())), quote(pairlist(3L, NULL)),
    quote(expression(3, 4)), quote(quote(f(3))), quote(as.list(1:5)),
    quote(array(1:8, c(2, 2, 2))), quote(matrix(list(2, 3, 4, 5), 2)),
    quote(as.list(stats::setNames(1:3, c("a", "b", "c")))),
    quote(lapply(1:2000, function(i) c(i, 3L))), quote(TRUE), quote(globalenv()),
    quote(list(c(1e200, 1e200))), quote(list(1e308, 1e308)), quote(list(2e307, 3L))
  )) |> eval()
}

# Arguments are kept as expressions, so that a call can also hold one that stops.
batch_sizes <- expression(
  1L, 32L, 64, 64, 1e6, 2000000L, 2.5, 0, 0L, 1:4, c(8, 16, 32), c(a = 8, b = 16),
  matrix(1:4, 2), 3e9, 2^31, 2147483647, -2147483648, c(1, 3e9), 1e308, 1e300,
  TRUE, "12", list(3), list(3, 4L), as.raw(5L), structure(4, class = "rows"),
  c(z = 5L), structure(6, note = "kept"), array(7, 1L), as.difftime(3, units = "mins"),
  as.Date("2024-01-01"), factor("64"), factor(c("a", "b")), stats::ts(1:3), I(9),
  NA, NA_integer_, NA_real_, NaN, Inf, -Inf, -3L, -0.5, NULL, numeric(), integer(),
  c(1, NA), c(NaN, 2), c(4, -1), list(), "a", character(), c("1", "b"), 2i, 3 + 0i,
  list(1, 2:3), data.frame(a = 1:3), data.frame(a = 5), mean, quote(x), globalenv(),
  stop("the caller's own"), .POSIXct(9e8), as.POSIXlt(.POSIXct(9e8, "UTC")),
  numeric_version("1.2"), missing_name, numeric_version("2")
)

activation_fracs <- expression(
  0.01, 0.01, 0.5, 1 / 3, 0, 1L, 1e-9, c(0.1, 0.2), c(a = 0.1), c(a = 0.1, b = 0.2),
  matrix(1:4, 2) / 7, array(0.1, 1L), array(1:3 / 10, 3L), stats::ts(1:3 / 9),
  structure(0.25, note = "kept"), structure(0.25, class = "share"), I(0.5),
  TRUE, FALSE, as.difftime(0.5, units = "hours"), data.frame(a = c(0.1, 0.2)),
  data.frame(a = 0.1, b = 0.3), matrix(1:4 / 9, 2, dimnames = list(NULL, c("p", "q"))),
  NA, NA_integer_, NA_real_, NaN, Inf, -Inf, -1L, -0.01, 1e300, NULL, numeric(),
  integer(), c(0.1, NA), c(0.1, -0.1), factor("a"), "a", "0.1", list(0.1), list(),
  as.Date("2024-01-01"), .POSIXct(9e8), 1i, 0.5 + 0i, as.raw(1L), mean, quote(x),
  globalenv(), stop("the caller's own"), table(c(1, 2, 2)), numeric_version("1.2"),
  missing_name
)

integer64_arguments <- expression(
  bit64::as.integer64(5), bit64::as.integer64(c(2, 7)), bit64::as.integer64(NA),
  bit64::as.integer64(-3), bit64::as.integer64(2^40)
)

optimizer_arguments <- expression(
  "adam", "sgd", "sgd_plain", "a", "ad", "sgd_", "sgd_p", NULL, c(o = "sgd"),
  c("adam", "sgd", "sgd_plain"), "s", "x", "", NA_character_, character(), 1, TRUE,
  factor("sgd"), c("sgd", "adam"), list("sgd"), stop("the caller's own"), "Adam"
)

quiets <- expression(
  TRUE, FALSE, FALSE, NULL, NA, c(TRUE, TRUE), c(a = TRUE), 1, "TRUE", list(TRUE),
  structure(TRUE, class = "yes"), stop("the caller's own"), logical()
)

# Mostly from the first few, which are the everyday ones.
pick_argument <- function(choices, everyday, p = 0.65) {
  pick(if (chance(p)) choices[seq_len(everyday)] else choices)
}

random_call <- function() {
  args <- list(shapes = call("quote", random_shapes()))
  has_integer64 <- chance(0.03) && requireNamespace("bit64", quietly = TRUE)
  if (chance(0.8)) args$batch_size <- pick_argument(batch_sizes, 13L)
  if (chance(0.5)) args$activation_frac <- pick_argument(activation_fracs, 11L)
  if (has_integer64) {
    args[[pick(list("batch_size", "activation_frac"))]] <- pick(integer64_arguments)
  }
  if (chance(0.6)) args["optimizer"] <- list(pick_argument(optimizer_arguments, 10L, 0.9))
  if (chance(0.6)) args["quiet"] <- list(pick_argument(quiets, 3L, 0.8))
  if (chance(0.01)) args$shapes <- NULL
  options <- list(digits = 7L, scipen = 0L, OutDec = ".")
  if (chance(0.4)) {
    options <- list(
      digits = sample.int(22L, 1L), scipen = pick(list(-15L, -3L, 0L, 5L, 60L)),
      OutDec = pick(list(".", ".", ",", " "))
    )
  }
  list(args = args, options = options)
}

# What this package does differently on purpose, from ggmlR's outcome alone.

is_own_error <- function(error) {
  text <- conditionMessage(error)
  grepl("^ggmlR: |^'arg' (must|should) be|^the caller's own$", text) ||
    grepl("\"shapes\" is missing|missing_name", text)
}

differences_in_error <- function(ours, reference) {
  if (is.null(reference)) {
    return(if (!is.null(ours)) paste("an error only here:", conditionMessage(ours)))
  }
  if (is.null(ours)) {
    return(paste("an error only in ggmlR:", conditionMessage(reference)))
  }
  text <- conditionMessage(ours)
  found <- c(
    if (!endsWith(text, conditionMessage(reference))) "error messages",
    if (!is_own_error(reference)) {
      c(
        if (!inherits(ours, "agbudget_error_bad_argument")) "class of the error",
        if (!grepl("^`(shapes(\\[\\[\\d+\\]\\])?|batch_size|activation_frac)`", text,
          perl = TRUE
        )) {
          "error that names no argument"
        }
      )
    } else if (!identical(text, conditionMessage(reference))) {
      "message of an error that has to read the same"
    },
    if (startsWith(text, "ggmlR:") && !inherits(ours, "agbudget_error")) {
      "class of a ggmlR error"
    }
  )
  if (length(found)) paste0(found, ": ", text, " | ", conditionMessage(reference))
}

# bit64 warns where a dimension loses digits as a double; the core reads it itself.
lost_precision <- "integer precision lost while converting to double"

differences_in_warnings <- function(ours, reference, expected) {
  is_extra <- vapply(ours, inherits, NA, "agbudget_warning_not_a_budget")
  messages <- function(conditions) {
    text <- vapply(conditions, conditionMessage, "")
    text[text != lost_precision]
  }
  c(
    if (!identical(messages(ours[!is_extra]), messages(reference))) {
      paste(
        "R's warnings:", toString(messages(ours[!is_extra])), "|",
        toString(messages(reference))
      )
    },
    if (sum(is_extra) != expected) {
      sprintf("%d warnings that this is no budget, expected %d", sum(is_extra), expected)
    }
  )
}

# Judged by the numbers that ggmlR's function returns and the arguments' values,
# without the package's own rules.
means_nothing <- function(args, value, env) {
  argument <- function(name, default) {
    if (name %in% names(args)) eval(args[[name]], env) else default
  }
  no_number <- function(x) {
    inherits(x, c("factor", "Date", "POSIXct", "difftime")) || is.complex(x)
  }
  numbers <- function(x) suppressWarnings(as.double(unlist(x)))
  batch_size <- argument("batch_size", 32L)
  frac <- argument("activation_frac", 0.01)
  total <- numbers(value$total)
  # bit64's arithmetic can make something of an empty vector.
  is_empty <- c(length(numbers(batch_size)), length(numbers(frac)), length(total)) == 0L
  any(is_empty) || !all(is.finite(total)) ||
    no_number(batch_size) || no_number(frac) ||
    !isTRUE(all(numbers(batch_size) >= 0)) || !isTRUE(all(numbers(frac) >= 0))
}

compare_call <- function(call, ours, reference) {
  old <- options(call$options)
  on.exit(options(old))
  expected <- observe(reference, call$args)
  found <- observe(ours, call$args)
  flawed <- is.null(expected$error) &&
    means_nothing(call$args, expected$value, new.env(parent = globalenv()))
  c(
    if (!identical(found$value, expected$value)) "value",
    if (!identical(found$visible, expected$visible)) "visibility",
    if (!identical(found$printed, expected$printed)) "printed report",
    differences_in_error(found$error, expected$error),
    differences_in_warnings(found$warnings, expected$warnings, flawed)
  )
}

# Returns how many calls agreed and the first of those that did not.
run_differential <- function(n, seed, ours, reference, keep = 10L) {
  set.seed(seed)
  # With its methods, ggmlR's function reads integer64 right and can be compared.
  if (requireNamespace("bit64", quietly = TRUE)) loadNamespace("bit64")
  agreed <- 0L
  failures <- list()
  for (i in seq_len(n)) {
    call <- random_call()
    differences <- compare_call(call, ours, reference)
    if (length(differences) == 0L) {
      agreed <- agreed + 1L
    } else if (length(failures) < keep) {
      call$differences <- differences
      failures <- c(failures, list(call))
    }
  }
  list(n = n, seed = seed, agreed = agreed, failures = failures)
}

describe_failure <- function(call) {
  paste(c(
    call$differences,
    deparse(call$args, width.cutoff = 80L)[seq_len(min(12L, length(deparse(call$args))))],
    deparse(call$options)
  ), collapse = "\n  ")
}
