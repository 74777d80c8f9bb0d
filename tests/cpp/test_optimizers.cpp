// ggmlR's optimizers (R/autograd.R) on one parameter of P bytes.

#include "counting.h"
#include "operations.h"
#include "optimizers.h"

using namespace agbudget;
using counting::Bench;
using counting::matrix;

namespace {

constexpr Bytes P = matrix(400, 300);

Bytes component(const Bench& bench, Component of) {
  return bench.heap.live_by_component()[static_cast<std::size_t>(of)];
}

// A parameter with a gradient, as it is between backward() and the step.
struct Trained {
  explicit Trained(OptimizerKind kind, int accumulate_steps = 1) {
    weight = bench.parameter(400, 300);
    const Bytes before = bench.live();
    optimizer.emplace(bench.engine, kind, Tensors{weight}, accumulate_steps);
    state = bench.live() - before;
    give_gradient();
  }

  void give_gradient() {
    weight->gradient = bench.engine.real(weight->shape());
    bench.heap.claim(weight->gradient.block, Component::gradients);
  }

  // The highest over the level at the step's start.
  Bytes step_peak() {
    const Bytes before = bench.live();
    bench.timeline.finish();
    const std::size_t first = bench.timeline.events().size();
    updated = optimizer->step(nullptr);
    bench.timeline.finish();
    Bytes highest = 0;
    for (std::size_t i = first; i < bench.timeline.events().size(); ++i) {
      const Event& event = bench.timeline.events()[i];
      const Bytes bookkeeping =
          event.components[static_cast<std::size_t>(Component::bookkeeping)];
      highest = std::max(highest, event.live - bookkeeping - before);
    }
    return highest;
  }

  Bench bench;
  TensorPtr weight;
  std::optional<Optimizer> optimizer;
  Bytes state = 0;
  bool updated = false;
};

}  // namespace

TEST_CASE("Adam keeps two matrices and takes four more for a moment") {
  Trained trained(OptimizerKind::adam);
  CHECK(trained.state == 2 * P);
  const Bytes before = trained.bench.live();
  // m_hat, v_hat; lr * m_hat; sqrt(v_hat), in which the new weight lands
  CHECK(trained.step_peak() == 4 * P);
  CHECK(trained.updated);
  CHECK(trained.bench.live() == before);  // the old weight and moments are gone
  CHECK(component(trained.bench, Component::optimizer_state) == 2 * P);
  CHECK(component(trained.bench, Component::weights) == P);
}

TEST_CASE("SGD keeps its velocity and takes two matrices for a moment") {
  Trained trained(OptimizerKind::sgd_momentum);
  CHECK(trained.state == P);
  CHECK(trained.step_peak() == 2 * P);  // momentum * v beside the new velocity
  CHECK(component(trained.bench, Component::optimizer_state) == P);
}

TEST_CASE("plain SGD keeps a velocity that it never uses") {
  Trained trained(OptimizerKind::sgd_plain);
  CHECK(trained.state == P);
  CHECK(trained.step_peak() == P);  // lr * g, in which the new weight lands
  CHECK(component(trained.bench, Component::optimizer_state) == P);
}

TEST_CASE("a weight that a graph still holds is superseded, not gone") {
  Trained trained(OptimizerKind::sgd_plain);
  const Matrix held = trained.weight->data;
  trained.step_peak();
  CHECK(component(trained.bench, Component::superseded_weights) == P);
  CHECK(component(trained.bench, Component::weights) == P);
}

TEST_CASE("accumulation updates at the last of its steps, from an averaged gradient") {
  Trained trained(OptimizerKind::sgd_plain, 3);
  CHECK(trained.step_peak() == 0);
  CHECK_FALSE(trained.updated);
  CHECK(trained.step_peak() == 0);
  CHECK(trained.step_peak() == 2 * P);  // g / 3, then lr * g
  CHECK(trained.updated);
  CHECK(trained.step_peak() == 0);
  CHECK_FALSE(trained.updated);
}

TEST_CASE("a parameter without a gradient is left alone, but has its state") {
  Trained trained(OptimizerKind::adam);
  trained.weight->gradient = Matrix();
  CHECK(trained.step_peak() == 0);
  CHECK(component(trained.bench, Component::optimizer_state) == 2 * P);
}

TEST_CASE("gradients of one backward pass are taken rather than what is accumulated") {
  Trained trained(OptimizerKind::sgd_plain);
  const GradientTable none;
  const Bytes before = trained.bench.live();
  CHECK(trained.optimizer->step(&none));
  CHECK(trained.bench.live() == before);
  CHECK(component(trained.bench, Component::superseded_weights) == 0);
}

TEST_CASE("zero_grad releases gradients and the tape") {
  Trained trained(OptimizerKind::adam);
  relu(trained.bench.engine, trained.weight);
  REQUIRE(trained.bench.engine.nodes().size() == 1);
  trained.optimizer->zero_grad();
  CHECK(trained.bench.engine.nodes().empty());
  CHECK_FALSE(trained.weight->gradient);
  CHECK(component(trained.bench, Component::gradients) == 0);
}
