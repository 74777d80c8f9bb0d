// What each of ggmlR's layers (R/ag_layers.R, ag_linear() in R/autograd.R) keeps and
// takes, worked out by hand. M is a matrix of the layer's output.

#include "counting.h"
#include "layers.h"
#include "operations.h"

using namespace agbudget;
using counting::Bench;
using counting::doubles;
using counting::ints;
using counting::logical;
using counting::matrix;
using counting::Taken;

namespace {

constexpr Extent d = 400;
constexpr Extent n = 300;
constexpr Bytes M = matrix(d, n);
constexpr Bytes column = matrix(d, 1);

Taken linear_with(Activation activation) {
  Bench bench;
  const TensorPtr x = bench.constant(100, n);
  const TensorPtr weight = bench.parameter(d, 100);
  const TensorPtr bias = bench.parameter(d, 1);
  return bench.forward([&] { return linear(bench.engine, x, weight, bias, activation); });
}

struct Norm {
  explicit Norm(Bench& bench) {
    gamma = bench.parameter(d, 1);
    beta = bench.parameter(d, 1);
    mean = bench.plain(d, 1);
    variance = bench.plain(d, 1);
    for (const TensorPtr& buffer : {mean, variance}) {
      bench.heap.claim(buffer->data.block, Component::weights);
    }
  }
  TensorPtr gamma, beta, mean, variance;
};

}  // namespace

TEST_CASE("linear keeps the product, the expanded bias, the sum and its activation") {
  CHECK(linear_with(Activation::none).kept == 3 * M);
  CHECK(linear_with(Activation::relu).kept == 3 * M + 2 * M);
  CHECK(linear_with(Activation::sigmoid).kept == 3 * M + 2 * M);
  CHECK(linear_with(Activation::tanh).kept == 3 * M + 2 * M);
  CHECK(linear_with(Activation::softmax).kept == 3 * M + 4 * M);
}

TEST_CASE("dropout keeps its mask and its result") {
  Bench bench;
  const TensorPtr x = bench.parameter(d, n);
  const Taken taken = bench.run([&] { return dropout(bench.engine, x); });
  CHECK(taken.kept == M + M);
  CHECK(taken.forward_peak == M + M);
  CHECK(taken.backward_peak == M + M);  // the mask copied, and the product
  CHECK(taken.gradients == M);
  CHECK(bench.engine.nodes().size() == 1);
}

TEST_CASE("batch norm keeps seven matrices and three vectors") {
  Bench bench;
  const TensorPtr x = bench.parameter(d, n);
  const Norm norm(bench);
  const Taken taken = bench.forward([&] {
    return batch_norm(bench.engine, x, {norm.gamma, norm.beta, norm.mean, norm.variance},
                      true);
  });
  // mu, var, std; mu_m, std_m, x_hat; gamma expanded, the product; beta expanded, the sum
  CHECK(taken.kept == 3 * doubles(d) + 7 * M);
  CHECK(bench.engine.nodes().size() == 5);
}

TEST_CASE("batch norm's gradient takes three matrices at once") {
  Bench bench;
  const TensorPtr x = bench.parameter(d, n);
  const Norm norm(bench);
  bench.forward([&] {
    return batch_norm(bench.engine, x, {norm.gamma, norm.beta, norm.mean, norm.variance},
                      true);
  });
  const Node& node = bench.engine.nodes().front();
  const Matrix gradient = bench.engine.real({d, n});
  const Bytes before = bench.live();
  bench.heap.mark();
  const Gradients gradients = node.frame->backward(gradient);
  // rowMeans(g), g - it; rowMeans(g * x_hat), and x_hat * that takes the difference in
  // place; the quotient is fresh.
  CHECK(bench.peak() - before == doubles(d) + M + doubles(d) + M);
  CHECK(bench.live() - before == M);
}

TEST_CASE("batch norm replaces its running statistics, without gradient or tape") {
  Bench bench;
  const TensorPtr x = bench.constant(d, n);
  const Norm norm(bench);
  const Block* before = norm.mean->data.block.get();
  batch_norm(bench.engine, x, {norm.gamma, norm.beta, norm.mean, norm.variance}, true);
  CHECK(norm.mean->data.block.get() != before);
  CHECK(norm.mean->data.block->component == Component::weights);
  CHECK(norm.variance->data.block->component == Component::weights);
  const Block* trained = norm.mean->data.block.get();
  batch_norm(bench.engine, x, {norm.gamma, norm.beta, norm.mean, norm.variance}, false);
  CHECK(norm.mean->data.block.get() == trained);
}

