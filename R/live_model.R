# Live ggmlR objects: tensors that hold values already.

is_live_tensor <- function(x) {
  is.environment(x) && inherits(x, "ag_tensor") && !inherits(x, "agbudget_tensor")
}
