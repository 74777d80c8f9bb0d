// One case worked out by hand for each operation, from the source of ggmlR 0.8.8.1
// (R/autograd.R, R/ag_select.R). M is a matrix of x's shape, L a logical one.

#include "counting.h"
#include "operations.h"

using namespace agbudget;
using counting::Bench;
using counting::doubles;
using counting::ints;
using counting::logical;
using counting::matrix;
using counting::Taken;

namespace {

constexpr Extent m = 400;
constexpr Extent n = 300;
constexpr Bytes M = matrix(m, n);
constexpr Bytes L = logical(m, n);
constexpr Bytes one = matrix(1, 1);
constexpr Bytes column = matrix(m, 1);
constexpr Bytes row = matrix(1, n);

using Unary = TensorPtr (*)(Engine&, const TensorPtr&);
using Binary = TensorPtr (*)(Engine&, const TensorPtr&, const TensorPtr&);

Taken take(Unary operation) {
  Bench bench;
  const TensorPtr x = bench.parameter(m, n);
  return bench.run([&] { return operation(bench.engine, x); });
}

Taken take(Binary operation, Extent rows, Extent cols) {
  Bench bench;
  const TensorPtr a = bench.parameter(m, n);
  const TensorPtr b = bench.parameter(rows, cols);
  return bench.run([&] { return operation(bench.engine, a, b); });
}

}  // namespace

TEST_CASE("matmul keeps its result; each gradient takes a transpose beside it") {
  constexpr Extent k = 200;
  Bench bench;
  const TensorPtr a = bench.parameter(m, k);
  const TensorPtr b = bench.parameter(k, n);
  const Taken taken = bench.run([&] { return matmul(bench.engine, a, b); });
  CHECK(taken.kept == M);
  CHECK(taken.forward_peak == M);
  const Bytes first = matrix(n, k) + matrix(m, k);                  // t(B), then dA
  const Bytes second = matrix(m, k) + matrix(k, m) + matrix(k, n);  // dA; t(A), then dB
  CHECK(taken.backward_peak == std::max(first, second));
  CHECK(taken.gradients == matrix(m, k) + matrix(k, n));
}

TEST_CASE("matmul computes no gradient for a constant") {
  Bench bench;
  const TensorPtr a = bench.constant(m, m);
  const TensorPtr b = bench.parameter(m, n);
  const Taken taken = bench.run([&] { return matmul(bench.engine, a, b); });
  CHECK(taken.backward_peak == matrix(m, m) + M);  // t(A), then dB
  CHECK(taken.gradients == M);
}

TEST_CASE("matmul transposes a constant second operand for the first one's gradient") {
  Bench bench;
  const TensorPtr a = bench.parameter(m, n);
  const TensorPtr b = bench.constant(n, 50);
  const Taken taken = bench.run([&] { return matmul(bench.engine, a, b); });
  CHECK(taken.backward_peak == matrix(50, n) + M);
  CHECK(taken.gradients == M);
}

TEST_CASE("add passes the incoming gradient on") {
  const Taken taken = take(add, m, n);
  CHECK(taken.kept == M);
  CHECK(taken.forward_peak == M);
  CHECK(taken.backward_peak == 0);
  CHECK(taken.gradients == 0);
}

TEST_CASE("add keeps an expanded column and sums its gradient over the rows") {
  const Taken taken = take(add, m, 1);
  CHECK(taken.kept == M + M);          // b expanded, and the sum
  CHECK(taken.forward_peak == M + M);  // b[, 1] is gone by then: doubles(m) + M < 2 M
  CHECK(taken.backward_peak == doubles(m) + column);  // rowSums(), then its matrix
  CHECK(taken.gradients == column);
}

TEST_CASE("add keeps an expanded row and sums its gradient over the columns") {
  const Taken taken = take(add, 1, n);
  CHECK(taken.kept == M + M);
  CHECK(taken.backward_peak == doubles(n) + row);
  CHECK(taken.gradients == row);
}

