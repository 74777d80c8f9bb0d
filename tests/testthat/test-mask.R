# How a model's code is evaluated: which names it finds, what it sees, what it leaves.

test_that("ggmlR's names are symbolic inside the code, whether it is attached or not", {
  seen <- NULL
  ag_training_budget({
    seen <<- list(layer = ag_linear, product = ag_matmul, filled = matrix, drawn = runif)
    ag_linear(4L, 2L)
  })
  for (name in names(seen)) {
    expect_identical(environment(seen[[name]]), asNamespace("agbudget"), info = name)
  }
  expect_identical(matrix, base::matrix)
  expect_identical(runif, stats::runif)
})

test_that("variables of the caller and of functions around it are visible", {
  width <- 7L
  budget_at <- function(depth) {
    ag_training_budget(ag_sequential(lapply(seq_len(depth), function(i) {
      ag_linear(width, width)
    })))
  }
  expect_identical(budget_at(3L)$model$parameters, 3 * (7 * 7 + 7))
})

# Functions defined here would belong to the package that is being tested.
as_user <- function(code) {
  env <- new.env(parent = globalenv())
  env$ag_training_budget <- ag_training_budget
  eval(substitute(code), env)
}

test_that("the user's own functions are the user's, with ggmlR's names within them", {
  budget <- as_user({
    block <- function(n) {
      ag_sequential(ag_linear(n, n, activation = "relu"), ag_dropout(0.1))
    }
    half <- function(n) n / 2
    ag_training_budget(ag_sequential(block(8L), ag_linear(8L, half(8L))))
  })
  expect_identical(budget$model$parameters, (8 * 8 + 8) + (8 * 4 + 4))
  expect_identical(budget$layers$layer, c("linear_1", "dropout_1", "linear_2", "loss"))
})

test_that("a function of the user's that has one of ggmlR's names stays the user's", {
  budget <- as_user({
    ag_relu <- function(x) stop("not this one")
    ag_twice <- function(x) ag_add(x, x)
    model <- function(n) {
      ag_exp <- function(x) ag_twice(ag_tanh(x))
      layer <- ag_linear(n, n)
      list(forward = function(x) ag_exp(layer$forward(x)), parameters = layer$params)
    }
    ag_training_budget(model(5L))
  })
  expect_identical(budget$tape$nodes, 2 + 2 + 1)
})

test_that("assignments stay in the code", {
  ag_training_budget({
    only_here <- ag_param(matrix(0, 3, 3))
    list(
      forward = function(x) ag_matmul(only_here, x),
      parameters = function() list(only_here)
    )
  })
  expect_false(exists("only_here"))
})

test_that("nothing is attached, loaded or left behind", {
  attached <- search()
  workspace <- ls(globalenv(), all.names = TRUE)
  loaded <- loadedNamespaces()
  ag_training_budget(ag_sequential(ag_linear(4L, 8L), ag_dropout(0.5), ag_linear(8L, 2L)))
  expect_identical(search(), attached)
  expect_setequal(ls(globalenv(), all.names = TRUE), workspace)
  expect_setequal(loadedNamespaces(), loaded)
})

test_that("ggmlR is not needed", {
  code <- paste(
    "library(agbudget)",
    "b <- ag_training_budget(ag_sequential(ag_linear(784L, 256L), ag_linear(256L, 10L)))",
    "cat(b$heap_bytes > 1e6, 'ggmlR' %in% loadedNamespaces())",
    sep = "; "
  )
  libraries <- paste(.libPaths(), collapse = .Platform$path.sep)
  output <- system2(
    file.path(R.home("bin"), "Rscript"), c("--vanilla", "-e", shQuote(code)),
    stdout = TRUE, env = paste0("R_LIBS=", shQuote(libraries))
  )
  expect_identical(output[[length(output)]], "TRUE FALSE")
})

draws <- quote({
  W <- ag_param(matrix(stats::rnorm(16), 4, 4))
  V <- ag_param(matrix(rnorm(16), 4, 4))
  bits <- sample(10)
  list(
    forward = function(x) ag_matmul(V, ag_matmul(W, ag_dropout(0.5)$forward(x))),
    parameters = function() list(W, V)
  )
})

test_that("the stream of random numbers is left as it was", {
  seed_kept({
    set.seed(1)
    before <- get(".Random.seed", globalenv())
    eval(bquote(ag_training_budget(.(draws))))
    expect_identical(get(".Random.seed", globalenv()), before)
    expect_error(ag_training_budget(stop(sample(10)[[1L]])))
    expect_identical(get(".Random.seed", globalenv()), before)
  })
})

test_that("a stream that has not begun does not begin", {
  seed_kept({
    suppressWarnings(rm(".Random.seed", envir = globalenv()))
    eval(bquote(ag_training_budget(.(draws))))
    expect_false(exists(".Random.seed", globalenv(), inherits = FALSE))
    format(ag_architecture(ag_linear(4L, 2L)))
    expect_false(exists(".Random.seed", globalenv(), inherits = FALSE))
  })
})

