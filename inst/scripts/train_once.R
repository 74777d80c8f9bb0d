# One training run in an R process of its own, for measure_training_memory.R.
#
# usage: Rscript train_once.R CASE.R [STEPS]
#
# CASE.R holds one case as `dput()` writes it. The run either prints one line,
# "trained hwm_kb=<the kernel's high-water mark>", or dies of R's own error when
# the heap that R_MAX_VSIZE allows is too small. What the process holds besides
# the model decides the figure, so there is nothing here that training does not
# need; no package but ggmlR is loaded.

suppressMessages(library(ggmlR))

# A model may be an ag_sequential(), one layer, a list of the user's own with
# `forward` and `parameters` (or `params`), or a function of the input.
as_trainable <- function(model) {
  if (is.function(model)) {
    return(list(forward = model, parameters = function() list()))
  }
  if (is.null(model$parameters)) {
    model <- list(forward = model$forward, parameters = model$params)
  }
  model
}

make_input <- function(case) {
  if (is.null(case$vocab)) {
    ag_tensor(matrix(runif(case$input * case$batch), case$input, case$batch))
  } else {
    ag_tensor(matrix(sample.int(case$vocab, case$batch, TRUE) - 1, 1L, case$batch))
  }
}

# Rows and columns where two are given, else rows and one column a sample.
make_target <- function(case) {
  shape <- as.integer(c(case$target, case$batch)[1:2])
  matrix(1 / shape[1], shape[1], shape[2])
}

make_optimizer <- function(kind, parameters, accumulate_steps) {
  switch(kind,
    adam = optimizer_adam(parameters, accumulate_steps = accumulate_steps),
    sgd = optimizer_sgd(parameters, momentum = 0.9, accumulate_steps = accumulate_steps),
    sgd_plain = optimizer_sgd(parameters, accumulate_steps = accumulate_steps)
  )
}

# The loop that ggmlR's documentation shows: whatever it binds stays bound while
# the next step runs.
train_retained <- function(model, optimizer, loss_of, input, target, steps) {
  for (step in seq_len(steps)) {
    with_grad_tape({
      out <- model$forward(input)
      loss <- loss_of(out, target)
    })
    grads <- backward(loss)
    optimizer$step(grads)
    optimizer$zero_grad()
  }
}

# Micro-batches: the optimizer reads the sum in each $grad, and nothing is cleared
# before it has updated the weights.
train_accumulating <- function(model, optimizer, loss_of, input, target, steps) {
  for (step in seq_len(steps)) {
    with_grad_tape({
      out <- model$forward(input)
      loss <- loss_of(out, target)
    })
    grads <- backward(loss)
    if (isTRUE(optimizer$step())) optimizer$zero_grad()
  }
}

# The same step in a function, which leaves nothing bound.
train_released <- function(model, optimizer, loss_of, input, target, steps) {
  one_step <- function() {
    with_grad_tape({
      loss <- loss_of(model$forward(input), target)
    })
    optimizer$step(backward(loss))
    optimizer$zero_grad()
    invisible(NULL)
  }
  for (step in seq_len(steps)) one_step()
}

train <- function(case, steps) {
  model <- as_trainable(eval(parse(text = case$model)))
  accumulate_steps <- if (is.null(case$accumulate_steps)) 1 else case$accumulate_steps
  optimizer <- make_optimizer(case$optimizer, model$parameters(), accumulate_steps)
  loss_of <- switch(case$loss,
    mse = ag_mse_loss,
    cross_entropy = ag_cross_entropy_loss,
    softmax_cross_entropy = ag_softmax_cross_entropy_loss
  )
  run <- switch(case$loop, retained = train_retained, released = train_released)
  if (accumulate_steps > 1) run <- train_accumulating
  input <- make_input(case)
  run(model, optimizer, loss_of, input, make_target(case), steps * accumulate_steps)
}

high_water_kb <- function() {
  status <- tryCatch(readLines("/proc/self/status"), error = function(e) character())
  as.numeric(gsub("[^0-9]", "", c(grep("^VmHWM", status, value = TRUE), NA)[1]))
}

arguments <- commandArgs(TRUE)
case <- dget(arguments[1])
steps <- if (length(arguments) > 1L) as.integer(arguments[2]) else 3L

ag_device("cpu")
train(case, steps)

# The yardstick of the measurement: a vector of known size beside nothing else.
if (!is.null(case$then_hold)) block <- numeric(case$then_hold)

cat(sprintf("trained hwm_kb=%.0f\n", high_water_kb()))
