# The main job: what training a model will need, before any of it exists.

library(agbudget)

cat("Three dense layers, 512 wide, trained with Adam on batches of 64:\n\n")
ag_estimate_training_memory(
  list(c(512, 512), c(512, 512), c(512, 512)),
  batch_size = 64
)
