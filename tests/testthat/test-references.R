# What the model's code refers to stays in memory: values that need no gradient are on no
# tape, so nothing else holds them.

rows <- 1000
cols <- 100

# Whole matrices of the batch size that are live while `operation` runs for the last time
# in the `phase` of the second step, the batch among them.
live_at <- function(model, operation, phase = "forward", loop = "released") {
  budget <- eval(bquote(ag_training_budget(
    .(model), .(cols), "sgd_plain", input = .(rows), loop = .(loop)
  )))
  events <- budget$timeline
  events <- events[events$step == 2 & events$phase == phase, ]
  live <- events$live_bytes[events$operation == operation]
  live[[length(live)]] %/% (8 * rows * cols)
}

# A linear head on what `body` makes of `x`.
head_on <- function(body, before = NULL) {
  bquote({
    W <- ag_param(matrix(rnorm(.(rows)), 1, .(rows)))
    .(before)
    list(
      forward = function(x) {
        ag_matmul(W, .(body))
      },
      parameters = function() list(W = W)
    )
  })
}

test_that("a variable holds its value until it is bound anew or its frame is left", {
  nested <- quote(ag_scale(ag_scale(ag_scale(x, 2), 2), 2))
  expect_identical(live_at(head_on(nested), "matmul"), 2)
  named <- quote({
    a <- ag_scale(x, 2)
    b <- ag_scale(a, 2)
    ag_scale(b, 2)
  })
  expect_identical(live_at(head_on(named), "matmul"), 4)
  rebound <- quote({
    x <- ag_scale(x, 2)
    x <- ag_scale(x, 2)
    ag_scale(x, 2)
  })
  expect_identical(live_at(head_on(rebound), "matmul"), 3)
  removed <- quote({
    a <- ag_scale(x, 2)
    b <- ag_scale(a, 2)
    rm(a)
    ag_scale(b, 2)
  })
  expect_identical(live_at(head_on(removed), "matmul"), 3)
  in_a_helper <- quote((function(x) {
    a <- ag_scale(x, 2)
    b <- ag_scale(a, 2)
    ag_scale(b, 2)
  })(x))
  expect_identical(live_at(head_on(in_a_helper), "matmul"), 2)
})

test_that("lists, dots and loops hold values too", {
  listed <- quote({
    parts <- lapply(1:3, function(i) ag_scale(x, i))
    Reduce(ag_add, parts)
  })
  expect_identical(live_at(head_on(listed), "matmul"), 5)
  dots <- quote((function(...) ag_tanh(..1))(ag_scale(x, 2), ag_scale(x, 3)))
  # The second argument is never used, and so never made.
  expect_identical(live_at(head_on(dots), "tanh"), 3)
  used <- quote((function(...) {
    force(..2)
    ag_tanh(..1)
  })(ag_scale(x, 2), ag_scale(x, 3)))
  expect_identical(live_at(head_on(used), "tanh"), 4)
})

test_that("an argument stays until the call returns, whatever its name is bound to", {
  helper <- quote(prepare <- function(y) {
    y <- ag_scale(y, 3)
    y <- ag_scale(y, 3)
    ag_tanh(y)
  })
  # The batch, the argument, `y` and what is made of it.
  expect_identical(live_at(head_on(quote(prepare(ag_scale(x, 2))), helper), "tanh"), 4)
  expect_identical(live_at(head_on(quote(prepare(ag_scale(x, 2))), helper), "matmul"), 2)
})

test_that("looking for values evaluates nothing", {
  body <- quote({
    delayedAssign("late", stop("used"))
    makeActiveBinding("active", function() stop("read"), environment())
    (function(y, unused) {
      a <- ag_scale(y, 2)
      ag_scale(a, 2)
    })(x, stop("forced"))
  })
  expect_identical(live_at(head_on(body), "matmul"), 2)
})

test_that("matrices of R's own are followed as tensors are", {
  noise <- quote({
    noise <- matrix(rnorm(1000 * 100), 1000, 100)
    noisy <- ag_add(x, ag_tensor(noise))
    ag_scale(noisy, 2)
  })
  expect_identical(live_at(head_on(noise), "matmul"), 4)
  real <- quote({
    m <- as.matrix(as.numeric(seq_len(1000)))
    y <- ag_mul(x, m)
    ag_scale(y, 2)
  })
  expect_identical(live_at(head_on(real), "matmul"), 3)
})

