// Laws of a whole training run.

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "interpreter.h"
#include "program_builder.h"
#include "training_step.h"

using namespace agbudget;
using counting::dense;
using counting::plan_for;
using counting::ProgramBuilder;

namespace {

constexpr OptimizerKind all_optimizers[] = {
    OptimizerKind::adam, OptimizerKind::sgd_momentum, OptimizerKind::sgd_plain};
constexpr LossKind all_losses[] = {LossKind::mse, LossKind::cross_entropy,
                                   LossKind::softmax_cross_entropy};

Bytes at_peak(const TrainingRecord& record, Component component) {
  return record.peak().components[static_cast<std::size_t>(component)];
}

Bytes highest_of(const TrainingRecord& record, Component component) {
  Bytes highest = 0;
  for (const Event& event : record.events) {
    highest = std::max(highest, event.components[static_cast<std::size_t>(component)]);
  }
  return highest;
}

TrainingRecord train(const Program& program, Extent rows, Extent batch) {
  return run_training(program, plan_for(rows, batch));
}

// Every kind of operation after a linear layer.
Program busy(Extent batch) {
  ProgramBuilder builder;
  const ValueId weight = builder.parameter(32, 32);
  const ValueId bias = builder.parameter(32, 1);
  const ValueId gamma = builder.parameter(32, 1);
  const ValueId beta = builder.parameter(32, 1);
  const ValueId mean = builder.append(Opcode::buffer, {}, {32, 1});
  const ValueId variance = builder.append(Opcode::buffer, {}, {32, 1});
  ValueId attention[4];
  for (ValueId& projection : attention) projection = builder.parameter(32, 32);
  const ValueId x = builder.input(32, batch);
  ValueId h = builder.linear(x, weight, bias, 1);
  for (const Opcode op : {Opcode::sigmoid, Opcode::tanh, Opcode::exp, Opcode::log,
                          Opcode::pow, Opcode::clamp, Opcode::scale, Opcode::softmax,
                          Opcode::log_softmax, Opcode::dropout}) {
    h = builder.append(op, {h});
  }
  h = builder.append(Opcode::batch_norm, {h, gamma, beta, mean, variance}, {1});
  h = builder.append(Opcode::layer_norm, {h, gamma, beta}, {32});
  h = builder.append(Opcode::attention,
                     {h, h, h, attention[0], attention[1], attention[2], attention[3]},
                     {4, 1, 1});
  h = builder.append(Opcode::add, {h, x});
  h = builder.append(Opcode::sub, {h, builder.append(Opcode::mean, {h}, {2})});
  h = builder.append(Opcode::mul, {h, builder.append(Opcode::max, {h})});
  h = builder.append(Opcode::concat_rows, {h, builder.append(Opcode::gather, {h})});
  h = builder.append(Opcode::slice_rows, {h}, {1, 20});
  h = builder.append(Opcode::transpose, {builder.append(Opcode::transpose, {h})});
  builder.finish(h);
  return builder.program;
}

}  // namespace

TEST_CASE("the peak is the highest event, and components add up at every one") {
  for (const OptimizerKind optimizer : all_optimizers) {
    for (const LossKind loss : all_losses) {
      for (const Loop loop : {Loop::retained, Loop::released}) {
        TrainingPlan plan = plan_for(32, 24);
        plan.optimizer = optimizer;
        plan.loss = loss;
        plan.loop = loop;
        const TrainingRecord record = run_training(busy(24), plan);
        for (const Event& event : record.events) {
          REQUIRE(event.live <= record.peak().live);
          REQUIRE(std::accumulate(event.components.begin(), event.components.end(),
                                  Bytes{0}) == event.live);
          // While the model is built, the training loop's code is missing.
          for (std::size_t c = 0; c < agbudget::component_count; ++c) {
            const bool missing = event.phase == agbudget::Phase::setup &&
                                 c == static_cast<std::size_t>(Component::bookkeeping);
            REQUIRE(event.components[c] >= (missing ? -agbudget::loop_code_bytes : 0));
          }
        }
      }
    }
  }
}

