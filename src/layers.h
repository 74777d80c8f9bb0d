#pragma once

#include "tape.h"

namespace agbudget {

// ggmlR's layers (R/ag_layers.R, ag_linear() in R/autograd.R): what their
// forward() does in terms of operations, and the frames of those that have a
// backward rule of their own.

enum class Activation : std::uint8_t { none, relu, sigmoid, tanh, softmax };

struct BatchNormState {
  TensorPtr gamma;
  TensorPtr beta;
  TensorPtr running_mean;
  TensorPtr running_variance;
};

struct AttentionWeights {
  TensorPtr query;
  TensorPtr key;
  TensorPtr value;
  TensorPtr output;
  TensorPtr bias;  // null without one
};

struct AttentionOptions {
  Extent heads = 1;
  bool dropout = false;
  bool causal = false;
};

TensorPtr linear(Engine& engine, const TensorPtr& x, const TensorPtr& weight,
                 const TensorPtr& bias, Activation activation);
TensorPtr dropout(Engine& engine, const TensorPtr& x);
TensorPtr batch_norm(Engine& engine, const TensorPtr& x, const BatchNormState& state,
                     bool training);
// `gamma` and `beta` are null where the layer has no affine part.
TensorPtr layer_norm(Engine& engine, const TensorPtr& x, const TensorPtr& gamma,
                     const TensorPtr& beta);
TensorPtr embedding(Engine& engine, const TensorPtr& indices, const TensorPtr& table);
TensorPtr multihead_attention(Engine& engine, const TensorPtr& q, const TensorPtr& k,
                              const TensorPtr& v, const AttentionWeights& weights,
                              const AttentionOptions& options);

}  // namespace agbudget
