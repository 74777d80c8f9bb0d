#include "training_step.h"

#include <optional>

#include "bookkeeping.h"
#include "collector.h"
#include "interpreter.h"
#include "operations.h"

namespace agbudget {

namespace {

class Trainer {
 public:
  Trainer(const Program& program, const TrainingPlan& plan)
      : program_(program),
        plan_(plan),
        timeline_(heap_, plan.details),
        engine_(heap_, timeline_),
        interpreter_(program, engine_) {
    timeline_.set_poll(plan.poll);
    if (!plan.resident) return;
    collector_.emplace();
    heap_.set_collector(&*collector_);
  }

  TrainingRecord run() {
    engine_.spend(loading_constructors);
    interpreter_.build();
    engine_.set_layer(0);
    Optimizer optimizer(engine_, plan_.optimizer, interpreter_.parameters(),
                        plan_.accumulate_steps);
    make_batch();
    const int steps = plan_.updates * plan_.accumulate_steps;
    for (int step = 1; step <= steps; ++step) run_step(optimizer, step);
    timeline_.finish();

    TrainingRecord record;
    record.peak_event = timeline_.highest();
    record.events = timeline_.take_events();
    record.tape = std::move(tape_);
    if (collector_) {
      record.resident_bytes = collector_->resident_peak();
      record.collections = collector_->collections();
    }
    return record;
  }

 private:
  void make_batch() {
    engine_.begin("batch");
    Matrix x;
    if (plan_.input_is_indices) {
      // matrix(sample.int(...) - 1, 1, n)
      const Matrix drawn = engine_.integers(plan_.input.length());
      const Matrix indices = engine_.reals(plan_.input.length());
      x = engine_.real(plan_.input);
    } else {
      Matrix drawn;
      const BlockRef promise = engine_.holder();
      drawn = engine_.reals(plan_.input.length());
      heap_.hold(drawn.block, promise);
      x = engine_.real(plan_.input);
    }
    batch_ = engine_.tensor(x, Component::batch);
    target_ = plain(engine_.real(program_.value(program_.output()).shape));
    heap_.claim(target_->data.block, Component::batch);
  }

  TensorPtr loss_of(const TensorPtr& out) {
    engine_.set_layer(program_.loss_layer());
    switch (plan_.loss) {
      case LossKind::mse:
        return mse_loss(engine_, out, target_);
      case LossKind::cross_entropy:
        return cross_entropy_loss(engine_, out, target_);
      case LossKind::softmax_cross_entropy:
        return softmax_cross_entropy_loss(engine_, out, target_);
    }
    return nullptr;
  }

  void run_step(Optimizer& optimizer, int step) {
    timeline_.enter(step, Phase::forward);
    engine_.clear_tape();
    engine_.set_enabled(true);
    if (step == 1) engine_.spend(loading_operations);
    if (plan_.loop == Loop::released) {
      engine_.set_step_frame(engine_.holder());
    }
    // Each assignment lets the previous step's value go, not earlier.
    out_ = interpreter_.forward(batch_);
    loss_ = loss_of(out_);
    if (plan_.loop == Loop::released) out_.reset();
    engine_.set_enabled(false);

    timeline_.enter(step, Phase::backward);
    engine_.set_layer(0);
    engine_.begin("backward");
    if (step == 1) engine_.spend(loading_backward);
    gradients_ = engine_.backward(loss_);
    if (step == 1 && plan_.details)
      tape_ = report_tape(engine_.nodes(), program_.layers().size());

    timeline_.enter(step, Phase::step);
    engine_.set_layer(0);
    const bool accumulates = plan_.accumulate_steps > 1;
    if (optimizer.step(accumulates ? nullptr : &gradients_)) optimizer.zero_grad();
    if (plan_.loop == Loop::released) {
      engine_.set_step_frame(BlockRef());
      gradients_ = GradientTable();
      loss_.reset();
    }
  }

  const Program& program_;
  const TrainingPlan& plan_;
  std::optional<Collector> collector_;  // outlives the heap
  Heap heap_;
  Timeline timeline_;
  Engine engine_;
  Interpreter interpreter_;
  TensorPtr batch_;
  TensorPtr target_;
  TensorPtr out_;
  TensorPtr loss_;
  GradientTable gradients_;
  TapeReport tape_;
};

}  // namespace

TrainingRecord run_training(const Program& program, const TrainingPlan& plan) {
  return Trainer(program, plan).run();
}

}  // namespace agbudget
