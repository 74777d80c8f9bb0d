#pragma once

#include <array>
#include <functional>
#include <vector>

#include "optimizers.h"
#include "program.h"
#include "tape_report.h"
#include "timeline.h"

namespace agbudget {

enum class LossKind : std::uint8_t { mse, cross_entropy, softmax_cross_entropy };

// What the loop leaves bound while the next step runs: ggmlR's documentation shows
// a loop that keeps `out`, `loss` and `grads`; a step inside a function keeps none.
enum class Loop : std::uint8_t { retained, released };

struct TrainingPlan {
  Shape input;
  bool input_is_indices = false;
  OptimizerKind optimizer = OptimizerKind::adam;
  LossKind loss = LossKind::mse;
  Loop loop = Loop::retained;
  int accumulate_steps = 1;
  int updates = 3;             // the first step differs from the rest
  bool details = true;         // every event and the tape, or the highest event alone
  bool resident = false;       // whether to model R's collector too
  std::function<void()> poll;  // called now and then; may throw to end the run
};

struct TrainingRecord {
  std::vector<Event> events;
  std::size_t peak_event = 0;
  TapeReport tape;
  // Of the collector's model, where the plan asks for it.
  Bytes resident_bytes = 0;
  std::array<int, 3> collections{};

  const Event& peak() const { return events[peak_event]; }
};

// Builds the model and trains it for a few steps on a counting heap.
TrainingRecord run_training(const Program& program, const TrainingPlan& plan);

}  // namespace agbudget