TEST_CASE("the released loop never needs more than the retained one") {
  for (const OptimizerKind optimizer : all_optimizers) {
    for (const Extent batch : {1, 8, 500}) {
      for (const Program& program : {busy(batch), dense(32, 5, batch)}) {
        TrainingPlan plan = plan_for(32, batch);
        plan.optimizer = optimizer;
        const Bytes retained = run_training(program, plan).peak().live;
        plan.loop = Loop::released;
        CHECK(run_training(program, plan).peak().live <= retained);
      }
    }
  }
}

TEST_CASE("the released loop starts a step with nothing of the one before") {
  for (const Loop loop : {Loop::retained, Loop::released}) {
    TrainingPlan plan = plan_for(32, 4000);
    plan.loop = loop;
    const TrainingRecord record = run_training(dense(32, 4, 4000), plan);
    const auto start = [&record](int step) {
      const auto first = std::find_if(
          record.events.begin(), record.events.end(), [step](const Event& event) {
            return event.step == step && event.phase == Phase::forward;
          });
      const auto held = static_cast<std::size_t>(Component::activations);
      const auto gradients = static_cast<std::size_t>(Component::activation_gradients);
      return first->components[held] + first->components[gradients];
    };
    const Bytes matrix = 32 * 4000 * 8 + 8;
    CHECK(start(1) <= matrix);
    if (loop == Loop::released) {
      CHECK(start(2) <= matrix);
    } else {
      CHECK(start(2) > 4 * 5 * matrix);  // the graph of four relu(W x + b)
    }
  }
}

TEST_CASE("a dense model is linear in the batch once the batch is what matters") {
  const auto peak = [](Extent batch) { return train(dense(32, 4, batch), 32, batch); };
  const Bytes first = peak(4000).peak().live;
  const Bytes second = peak(8000).peak().live;
  const Bytes third = peak(12000).peak().live;
  CHECK(second - first == third - second);
  CHECK(second > first);
}

TEST_CASE("optimizers order as their state does") {
  std::vector<Bytes> peaks;
  for (const OptimizerKind optimizer : all_optimizers) {
    TrainingPlan plan = plan_for(400, 2);
    plan.optimizer = optimizer;
    const TrainingRecord record = run_training(dense(400, 2, 2), plan);
    peaks.push_back(record.peak().live);
    const Bytes parameters = 2 * (400 * 400 * 8 + 8 + 400 * 8 + 8);
    const Bytes copies = optimizer == OptimizerKind::adam ? 2 : 1;
    // While the last moment is replaced, the old one is still there.
    CHECK(highest_of(record, Component::optimizer_state) >= copies * parameters);
    CHECK(highest_of(record, Component::optimizer_state) <=
          copies * parameters + 400 * 400 * 8 + 8);
  }
  CHECK(peaks[0] > peaks[1]);
  CHECK(peaks[1] >= peaks[2]);
}

TEST_CASE("one layer applied 100 times: its activations 100 times, its weights once") {
  const TrainingRecord once = train(dense(64, 1, 32, true), 64, 32);
  const TrainingRecord often = train(dense(64, 100, 32, true), 64, 32);
  const Bytes weights = 64 * 64 * 8 + 8 + 64 * 8 + 8;
  CHECK(at_peak(once, Component::weights) == weights);
  CHECK(at_peak(often, Component::weights) == weights);
  CHECK(highest_of(often, Component::optimizer_state) <= 3 * weights);
  // relu(W x + b) keeps five matrices; the last one of all is the loss's difference.
  const Bytes matrix = 64 * 32 * 8 + 8;
  CHECK(often.tape.activations + often.tape.operands -
            (once.tape.activations + once.tape.operands) ==
        99 * 5 * (matrix + 48 + 160));
  CHECK(often.tape.nodes == 100 * 3 + 1);
}

