# The main job: what training the documented example of ggmlR takes. Both answers.

library(agbudget)

cat(
  "Three dense layers, 512 wide, batch 64, Adam: how much memory does training need?\n\n",
  "1. ggmlR's formula, from the shapes of the weights alone (the drop-in):\n\n",
  sep = ""
)
ag_estimate_training_memory(
  list(c(512, 512), c(512, 512), c(512, 512)), batch_size = 64
)

cat("\n2. One training step of the model's own code, in a heap that only counts:\n\n")
budget <- ag_training_budget(
  ag_sequential(
    ag_linear(512L, 512L, activation = "relu"),
    ag_linear(512L, 512L, activation = "relu"),
    ag_linear(512L, 512L, activation = "relu")
  ),
  batch_size = 64, optimizer = "adam"
)
print(budget)

cat(
  "\nThe second is what R really needs (measured: 42.1 MiB). The formula knows neither\n",
  "what the layers keep of a batch, nor the gradients of intermediate results, nor that\n",
  "the tape holds the weights which the optimizer has just replaced.\n",
  sep = ""
)