TEST_CASE("add recycles a vector without expanding it") {
  Bench bench;
  const TensorPtr a = bench.parameter(m, n);
  const TensorPtr b = bench.plain(1, 1, false);
  const Taken taken = bench.run([&] { return add(bench.engine, a, b); });
  CHECK(taken.kept == M);
  CHECK(taken.gradients == 0);
  CHECK(bench.output->shape() == Shape{m, n});
}

TEST_CASE("sub negates the incoming gradient for its second operand") {
  const Taken equal = take(sub, m, n);
  CHECK(equal.kept == M);
  CHECK(equal.backward_peak == M);
  CHECK(equal.gradients == M);
  const Taken expanded = take(sub, m, 1);
  CHECK(expanded.kept == M + M);
  CHECK(expanded.backward_peak == M + doubles(m) + column);
  CHECK(expanded.gradients == column);
}

TEST_CASE("mul copies the other operand for each gradient") {
  const Taken taken = take(mul, m, n);
  CHECK(taken.kept == M);
  CHECK(taken.forward_peak == M);
  CHECK(taken.backward_peak == M + M + M);  // dA; the copy of A, and dB
  CHECK(taken.gradients == M + M);
}

TEST_CASE("mul keeps an expanded column and reduces its gradient") {
  const Taken taken = take(mul, m, 1);
  CHECK(taken.kept == M + M);
  CHECK(taken.forward_peak == M + M);
  // dA; for B: the copy of A and the full product, rowSums() of it and the matrix.
  CHECK(taken.backward_peak == M + M + M + doubles(m) + column);
  CHECK(taken.gradients == M + column);
}

TEST_CASE("mul of a column and a row expands both") {
  Bench bench;
  const TensorPtr a = bench.parameter(m, 1);
  const TensorPtr b = bench.parameter(1, n);
  const Taken taken = bench.run([&] { return mul(bench.engine, a, b); });
  CHECK(taken.kept == M + M + M);
  CHECK(taken.forward_peak == M + M + M);
  const Bytes for_a = M + M + doubles(m) + column;
  const Bytes for_b = column + M + M + doubles(n) + row;
  CHECK(taken.backward_peak == std::max(for_a, for_b));
  CHECK(taken.gradients == column + row);
}

TEST_CASE("mul expands one element by rows, then by columns") {
  const Taken taken = take(mul, 1, 1);
  CHECK(taken.kept == M + M);
  CHECK(taken.forward_peak == M + M);  // the single column is gone by then
  CHECK(taken.backward_peak == M + M + M + doubles(n) + row);
  CHECK(taken.gradients == M + one);
}

TEST_CASE("mul recycles a constant") {
  Bench bench;
  const TensorPtr a = bench.parameter(m, n);
  const TensorPtr b = bench.constant(m - 1, n);
  const Taken taken = bench.run([&] { return mul(bench.engine, a, b); });
  CHECK(taken.kept == M + M);
  CHECK(taken.forward_peak == M + M);  // the index of m integers is gone by then
  CHECK(taken.backward_peak == M + M);
  CHECK(taken.gradients == M);
}

TEST_CASE("scale, log and exp keep their result only") {
  const Unary by_number = [](Engine& engine, const TensorPtr& x) {
    return scale(engine, x);
  };
  for (const Unary operation : {by_number, Unary{log_elements}, Unary{exp_elements}}) {
    const Taken taken = take(operation);
    CHECK(taken.kept == M);
    CHECK(taken.forward_peak == M);
    CHECK(taken.backward_peak == M);
    CHECK(taken.gradients == M);
  }
}

TEST_CASE("relu keeps a mask of doubles, made from a logical one") {
  const Taken taken = take(relu);
  CHECK(taken.kept == M + M);
  CHECK(taken.forward_peak == M + L + M);
  CHECK(taken.backward_peak == M);
  CHECK(taken.gradients == M);
}

TEST_CASE("sigmoid and tanh keep a multiplier, computed in place") {
  for (const Unary operation : {sigmoid, tanh_activation}) {
    const Taken taken = take(operation);
    CHECK(taken.kept == M + M);
    CHECK(taken.forward_peak == M + M);
    CHECK(taken.backward_peak == M);
    CHECK(taken.gradients == M);
  }
}

