#include "interpreter.h"

#include <algorithm>
#include <unordered_set>

#include "bookkeeping.h"
#include "layers.h"
#include "operations.h"

namespace agbudget {

// The frame of ag_checkpoint(). Its operands are the inputs, what the function's body
// uses from outside, and what else it has in reach.
class Interpreter::CheckpointFrame final : public Frame {
 public:
  CheckpointFrame(Interpreter& interpreter, std::size_t begin, Tensors operands,
                  std::vector<ValueId> captured_ids, Matrices<2> locals,
                  BlockRef saved_nodes)
      : interpreter_(interpreter),
        begin_(begin),
        operands_(std::move(operands)),
        captured_ids_(std::move(captured_ids)),
        input_count_(operands_.size() - captured_ids_.size()),
        locals_(std::move(locals)),
        saved_nodes_(std::move(saved_nodes)) {}
  ~CheckpointFrame() override { release(std::move(operands_)); }

  void capture(const TensorPtr& tensor) { operands_.push_back(tensor); }

  View<TensorPtr> operands() const override {
    return {operands_.data(), operands_.size()};
  }
  View<Matrix> locals() const override { return {locals_.data(), locals_.size()}; }
  Gradients backward(const Matrix& grad_out) override {
    return interpreter_.replay(*this, grad_out);
  }

  std::size_t begin() const { return begin_; }
  View<TensorPtr> inputs() const { return {operands_.data(), input_count_}; }
  const std::vector<ValueId>& captured_ids() const { return captured_ids_; }
  const TensorPtr& captured(std::size_t i) const { return operands_[input_count_ + i]; }
  const Matrix& seed() const { return locals_[1]; }

 private:
  Interpreter& interpreter_;
  std::size_t begin_;
  Tensors operands_;
  std::vector<ValueId> captured_ids_;
  std::size_t input_count_;
  Matrices<2> locals_;  // the result and .Random.seed
  // saved_nodes stays bound: a list as long as the tape was.
  BlockRef saved_nodes_;
};

Interpreter::Interpreter(const Program& program, Engine& engine)
    : program_(program), engine_(engine), values_(program.value_count()) {
  find_last_uses();
}

void Interpreter::find_last_uses() {
  const auto& instructions = program_.instructions();
  last_use_.assign(program_.value_count(), 0);
  segment_end_.assign(instructions.size(), 0);
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    const Instruction& instruction = instructions[i];
    if (instruction.op == Opcode::checkpoint_begin) open.push_back(i);
    if (instruction.op == Opcode::checkpoint_end) {
      segment_end_[open.back()] = i;
      open.pop_back();
    }
    last_use_[static_cast<std::size_t>(instruction.result)] = i;
    for (const ValueId id : instruction.operands) {
      last_use_[static_cast<std::size_t>(id)] = i;
    }
  }
  // What a segment uses from outside, its function holds until the segment ends.
  for (std::size_t begin = instructions.size(); begin-- > 0;) {
    const std::size_t end = segment_end_[begin];
    for (std::size_t i = begin; i < end; ++i) {
      for (const ValueId id : instructions[i].operands) {
        if (id < instructions[begin].result) {
          std::size_t& last = last_use_[static_cast<std::size_t>(id)];
          last = std::max(last, end);
        }
      }
    }
  }
  // A variable of the user's code may hold a value for longer than it is used.
  for (const Instruction& instruction : instructions) {
    const ValueId id = instruction.result;
    std::size_t& last = last_use_[static_cast<std::size_t>(id)];
    const std::size_t bound = program_.value(id).bound_until;
    if (bound <= last) continue;
    last = bound;
    late_releases_.emplace_back(bound, id);
  }
  std::sort(late_releases_.begin(), late_releases_.end());
}

void Interpreter::build() {
  engine_.begin("build");
  run(0, program_.forward_begin());
  apply_switches(program_.forward_begin());
}

TensorPtr Interpreter::forward(const TensorPtr& input) {
  const std::size_t begin = program_.forward_begin();
  // The pass starts with the instruction that stands for the batch.
  slot(program_.input()) = input;
  run(begin + 1, program_.instructions().size());
  apply_switches(program_.instructions().size());
  hold_captures();
  TensorPtr output = value(program_.output());
  for (std::size_t i = begin; i < program_.instructions().size(); ++i) {
    const ValueId id = program_.instructions()[i].result;
    if (!program_.value(id).survives) slot(id).reset();
  }
  return output;
}

