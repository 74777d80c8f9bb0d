#include "program.h"

#include <algorithm>
#include <array>
#include <utility>

namespace agbudget {

namespace {

constexpr std::array<std::pair<const char*, Opcode>, 40> opcode_names{{
    {"parameter", Opcode::parameter},
    {"buffer", Opcode::buffer},
    {"host", Opcode::host},
    {"data", Opcode::data},
    {"tensor", Opcode::tensor},
    {"input", Opcode::input},
    {"matmul", Opcode::matmul},
    {"add", Opcode::add},
    {"sub", Opcode::sub},
    {"mul", Opcode::mul},
    {"scale", Opcode::scale},
    {"relu", Opcode::relu},
    {"sigmoid", Opcode::sigmoid},
    {"tanh", Opcode::tanh},
    {"softmax", Opcode::softmax},
    {"log_softmax", Opcode::log_softmax},
    {"log", Opcode::log},
    {"exp", Opcode::exp},
    {"pow", Opcode::pow},
    {"clamp", Opcode::clamp},
    {"sum", Opcode::sum},
    {"mean", Opcode::mean},
    {"reshape", Opcode::reshape},
    {"transpose", Opcode::transpose},
    {"slice_rows", Opcode::slice_rows},
    {"concat_rows", Opcode::concat_rows},
    {"gather", Opcode::gather},
    {"max", Opcode::max},
    {"argmax", Opcode::argmax},
    {"mse_loss", Opcode::mse_loss},
    {"cross_entropy_loss", Opcode::cross_entropy_loss},
    {"softmax_cross_entropy_loss", Opcode::softmax_cross_entropy_loss},
    {"linear", Opcode::linear},
    {"dropout", Opcode::dropout},
    {"batch_norm", Opcode::batch_norm},
    {"layer_norm", Opcode::layer_norm},
    {"embedding", Opcode::embedding},
    {"attention", Opcode::attention},
    {"checkpoint_begin", Opcode::checkpoint_begin},
    {"checkpoint_end", Opcode::checkpoint_end},
}};

std::string text(const Shape& shape) {
  return std::to_string(shape.rows) + " x " + std::to_string(shape.cols);
}

std::string rows_text(const Shape& shape) {
  return std::to_string(shape.rows) + (shape.rows == 1 ? " row (" : " rows (") +
         text(shape) + ")";
}

void require_rows(const Shape& found, Extent expected) {
  if (found.rows == expected) return;
  throw ShapeError("expects an input of " + std::to_string(expected) +
                   (expected == 1 ? " row" : " rows") + "; found " + rows_text(found));
}

Shape matmul_shape(const Shape& a, const Shape& b) {
  if (a.cols != b.rows) {
    throw ShapeError("`A` is " + text(a) + " and `B` is " + text(b) +
                     "; the columns of `A` must equal the rows of `B`");
  }
  return {a.rows, b.cols};
}

// ag_add() and ag_sub(): a column or a row as `B` is expanded to `A`; a vector
// without dimensions is recycled by R.
Shape additive_shape(const Value& a, const Value& b) {
  if (!b.has_dim || !a.has_dim) {
    const Value& matrix = a.has_dim ? a : b;
    const Value& vector = a.has_dim ? b : a;
    const Extent length = vector.shape.length();
    if (length < 1 || matrix.shape.length() % length != 0) {
      throw ShapeError("a vector of length " + std::to_string(length) +
                       " cannot be recycled over " + text(matrix.shape));
    }
    return matrix.shape;
  }
  Shape expanded = b.shape;
  if (b.shape.cols == 1 && a.shape.cols > 1) {
    expanded.cols = a.shape.cols;
  } else if (b.shape.rows == 1 && a.shape.rows > 1) {
    expanded.rows = a.shape.rows;
  }
  if (expanded != a.shape) {
    throw ShapeError("`A` is " + text(a.shape) + " and `B` is " + text(b.shape) +
                     "; the shapes must be equal, or `B` one column or one row that "
                     "expands to `A`");
  }
  return a.shape;
}

// ag_mul() recycles any shorter extent, but its backward rule only reduces one of 1:
// an operand that wants a gradient must have that, or the full extent.
Shape product_shape(const Value& a, const Value& b) {
  if (!a.has_dim || !b.has_dim) {
    throw ShapeError("both operands must be matrices; ag_scale() multiplies by a number");
  }
  const Shape full{std::max(a.shape.rows, b.shape.rows),
                   std::max(a.shape.cols, b.shape.cols)};
  const auto fits = [&full](const Value& x) {
    return !x.requires_gradient || ((x.shape.rows == 1 || x.shape.rows == full.rows) &&
                                    (x.shape.cols == 1 || x.shape.cols == full.cols));
  };
  if (!fits(a) || !fits(b)) {
    throw ShapeError("`A` is " + text(a.shape) + " and `B` is " + text(b.shape) +
                     "; rows and columns must be equal, or 1 on one side");
  }
  return full;
}

void require_same_shape(const Shape& prediction, const Shape& target) {
  if (prediction == target) return;
  throw ShapeError("the prediction is " + text(prediction) + " and the target is " +
                   text(target) + "; they must have the same shape");
}

void require_index_a_column(const Shape& logits, const Shape& target) {
  if (target.length() == logits.cols) return;
  throw ShapeError("the prediction is " + text(logits) + " and the target holds " +
                   std::to_string(target.length()) +
                   " class indices; there must be one for each column");
}

// ag_softmax_cross_entropy_loss() takes one class index a column too.
bool is_class_index(const Value& target, const Shape& logits) {
  if (target.has_dim && !(target.shape.rows == 1 && logits.rows > 1)) return false;
  return target.shape.length() == logits.cols;
}

Shape reduced_shape(const Shape& x, std::int64_t dim) {
  if (dim == 0) return {1, 1};
  return dim == 1 ? Shape{x.rows, 1} : Shape{1, x.cols};
}

// -1 infers an extent by whole division, as ag_reshape() does.
Shape reshaped(const Shape& x, Attributes& wanted) {
  const Extent length = x.length();
  Extent& rows = wanted.at(0);
  Extent& cols = wanted.at(1);
  if (rows == -1 && cols > 0) rows = length / cols;
  if (cols == -1 && rows > 0) cols = length / rows;
  const Shape shape{rows, cols};
  if (rows < 1 || cols < 1 || shape.length() != length) {
    throw ShapeError("cannot make " + std::to_string(length) + " elements (" + text(x) +
                     ") a matrix of " + text(shape));
  }
  return shape;
}

Shape attention_shape(const Shape& q, const Shape& k, const Shape& v, const Shape& weight,
                      const Shape& output) {
  require_rows(q, weight.cols);
  require_rows(k, weight.cols);
  require_rows(v, weight.cols);
  if (k.cols != v.cols) {
    throw ShapeError("`k` is " + text(k) + " and `v` is " + text(v) +
                     "; they must have as many columns");
  }
  return {output.rows, q.cols};
}

// Whether the gradient of an instruction's result goes on to operand `i`.
bool passes_gradient(Opcode op, std::size_t i) {
  switch (op) {
    case Opcode::mse_loss:
    case Opcode::cross_entropy_loss:
    case Opcode::softmax_cross_entropy_loss:
      return i == 0;
    case Opcode::embedding:
      return i == 1;
    default:
      return true;
  }
}

}  // namespace

Opcode opcode_named(std::string_view name) {
  for (const auto& [known, op] : opcode_names) {
    if (name == known) return op;
  }
  throw std::invalid_argument("no operation is called '" + std::string(name) + "'");
}

Program::Program() {
  layers_.push_back({"model", "model", {}, 0});
  layer_stack_.push_back(0);
}

ValueId Program::append(Opcode op, std::vector<ValueId> operands, Attributes attributes) {
  Value value = infer(op, operands, attributes);
  attribute_parameters(operands);
  value.declared_gradient = value.requires_gradient;
  values_.push_back(value);
  const ValueId id = static_cast<ValueId>(values_.size() - 1);
  instructions_.push_back(
      {op, std::move(operands), std::move(attributes), id, current_layer()});
  return id;
}

void Program::begin_forward() {
  if (!building_) resume_building();
  building_ = false;
  forward_begin_ = instructions_.size();
  built_values_ = values_.size();
  built_switches_ = gradient_switches_.size();
  reset_pass();
}

void Program::resume_building() {
  building_ = true;
  instructions_.resize(forward_begin_);
  values_.resize(built_values_);
  gradient_switches_.resize(built_switches_);
  reset_pass();
}

void Program::reset_pass() {
  for (Value& value : values_) {
    value.requires_gradient = value.declared_gradient;
    value.layer = -1;
    value.bound_until = 0;
    value.survives = false;
    value.is_captured = false;
  }
  for (const GradientSwitch& change : gradient_switches_) {
    values_[index(change.value)].requires_gradient = change.requires_gradient;
  }
  layers_.assign(1, Layer{"model", "model", {}, 0});
  layer_stack_.assign(1, 0);
  layers_named_.clear();
  captures_.clear();
  output_ = -1;
}

void Program::set_requires_gradient(ValueId id, bool requires_gradient) {
  values_.at(index(id)).requires_gradient = requires_gradient;
  gradient_switches_.push_back({instructions_.size(), id, requires_gradient});
}

void Program::bind(const std::vector<ValueId>& values) {
  for (const ValueId id : values) {
    values_.at(index(id)).bound_until = instructions_.size();
  }
}

std::vector<ValueId> Program::built_parameters() const {
  std::vector<ValueId> built;
  for (std::size_t i = 0; i < forward_begin_; ++i) {
    if (instructions_[i].op == Opcode::parameter)
      built.push_back(instructions_[i].result);
  }
  return built;
}

void Program::set_output(ValueId output) {
  output_ = output;
  check_gradients_pass();
  layers_.push_back({"loss", "loss", {1, 1}, 0});
}

// ag_checkpoint() makes a tensor of whatever its function returns, but going back
// through it takes a tensor that the function made again.
void Program::check_gradients_pass() const {
  std::vector<bool> reached(values_.size(), false);
  reached[index(output_)] = true;
  for (std::size_t i = instructions_.size(); i-- > forward_begin_;) {
    const Instruction& instruction = instructions_[i];
    if (!reached[index(instruction.result)]) continue;
    if (!value(instruction.result).requires_gradient) continue;
    if (instruction.op == Opcode::checkpoint_end && !instruction.attributes.empty() &&
        instruction.attributes[0] != 0) {
      throw ModelError(
          "the function returns a plain matrix, through which no gradient can pass, but "
          "the loss depends on it");
    }
    for (std::size_t j = 0; j < instruction.operands.size(); ++j) {
      if (passes_gradient(instruction.op, j))
        reached[index(instruction.operands[j])] = true;
    }
  }
}

void Program::set_parameters(std::vector<ValueId> parameters) {
  parameters_ = std::move(parameters);
}

void Program::survive(const std::vector<ValueId>& values) {
  for (const ValueId id : values) values_.at(index(id)).survives = true;
}

void Program::capture(ValueId begin, std::vector<ValueId> values) {
  for (const ValueId id : values) values_.at(index(id)).is_captured = true;
  captures_[begin] = std::move(values);
}

bool Program::makes_matrices() const {
  return std::any_of(
      instructions_.begin(),
      instructions_.begin() + static_cast<std::ptrdiff_t>(forward_begin_),
      [](const Instruction& instruction) { return instruction.op == Opcode::host; });
}

int Program::begin_layer(const std::string& name, const std::string& kind) {
  const int number = ++layers_named_[name];
  layers_.push_back({name + "_" + std::to_string(number), kind, {}, 0});
  const int layer = static_cast<int>(layers_.size() - 1);
  layer_stack_.push_back(layer);
  return layer;
}

void Program::resume_layer(int layer) { layer_stack_.push_back(layer); }

void Program::end_layer(ValueId output) {
  Layer& layer = layers_[index(layer_stack_.back())];
  layer.output = value(output).shape;
  if (layer_stack_.size() > 1) layer_stack_.pop_back();
}

void Program::attribute_parameters(const std::vector<ValueId>& operands) {
  for (const ValueId id : operands) {
    Value& operand = values_.at(index(id));
    if (!operand.is_parameter || operand.layer >= 0) continue;
    operand.layer = current_layer();
    std::int64_t& count = layers_[index(operand.layer)].parameters;
    count = checked_add(count, operand.shape.length());
  }
}

Value Program::infer(Opcode op, const std::vector<ValueId>& operands,
                     Attributes& attributes) const {
  const auto operand = [&](std::size_t i) -> const Value& {
    return value(operands.at(i));
  };
  const auto shape = [&](std::size_t i) -> const Shape& { return operand(i).shape; };

  Value result;
  for (const ValueId id : operands) {
    result.requires_gradient |= value(id).requires_gradient;
  }

  switch (op) {
    case Opcode::parameter:
      result.requires_gradient = true;
      result.is_parameter = true;
      [[fallthrough]];
    case Opcode::buffer:
    case Opcode::input:
      result.shape = {attributes.at(0), attributes.at(1)};
      break;
    case Opcode::host:
      result.shape = {attributes.at(0), attributes.at(1)};
      result.requires_gradient = false;
      result.has_dim = attributes.at(3) != 0;
      break;
    case Opcode::matmul:
      result.shape = matmul_shape(shape(0), shape(1));
      break;
    case Opcode::add:
    case Opcode::sub:
      result.shape = additive_shape(operand(0), operand(1));
      break;
    case Opcode::mul:
      result.shape = product_shape(operand(0), operand(1));
      break;
    case Opcode::data:
      result.shape = shape(0);
      result.requires_gradient = false;
      break;
    case Opcode::tensor:
      result.requires_gradient = false;
      [[fallthrough]];
    case Opcode::scale:
    case Opcode::relu:
    case Opcode::sigmoid:
    case Opcode::tanh:
    case Opcode::softmax:
    case Opcode::log_softmax:
    case Opcode::log:
    case Opcode::exp:
    case Opcode::pow:
    case Opcode::clamp:
    case Opcode::dropout:
    case Opcode::checkpoint_begin:
      if (!operands.empty()) result.shape = shape(0);
      break;
    case Opcode::checkpoint_end:
      result.shape = shape(0);
      result.requires_gradient = true;
      break;
    case Opcode::sum:
    case Opcode::mean:
      result.shape = reduced_shape(shape(0), attributes.at(0));
      break;
    case Opcode::reshape:
      result.shape = reshaped(shape(0), attributes);
      break;
    case Opcode::transpose:
      result.shape = {shape(0).cols, shape(0).rows};
      break;
    case Opcode::slice_rows:
      if (attributes.at(0) + attributes.at(1) > shape(0).rows) {
        throw ShapeError("rows " + std::to_string(attributes.at(0)) + " to " +
                         std::to_string(attributes.at(0) + attributes.at(1) - 1) +
                         " are outside an input of " + rows_text(shape(0)));
      }
      result.shape = {attributes.at(1), shape(0).cols};
      break;
    case Opcode::concat_rows:
      if (shape(0).cols != shape(1).cols) {
        throw ShapeError("`a` is " + text(shape(0)) + " and `b` is " + text(shape(1)) +
                         "; they must have as many columns");
      }
      result.shape = {checked_add(shape(0).rows, shape(1).rows), shape(0).cols};
      break;
    case Opcode::gather:
    case Opcode::max:
      result.shape = {1, shape(0).cols};
      break;
    case Opcode::argmax:
      result.shape = {shape(0).cols, 1};
      result.requires_gradient = false;
      result.has_dim = false;
      break;
    case Opcode::mse_loss:
    case Opcode::cross_entropy_loss:
      if (operand(1).has_dim) {
        require_same_shape(shape(0), shape(1));
      } else {
        static_cast<void>(additive_shape(operand(0), operand(1)));
      }
      result.shape = {1, 1};
      result.requires_gradient = operand(0).requires_gradient;
      break;
    case Opcode::softmax_cross_entropy_loss:
      if (!attributes.empty() && attributes[0] != 0) {
        require_index_a_column(shape(0), shape(1));
      } else if (!is_class_index(operand(1), shape(0))) {
        require_same_shape(shape(0), shape(1));
      }
      result.shape = {1, 1};
      result.requires_gradient = operand(0).requires_gradient;
      break;
    case Opcode::linear:
      require_rows(shape(0), shape(1).cols);
      result.shape = {shape(1).rows, shape(0).cols};
      break;
    case Opcode::batch_norm:
      require_rows(shape(0), shape(1).rows);
      result.shape = shape(0);
      break;
    case Opcode::layer_norm:
      require_rows(shape(0), attributes.at(0));
      result.shape = shape(0);
      break;
    case Opcode::embedding:
      result.shape = {shape(1).rows, shape(0).length()};
      result.requires_gradient = operand(1).requires_gradient;
      break;
    case Opcode::attention:
      result.shape = attention_shape(shape(0), shape(1), shape(2), shape(3), shape(6));
      break;
  }
  // Fail here, with the operation at hand, rather than while running.
  static_cast<void>(checked_multiply(result.shape.length(), bytes_per_double));
  return result;
}

}  // namespace agbudget