TEST_CASE("softmax keeps maxima, exponentials, sums and probabilities") {
  const Taken taken = take(softmax);
  CHECK(taken.kept == 4 * M);
  // Before them: apply()'s copy, its list, scalars and result take M + 3 * doubles(n).
  CHECK(taken.forward_peak == 4 * M);
  CHECK(taken.backward_peak == doubles(n) + M + M);  // dot, its matrix, g - it in place
  CHECK(taken.gradients == M);
}

TEST_CASE("log_softmax keeps maxima, differences and its result") {
  const Taken taken = take(log_softmax);
  CHECK(taken.kept == 3 * M);
  // exp(z) beside both, its sums, and their logarithms in place; then the result.
  CHECK(taken.forward_peak == 3 * M + doubles(n));
  CHECK(taken.backward_peak == M + doubles(n) + M);  // p, colSums(), all else in place
  CHECK(taken.gradients == M);
}

TEST_CASE("pow's gradient takes two matrices, one of them for a moment") {
  const Taken taken =
      take([](Engine& engine, const TensorPtr& x) { return pow_elements(engine, x); });
  CHECK(taken.kept == M);
  CHECK(taken.backward_peak == M + M);
  CHECK(taken.gradients == M);
}

TEST_CASE("a factor or an exponent for every element stays with the result") {
  for (const auto operation : {scale, pow_elements}) {
    Bench bench;
    const TensorPtr x = bench.parameter(m, n);
    const Taken taken = bench.run([&] {
      const TensorPtr factors = bench.plain(m, n);
      return operation(bench.engine, x, factors);
    });
    CHECK(taken.kept == M + M);
    CHECK(taken.gradients == M);
  }
}

TEST_CASE("clamp keeps a mask, made from three logical ones") {
  const Taken taken = take(clamp);
  CHECK(taken.kept == M + M);
  CHECK(taken.forward_peak == M + 3 * L);
  CHECK(taken.backward_peak == M);
  CHECK(taken.gradients == M);
}

TEST_CASE("reductions keep a number, a column or a row") {
  struct Case {
    Along along;
    Bytes kept;
    Bytes forward_peak;
  };
  for (const Case& c :
       {Case{Along::all, one, one}, Case{Along::rows, column, doubles(m) + column},
        Case{Along::columns, row, doubles(n) + row}}) {
    for (const auto reduction : {sum, mean}) {
      Bench bench;
      const TensorPtr x = bench.parameter(m, n);
      const Taken taken = bench.run([&] { return reduction(bench.engine, x, c.along); });
      CHECK(taken.kept == c.kept);
      CHECK(taken.forward_peak == c.forward_peak);
      CHECK(taken.gradients == M);
    }
  }
}

TEST_CASE("reductions spread the gradient again") {
  const auto peak = [](decltype(&sum) reduction, Along along) {
    Bench bench;
    const TensorPtr x = bench.parameter(m, n);
    return bench.run([&] { return reduction(bench.engine, x, along); }).backward_peak;
  };
  CHECK(peak(sum, Along::all) == M);
  CHECK(peak(sum, Along::rows) == column + M);
  CHECK(peak(sum, Along::columns) == row + doubles(m * n) + M);  // rep(g, each = m)
  CHECK(peak(mean, Along::all) == M);
  CHECK(peak(mean, Along::rows) == column + column + M);          // g / n_div
  CHECK(peak(mean, Along::columns) == row + doubles(m * n) + M);  // in place
}

TEST_CASE("reshape and transpose copy, there and back") {
  Bench bench;
  const TensorPtr x = bench.parameter(m, n);
  const Taken reshaped = bench.run([&] {
    return reshape(bench.engine, x, {m * n / 4, 4});
  });
  CHECK(bench.output->shape() == Shape{30000, 4});
  CHECK(reshaped.kept == M);
  CHECK(reshaped.backward_peak == M);
  CHECK(bench.gradients[0].shape() == Shape{m, n});
  const Taken transposed = take(transpose);
  CHECK(transposed.kept == M);
  CHECK(transposed.backward_peak == M);
  CHECK(transposed.gradients == M);
}