TEST_CASE("layer norm keeps x_hat, its result and vectors") {
  Bench bench;
  const TensorPtr x = bench.parameter(d, n);
  const TensorPtr gamma = bench.parameter(d, 1);
  const TensorPtr beta = bench.parameter(d, 1);
  const Taken taken = bench.run([&] { return layer_norm(bench.engine, x, gamma, beta); });
  // mu, var, sd by column; gamma and beta as vectors
  CHECK(taken.kept == 3 * doubles(n) + 2 * doubles(d) + 2 * M);
  // gamma's and beta's gradients; g * gamma; rep(colMeans(g)) with the difference in it;
  // g * x_hat and its colMeans(). What follows lands in a rep(), and takes no more.
  CHECK(taken.backward_peak == 2 * column + 3 * M + doubles(n));
  CHECK(taken.gradients == M + 2 * column);
}

TEST_CASE("layer norm without an affine part has one input") {
  Bench bench;
  const TensorPtr x = bench.parameter(d, n);
  const Taken taken =
      bench.run([&] { return layer_norm(bench.engine, x, nullptr, nullptr); });
  CHECK(taken.kept == 3 * doubles(n) + 2 * doubles(d) + 2 * M);
  CHECK(taken.gradients == M);
  CHECK(bench.engine.nodes().front().inputs().size() == 1);
}

TEST_CASE("what backward works out for a frozen parameter is not kept") {
  Bench bench;
  const TensorPtr x = bench.parameter(d, n);
  const TensorPtr gamma = bench.parameter(d, 1);
  const TensorPtr beta = bench.parameter(d, 1);
  gamma->requires_gradient = false;
  const TensorPtr out = layer_norm(bench.engine, x, gamma, beta);
  const GradientTable gradients = bench.engine.backward(out);
  CHECK(gradients.values.count(gamma->id) == 0);
  CHECK(gradients.values.count(beta->id) == 1);
  CHECK_FALSE(gamma->gradient);
}

TEST_CASE("an embedding keeps its columns and the index; its gradient is a whole table") {
  constexpr Extent words = 5000;
  Bench bench;
  const TensorPtr table = bench.parameter(d, words);
  const TensorPtr index = bench.constant(1, n);
  const Taken taken = bench.run([&] { return embedding(bench.engine, index, table); });
  CHECK(taken.kept == ints(n) + M);
  CHECK(taken.forward_peak == ints(n) + ints(n) + M);  // index + 1L
  CHECK(taken.backward_peak == matrix(d, words) + 2 * doubles(d));
  CHECK(taken.gradients == matrix(d, words));
}

TEST_CASE("an index of integers is kept as it is") {
  Bench bench;
  const TensorPtr table = bench.parameter(d, 50);
  const TensorPtr index = agbudget::plain(bench.engine.integers(n));
  const Taken taken =
      bench.forward([&] { return embedding(bench.engine, index, table); });
  CHECK(taken.kept == M);
}

TEST_CASE("attention is what its operations are, head by head") {
  constexpr Extent width = 64;
  constexpr Extent sequence = 48;
  for (const Extent heads : {1, 2, 8}) {
    for (const bool causal : {false, true}) {
      for (const bool drops : {false, true}) {
        for (const bool biased : {false, true}) {
          CAPTURE(heads, causal, drops, biased);
          Bench bench;
          const TensorPtr x = bench.constant(width, sequence);
          AttentionWeights weights;
          for (TensorPtr* weight :
               {&weights.query, &weights.key, &weights.value, &weights.output}) {
            *weight = bench.parameter(width, width);
          }
          if (biased) weights.bias = bench.parameter(width, 1);
          const Taken taken = bench.forward([&] {
            return multihead_attention(bench.engine, x, x, x, weights,
                                       {heads, drops, causal});
          });

          const Extent rows = width / heads;
          const Bytes scores = matrix(sequence, sequence);
          const Bytes projection = matrix(width, sequence);
          // three selectors and slices; t(q); q k, scaled, t, softmax (4), t, t; the head
          Bytes head = 3 * (matrix(rows, width) + matrix(rows, sequence)) +
                       matrix(sequence, rows) + 9 * scores + matrix(rows, sequence);
          if (causal) head += 2 * scores;  // the mask and the sum
          if (drops) head += 2 * scores;   // the mask and the product
          Bytes kept = 3 * projection + heads * head + projection;
          if (heads > 1) {
            kept += heads * (matrix(width, rows) + projection) + (heads - 1) * projection;
          }
          if (biased) kept += 2 * projection;  // expanded, and the sum
          CHECK(taken.kept == kept);

          Extent nodes = 3 + heads * (11 + causal + drops) + 1 + biased;
          if (heads > 1) nodes += heads + heads - 1;
          CHECK(bench.engine.nodes().size() == static_cast<std::size_t>(nodes));
        }
      }
    }
  }
}