test_that("every name that ggmlR's autograd path exports is modelled or refused", {
  skip_if_not_installed("ggmlR")
  exported <- grep(
    "^(ag_|dp_|optimizer_|lr_scheduler|clip_|backward$|with_grad)",
    getNamespaceExports("ggmlR"), value = TRUE
  )
  ours <- c("ag_estimate_training_memory")  # ours has the same name
  expect_setequal(setdiff(exported, c(names(mask_bindings), ours)), character())
})

test_that("what is not modelled is an error that names the function and says why", {
  for (name in names(refused_names)) {
    error <- expect_error(
      eval(bquote(ag_training_budget(.(as.name(name))(1, 2)))),
      class = "agbudget_error_not_modelled"
    )
    expect_match(conditionMessage(error), paste0("`", name, "()`"), fixed = TRUE)
    expect_match(conditionMessage(error), refused_names[[name]], fixed = TRUE)
  }
  expect_error(
    ag_training_budget({
      ag_device("gpu")
      ag_linear(4L, 2L)
    }),
    class = "agbudget_error_not_modelled"
  )
  expect_s3_class(
    ag_training_budget({
      ag_device("cpu")
      ag_linear(4L, 2L)
    }),
    "ag_training_budget"
  )
})

test_that("asking a symbolic tensor for values is an error that says so", {
  asks <- alist(
    as.matrix(h), as.numeric(h), sum(h$data), h$data[[1L]], if (h$data[1, 1] > 0) 1,
    h + 1, exp(h), max(h), as.integer(h), as.vector(h), matrix(h, 1),
    as.character(h$data),
    as.logical(h$data), range(h$data)
  )
  for (ask in asks) {
    code <- bquote({
      W <- ag_param(matrix(0, 4, 4))
      function(x) {
        h <- ag_matmul(W, x)
        .(ask)
        h
      }
    })
    expect_error(
      eval(bquote(ag_training_budget(.(code)))),
      class = "agbudget_error_no_values", info = deparse1(ask)
    )
  }
})

test_that("shapes may be asked for", {
  budget <- ag_training_budget({
    W <- ag_param(matrix(rnorm(12), 4, 3))
    function(x) {
      h <- ag_matmul(W, x)
      stopifnot(
        identical(dim(h$data), c(4, 32)), ncol(x$data) == 32, nrow(h$data) == 4,
        length(h$data) == 128, is.null(h$grad), h$requires_grad, !x$requires_grad
      )
      ag_add(h, matrix(0, nrow(h$data), ncol(h$data)))
    }
  })
  expect_identical(budget$input, 3)
})

test_that("initial values are never drawn or filled, whatever their size", {
  budget <- ag_training_budget({
    n <- 1e5
    A <- ag_param(matrix(rnorm(n * n) * sqrt(2 / n), n, n))
    B <- ag_param(t(matrix(runif(n * n, -1, 1), n)) / 2)
    D <- ag_param(diag(n))
    U <- ag_param(matrix(0, n, n)[, 1:10])
    V <- ag_param(array(0.1, c(n, n)))
    R <- ag_param(matrix(rep(0.5, n * n), n))
    function(x) {
      y <- ag_matmul(D, ag_matmul(B, ag_matmul(V, ag_matmul(R, x))))
      ag_add(ag_matmul(A, x), ag_matmul(ag_matmul(U, ag_transpose(U)), y))
    }
  }, batch_size = 1)
  expect_identical(budget$model$parameters, 5e10 + 1e6)
})

test_that("dots in the code are its own", {
  within <- function(...) {
    ag_training_budget({
      widths <- function(...) c(...)
      ag_linear(widths(2L, 3L)[[1L]], 3L)
    })
  }
  expect_identical(within()$model$parameters, 9)
  expect_identical(within(1, stop("not used"))$model$parameters, 9)
})

test_that("an error leaves no trace that a later call would meet", {
  expect_error(ag_training_budget({
    W <- ag_param(matrix(0, 3, 3))
    stop("mine")
  }), "mine")
  expect_null(the$trace)
  expect_s3_class(ag_training_budget(ag_linear(3L, 3L)), "ag_training_budget")
})

test_that("symbolic models mean nothing outside", {
  kept <- NULL
  ag_training_budget(kept <<- ag_linear(3L, 3L))
  expect_error(kept$forward(matrix(0, 3, 1)), class = "agbudget_error_no_values")
})

test_that("a tensor of one forward pass means nothing in another", {
  architecture <- ag_architecture({
    W <- ag_param(matrix(0, 3, 3))
    memory <- NULL
    function(x) {
      h <- ag_matmul(W, x)
      if (!is.null(memory)) h <- ag_add(h, memory)
      memory <<- h
      h
    }
  })
  expect_s3_class(ag_training_budget(architecture, 8), "ag_training_budget")
  expect_error(
    ag_training_budget(architecture, 8), class = "agbudget_error_stale_tensor"
  )
})