// A checkpoint's function keeps the frame it was defined in, as that is left. Only what
// is on no tape counts: the rest is held already.
void Interpreter::hold_captures() {
  for (const auto& [begin, frame] : capturing_) {
    for (const ValueId id : program_.captures().at(begin)) {
      const TensorPtr& captured = value(id);
      if (captured && !captured->frame) frame->capture(captured);
    }
  }
  capturing_.clear();
}

Tensors Interpreter::parameters() const {
  Tensors parameters;
  for (const ValueId id : program_.parameters()) parameters.push_back(value(id));
  return parameters;
}

void Interpreter::run(std::size_t begin, std::size_t end) {
  const auto& instructions = program_.instructions();
  for (std::size_t i = begin; i < end; ++i) {
    const Instruction& instruction = instructions[i];
    engine_.set_layer(instruction.layer);
    apply_switches(i);
    if (instruction.op == Opcode::checkpoint_begin && engine_.enabled()) {
      i = run_checkpoint(i);
      continue;
    }
    TensorPtr& result = slot(instruction.result);
    result = execute(instruction);
    release_after(i);
  }
}

void Interpreter::apply_switches(std::size_t position) {
  const auto& switches = program_.gradient_switches();
  auto next = std::lower_bound(
      switches.begin(), switches.end(), position,
      [](const GradientSwitch& change, std::size_t at) { return change.position < at; });
  for (; next != switches.end() && next->position == position; ++next) {
    const TensorPtr& tensor = value(next->value);
    if (tensor) tensor->requires_gradient = next->requires_gradient;
  }
}

void Interpreter::release_after(std::size_t position) {
  const Instruction& instruction = program_.instructions()[position];
  for (const ValueId id : instruction.operands) release(id, position);
  release(instruction.result, position);
  const auto first = std::make_pair(position, ValueId{0});
  for (auto late = std::lower_bound(late_releases_.begin(), late_releases_.end(), first);
       late != late_releases_.end() && late->first == position; ++late) {
    release(late->second, position);
  }
}

void Interpreter::release(ValueId id, std::size_t position) {
  if (last_use_[static_cast<std::size_t>(id)] != position) return;
  const bool building = position < program_.forward_begin();
  // What building the model made and the forward pass uses is held by the model.
  if (!building && id <= program_.input()) return;
  const Value& known = program_.value(id);
  if (known.is_parameter) return;
  const Opcode op = program_.instructions()[static_cast<std::size_t>(id)].op;
  if (op == Opcode::buffer) return;
  // These stay to the end of the pass at least.
  if (known.survives || known.is_captured || id == program_.output()) return;
  slot(id).reset();
}

TensorPtr Interpreter::host_value(const Instruction& instruction) {
  const Attributes& a = instruction.attributes;
  engine_.begin("R matrix");
  if (a[4] != 0) engine_.draw_random_numbers();
  const Shape shape{a[0], a[1]};
  const bool is_integer = a[2] == bytes_per_integer;
  TensorPtr host;
  if (a[3] == 0) {
    host = plain(is_integer ? engine_.integers(shape.length())
                            : engine_.reals(shape.length()));
  } else {
    host = plain(is_integer ? engine_.logical(shape) : engine_.real(shape));
  }
  if (instruction.result < program_.input() &&
      program_.value(instruction.result).survives) {
    engine_.heap().claim(host->data.block, Component::weights);
  }
  return host;
}

TensorPtr Interpreter::parameter(const Instruction& instruction) {
  const Shape shape{instruction.attributes[0], instruction.attributes[1]};
  Matrix data;
  if (!instruction.operands.empty()) {
    data = operand(instruction, 0)->data;
  } else if (instruction.attributes[2] != 0) {
    // matrix(runif(n), rows, cols)
    Matrix drawn;
    const BlockRef promise = engine_.holder();
    drawn = engine_.reals(shape.length());
    engine_.heap().hold(drawn.block, promise);
    data = engine_.real(shape);
  } else {
    data = engine_.real(shape);
  }
  engine_.heap().relabel(data.block, Component::weights);
  TensorPtr tensor = engine_.tensor(data, Component::weights);
  tensor->is_parameter = true;
  tensor->layer = std::max(program_.value(instruction.result).layer, 0);
  tensor->requires_gradient = true;
  return tensor;
}

