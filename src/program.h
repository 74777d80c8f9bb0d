#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "matrix.h"

namespace agbudget {

// What one evaluation of a model's code did: first the instructions that built it
// (parameters and constants, run once), then those of one forward pass.

enum class Opcode : std::uint8_t {
  // values
  parameter,  // ag_param(): [source]; rows, cols, and whether it was drawn at random
  buffer,     // a matrix the model holds for good, such as a running mean: [source],
              // rows, cols
  host,       // an R vector or matrix: [sources]; rows, cols, element bytes, has dim,
              // and whether it was drawn at random
  data,       // a tensor's matrix, as a value of R's
  tensor,     // ag_tensor() of a host value
  input,      // the batch
  // operations
  matmul,
  add,
  sub,
  mul,
  scale,  // x, and what multiplies it where that is no single number
  relu,
  sigmoid,
  tanh,
  softmax,
  log_softmax,
  log,
  exp,
  pow,  // likewise
  clamp,
  sum,      // attribute: 0 for all, or `dim`
  mean,     // likewise
  reshape,  // attributes: rows, cols; -1 to infer
  transpose,
  slice_rows,  // attributes: from, n
  concat_rows,
  gather,
  max,
  argmax,
  mse_loss,  // prediction, target
  cross_entropy_loss,
  softmax_cross_entropy_loss,  // attribute: whether the target holds class indices
  // layers
  linear,  // x, W, b; attribute: activation
  dropout,
  batch_norm,  // x, gamma, beta, running mean, running variance; attribute: training
  layer_norm,  // x, and gamma and beta where affine; attribute: rows
  embedding,   // indices, table
  attention,   // q, k, v, W_q, W_k, W_v, W_o, and b_o; heads, dropout, causal
  checkpoint_begin,
  checkpoint_end  // the segment's result; attribute: whether it is a plain matrix
};

// Throws std::invalid_argument for a name that is no opcode.
Opcode opcode_named(std::string_view name);

using ValueId = int;
using Attributes = std::vector<std::int64_t>;

struct Value {
  Shape shape;
  bool requires_gradient = false;
  bool is_parameter = false;
  bool has_dim = true;
  bool declared_gradient = false;  // whether it required one when it was made
  bool survives = false;           // the model refers to it outside of forward passes
  bool is_captured = false;        // or a checkpoint's function does
  int layer = -1;                  // of a parameter: the layer that used it first
  // The last instruction at which the user's code still referred to it.
  std::size_t bound_until = 0;
};

// `x$requires_grad <- ...` of the user's code, before the instruction at `position`.
struct GradientSwitch {
  std::size_t position;
  ValueId value;
  bool requires_gradient;
};

struct Instruction {
  Opcode op;
  std::vector<ValueId> operands;
  Attributes attributes;
  ValueId result;
  int layer;
};

struct Layer {
  std::string label;
  std::string kind;
  Shape output;
  std::int64_t parameters = 0;  // scalars of the parameters first used here
};

// Operands whose shapes do not go together. The message is meant for the user.
class ShapeError : public std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// A model that ggmlR would not train. The message is meant for the user.
class ModelError : public std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

class Program {
 public:
  Program();

  // Appends an instruction and returns its result's id. Throws ShapeError.
  ValueId append(Opcode op, std::vector<ValueId> operands, Attributes attributes);
  const Value& value(ValueId id) const { return values_.at(index(id)); }
  // Takes effect with the next instruction.
  void set_requires_gradient(ValueId id, bool requires_gradient);
  const std::vector<GradientSwitch>& gradient_switches() const {
    return gradient_switches_;
  }

  // The user's code refers to these while the next instruction runs. What a tape holds
  // it holds anyway; a value that needs no gradient goes when nothing refers to it.
  void bind(const std::vector<ValueId>& values);
  // The model still refers to these when the forward pass is over: to what building it
  // made for good, to others until the next pass puts new ones in their place.
  void survive(const std::vector<ValueId>& values);
  // What the function of the checkpoint that begins with `begin` has in reach.
  void capture(ValueId begin, std::vector<ValueId> values);
  const std::map<ValueId, std::vector<ValueId>>& captures() const { return captures_; }
  // Whether building the model made any that are no parameters.
  bool makes_matrices() const;

  // Layers nest: begin_layer() makes the new one current, end_layer() the one before.
  // It is labelled by its name and a number.
  int begin_layer(const std::string& name, const std::string& kind);
  void resume_layer(int layer);
  void end_layer(ValueId output);
  const std::vector<Layer>& layers() const { return layers_; }
  int current_layer() const { return layer_stack_.back(); }
  // Layers entered, the current one included.
  std::size_t depth() const { return layer_stack_.size(); }

  // Ends building, or the forward pass before: what follows is a forward pass on what
  // building left.
  void begin_forward();
  // Drops the forward pass and goes on building.
  void resume_building();
  std::size_t forward_begin() const { return forward_begin_; }
  // The batch, with which a forward pass begins.
  ValueId input() const { return instructions_[forward_begin_].result; }
  // The loss, which is put on the output, is the last layer. Throws ModelError.
  void set_output(ValueId output);
  int loss_layer() const { return static_cast<int>(layers_.size()) - 1; }
  ValueId output() const { return output_; }
  void set_parameters(std::vector<ValueId> parameters);
  const std::vector<ValueId>& parameters() const { return parameters_; }
  // Every parameter that building the model made.
  std::vector<ValueId> built_parameters() const;

  const std::vector<Instruction>& instructions() const { return instructions_; }
  std::size_t value_count() const { return values_.size(); }

 private:
  // Forgets what a forward pass, or using the model while building it, left.
  void reset_pass();
  static std::size_t index(ValueId id) { return static_cast<std::size_t>(id); }
  Value infer(Opcode op, const std::vector<ValueId>& operands,
              Attributes& attributes) const;
  void attribute_parameters(const std::vector<ValueId>& operands);
  void check_gradients_pass() const;

  std::vector<Instruction> instructions_;
  std::vector<Value> values_;
  std::vector<Layer> layers_;
  std::vector<int> layer_stack_;
  std::unordered_map<std::string, int> layers_named_;
  std::vector<GradientSwitch> gradient_switches_;
  std::map<ValueId, std::vector<ValueId>> captures_;
  std::vector<ValueId> parameters_;
  std::size_t forward_begin_ = 0;
  std::size_t built_values_ = 0;
  std::size_t built_switches_ = 0;
  bool building_ = true;
  ValueId output_ = -1;
};

}  // namespace agbudget