TEST_CASE("a frozen parameter has weights and state, but no gradient") {
  Program program = dense(200, 2, 4);
  const Bytes trained = at_peak(train(program, 200, 4), Component::gradients);
  program.set_requires_gradient(program.parameters()[0], false);
  const TrainingRecord frozen = train(program, 200, 4);
  const Bytes weight = 200 * 200 * 8 + 8;
  const Bytes bias = 200 * 8 + 8;
  CHECK(at_peak(frozen, Component::weights) == 2 * (weight + bias));
  CHECK(trained - at_peak(frozen, Component::gradients) == weight);
  CHECK(highest_of(frozen, Component::optimizer_state) >= 4 * (weight + bias));
}

TEST_CASE("a checkpoint never raises what the tape holds") {
  for (const int inside : {0, 1, 5}) {
    const auto program = [inside](bool checkpointed) {
      ProgramBuilder builder;
      const ValueId weight = builder.parameter(64, 64);
      const ValueId x = builder.input(64, 50);
      ValueId h = builder.append(Opcode::matmul, {weight, x});
      if (checkpointed) builder.append(Opcode::checkpoint_begin, {h});
      for (int i = 0; i < inside; ++i) {
        h = builder.append(Opcode::softmax,
                           {builder.append(Opcode::matmul, {weight, h})});
      }
      if (checkpointed) h = builder.append(Opcode::checkpoint_end, {h});
      builder.finish(builder.append(Opcode::relu, {h}));
      return builder.program;
    };
    const auto held = [&program](bool checkpointed) {
      const TapeReport tape = train(program(checkpointed), 64, 50).tape;
      return tape.operands + tape.activations + tape.fields;
    };
    // An empty segment still keeps the state of the random numbers: 626 integers.
    CHECK(held(true) <= held(false) + (inside == 0 ? 48 + 626 * 4 : 0));
  }
}

TEST_CASE("what a checkpoint leaves out of the forward pass comes back in its replay") {
  ProgramBuilder builder;
  const ValueId weight = builder.parameter(64, 64);
  const ValueId x = builder.input(64, 50);
  const ValueId h = builder.append(Opcode::matmul, {weight, x});
  builder.append(Opcode::checkpoint_begin, {h});
  ValueId u = h;
  for (int i = 0; i < 8; ++i) {
    u = builder.append(Opcode::relu, {builder.append(Opcode::matmul, {weight, u})});
  }
  builder.finish(builder.append(Opcode::checkpoint_end, {u}));
  const TrainingRecord record = train(builder.program, 64, 50);
  CHECK(record.tape.nodes == 3);
  const Bytes matrix = 64 * 50 * 8 + 8;
  CHECK(record.peak().phase == Phase::backward);
  CHECK(at_peak(record, Component::activations) >= 8 * 3 * matrix);
}

TEST_CASE("an output that a checkpoint uses last is still the output") {
  ProgramBuilder builder;
  const ValueId weight = builder.parameter(64, 64);
  const ValueId x = builder.input(64, 50);
  const ValueId h = builder.append(Opcode::matmul, {weight, x});
  builder.append(Opcode::checkpoint_begin, {h});
  const ValueId u = builder.append(Opcode::relu, {h});
  builder.append(Opcode::checkpoint_end, {u});
  builder.finish(h);
  CHECK(train(builder.program, 64, 50).tape.nodes == 3);
}

TEST_CASE("a matrix that the model holds stays, used or not") {
  const auto weights = [](bool held) {
    ProgramBuilder builder;
    const ValueId given = builder.append(Opcode::host, {}, {64, 64, 8, 1, 0});
    if (held) builder.append(Opcode::buffer, {given}, {64, 64});
    const ValueId weight = builder.parameter(64, 64);
    const ValueId x = builder.input(64, 4);
    builder.finish(builder.append(Opcode::matmul, {weight, x}));
    return at_peak(train(builder.program, 64, 4), Component::weights);
  };
  const Bytes matrix = 64 * 64 * 8 + 8;
  CHECK(weights(false) == matrix);
  CHECK(weights(true) == 2 * matrix);
}

