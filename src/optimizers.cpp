#include "optimizers.h"

#include <utility>

namespace agbudget {

Optimizer::Optimizer(Engine& engine, OptimizerKind kind, Tensors parameters,
                     int accumulate_steps)
    : engine_(engine),
      kind_(kind),
      parameters_(std::move(parameters)),
      accumulate_steps_(accumulate_steps) {
  engine_.begin(kind_ == OptimizerKind::adam ? "adam" : "sgd");
  // Its environment's table, the lists of parameters and of each kind of state.
  const Bytes lists =
      (kind_ == OptimizerKind::adam ? 3 : 2) * list_bytes(parameters_.size());
  environment_ = engine_.heap().allocate(list_bytes(29) + lists, Component::bookkeeping);
  // optimizer_sgd() makes its velocity whether it has momentum or not.
  for (const TensorPtr& parameter : parameters_) {
    first_moments_.push_back(state(parameter->shape()));
  }
  if (kind_ != OptimizerKind::adam) return;
  for (const TensorPtr& parameter : parameters_) {
    second_moments_.push_back(state(parameter->shape()));
  }
}

Matrix Optimizer::state(Shape shape) {
  Matrix matrix = engine_.real(shape);
  engine_.heap().claim(matrix.block, Component::optimizer_state);
  engine_.heap().root(matrix.block);
  return matrix;
}

Matrix Optimizer::gradient_for(const Tensor& parameter, const GradientTable* gradients) {
  Matrix gradient = parameter.gradient;
  if (gradients != nullptr) {
    const auto found = gradients->values.find(parameter.id);
    gradient = found == gradients->values.end() ? Matrix() : found->second;
  }
  // Accumulated micro-batches are averaged into a fresh matrix.
  if (gradient && accumulate_steps_ > 1) return engine_.real(gradient.shape());
  return gradient;
}

bool Optimizer::step(const GradientTable* gradients) {
  if (accumulate_steps_ > 1 && ++accumulated_ < accumulate_steps_) return false;
  accumulated_ = 0;
  Matrix gradient;
  // The call's environment.
  frame_ = engine_.holder();
  if (gradients != nullptr) engine_.heap().hold(gradients->environment, frame_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    engine_.set_layer(parameters_[i]->layer);
    engine_.begin(kind_ == OptimizerKind::adam ? "adam" : "sgd");
    gradient = gradient_for(*parameters_[i], gradients);
    if (!gradient) continue;
    engine_.spend(optimizer_cells);
    if (kind_ == OptimizerKind::adam) {
      step_adam(i, gradient);
    } else {
      step_sgd(i, gradient);
    }
  }
  frame_.reset();
  first_corrected_ = Matrix();
  second_corrected_ = Matrix();
  return true;
}

void Optimizer::step_adam(std::size_t i, const Matrix& gradient) {
  const Shape shape = gradient.shape();
  {
    // beta1 * m + (1 - beta1) * g: the sum lands in the second product.
    const Matrix decayed = engine_.real(shape);
    first_moments_[i] = state(shape);
  }
  {
    const Matrix decayed = engine_.real(shape);
    second_moments_[i] = state(shape);
  }
  first_corrected_ = engine_.real(shape);
  engine_.heap().hold(first_corrected_.block, frame_);
  second_corrected_ = engine_.real(shape);
  engine_.heap().hold(second_corrected_.block, frame_);
  Matrix numerator = engine_.real(shape);
  // sqrt(v_hat) is fresh; the quotient and the new weight land in it.
  Matrix updated = engine_.real(shape);
  numerator = Matrix();
  store_weight(*parameters_[i], std::move(updated));
}

void Optimizer::step_sgd(std::size_t i, const Matrix& gradient) {
  const Shape shape = gradient.shape();
  if (kind_ == OptimizerKind::sgd_momentum) {
    // momentum * v + g: g is bound and has attributes, so the sum is fresh.
    const Matrix decayed = engine_.real(shape);
    first_moments_[i] = state(shape);
  }
  // w - lr * v: the difference lands in the product.
  store_weight(*parameters_[i], engine_.real(shape));
}

// The old weight stays with whoever still refers to it: the frames of the graph
// that was computed with it.
void Optimizer::store_weight(Tensor& parameter, Matrix value) {
  engine_.heap().relabel(parameter.data.block, Component::superseded_weights);
  engine_.heap().relabel(value.block, Component::weights);
  engine_.heap().root(value.block);
  parameter.data = std::move(value);
}

void Optimizer::zero_grad() {
  for (const TensorPtr& parameter : parameters_) parameter->gradient = Matrix();
  engine_.clear_tape();
}

}  // namespace agbudget