TensorPtr Interpreter::execute(const Instruction& instruction) {
  const Attributes& attributes = instruction.attributes;
  const auto x = [&](std::size_t i) -> const TensorPtr& {
    return operand(instruction, i);
  };
  const bool building = instruction.result < program_.input();

  switch (instruction.op) {
    case Opcode::parameter:
      return parameter(instruction);
    case Opcode::buffer: {
      TensorPtr buffer = plain(instruction.operands.empty()
                                   ? engine_.real({attributes[0], attributes[1]})
                                   : x(0)->data);
      engine_.heap().claim(buffer->data.block, Component::weights);
      return buffer;
    }
    case Opcode::host:
      return host_value(instruction);
    case Opcode::data:
      return plain(x(0)->data);
    case Opcode::tensor:
      return engine_.tensor(x(0)->data,
                            building ? Component::weights : Component::activations);
    case Opcode::input:
      break;
    case Opcode::matmul:
      return matmul(engine_, x(0), x(1));
    case Opcode::add:
      return add(engine_, x(0), x(1));
    case Opcode::sub:
      return sub(engine_, x(0), x(1));
    case Opcode::mul:
      return mul(engine_, x(0), x(1));
    case Opcode::scale:
      return scale(engine_, x(0), operand_if_any(instruction, 1));
    case Opcode::relu:
      return relu(engine_, x(0));
    case Opcode::sigmoid:
      return sigmoid(engine_, x(0));
    case Opcode::tanh:
      return tanh_activation(engine_, x(0));
    case Opcode::softmax:
      return softmax(engine_, x(0));
    case Opcode::log_softmax:
      return log_softmax(engine_, x(0));
    case Opcode::log:
      return log_elements(engine_, x(0));
    case Opcode::exp:
      return exp_elements(engine_, x(0));
    case Opcode::pow:
      return pow_elements(engine_, x(0), operand_if_any(instruction, 1));
    case Opcode::clamp:
      return clamp(engine_, x(0));
    case Opcode::sum:
      return sum(engine_, x(0), static_cast<Along>(attributes[0]));
    case Opcode::mean:
      return mean(engine_, x(0), static_cast<Along>(attributes[0]));
    case Opcode::reshape:
      return reshape(engine_, x(0), {attributes[0], attributes[1]});
    case Opcode::transpose:
      return transpose(engine_, x(0));
    case Opcode::slice_rows:
      return slice_rows(engine_, x(0), attributes[1]);
    case Opcode::concat_rows:
      return concat_rows(engine_, x(0), x(1));
    case Opcode::gather:
      return gather(engine_, x(0));
    case Opcode::max:
      return max_by_column(engine_, x(0));
    case Opcode::argmax:
      argmax(engine_, x(0));
      return nullptr;
    case Opcode::mse_loss:
      return mse_loss(engine_, x(0), x(1));
    case Opcode::cross_entropy_loss:
      return cross_entropy_loss(engine_, x(0), x(1));
    case Opcode::softmax_cross_entropy_loss:
      return softmax_cross_entropy_loss(engine_, x(0), x(1));
    case Opcode::linear:
      return linear(engine_, x(0), x(1), x(2), static_cast<Activation>(attributes[0]));
    case Opcode::dropout:
      return dropout(engine_, x(0));
    case Opcode::batch_norm:
      return batch_norm(engine_, x(0), {x(1), x(2), x(3), x(4)}, attributes[0] != 0);
    case Opcode::layer_norm:
      return layer_norm(engine_, x(0), operand_if_any(instruction, 1),
                        operand_if_any(instruction, 2));
    case Opcode::embedding:
      return embedding(engine_, x(0), x(1));
    case Opcode::attention:
      return multihead_attention(engine_, x(0), x(1), x(2),
                                 {x(3), x(4), x(5), x(6), operand_if_any(instruction, 7)},
                                 {attributes[0], attributes[1] != 0, attributes[2] != 0});
    case Opcode::checkpoint_begin:
      return nullptr;
    case Opcode::checkpoint_end:
      // Within another segment's forward pass ag_checkpoint() just calls its function.
      return x(0);
  }
  return nullptr;
}