test_that("what a pass leaves in the model's environments outlives it", {
  none <- head_on(quote(ag_scale(x, 2)))
  expect_identical(live_at(none, "backward", "backward"), 2)
  assigned <- head_on(quote({
    last <<- ag_scale(x, 3)
    ag_scale(x, 2)
  }), quote(last <- NULL))
  expect_identical(live_at(assigned, "backward", "backward"), 3)
  stored <- head_on(quote({
    state$a <- ag_scale(x, 3)
    state$b <- list(ag_scale(x, 3))
    ag_scale(x, 2)
  }), quote(state <- new.env()))
  expect_identical(live_at(stored, "backward", "backward"), 4)
  # The old values stay until the new ones take their places.
  expect_identical(live_at(stored, "scale"), 4)
})

test_that("matrices that the model's code leaves bound are part of the model", {
  from <- function(setup) {
    budget <- eval(bquote(ag_training_budget({
      .(setup)
      list(forward = function(x) ag_matmul(W, x), parameters = function() list(W = W))
    }, 1, "sgd_plain", loop = "released")))
    timeline <- budget$timeline
    timeline$live_bytes[timeline$operation == "matmul"][[1L]] %/% (8 * 300 * 300)
  }
  # The weight and its velocity.
  expect_identical(from(quote(W <- ag_param(matrix(rnorm(90000), 300, 300) * 0.1))), 2)
  expect_identical(from(quote({
    start <- matrix(rnorm(90000), 300, 300)
    W <- ag_param(start * 0.1)
  })), 3)
  expect_identical(from(quote({
    make <- function() {
      start <- matrix(rnorm(90000), 300, 300)
      list(W = ag_param(start * 0.1), describe = function() dim(start))
    }
    made <- make()
    W <- made$W
  })), 3)
  expect_identical(from(quote({
    make <- function() {
      start <- matrix(rnorm(90000), 300, 300)
      ag_param(start * 0.1)
    }
    W <- make()
  })), 2)
})

test_that("the function of a checkpoint keeps the frame that it was defined in", {
  model <- quote({
    W <- ag_param(matrix(rnorm(1000), 1, 1000))
    list(
      forward = function(x) {
        beside <- ag_scale(x, 2)
        ag_checkpoint(function(h) ag_tanh(ag_matmul(W, h)), x)
      },
      parameters = function() list(W = W)
    )
  })
  expect_identical(live_at(model, "backward", "backward"), 2)
  model[[3L]][[2L]][[3L]][[2L]] <- quote(NULL)
  expect_identical(live_at(model, "backward", "backward"), 1)
})

test_that("requires_grad is what it is when an operation runs", {
  nodes <- function(forward, build = NULL) {
    budget <- eval(bquote(ag_training_budget({
      W <- ag_param(matrix(rnorm(64), 8, 8))
      .(build)
      list(forward = .(forward), parameters = function() list(W = W))
    }, 4, loop = "released")))
    budget$tape$nodes
  }
  expect_equal(nodes(quote(function(x) ag_matmul(W, ag_matmul(W, x)))), 3)
  expect_equal(nodes(quote(function(x) {
    W$requires_grad <- FALSE
    h <- ag_matmul(W, x)
    W$requires_grad <- TRUE
    ag_matmul(W, h)
  })), 2)
  expect_equal(nodes(quote(function(x) {
    h <- ag_matmul(W, x)
    h$requires_grad <- FALSE
    ag_matmul(W, h)
  })), 3)
  expect_equal(nodes(quote(function(x) ag_matmul(W, ag_tensor(ag_matmul(W, x)$data)))), 3)
  expect_equal(nodes(
    quote(function(x) ag_add(ag_matmul(W, x), ag_matmul(V, x))),
    quote({
      V <- ag_param(matrix(0, 8, 8))
      V$requires_grad <- FALSE
    })
  ), 3)
})