TEST_CASE("slice_rows pads the gradient to the full shape") {
  Bench bench;
  const TensorPtr x = bench.parameter(m, n);
  const Taken taken = bench.run([&] { return slice_rows(bench.engine, x, 200); });
  CHECK(taken.kept == matrix(200, n));
  CHECK(taken.forward_peak == ints(200) + matrix(200, n));
  CHECK(taken.backward_peak == M + ints(200));
  CHECK(taken.gradients == M);
}

TEST_CASE("concat_rows slices the gradient for each operand that wants one") {
  const Taken taken = take(concat_rows, 100, n);
  CHECK(taken.kept == matrix(m + 100, n));
  CHECK(taken.gradients == M + matrix(100, n));
  Bench bench;
  const TensorPtr a = bench.constant(m, n);
  const TensorPtr b = bench.parameter(100, n);
  const Taken partly = bench.run([&] { return concat_rows(bench.engine, a, b); });
  CHECK(partly.gradients == matrix(100, n));
  CHECK_FALSE(bench.gradients[0]);
}

TEST_CASE("gather multiplies by a one-hot matrix and sums") {
  Bench bench;
  const TensorPtr x = bench.parameter(m, n);
  const Taken taken = bench.forward([&] { return gather(bench.engine, x); });
  CHECK(taken.kept == M + M + row);  // one-hot, product, its column sums
  CHECK(taken.forward_peak == M + M + doubles(n) + row);
  REQUIRE(bench.engine.nodes().size() == 2);
  CHECK(std::string(bench.engine.nodes()[0].op) == "mul");
  CHECK(std::string(bench.engine.nodes()[1].op) == "sum");
}

TEST_CASE("max is argmax and gather") {
  Bench bench;
  const TensorPtr x = bench.parameter(m, n);
  const Taken taken = bench.forward([&] { return max_by_column(bench.engine, x); });
  CHECK(taken.kept == M + M + row);
  const Bytes gathering = M + M + doubles(n) + row;
  const Bytes assigning = L + M + ints(m * n);  // is.na(m), the copy, the positions
  const Bytes choosing = M + M + ints(n);       // the copy, t(m), the result
  CHECK(taken.forward_peak == std::max({gathering, assigning, choosing}));
}

TEST_CASE("argmax keeps nothing, and copies its operand twice") {
  Bench bench;
  const TensorPtr x = bench.parameter(m, n);
  const Taken taken = bench.forward([&] {
    argmax(bench.engine, x);
    return x;
  });
  CHECK(taken.kept == 0);
  const Bytes assigning = L + M + ints(m * n);
  const Bytes choosing = M + M + ints(n);
  CHECK(taken.forward_peak == std::max(assigning, choosing));
}

TEST_CASE("mse keeps the difference") {
  Bench bench;
  const TensorPtr x = bench.parameter(m, n);
  const TensorPtr y = bench.plain(m, n);
  const Taken taken = bench.run([&] { return mse_loss(bench.engine, x, y); });
  CHECK(taken.kept == M + one);
  CHECK(taken.forward_peak == M + M);  // diff^2
  CHECK(taken.backward_peak == M);
  CHECK(taken.gradients == M);
}

TEST_CASE("cross-entropy keeps clamped predictions and the gradient for the tape") {
  Bench bench;
  const TensorPtr x = bench.parameter(m, n);
  const TensorPtr y = bench.plain(m, n);
  const Taken taken = bench.run([&] { return cross_entropy_loss(bench.engine, x, y); });
  CHECK(taken.kept == M + one + M);
  CHECK(taken.forward_peak == M + one + M + M);  // -t beside -t / p
  CHECK(taken.backward_peak == M + M);           // -t, then the rest in place
  CHECK(taken.gradients == M);
}

TEST_CASE("fused cross-entropy keeps all of its softmax and p - t") {
  Bench bench;
  const TensorPtr x = bench.parameter(m, n);
  const TensorPtr y = bench.plain(m, n);
  const Taken taken =
      bench.run([&] { return softmax_cross_entropy_loss(bench.engine, x, y); });
  // mx; mx_m, e, s, p, p_c; the loss; p - t
  const Bytes kept = doubles(n) + 5 * M + one + M;
  CHECK(taken.kept == kept);
  CHECK(taken.forward_peak == kept);  // log(p_c) is gone before p - t
  CHECK(taken.backward_peak == M);
  CHECK(taken.gradients == M);
}

