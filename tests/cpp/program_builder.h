// Programs as R's side writes them, in few words.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "program.h"
#include "training_step.h"

namespace counting {

class ProgramBuilder {
 public:
  agbudget::ValueId parameter(agbudget::Extent rows, agbudget::Extent cols) {
    const agbudget::ValueId id =
        program.append(agbudget::Opcode::parameter, {}, {rows, cols, 1});
    parameters_.push_back(id);
    return id;
  }
  agbudget::ValueId input(agbudget::Extent rows, agbudget::Extent cols) {
    program.begin_forward();
    return program.append(agbudget::Opcode::input, {}, {rows, cols});
  }
  agbudget::ValueId append(agbudget::Opcode op, std::vector<agbudget::ValueId> operands,
                           agbudget::Attributes attributes = {}) {
    return program.append(op, std::move(operands), std::move(attributes));
  }
  agbudget::ValueId linear(agbudget::ValueId x, agbudget::ValueId weight,
                           agbudget::ValueId bias, int activation = 0) {
    const std::string label = "linear_" + std::to_string(++layers_);
    program.begin_layer(label, "ag_linear()");
    const agbudget::ValueId out =
        append(agbudget::Opcode::linear, {x, weight, bias}, {activation});
    program.end_layer(out);
    return out;
  }
  void finish(agbudget::ValueId output) {
    program.end_layer(output);
    program.set_output(output);
    program.set_parameters(parameters_);
  }

  agbudget::Program program;

 private:
  std::vector<agbudget::ValueId> parameters_;
  int layers_ = 0;
};

// `depth` linear layers of `width`, their weights of their own or one for all.
inline agbudget::Program dense(agbudget::Extent width, int depth, agbudget::Extent batch,
                               bool tied = false, int activation = 1) {
  ProgramBuilder builder;
  std::vector<std::pair<agbudget::ValueId, agbudget::ValueId>> weights;
  for (int i = 0; i < (tied ? 1 : depth); ++i) {
    const agbudget::ValueId weight = builder.parameter(width, width);
    weights.emplace_back(weight, builder.parameter(width, 1));
  }
  agbudget::ValueId x = builder.input(width, batch);
  for (int i = 0; i < depth; ++i) {
    const auto& [weight, bias] = weights[tied ? 0 : static_cast<std::size_t>(i)];
    x = builder.linear(x, weight, bias, activation);
  }
  builder.finish(x);
  return builder.program;
}

inline agbudget::TrainingPlan plan_for(agbudget::Extent rows, agbudget::Extent batch) {
  agbudget::TrainingPlan plan;
  plan.input = {rows, batch};
  return plan;
}

}  // namespace counting
