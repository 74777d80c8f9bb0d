#pragma once

#include "tape.h"

namespace agbudget {

// One function for each ag_* operation of ggmlR that computes in R on the CPU
// (R/autograd.R, R/ag_select.R): what it allocates, what its frame keeps, and what
// its backward rule allocates. The shapes have been checked (program.h).

// as.integer(): an integer vector without attributes is returned as it is.
Matrix as_integer(Engine& engine, const Matrix& numbers);

// What an argument of a function binds beside its value: a plain matrix is there by
// that name too, a tensor is no number.
inline Matrix given_matrix(const Tensor& argument) {
  return argument.is_tensor ? Matrix() : argument.data;
}

TensorPtr matmul(Engine& engine, const TensorPtr& a, const TensorPtr& b);
TensorPtr add(Engine& engine, const TensorPtr& a, const TensorPtr& b);
TensorPtr sub(Engine& engine, const TensorPtr& a, const TensorPtr& b);
TensorPtr mul(Engine& engine, const TensorPtr& a, const TensorPtr& b);
// `scalar` may be a matrix or a vector that R recycles; without it, it is a number.
TensorPtr scale(Engine& engine, const TensorPtr& x, const TensorPtr& scalar = nullptr);

TensorPtr relu(Engine& engine, const TensorPtr& x);
TensorPtr sigmoid(Engine& engine, const TensorPtr& x);
TensorPtr tanh_activation(Engine& engine, const TensorPtr& x);
TensorPtr softmax(Engine& engine, const TensorPtr& x);
TensorPtr log_softmax(Engine& engine, const TensorPtr& x);

TensorPtr log_elements(Engine& engine, const TensorPtr& x);
TensorPtr exp_elements(Engine& engine, const TensorPtr& x);
TensorPtr pow_elements(Engine& engine, const TensorPtr& x,
                       const TensorPtr& exponent = nullptr);
TensorPtr clamp(Engine& engine, const TensorPtr& x);

enum class Along : std::uint8_t { all, rows, columns };  // `dim` NULL, 1, 2

TensorPtr sum(Engine& engine, const TensorPtr& x, Along along);
TensorPtr mean(Engine& engine, const TensorPtr& x, Along along);

TensorPtr reshape(Engine& engine, const TensorPtr& x, Shape shape);
TensorPtr transpose(Engine& engine, const TensorPtr& x);
TensorPtr slice_rows(Engine& engine, const TensorPtr& x, Extent count);
TensorPtr concat_rows(Engine& engine, const TensorPtr& a, const TensorPtr& b);
TensorPtr gather(Engine& engine, const TensorPtr& x);
TensorPtr max_by_column(Engine& engine, const TensorPtr& x);
// ag_argmax() on its own: no tensor, only what it allocates for a moment.
void argmax(Engine& engine, const TensorPtr& x);

TensorPtr mse_loss(Engine& engine, const TensorPtr& prediction, const TensorPtr& target);
TensorPtr cross_entropy_loss(Engine& engine, const TensorPtr& prediction,
                             const TensorPtr& target);
TensorPtr softmax_cross_entropy_loss(Engine& engine, const TensorPtr& logits,
                                     const TensorPtr& target);

}  // namespace agbudget
