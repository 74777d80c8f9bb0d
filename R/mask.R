# The names that a model's code finds: ggmlR's constructors and operations, and the
# few functions of base and stats that would otherwise fill whole matrices.
#' @include mask_operations.R mask_layers.R mask_values.R
NULL

# An environment over `parent` in which ggmlR's names are symbolic. Functions of the
# user's that `code` calls are defined outside: they are given the same names.
new_mask <- function(code, parent) {
  mask <- list2env(mask_modelled, parent = parent)
  used <- all.names(code, unique = TRUE)
  for (name in used[is.na(match(used, c(names(mask_modelled), "...")))]) {
    refused <- mask_refused[[name]]
    if (!is.null(refused)) {
      assign(name, refused, envir = mask)
      next
    }
    found <- get0(name, envir = parent)
    if (is.list(found) || is.environment(found) || is_user_function(found)) {
      delay_symbolic(name, found, mask)
    }
  }
  mask
}

# What is not modelled ------------------------------------------------------------

gpu_reason <- "only the CPU path is modelled; on a GPU the values live in its memory"
loop_reason <- paste(
  "it belongs to the training loop, which ag_training_budget() runs itself; give it",
  "the model only"
)
buffer_reason <- "it keeps values in a backend buffer, outside R's heap"
file_reason <- "it reads or writes values, and a symbolic model has none"

refuse <- function(name, reason) {
  stop_agbudget("not_modelled", "`", name, "()` is not modelled: ", reason, ".")
}

refused_names <- c(
  ag_flash_attention = "it computes in a backend graph, outside R's heap",
  ag_buffer = buffer_reason, ag_buffer_free = buffer_reason,
  ag_buffer_read = buffer_reason, ag_buffer_write = buffer_reason,
  ag_get_rows = buffer_reason,
  ag_capture = gpu_reason, ag_capture_free = gpu_reason, ag_capture_set = gpu_reason,
  ag_capture_step = gpu_reason,
  ag_graph_mode = gpu_reason, ag_local_mode = gpu_reason,
  ag_matmul_precision = gpu_reason, ag_dtype = gpu_reason,
  ag_grad = "it asks for values, and a symbolic tensor has none",
  ag_gradcheck = "it asks for values, and a symbolic tensor has none",
  ag_sample_categorical = "it asks for values, and a symbolic tensor has none",
  ag_load_model = file_reason, ag_save_model = file_reason,
  ag_state_dict = file_reason, ag_load_state_dict = file_reason,
  with_grad_tape = loop_reason, backward = loop_reason,
  optimizer_adam = loop_reason, optimizer_sgd = loop_reason,
  ag_dataloader = loop_reason, dp_train = loop_reason, ag_tape_memory = loop_reason,
  clip_grad_norm = loop_reason, clip_grad_value = loop_reason,
  lr_scheduler_cosine = loop_reason, lr_scheduler_cyclic = loop_reason,
  lr_scheduler_onecycle = loop_reason, lr_scheduler_step = loop_reason,
  lr_scheduler_warmup_cosine = loop_reason
)

mask_refused <- lapply(
  stats::setNames(names(refused_names), names(refused_names)),
  function(name) {
    reason <- refused_names[[name]]
    function(...) refuse(name, reason)
  }
)

mask_modelled <- c(mask_operations, mask_layers, mask_values)
mask_bindings <- c(mask_modelled, mask_refused)