TEST_CASE("micro-batches keep their gradients, not their graphs") {
  TrainingPlan plan = plan_for(64, 32);
  const Program program = dense(64, 3, 32);
  const TrainingRecord single = run_training(program, plan);
  plan.accumulate_steps = 4;
  const TrainingRecord accumulated = run_training(program, plan);
  CHECK(accumulated.events.back().step == 4 * plan.updates);
  CHECK(highest_of(accumulated, Component::activations) <=
        2 * highest_of(single, Component::activations));
}

TEST_CASE("indices are one row, made of integers first") {
  ProgramBuilder builder;
  const ValueId table = builder.parameter(16, 1000);
  const ValueId x = builder.input(1, 64);
  builder.finish(builder.append(Opcode::embedding, {x, table}));
  TrainingPlan plan = plan_for(1, 64);
  plan.input_is_indices = true;
  const TrainingRecord record = run_training(builder.program, plan);
  CHECK(at_peak(record, Component::batch) == (64 * 8 + 8) + (16 * 64 * 8 + 8));
  CHECK(at_peak(record, Component::weights) == 16 * 1000 * 8 + 8);
}

TEST_CASE("what nothing refers to any more goes at its last use") {
  ProgramBuilder builder;
  ValueId h = builder.input(64, 500);
  for (int i = 0; i < 20; ++i) h = builder.append(Opcode::scale, {h});
  builder.finish(h);
  const TrainingRecord record = train(builder.program, 64, 500);
  const Bytes matrix = 64 * 500 * 8 + 8;
  // The step before leaves `out`; an operand and its result, which is still temporary.
  CHECK(highest_of(record, Component::activations) <= 3 * matrix + 100);
}

namespace {

// The highest live bytes of one operation in the second step's forward pass.
Bytes live_at(const TrainingRecord& record, const std::string& operation) {
  Bytes highest = 0;
  for (const Event& event : record.events) {
    if (event.step == 2 && event.phase == agbudget::Phase::forward &&
        event.operation == operation) {
      highest = std::max(highest, event.live);
    }
  }
  return highest;
}

TrainingRecord released(const Program& program, Extent rows, Extent batch) {
  TrainingPlan plan = plan_for(rows, batch);
  plan.loop = Loop::released;
  return run_training(program, plan);
}

}  // namespace

TEST_CASE("a value that is bound stays, though nothing uses it") {
  const auto live = [](bool bound) {
    ProgramBuilder builder;
    const ValueId x = builder.input(64, 500);
    const ValueId a = builder.append(Opcode::scale, {x});
    const ValueId b = builder.append(Opcode::scale, {a});
    if (bound) builder.program.bind({a});
    const ValueId c = builder.append(Opcode::tanh, {b});
    builder.finish(c);
    const TrainingRecord record = released(builder.program, 64, 500);
    return live_at(record, "tanh");
  };
  CHECK(live(true) - live(false) == 64 * 500 * 8 + 8 + 240);
}

TEST_CASE("a value that survives a pass goes when the next one is there") {
  const auto live = [](bool survives, const char* operation) {
    ProgramBuilder builder;
    const ValueId x = builder.input(64, 500);
    const ValueId a = builder.append(Opcode::scale, {x});
    const ValueId b = builder.append(Opcode::tanh, {x});
    builder.finish(b);
    if (survives) builder.program.survive({a});
    return live_at(released(builder.program, 64, 500), operation);
  };
  constexpr Bytes matrix = 64 * 500 * 8 + 8 + 240;
  // The old one while the new one is made, and then the new one.
  CHECK(live(true, "scale") - live(false, "scale") == matrix);
  CHECK(live(true, "tanh") - live(false, "tanh") == matrix);
}

