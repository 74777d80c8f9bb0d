#' agbudget: how much memory training with ggmlR needs
#'
#' Two answers to one question, for models trained with the autograd (`ag_*`)
#' path of the package ggmlR on the CPU:
#'
#' * [ag_estimate_training_memory()] replaces ggmlR's function of that name: the
#'   same figures from parameter shapes alone, to the last bit.
#'
#' @keywords internal
#' @useDynLib agbudget, .registration = TRUE
#' @importFrom Rcpp evalCpp
"_PACKAGE"
