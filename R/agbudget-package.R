#' agbudget: how much memory training with ggmlR needs
#'
#' Two answers to one question, for models trained with the autograd (`ag_*`)
#' path of the package ggmlR on the CPU:
#'
#' * [ag_estimate_training_memory()] replaces ggmlR's function of that name: the
#'   same figures from parameter shapes alone, to the last bit.
#' * [ag_training_budget()] gives what training really takes: the model's own code, run
#'   for a few steps on matrices that have shapes but no values.
#'
#' [ag_max_batch_size()], [ag_compare()] and [ag_architecture()] build on the second.
#'
#' @keywords internal
#' @useDynLib agbudget, .registration = TRUE
#' @importFrom Rcpp evalCpp
"_PACKAGE"