TEST_CASE(
    "a checkpoint holds what its function has in reach, until the tape is cleared") {
  const auto backward = [](bool captures) {
    ProgramBuilder builder;
    const ValueId weight = builder.parameter(4, 64);
    const ValueId x = builder.input(64, 500);
    const ValueId a = builder.append(Opcode::scale, {x});
    const ValueId begin = builder.append(Opcode::checkpoint_begin, {x});
    const ValueId h = builder.append(Opcode::matmul, {weight, x});
    const ValueId out = builder.append(Opcode::checkpoint_end, {h});
    builder.finish(out);
    if (captures) builder.program.capture(begin, {a});
    const TrainingRecord record = released(builder.program, 64, 500);
    Bytes lowest = record.peak().live;
    for (const Event& event : record.events) {
      if (event.step == 2 && event.phase == agbudget::Phase::backward) {
        lowest = std::min(lowest, event.live);
      }
    }
    return lowest;
  };
  CHECK(backward(true) - backward(false) == 64 * 500 * 8 + 8 + 240);
}

TEST_CASE("requires_grad is switched between operations, in every pass alike") {
  ProgramBuilder builder;
  const ValueId weight = builder.parameter(8, 8);
  const ValueId x = builder.input(8, 4);
  builder.program.set_requires_gradient(weight, false);
  const ValueId first = builder.append(Opcode::matmul, {weight, x});
  builder.program.set_requires_gradient(weight, true);
  builder.finish(builder.append(Opcode::matmul, {weight, first}));
  CHECK_FALSE(builder.program.value(first).requires_gradient);
  const TrainingRecord record = train(builder.program, 8, 4);
  CHECK(record.tape.nodes == 2);  // the second product and the loss
}

TEST_CASE("a model that nothing trains has a tape of no nodes") {
  ProgramBuilder builder;
  const ValueId x = builder.input(8, 8);
  builder.finish(builder.append(Opcode::relu, {x}));
  const TrainingRecord record = train(builder.program, 8, 8);
  CHECK(record.tape.nodes == 0);
  CHECK(record.peak().live > 0);
}

TEST_CASE("a run leaves nothing behind and gives the same answer again") {
  const Program program = busy(16);
  const TrainingRecord first = train(program, 32, 16);
  const TrainingRecord second = train(program, 32, 16);
  REQUIRE(first.events.size() == second.events.size());
  for (std::size_t i = 0; i < first.events.size(); ++i) {
    REQUIRE(first.events[i].live == second.events[i].live);
  }
}

TEST_CASE("steps after the second need what the second needs") {
  // But for the tables of names, which grow with the tensors' ids.
  const auto highest = [](int updates) {
    TrainingPlan plan = plan_for(32, 64);
    plan.updates = updates;
    Bytes bytes = 0;
    for (const Event& event : run_training(busy(64), plan).events) {
      const auto names = static_cast<std::size_t>(Component::bookkeeping);
      bytes = std::max(bytes, event.live - event.components[names]);
    }
    return bytes;
  };
  CHECK(highest(6) == highest(3));
  CHECK(highest(3) > highest(1));
}

TEST_CASE("a graph of 200,000 nodes is released without exhausting the stack") {
  constexpr int depth = 100000;  // two nodes each
  ProgramBuilder builder;
  const ValueId weight = builder.parameter(1, 1);
  ValueId h = builder.append(Opcode::matmul, {weight, builder.input(1, 1)});
  for (int i = 0; i < depth; ++i) {
    h = builder.append(Opcode::scale, {builder.append(Opcode::tanh, {h})});
  }
  builder.finish(h);
  for (const Loop loop : {Loop::retained, Loop::released}) {
    TrainingPlan plan = plan_for(1, 1);
    plan.loop = loop;
    plan.updates = 2;
    CHECK(run_training(builder.program, plan).tape.nodes == 2 * depth + 2);
  }
}

TEST_CASE("byte counts that are too large throw") {
  const Program program = dense(1LL << 29, 3, 2);  // 2^61 bytes a weight
  CHECK_THROWS_AS(train(program, 1LL << 29, 2), std::overflow_error);
}

TEST_CASE("a model of 10^12 parameters is counted exactly") {
  const TrainingRecord record = train(dense(1000000, 1, 1), 1000000, 1);
  CHECK(at_peak(record, Component::weights) == 8000000000000 + 8 + 8000000 + 8);
}
