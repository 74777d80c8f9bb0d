#include "operations.h"

#include <algorithm>

namespace agbudget {

namespace {

// `apply(x, 2, max)`: aperm() copies x; a list, its scalars and the unlisted result.
Matrix column_maxima(Engine& engine, Shape shape) {
  const Matrix copy = engine.real(shape);
  const Matrix answers = engine.reals(shape.cols);
  const Matrix scalars = engine.reals(shape.cols);
  // Each column is copied out, by an integer index.
  engine.spend_vectors(shape.cols, shape.rows * (bytes_per_double + bytes_per_integer));
  return engine.reals(shape.cols);
}

// `matrix(<vector>, nrow, ncol)`: the vector lives until the copy is there.
Matrix matrix_from(Engine& engine, const Matrix& source, Shape shape) {
  static_cast<void>(source);
  return engine.real(shape);
}

Matrix column_sums(Engine& engine, Shape shape) {
  return matrix_from(engine, engine.reals(shape.cols), {1, shape.cols});
}

Matrix row_sums(Engine& engine, Shape shape) {
  return matrix_from(engine, engine.reals(shape.rows), {shape.rows, 1});
}

// `(condition) * 1.0`: the logical lives until the product is there.
Matrix mask_from(Engine& engine, const Matrix& condition) {
  return engine.real(condition.shape());
}

// ag_add() and ag_sub() expand only the second operand, and only if both are
// matrices.
Matrix expanded_operand(Engine& engine, const Matrix& a, const Matrix& b) {
  if (!a.has_dim() || !b.has_dim()) return b;
  if (b.shape().cols == 1 && a.shape().cols > 1) {
    return matrix_from(engine, engine.reals(b.shape().rows),
                       {b.shape().rows, a.shape().cols});
  }
  if (b.shape().rows == 1 && a.shape().rows > 1) {
    return matrix_from(engine, engine.reals(b.shape().cols),
                       {a.shape().rows, b.shape().cols});
  }
  return b;
}

Shape sum_shape(const Matrix& a, const Matrix& b) {
  return a.has_dim() ? a.shape() : b.shape();
}

// The gradient of an operand that was broadcast: `matrix(rowSums(g), ncol = 1)` or
// the same by columns; otherwise the incoming gradient itself.
Matrix reduced_like(Engine& engine, const Matrix& operand, const Matrix& gradient) {
  const Shape shape = gradient.shape();
  if (!operand.has_dim()) return gradient;
  if (operand.shape().cols == 1 && shape.cols > 1) return row_sums(engine, shape);
  if (operand.shape().rows == 1 && shape.rows > 1) return column_sums(engine, shape);
  return gradient;
}

// An operation whose backward rule is `grad_out * <kept multiplier>`.
template <std::size_t N>
TensorPtr elementwise(Engine& engine, const TensorPtr& x, const TensorPtr& out,
                      Matrices<N> locals, const Matrix& multiplier) {
  engine.record(out, "elemwise_mul", {x}, std::move(locals), matrices(multiplier),
                [&engine](const Matrix& grad_out) -> Gradients {
                  return {engine.real(grad_out.shape())};
                });
  return out;
}

// One matrix for the value, and one for the derivative, which the value gives.
TensorPtr activation_with_derivative(Engine& engine, const TensorPtr& x) {
  TensorPtr out = engine.result(engine.real(x->shape()), {x.get()});
  if (!out->requires_gradient) return out;
  const Matrix derivative = engine.real(x->shape());
  return elementwise(engine, x, out, matrices(out->data, derivative), derivative);
}

// `x_data[rep(seq_len(rows), length.out = ...), , drop = FALSE]`, then by columns.
Matrix recycled(Engine& engine, const Matrix& matrix, Shape shape) {
  Matrix expanded = matrix;
  if (matrix.shape().rows < shape.rows) {
    const Matrix index = engine.integers(shape.rows);
    expanded = engine.real({shape.rows, matrix.shape().cols});
  }
  if (matrix.shape().cols < shape.cols) {
    const Matrix index = engine.integers(shape.cols);
    expanded = engine.real({expanded.shape().rows, shape.cols});
  }
  return expanded;
}

// ag_mul()'s .mul_grad(): indexing copies the other operand even where nothing is
// broadcast.
Matrix product_gradient(Engine& engine, Shape self, Shape gradient) {
  Matrix other;
  {
    const Matrix row_index = engine.integers(gradient.rows);
    const Matrix column_index = engine.integers(gradient.cols);
    other = engine.real(gradient);
  }
  Matrix product = engine.real(gradient);
  if (self.rows == 1 && gradient.rows > 1) product = column_sums(engine, gradient);
  if (self.cols == 1 && gradient.cols > 1) product = row_sums(engine, product.shape());
  return product;
}

// `matrix(rep(g, each = rows), rows, cols)`.
Matrix repeated_each(Engine& engine, Shape shape) {
  return matrix_from(engine, engine.reals(shape.length()), shape);
}

TensorPtr reduce(Engine& engine, const TensorPtr& x, Along along, bool divides) {
  const Shape shape = x->shape();
  Matrix value;
  switch (along) {
    case Along::all:
      value = engine.real({1, 1});
      break;
    case Along::rows:
      value = row_sums(engine, shape);
      break;
    case Along::columns:
      value = column_sums(engine, shape);
      break;
  }
  TensorPtr out = engine.result(std::move(value), {x.get()});
  if (!out->requires_gradient) return out;
  const Matrix in_shape = engine.integers(2);
  // ag_sum() records the literal 1 of its own code.
  const Matrix divisor = divides ? engine.reals(1) : Matrix();
  engine.record(out, "sum", {x}, matrices(x->data, out->data, in_shape),
                matrices(in_shape, divisor),
                [&engine, shape, along, divides](const Matrix& grad_out) -> Gradients {
                  if (along == Along::all) return {engine.real(shape)};
                  Matrix g = engine.real(grad_out.shape());
                  if (along == Along::columns) return {repeated_each(engine, shape)};
                  if (divides) {
                    const Matrix quotient = engine.real(g.shape());
                    return {engine.real(shape)};
                  }
                  return {engine.real(shape)};
                });
  return out;
}

// `sum(t * log(p))`: the product lands in the logarithm.
void log_likelihood(Engine& engine, Shape shape) {
  const Matrix logarithm = engine.real(shape);
}

}  // namespace

Matrix as_integer(Engine& engine, const Matrix& numbers) {
  if (numbers.element_bytes() == bytes_per_integer && !numbers.has_dim()) return numbers;
  return engine.integers(numbers.shape().length());
}

TensorPtr matmul(Engine& engine, const TensorPtr& a, const TensorPtr& b) {
  engine.begin("matmul");
  TensorPtr out =
      engine.result(engine.real({a->shape().rows, b->shape().cols}), {a.get(), b.get()});
  if (!out->requires_gradient) return out;

  const bool a_needs = a->requires_gradient;
  const bool b_needs = b->requires_gradient;
  const Matrix a_data = a->data;
  const Matrix b_data = b->data;
  engine.record(out, "matmul", {a, b}, matrices(a_data, b_data), matrices(a_data, b_data),
                [&engine, a_needs, b_needs, a_data, b_data](const Matrix&) -> Gradients {
                  Matrix for_a;
                  Matrix for_b;
                  if (a_needs) {
                    // The second argument of `grad_out %*% t(b)`: a list with the first
                    // is there before it.
                    Matrix transposed;
                    const BlockRef arguments = engine.holder();
                    transposed = engine.real({b_data.shape().cols, b_data.shape().rows});
                    engine.heap().hold(transposed.block, arguments);
                    for_a = engine.real(a_data.shape());
                  }
                  if (b_needs) {
                    const Matrix transposed =
                        engine.real({a_data.shape().cols, a_data.shape().rows});
                    for_b = engine.real(b_data.shape());
                  }
                  return {for_a, for_b};
                });
  return out;
}

TensorPtr add(Engine& engine, const TensorPtr& a, const TensorPtr& b) {
  engine.begin("add");
  const Matrix original = b->data;
  const Matrix expanded = expanded_operand(engine, a->data, original);
  TensorPtr out =
      engine.result(engine.real(sum_shape(a->data, expanded)), {a.get(), b.get()});
  if (!out->requires_gradient) return out;

  const bool a_needs = a->requires_gradient;
  const bool b_needs = b->requires_gradient;
  // nrow() and ncol() of a vector are NULL.
  const auto extent = [&] { return a->data.has_dim() ? engine.integers(1) : Matrix(); };
  engine.record(
      out, "add", {a, b}, matrices(a->data, expanded, original),
      matrices(original, extent(), extent()),
      [&engine, a_needs, b_needs, original](const Matrix& grad_out) -> Gradients {
        return {a_needs ? grad_out : Matrix(),
                b_needs ? reduced_like(engine, original, grad_out) : Matrix()};
      });
  return out;
}

TensorPtr sub(Engine& engine, const TensorPtr& a, const TensorPtr& b) {
  engine.begin("sub");
  const Matrix original = b->data;
  const Matrix expanded = expanded_operand(engine, a->data, original);
  TensorPtr out =
      engine.result(engine.real(sum_shape(a->data, expanded)), {a.get(), b.get()});
  if (!out->requires_gradient) return out;

  const bool a_needs = a->requires_gradient;
  const bool b_needs = b->requires_gradient;
  engine.record(
      out, "sub", {a, b}, matrices(a->data, expanded, original),
      matrices(a->data, original),
      [&engine, a_needs, b_needs, original](const Matrix& grad_out) -> Gradients {
        Matrix for_b;
        if (b_needs) {
          const Matrix negated = engine.real(grad_out.shape());
          for_b = reduced_like(engine, original, negated);
        }
        return {a_needs ? grad_out : Matrix(), for_b};
      });
  return out;
}

TensorPtr mul(Engine& engine, const TensorPtr& a, const TensorPtr& b) {
  engine.begin("mul");
  const Shape shape{std::max(a->shape().rows, b->shape().rows),
                    std::max(a->shape().cols, b->shape().cols)};
  const Matrix a_data = recycled(engine, a->data, shape);
  const Matrix b_data = recycled(engine, b->data, shape);
  TensorPtr out = engine.result(engine.real(shape), {a.get(), b.get()});
  if (!out->requires_gradient) return out;

  const bool a_needs = a->requires_gradient;
  const bool b_needs = b->requires_gradient;
  const Shape a_shape = a->shape();
  const Shape b_shape = b->shape();
  engine.record(
      out, "mul", {a, b}, matrices(a_data, b_data, a->data, b->data),
      matrices(a_data, b_data, a->data, b->data),
      [&engine, a_needs, b_needs, a_shape, b_shape](const Matrix& grad_out) -> Gradients {
        const Shape full = grad_out.shape();
        Gradients gradients(2);
        if (a_needs) gradients[0] = product_gradient(engine, a_shape, full);
        if (b_needs) gradients[1] = product_gradient(engine, b_shape, full);
        return gradients;
      });
  return out;
}

TensorPtr scale(Engine& engine, const TensorPtr& x, const TensorPtr& scalar) {
  engine.begin("scale");
  TensorPtr out = engine.result(engine.real(x->shape()), {x.get()});
  if (!out->requires_gradient) return out;
  const Matrix factor = scalar ? scalar->data : engine.reals(1);
  engine.record(out, "scale", {x}, matrices(x->data, factor), matrices(factor),
                [&engine](const Matrix& grad_out) -> Gradients {
                  return {engine.real(grad_out.shape())};
                });
  return out;
}

TensorPtr relu(Engine& engine, const TensorPtr& x) {
  engine.begin("relu");
  TensorPtr out = engine.result(engine.real(x->shape()), {x.get()});
  if (!out->requires_gradient) return out;
  const Matrix mask = mask_from(engine, engine.logical(x->shape()));
  return elementwise(engine, x, out, matrices(x->data, mask), mask);
}

TensorPtr sigmoid(Engine& engine, const TensorPtr& x) {
  engine.begin("sigmoid");
  // 1 / (1 + exp(-x)): the negation is fresh, all else happens in place.
  return activation_with_derivative(engine, x);
}

TensorPtr tanh_activation(Engine& engine, const TensorPtr& x) {
  engine.begin("tanh");
  return activation_with_derivative(engine, x);
}

TensorPtr softmax(Engine& engine, const TensorPtr& x) {
  engine.begin("softmax");
  const Shape shape = x->shape();
  const Matrix maxima = matrix_from(engine, column_maxima(engine, shape), shape);
  const Matrix exponentials = engine.real(shape);
  const Matrix sums = matrix_from(engine, engine.reals(shape.cols), shape);
  const Matrix p = engine.real(shape);
  TensorPtr out = engine.result(p, {x.get()});
  if (!out->requires_gradient) return out;
  engine.record(out, "softmax", {x}, matrices(x->data, maxima, exponentials, sums, p),
                matrices(p), [&engine, shape](const Matrix&) -> Gradients {
                  Matrix dot;
                  {
                    const Matrix product = engine.real(shape);
                    dot = engine.reals(shape.cols);
                  }
                  const Matrix spread = engine.real(shape);
                  return {engine.real(shape)};
                });
  return out;
}

TensorPtr log_softmax(Engine& engine, const TensorPtr& x) {
  engine.begin("log_softmax");
  const Shape shape = x->shape();
  const Matrix maxima = matrix_from(engine, column_maxima(engine, shape), shape);
  const Matrix shifted = engine.real(shape);
  Matrix log_sums;
  {
    const Matrix exponentials = engine.real(shape);
    log_sums = engine.reals(shape.cols);
  }
  // The difference lands in the expanded sums.
  const Matrix y = matrix_from(engine, log_sums, shape);
  TensorPtr out = engine.result(y, {x.get()});
  if (!out->requires_gradient) return out;
  engine.record(out, "log_softmax", {x}, matrices(x->data, maxima, shifted, y),
                matrices(y), [&engine, shape](const Matrix&) -> Gradients {
                  const Matrix p = engine.real(shape);
                  return {matrix_from(engine, engine.reals(shape.cols), shape)};
                });
  return out;
}

TensorPtr log_elements(Engine& engine, const TensorPtr& x) {
  engine.begin("log");
  TensorPtr out = engine.result(engine.real(x->shape()), {x.get()});
  if (!out->requires_gradient) return out;
  engine.record(out, "log", {x}, matrices(x->data), matrices(x->data),
                [&engine](const Matrix& grad_out) -> Gradients {
                  return {engine.real(grad_out.shape())};
                });
  return out;
}

TensorPtr exp_elements(Engine& engine, const TensorPtr& x) {
  engine.begin("exp");
  TensorPtr out = engine.result(engine.real(x->shape()), {x.get()});
  if (!out->requires_gradient) return out;
  return elementwise(engine, x, out, matrices(out->data), out->data);
}

TensorPtr pow_elements(Engine& engine, const TensorPtr& x, const TensorPtr& exponent) {
  engine.begin("pow");
  TensorPtr out = engine.result(engine.real(x->shape()), {x.get()});
  if (!out->requires_gradient) return out;
  const Matrix power = exponent ? exponent->data : Matrix();
  engine.record(out, nullptr, {x}, matrices(x->data, power), matrices(),
                [&engine](const Matrix& grad_out) -> Gradients {
                  const Matrix scaled = engine.real(grad_out.shape());
                  return {engine.real(grad_out.shape())};
                });
  return out;
}

TensorPtr clamp(Engine& engine, const TensorPtr& x) {
  engine.begin("clamp");
  const Shape shape = x->shape();
  Matrix clamped;
  {
    const Matrix from_below = engine.real(shape);
    clamped = engine.real(shape);
  }
  TensorPtr out = engine.result(clamped, {x.get()});
  if (!out->requires_gradient) return out;
  Matrix inside;
  {
    const Matrix above = engine.logical(shape);
    const Matrix below = engine.logical(shape);
    inside = engine.logical(shape);
  }
  const Matrix mask = mask_from(engine, inside);
  inside = Matrix();
  return elementwise(engine, x, out, matrices(x->data, mask), mask);
}

TensorPtr sum(Engine& engine, const TensorPtr& x, Along along) {
  engine.begin("sum");
  return reduce(engine, x, along, false);
}

TensorPtr mean(Engine& engine, const TensorPtr& x, Along along) {
  engine.begin("mean");
  return reduce(engine, x, along, true);
}

TensorPtr reshape(Engine& engine, const TensorPtr& x, Shape shape) {
  engine.begin("reshape");
  TensorPtr out = engine.result(engine.real(shape), {x.get()});
  if (!out->requires_gradient) return out;
  const Shape original = x->shape();
  engine.record(out, nullptr, {x}, matrices(x->data), matrices(),
                [&engine, original](const Matrix&) -> Gradients {
                  return {engine.real(original)};
                });
  return out;
}

TensorPtr transpose(Engine& engine, const TensorPtr& x) {
  engine.begin("transpose");
  const Shape original = x->shape();
  TensorPtr out = engine.result(engine.real({original.cols, original.rows}), {x.get()});
  if (!out->requires_gradient) return out;
  engine.record(out, "transpose", {x}, matrices(), matrices(),
                [&engine, original](const Matrix&) -> Gradients {
                  return {engine.real(original)};
                });
  return out;
}

TensorPtr slice_rows(Engine& engine, const TensorPtr& x, Extent count) {
  engine.begin("slice_rows");
  const Shape original = x->shape();
  Matrix value;
  {
    const Matrix index = engine.integers(count);
    value = engine.real({count, original.cols});
  }
  TensorPtr out = engine.result(std::move(value), {x.get()});
  if (!out->requires_gradient) return out;
  const Matrix from = engine.integers(1);
  const Matrix n = engine.integers(1);
  const Matrix rows = engine.integers(1);
  engine.record(out, "slice_rows", {x}, matrices(x->data, from, n, rows),
                matrices(from, n, rows),
                [&engine, original, count](const Matrix&) -> Gradients {
                  Matrix padded = engine.real(original);
                  const Matrix index = engine.integers(count);
                  return {padded};
                });
  return out;
}

TensorPtr concat_rows(Engine& engine, const TensorPtr& a, const TensorPtr& b) {
  engine.begin("concat_rows");
  const Shape a_shape = a->shape();
  const Shape b_shape = b->shape();
  TensorPtr out =
      engine.result(engine.real({checked_add(a_shape.rows, b_shape.rows), a_shape.cols}),
                    {a.get(), b.get()});
  if (!out->requires_gradient) return out;
  const bool a_needs = a->requires_gradient;
  const bool b_needs = b->requires_gradient;
  const Matrix a_rows = engine.integers(1);
  const Matrix b_rows = engine.integers(1);
  engine.record(
      out, "concat_rows", {a, b}, matrices(a->data, b->data, a_rows, b_rows),
      matrices(a_rows, b_rows),
      [&engine, a_needs, b_needs, a_shape, b_shape](const Matrix&) -> Gradients {
        return {a_needs ? engine.real(a_shape) : Matrix(),
                b_needs ? engine.real(b_shape) : Matrix()};
      });
  return out;
}

TensorPtr gather(Engine& engine, const TensorPtr& x) {
  engine.begin("gather");
  const Matrix one_hot = engine.real(x->shape());
  {
    // cbind(as.integer(index) + 1L, seq_len(b)) and its linear index.
    const Matrix pairs = engine.integers(checked_multiply(2, x->shape().cols));
    const Matrix positions = engine.reals(x->shape().cols);
  }
  const TensorPtr selector = engine.tensor(one_hot);
  return sum(engine, mul(engine, x, selector), Along::columns);
}

void argmax(Engine& engine, const TensorPtr& x) {
  engine.begin("argmax");
  const Shape shape = x->shape();
  // m[is.na(m)] <- -Inf copies m; max.col(t(m)) works on its transpose.
  Matrix copy;
  {
    const Matrix missing = engine.logical(shape);
    copy = engine.real(shape);
    const Matrix positions = engine.integers(shape.length());
  }
  const Matrix transposed = engine.real({shape.cols, shape.rows});
  const Matrix index = engine.integers(shape.cols);
}

TensorPtr max_by_column(Engine& engine, const TensorPtr& x) {
  argmax(engine, x);
  return gather(engine, x);
}

TensorPtr mse_loss(Engine& engine, const TensorPtr& prediction, const TensorPtr& target) {
  engine.begin("mse_loss");
  const Shape shape = prediction->shape();
  const Matrix difference = engine.real(shape);
  { const Matrix squares = engine.real(shape); }
  TensorPtr out = engine.result(engine.real({1, 1}), {prediction.get()});
  if (!out->requires_gradient) return out;
  engine.record(
      out, "loss_const", {prediction},
      matrices(prediction->data, target->data, difference),
      matrices(difference, engine.reals(1)),
      [&engine, shape](const Matrix&) -> Gradients { return {engine.real(shape)}; });
  return out;
}

TensorPtr cross_entropy_loss(Engine& engine, const TensorPtr& prediction,
                             const TensorPtr& target) {
  engine.begin("cross_entropy_loss");
  const Shape shape = prediction->shape();
  Matrix clamped;
  {
    const Matrix from_above = engine.real(shape);
    clamped = engine.real(shape);
  }
  log_likelihood(engine, shape);
  TensorPtr out = engine.result(engine.real({1, 1}), {prediction.get()});
  if (!out->requires_gradient) return out;

  // -t / p: the negated target is a temporary with attributes beside it, so the
  // quotient is fresh.
  const Matrix labels = target->data;
  const auto quotient = [&engine, shape, labels]() {
    const Matrix negated = labels.has_dim() ? engine.real(labels.shape())
                                            : engine.reals(labels.shape().length());
    return engine.real(shape);
  };
  Matrix gradient;
  Matrix factor;
  if (engine.recording(*prediction)) {
    gradient = quotient();
    factor = engine.reals(1);
  }
  engine.record(out, "loss_const", {prediction},
                matrices(prediction->data, target->data, clamped),
                matrices(gradient, factor),
                [quotient](const Matrix&) -> Gradients { return {quotient()}; });
  return out;
}

TensorPtr softmax_cross_entropy_loss(Engine& engine, const TensorPtr& logits,
                                     const TensorPtr& target) {
  engine.begin("softmax_cross_entropy_loss");
  const Shape shape = logits->shape();
  Matrix indices;
  Matrix labels = target->data;
  if (labels.shape() != shape || !labels.has_dim()) {
    indices = as_integer(engine, labels);
    labels = engine.real(shape);
  }
  const Matrix maxima = column_maxima(engine, shape);
  const Matrix spread_maxima = matrix_from(engine, maxima, shape);
  const Matrix exponentials = engine.real(shape);
  const Matrix sums = matrix_from(engine, engine.reals(shape.cols), shape);
  const Matrix p = engine.real(shape);
  const Matrix clamped = engine.real(shape);
  log_likelihood(engine, shape);
  TensorPtr out = engine.result(engine.real({1, 1}), {logits.get()});
  if (!out->requires_gradient) return out;

  Matrix gradient;
  Matrix factor;
  if (engine.recording(*logits)) {
    gradient = engine.real(shape);
    factor = engine.reals(1);
  }
  engine.record(out, "loss_const", {logits},
                matrices(logits->data, given_matrix(*target), indices, labels, maxima,
                         spread_maxima, exponentials, sums, p, clamped),
                matrices(gradient, factor), [&engine, shape](const Matrix&) -> Gradients {
                  return {engine.real(shape)};
                });
  return out;
}

}  // namespace agbudget
