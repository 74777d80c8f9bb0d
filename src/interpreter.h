#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "program.h"
#include "tape.h"

namespace agbudget {

// Replays a program on counting matrices. The program and the engine must outlive it.
// No checkpoint it recorded may be walked after it: replaying one takes the interpreter.
class Interpreter {
 public:
  Interpreter(const Program& program, Engine& engine);

  // The instructions that build the model.
  void build();
  // One forward pass.
  TensorPtr forward(const TensorPtr& input);
  // The model's parameters, in the optimizer's order.
  Tensors parameters() const;

 private:
  const TensorPtr& value(ValueId id) const {
    return values_[static_cast<std::size_t>(id)];
  }
  TensorPtr& slot(ValueId id) { return values_[static_cast<std::size_t>(id)]; }
  const TensorPtr& operand(const Instruction& instruction, std::size_t i) const {
    return value(instruction.operands[i]);
  }
  TensorPtr operand_if_any(const Instruction& instruction, std::size_t i) const {
    return i < instruction.operands.size() ? operand(instruction, i) : nullptr;
  }

  void find_last_uses();
  void run(std::size_t begin, std::size_t end);
  void apply_switches(std::size_t position);
  void release_after(std::size_t position);
  void release(ValueId id, std::size_t position);
  void hold_captures();
  TensorPtr execute(const Instruction& instruction);
  TensorPtr host_value(const Instruction& instruction);
  TensorPtr parameter(const Instruction& instruction);

  class CheckpointFrame;
  std::size_t run_checkpoint(std::size_t begin);
  Gradients replay(const CheckpointFrame& checkpoint, const Matrix& grad_out);

  const Program& program_;
  Engine& engine_;
  std::vector<TensorPtr> values_;
  std::vector<std::size_t> last_use_;
  // What goes at an instruction that it is no operand of, in the order of instructions.
  std::vector<std::pair<std::size_t, ValueId>> late_releases_;
  std::vector<std::size_t> segment_end_;  // of each checkpoint_begin
  bool replaying_ = false;
  // Of the checkpoints of this pass whose functions have values in reach.
  std::vector<std::pair<ValueId, std::shared_ptr<CheckpointFrame>>> capturing_;
};

}  // namespace agbudget