test_that("what a parameter is left as decides whether it gets a gradient", {
  gradients <- function(used, left) {
    budget <- eval(bquote(ag_training_budget({
      W <- ag_param(matrix(rnorm(1e6), 1000, 1000))
      V <- ag_param(matrix(rnorm(1e6), 1000, 1000))
      list(
        forward = function(x) {
          W$requires_grad <- .(used)
          y <- ag_add(ag_matmul(W, x), ag_matmul(V, x))
          W$requires_grad <- .(left)
          y
        },
        parameters = function() list(W, V)
      )
    }, 4, loop = "released")))
    max(budget$timeline$gradients) %/% 8e6
  }
  expect_identical(gradients(TRUE, TRUE), 2)
  expect_identical(gradients(TRUE, FALSE), 1)
  # The rule of an operation knows what was wanted when it ran.
  expect_identical(gradients(FALSE, TRUE), 1)
  expect_identical(gradients(FALSE, FALSE), 1)
})

test_that("environments and closures in a frame hold values", {
  in_environment <- quote({
    state <- new.env()
    state$a <- ag_scale(x, 2)
    ag_scale(x, 3)
  })
  expect_identical(live_at(head_on(in_environment), "matmul"), 3)
  read_later <- quote({
    state <- new.env()
    state$a <- ag_scale(x, 2)
    ag_tanh(x)
    ag_scale(x, 3)
  })
  # The batch, the field, and what is being made.
  expect_identical(live_at(head_on(read_later), "tanh"), 3)
  closure <- quote({
    keep <- (function(a) {
      force(a)
      function() a
    })(ag_scale(x, 2))
    ag_tanh(x)
  })
  expect_identical(live_at(head_on(closure), "tanh"), 3)
})

test_that("a function that a checkpoint got from elsewhere keeps its environment", {
  model <- function(kept) {
    bquote({
      W <- ag_param(matrix(rnorm(1000), 1, 1000))
      make <- function(x) {
        beside <- .(kept)
        function(h) ag_tanh(ag_matmul(W, h))
      }
      list(
        forward = function(x) ag_checkpoint(make(x), x),
        parameters = function() list(W = W)
      )
    })
  }
  expect_identical(live_at(model(NULL), "backward", "backward"), 1)
  expect_identical(live_at(model(quote(ag_scale(x, 2))), "backward", "backward"), 2)
})

test_that("what a checkpoint's function stores is what its rerun makes", {
  model <- function(body) {
    bquote({
      keep <- new.env()
      W <- ag_param(matrix(rnorm(1e6), 1000, 1000))
      list(
        forward = function(x) ag_checkpoint(function(h) .(body), x),
        parameters = function() list(W = W)
      )
    })
  }
  stored <- quote({
    keep$a <- ag_tanh(ag_matmul(W, h))
    ag_relu(ag_matmul(W, h))
  })
  passing <- quote({
    ag_tanh(ag_matmul(W, h))
    ag_relu(ag_matmul(W, h))
  })
  step <- function(body) live_at(model(body), "sgd", "step")
  # The tensor's graph: the product, its value and its derivative.
  expect_gte(step(stored) - step(passing), 2)
})

test_that("nested checkpoints leave nothing of their reruns", {
  model <- function(inner) {
    bquote({
      W <- ag_param(matrix(rnorm(1e6), 1000, 1000))
      outside <- function(h) ag_tanh(ag_matmul(W, h))
      list(
        forward = function(x) {
          ag_checkpoint(function(h) ag_checkpoint(.(inner), ag_relu(h)), ag_matmul(W, x))
        },
        parameters = function() list(W = W)
      )
    })
  }
  inline <- model(quote(function(h) ag_tanh(ag_matmul(W, h))))
  expect_identical(live_at(inline, "matmul"), live_at(model(quote(outside)), "matmul"))
})

test_that("a switch before a checkpoint is not made again by its rerun", {
  gradients <- function(before, after) {
    budget <- eval(bquote(ag_training_budget({
      W <- ag_param(matrix(rnorm(1e6), 1000, 1000))
      V <- ag_param(matrix(rnorm(1e6), 1000, 1000))
      list(
        forward = function(x) {
          W$requires_grad <- .(before)
          y <- ag_checkpoint(function(z) ag_matmul(V, ag_matmul(W, z)), x)
          W$requires_grad <- .(after)
          y
        },
        parameters = function() list(W, V)
      )
    }, 4, loop = "released")))
    max(budget$timeline$gradients) %/% 8e6
  }
  expect_identical(gradients(FALSE, TRUE), 2)
  expect_identical(gradients(TRUE, FALSE), 1)
})