TEST_CASE("fused cross-entropy spreads class indices to a one-hot matrix") {
  Bench bench;
  const TensorPtr x = bench.parameter(m, n);
  const TensorPtr y = bench.plain(n, 1, false);
  const Taken taken =
      bench.run([&] { return softmax_cross_entropy_loss(bench.engine, x, y); });
  CHECK(taken.kept == ints(n) + M + doubles(n) + 5 * M + one + M);
}

TEST_CASE("losses leave the target alone") {
  for (const Binary loss : {mse_loss, cross_entropy_loss, softmax_cross_entropy_loss}) {
    Bench bench;
    const TensorPtr x = bench.constant(m, n);
    const TensorPtr y = bench.parameter(m, n);
    bench.forward([&] { return loss(bench.engine, x, y); });
    CHECK_FALSE(bench.output->requires_gradient);
    CHECK(bench.engine.nodes().empty());
  }
}

TEST_CASE("nothing is recorded or kept where nothing wants a gradient") {
  for (const Unary operation : {relu, sigmoid, softmax, clamp, log_softmax}) {
    Bench bench;
    const TensorPtr x = bench.constant(m, n);
    const Taken taken = bench.forward([&] { return operation(bench.engine, x); });
    CHECK(taken.kept == M);
    CHECK(bench.engine.nodes().empty());
    CHECK(bench.output->frame == nullptr);
  }
}

TEST_CASE("with the tape off a frame is kept, but no node") {
  Bench bench;
  bench.engine.set_enabled(false);
  const TensorPtr x = bench.parameter(m, n);
  const Taken taken = bench.run([&] { return relu(bench.engine, x); });
  CHECK(taken.kept == M + M);
  CHECK(bench.engine.nodes().empty());
}

TEST_CASE("an output that is let go takes its frame along once the tape is cleared") {
  Bench bench;
  const TensorPtr x = bench.parameter(m, n);
  bench.forward([&] { return softmax(bench.engine, x); });
  bench.output.reset();
  CHECK(bench.live() == M + 4 * M);  // x, and what the tape's node holds
  bench.engine.clear_tape();
  CHECK(bench.live() == M);
}

TEST_CASE("a node holds its result, though no local of its rule does") {
  Bench bench;
  const TensorPtr x = bench.parameter(m, n);
  bench.forward([&] { return relu(bench.engine, x); });
  bench.output.reset();
  CHECK(bench.live() == M + M + M);  // x, the mask, the result
}

TEST_CASE("backward leaves a gradient of every tensor and adds contributions up") {
  Bench bench;
  const TensorPtr x = bench.parameter(m, n);
  const TensorPtr h = relu(bench.engine, x);
  const TensorPtr loss = sum(bench.engine, add(bench.engine, h, h), Along::all);
  const Bytes before = bench.live();
  const GradientTable gradients = bench.engine.backward(loss);
  // The seed; of the sum M; h twice the same matrix, then their sum M; of x M.
  CHECK(bench.live() - before == one + M + M + M);
  CHECK(gradients.values.size() == 4);
  REQUIRE(x->gradient);
  CHECK(x->gradient.shape() == Shape{m, n});
  CHECK(x->gradient.block.get() == gradients.values.at(x->id).block.get());
  CHECK(h->gradient);
}

TEST_CASE("a second backward pass adds to the gradient that is there") {
  Bench bench;
  const TensorPtr x = bench.parameter(m, n);
  for (int pass = 0; pass < 2; ++pass) {
    bench.engine.clear_tape();
    const TensorPtr loss = sum(bench.engine, relu(bench.engine, x), Along::all);
    bench.engine.backward(loss);
  }
  bench.engine.clear_tape();
  CHECK(bench.live() == M + M);  // x and its $grad
  REQUIRE(x->gradient);
  CHECK(x->gradient.block->component == Component::gradients);
}
