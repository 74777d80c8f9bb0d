#include "layers.h"

#include "operations.h"

namespace agbudget {

namespace {

// `matrix((runif(n) > rate) / (1 - rate), rows, cols)`, in ag_dropout() and in the
// attention layer.
TensorPtr dropout_mask(Engine& engine, Shape shape) {
  engine.draw_random_numbers();
  Matrix kept;
  {
    Matrix uniform = engine.real(shape);
    const Matrix survives = engine.logical(shape);
    uniform = Matrix();
    kept = engine.real(shape);
  }
  return engine.tensor(engine.real(shape));
}

// The tensor that .ag_mul_broadcast_col() and .ag_add_broadcast_col() expand a
// [F, 1] parameter to.
TensorPtr expanded_column(Engine& engine, const TensorPtr& column,
                          const TensorPtr& matrix) {
  const Shape shape{column->shape().rows, matrix->shape().cols};
  Matrix expanded;
  {
    const Matrix numbers = engine.reals(shape.rows);
    expanded = engine.real(shape);
  }
  TensorPtr out = engine.result(expanded, {column.get()});
  if (!out->requires_gradient) return out;
  engine.record(out, nullptr, {column}, matrices(column->data, matrix->data, expanded),
                matrices(), [&engine, shape](const Matrix&) -> Gradients {
                  const Matrix sums = engine.reals(shape.rows);
                  return {engine.real({shape.rows, 1})};
                });
  return out;
}

// `(1 - momentum) * running + momentum * matrix(statistic)`: the sum lands in the
// second product and replaces the old statistic.
void update_running(Engine& engine, const TensorPtr& running) {
  const Matrix decayed = engine.real(running->shape());
  Matrix updated = engine.real(running->shape());
  engine.heap().claim(updated.block, Component::weights);
  running->data = std::move(updated);
}

// (g - mean(g) - x_hat * mean(g * x_hat)) / std: the second difference lands in the
// product, the quotient is fresh.
Gradients batch_norm_gradient(Engine& engine, Shape shape, bool training) {
  if (!training) return {engine.real(shape)};
  const Matrix means = engine.reals(shape.rows);
  Matrix centred = engine.real(shape);
  Matrix projection_means;
  {
    const Matrix projection = engine.real(shape);
    projection_means = engine.reals(shape.rows);
  }
  const Matrix projected = engine.real(shape);
  centred = Matrix();
  return {engine.real(shape)};
}

Gradients layer_norm_gradient(Engine& engine, Shape shape, bool affine) {
  Matrix for_gamma;
  Matrix for_beta;
  if (affine) {
    {
      const Matrix product = engine.real(shape);
      const Matrix sums = engine.reals(shape.rows);
      for_gamma = engine.real({shape.rows, 1});
    }
    const Matrix sums = engine.reals(shape.rows);
    for_beta = engine.real({shape.rows, 1});
  }
  const Matrix g = engine.real(shape);
  Matrix centred = engine.real(shape);
  Matrix projected;
  {
    const Matrix product = engine.real(shape);
    const Matrix means = engine.reals(shape.cols);
  }
  projected = engine.real(shape);
  centred = Matrix();
  Matrix for_x = engine.real(shape);
  if (!affine) return {for_x};
  return {for_x, for_gamma, for_beta};
}

// .ag_row_slice(): a head's rows through a constant selector matrix.
TensorPtr row_slice(Engine& engine, const TensorPtr& x, Extent rows) {
  const TensorPtr selector = engine.tensor(engine.real({rows, x->shape().rows}));
  return matmul(engine, selector, x);
}

// .ag_row_concat(): each head placed by a constant matrix, and the blocks summed.
TensorPtr row_concat(Engine& engine, const Tensors& heads) {
  if (heads.size() == 1) return heads.front();
  Extent total_rows = 0;
  for (const TensorPtr& head : heads) total_rows += head->shape().rows;
  TensorPtr result;
  for (const TensorPtr& head : heads) {
    const TensorPtr placement =
        engine.tensor(engine.real({total_rows, head->shape().rows}));
    const TensorPtr block = matmul(engine, placement, head);
    result = result ? add(engine, result, block) : block;
  }
  return result;
}

}  // namespace

TensorPtr linear(Engine& engine, const TensorPtr& x, const TensorPtr& weight,
                 const TensorPtr& bias, Activation activation) {
  const TensorPtr out = add(engine, matmul(engine, weight, x), bias);
  switch (activation) {
    case Activation::relu:
      return relu(engine, out);
    case Activation::sigmoid:
      return sigmoid(engine, out);
    case Activation::tanh:
      return tanh_activation(engine, out);
    case Activation::softmax:
      return softmax(engine, out);
    case Activation::none:
      break;
  }
  return out;
}

TensorPtr dropout(Engine& engine, const TensorPtr& x) {
  engine.begin("dropout");
  return mul(engine, x, dropout_mask(engine, x->shape()));
}

TensorPtr batch_norm(Engine& engine, const TensorPtr& x, const BatchNormState& state,
                     bool training) {
  engine.begin("batch_norm");
  const Shape shape = x->shape();
  const Matrix mean = engine.reals(shape.rows);
  const Matrix variance = engine.reals(shape.rows);
  if (training) {
    { const Matrix squares = engine.real(shape); }
    update_running(engine, state.running_mean);
    update_running(engine, state.running_variance);
  }
  const Matrix deviation = engine.reals(shape.rows);
  const Matrix means = engine.real(shape);
  const Matrix deviations = engine.real(shape);
  Matrix normalised;
  {
    // (x - mu_m) / std_m: std_m is bound and has attributes, so nothing is reused.
    const Matrix centred = engine.real(shape);
    normalised = engine.real(shape);
  }
  const TensorPtr x_hat = engine.result(normalised, {x.get()});
  if (x_hat->requires_gradient) {
    engine.record(
        x_hat, nullptr, {x},
        matrices(x->data, mean, variance, deviation, means, deviations, normalised),
        matrices(), [&engine, shape, training](const Matrix&) -> Gradients {
          return batch_norm_gradient(engine, shape, training);
        });
  }
  const TensorPtr scaled =
      mul(engine, expanded_column(engine, state.gamma, x_hat), x_hat);
  engine.begin("batch_norm");
  return add(engine, expanded_column(engine, state.beta, scaled), scaled);
}

TensorPtr layer_norm(Engine& engine, const TensorPtr& x, const TensorPtr& gamma,
                     const TensorPtr& beta) {
  engine.begin("layer_norm");
  const Shape shape = x->shape();
  const bool affine = static_cast<bool>(gamma);
  const Matrix mean = engine.reals(shape.cols);
  { const Matrix squares = engine.real(shape); }
  const Matrix variance = engine.reals(shape.cols);
  const Matrix deviation = engine.reals(shape.cols);
  Matrix normalised;
  {
    // rep() is the size of x; each difference and quotient lands in one.
    const Matrix centred = engine.real(shape);
    normalised = engine.real(shape);
  }
  const Matrix gamma_values = engine.reals(shape.rows);
  const Matrix beta_values = engine.reals(shape.rows);
  TensorPtr out = engine.tensor(engine.real(shape));
  out->requires_gradient = x->requires_gradient;
  if (affine) {
    out->requires_gradient |= gamma->requires_gradient || beta->requires_gradient;
  }
  if (!out->requires_gradient) return out;
  const auto locals = matrices(x->data, mean, variance, deviation, normalised,
                               gamma_values, beta_values, out->data);
  const auto gradient = [&engine, shape, affine](const Matrix&) -> Gradients {
    return layer_norm_gradient(engine, shape, affine);
  };
  if (affine) {
    engine.record(out, nullptr, {x, gamma, beta}, locals, matrices(), gradient);
  } else {
    engine.record(out, nullptr, {x}, locals, matrices(), gradient);
  }
  return out;
}

TensorPtr embedding(Engine& engine, const TensorPtr& indices, const TensorPtr& table) {
  engine.begin("embedding");
  const Extent count = indices->shape().length();
  const Extent dimension = table->shape().rows;
  const Matrix index = as_integer(engine, indices->data);
  Matrix vectors;
  {
    const Matrix one_based = engine.integers(count);
    vectors = engine.real({dimension, count});
  }
  TensorPtr out = engine.result(vectors, {table.get()});
  if (!out->requires_gradient) return out;
  const Shape table_shape = table->shape();
  engine.record(
      out, nullptr, {table, indices},
      matrices(given_matrix(*indices), index, table->data, vectors), matrices(),
      [&engine, table_shape, count](const Matrix&) -> Gradients {
        Matrix scattered = engine.real(table_shape);
        // A column of the table, one of the gradient, their sum, and an index.
        engine.spend_vectors(
            count, table_shape.rows * (3 * bytes_per_double + bytes_per_integer));
        const Matrix column = engine.reals(table_shape.rows);
        const Matrix sum_of_columns = engine.reals(table_shape.rows);
        return {scattered};
      },
      1);
  return out;
}

TensorPtr multihead_attention(Engine& engine, const TensorPtr& q, const TensorPtr& k,
                              const TensorPtr& v, const AttentionWeights& weights,
                              const AttentionOptions& options) {
  engine.begin("attention");
  const TensorPtr queries = matmul(engine, weights.query, q);
  const TensorPtr keys = matmul(engine, weights.key, k);
  const TensorPtr values = matmul(engine, weights.value, v);
  const Extent head_rows = queries->shape().rows / options.heads;

  Tensors heads;
  for (Extent head = 0; head < options.heads; ++head) {
    const TensorPtr q_h = row_slice(engine, queries, head_rows);
    const TensorPtr k_h = row_slice(engine, keys, head_rows);
    const TensorPtr v_h = row_slice(engine, values, head_rows);

    TensorPtr scores = scale(engine, matmul(engine, transpose(engine, q_h), k_h));
    if (options.causal) {
      scores = add(engine, scores, engine.tensor(engine.real(scores->shape())));
    }
    TensorPtr attention = transpose(engine, softmax(engine, transpose(engine, scores)));
    if (options.dropout) {
      engine.begin("dropout");
      attention = mul(engine, attention, dropout_mask(engine, attention->shape()));
    }
    heads.push_back(matmul(engine, v_h, transpose(engine, attention)));
  }

  TensorPtr out = matmul(engine, weights.output, row_concat(engine, heads));
  return weights.bias ? add(engine, out, weights.bias) : out;
}

}  // namespace agbudget
