#pragma once

#include <vector>

#include "tape.h"

namespace agbudget {

// ggmlR's optimizer_adam() and optimizer_sgd() (R/autograd.R).
enum class OptimizerKind : std::uint8_t { adam, sgd_momentum, sgd_plain };

class Optimizer {
 public:
  Optimizer(Engine& engine, OptimizerKind kind, Tensors parameters, int accumulate_steps);

  // `gradients` null: read each parameter's $grad, as step() without an argument
  // does. False while micro-batches are still being accumulated.
  bool step(const GradientTable* gradients);
  void zero_grad();

 private:
  Matrix gradient_for(const Tensor& parameter, const GradientTable* gradients);
  void step_adam(std::size_t i, const Matrix& gradient);
  void step_sgd(std::size_t i, const Matrix& gradient);
  void store_weight(Tensor& parameter, Matrix value);
  Matrix state(Shape shape);

  Engine& engine_;
  OptimizerKind kind_;
  Tensors parameters_;
  std::vector<Matrix> first_moments_;  // or the velocity
  std::vector<Matrix> second_moments_;
  BlockRef environment_;
  // Adam's locals: each holds the previous parameter's until it is bound again.
  Matrix first_corrected_;
  Matrix second_corrected_;
  BlockRef frame_;
  int accumulate_steps_;
  int accumulated_ = 0;
};

}  // namespace agbudget