test_that("a layer that refers to itself is followed once", {
  budget <- ag_training_budget({
    s <- ag_sequential(ag_linear(4L, 3L), ag_batch_norm(3L))
    s$self <- s
    list(forward = function(x) s$forward(x), parameters = function() s$parameters())
  })
  expect_gt(budget$heap_bytes, 0)
})

test_that("a layer whose forward function was replaced is the user's own code", {
  model <- quote({
    keep <- new.env()
    s <- ag_sequential(list(ag_linear(1000L, 1L)))
    original <- s$forward
    s$forward <- function(x) {
      keep$a <- ag_scale(x, 2)
      original(x)
    }
    s
  })
  expect_identical(live_at(model, "backward", "backward"), 2)
})

test_that("parameters come as a list, a pairlist too, and layers' by name", {
  optimizer_state <- function(parameters) {
    max(eval(bquote(ag_training_budget({
      W <- ag_param(matrix(rnorm(64), 8, 8))
      list(forward = function(x) ag_matmul(W, x), parameters = .(parameters))
    })))$timeline$optimizer_state)
  }
  expect_identical(
    optimizer_state(quote(function() pairlist(W = W))),
    optimizer_state(quote(function() list(W = W)))
  )
  trained <- function(parameters) {
    eval(bquote(ag_training_budget({
      norm <- ag_batch_norm(512L)
      norm$parameters <- function() .(parameters)
      ag_sequential(ag_linear(8L, 512L), norm)
    })))$components[["optimizer_state"]]
  }
  # ggmlR's ag_sequential() never sees a parameter without a name.
  expect_identical(trained(quote(list(norm$gamma, norm$beta))), trained(quote(list())))
  expect_gt(trained(quote(list(g = norm$gamma, b = norm$beta))), trained(quote(list())))
})

test_that("an output that was detached ends the graph", {
  nodes <- function(wanted) {
    eval(bquote(ag_training_budget({
      W <- ag_param(matrix(rnorm(64), 8, 8))
      list(
        forward = function(x) {
          y <- ag_matmul(W, x)
          y$requires_grad <- .(wanted)
          y
        },
        parameters = function() list(W)
      )
    }, 4)))$tape$nodes
  }
  expect_equal(nodes(TRUE), 2)
  expect_equal(nodes(FALSE), 1)
})

test_that("what cannot be followed is refused", {
  with <- function(body) {
    head_on(bquote({
      h <- ag_scale(x, 2)
      .(body)
      h
    }))
  }
  expect_error(live_at(with(quote(h$data <- x$data)), "matmul"),
               class = "agbudget_error_not_modelled")
  for (wanted in list(NA, NULL, "yes", c(TRUE, FALSE))) {
    expect_error(live_at(with(bquote(h$requires_grad <- .(wanted))), "matmul"),
                 class = "agbudget_error_bad_argument")
  }
  # The batch of one pass in the next.
  expect_error(
    ag_training_budget({
      layer <- ag_linear(10L, 10L)
      last <- NULL
      list(
        forward = function(x) {
          if (!is.null(last)) x <- ag_add(x, last)
          last <<- x
          layer$forward(x)
        },
        parameters = function() layer$params()
      )
    }),
    class = "agbudget_error_stale_tensor"
  )
})

test_that("lists in lists are followed once, and replaced in place", {
  shared <- quote({
    l <- list(1)
    for (i in 1:40) l <- list(l, l)
    h <- ag_scale(x, 2)
    ag_scale(h, 2)
  })
  expect_identical(live_at(head_on(shared), "matmul"), 3)
  replaced <- quote((function(o) {
    o$h <- ag_scale(o$h, 2)
    o$h <- ag_scale(o$h, 2)
    ag_tanh(o$h)
  })(list(h = ag_scale(x, 2))))
  expect_identical(live_at(head_on(replaced), "tanh"), 3)
})