// ag_checkpoint() (R/ag_checkpoint.R): the segment runs with the tape off, so its
// graph goes when the function returns; only its value re-enters the tape.
std::size_t Interpreter::run_checkpoint(std::size_t begin) {
  const auto& instructions = program_.instructions();
  const std::size_t end = segment_end_[begin];
  const Matrix seed = engine_.random_seed();

  std::vector<ValueId> captured_ids;
  std::unordered_set<ValueId> seen;
  for (std::size_t i = begin; i < end; ++i) {
    for (const ValueId id : instructions[i].operands) {
      if (id < instructions[begin].result && seen.insert(id).second) {
        captured_ids.push_back(id);
      }
    }
  }
  const std::vector<ValueId>& input_ids = instructions[begin].operands;
  Tensors operands;
  for (const ValueId id : input_ids) operands.push_back(value(id));
  for (const ValueId id : captured_ids) operands.push_back(value(id));

  engine_.set_enabled(false);
  run(begin + 1, end);
  engine_.set_enabled(true);
  engine_.set_random_seed(seed);

  engine_.set_layer(instructions[end].layer);
  engine_.begin("checkpoint");
  const ValueId segment_result = instructions[end].operands[0];
  TensorPtr out = engine_.tensor(value(segment_result)->data);
  if (segment_result > instructions[begin].result &&
      !program_.value(segment_result).survives) {
    slot(segment_result).reset();
  }
  out->requires_gradient = true;

  auto frame = std::make_shared<CheckpointFrame>(
      *this, begin, std::move(operands), captured_ids, matrices(out->data, seed),
      engine_.heap().allocate(list_bytes(engine_.nodes().size()),
                              Component::bookkeeping));
  if (!replaying_ && program_.captures().count(instructions[begin].result) != 0) {
    capturing_.emplace_back(instructions[begin].result, frame);
  }
  out->frame = std::move(frame);
  engine_.record_always(out, nullptr, input_ids.size(), {nullptr, 0});

  slot(instructions[end].result) = std::move(out);
  release_after(end);
  for (const ValueId id : captured_ids) release(id, end);
  return end;
}

// .ag_checkpoint_replay(): the segment again on a private tape, and back through it.
Gradients Interpreter::replay(const CheckpointFrame& checkpoint, const Matrix& grad_out) {
  const auto& instructions = program_.instructions();
  const std::size_t begin = checkpoint.begin();
  const std::size_t end = segment_end_[begin];
  const std::vector<ValueId>& captured_ids = checkpoint.captured_ids();
  const View<TensorPtr> inputs = checkpoint.inputs();
  const int layer = engine_.layer();
  const Matrix outer_seed = engine_.random_seed();
  engine_.set_random_seed(checkpoint.seed());
  std::vector<Node> outer_nodes = engine_.exchange_nodes({});
  const bool outer_enabled = engine_.enabled();
  engine_.set_enabled(true);

  std::vector<TensorPtr> outer_values;
  for (std::size_t i = 0; i < captured_ids.size(); ++i) {
    outer_values.push_back(std::exchange(slot(captured_ids[i]), checkpoint.captured(i)));
  }
  const bool outer_replaying = std::exchange(replaying_, true);
  run(begin + 1, end);
  replaying_ = outer_replaying;
  const ValueId segment_result = instructions[end].operands[0];
  const TensorPtr redone = value(segment_result);
  // What the function stores elsewhere is now what the rerun made.
  for (std::size_t i = begin + 1; i < end; ++i) {
    const ValueId id = instructions[i].result;
    if (!program_.value(id).survives) slot(id).reset();
  }

  const std::vector<Node> segment = engine_.exchange_nodes({});
  const GradientTable gradients = engine_.walk(redone->id, grad_out, segment);

  std::unordered_set<TensorId> not_leaves;
  for (const TensorPtr& input : inputs) not_leaves.insert(input->id);
  for (const Node& node : segment) not_leaves.insert(node.output);
  engine_.set_layer(layer);
  engine_.begin("write $grad");
  for (const Node& node : segment) {
    for (const TensorPtr& input : node.inputs()) {
      if (!input->requires_gradient || not_leaves.count(input->id) != 0) continue;
      const auto found = gradients.values.find(input->id);
      if (found != gradients.values.end()) engine_.accumulate(*input, found->second);
    }
  }

  Gradients for_inputs;
  for (const TensorPtr& input : inputs) {
    const auto found = gradients.values.find(input->id);
    const bool wanted = input->requires_gradient && found != gradients.values.end();
    for_inputs.push_back(wanted ? found->second : Matrix());
  }

  for (std::size_t i = 0; i < captured_ids.size(); ++i) {
    slot(captured_ids[i]) = std::move(outer_values[i]);
  }
  engine_.exchange_nodes(std::move(outer_nodes));
  engine_.set_enabled(outer_enabled);
  engine_.set_random_seed(outer_seed);
  return for_inputs;
}

}  // namespace agbudget
