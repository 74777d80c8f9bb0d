#include "tape.h"

#include <utility>

#include "bookkeeping.h"
#include "collector.h"

namespace agbudget {

TensorPtr plain(Matrix data) {
  auto tensor = std::make_shared<Tensor>();
  tensor->is_tensor = false;
  tensor->data = std::move(data);
  return tensor;
}

void Frame::release(Tensors operands) {
  thread_local std::vector<Tensors> pending;
  thread_local bool draining = false;
  pending.push_back(std::move(operands));
  if (draining) return;
  draining = true;
  while (!pending.empty()) {
    const Tensors next = std::move(pending.back());
    pending.pop_back();
  }
  draining = false;
}

Matrix Engine::matrix(Shape shape, Bytes element_bytes) {
  const Bytes data = vector_heap_bytes(checked_multiply(shape.length(), element_bytes));
  const Form form{shape.rows, shape.cols, true, static_cast<std::uint8_t>(element_bytes)};
  return {heap_.allocate(checked_add(data, dim_bytes), Component::temporaries, dim_bytes,
                         form)};
}

Matrix Engine::vector(Extent length, Bytes element_bytes) {
  const Bytes data = vector_heap_bytes(checked_multiply(length, element_bytes));
  const Form form{length, 1, false, static_cast<std::uint8_t>(element_bytes)};
  return {heap_.allocate(data, Component::temporaries, 0, form)};
}

void Engine::begin(const char* operation) {
  operation_ = operation;
  timeline_.start(layer_, operation);
  const Bytes code = loaded_code_.load(operation);
  if (code > 0) heap_.allocate_permanent(code, Component::bookkeeping);
}

void Engine::keep(const Matrix& matrix) {
  heap_.claim(matrix.block, Component::activations);
  hold(matrix.block);
}

// What the tape leads to, and through the loss the step's function.
void Engine::hold(const BlockRef& block) {
  heap_.root(block);
  heap_.hold(block, step_frame_);
}

TensorPtr Engine::tensor(Matrix data, Component owner) {
  heap_.claim(data.block, owner);
  auto tensor = std::make_shared<Tensor>();
  tensor->id = next_id_++;
  tensor->data = std::move(data);
  tensor->environment = heap_.allocate(tensor_environment_bytes, Component::bookkeeping);
  return tensor;
}

TensorPtr Engine::result(Matrix data, std::initializer_list<const Tensor*> operands) {
  TensorPtr out = tensor(std::move(data));
  for (const Tensor* operand : operands) {
    out->requires_gradient |= operand->requires_gradient;
  }
  return out;
}

void Engine::record_always(const TensorPtr& output, const char* op,
                           std::size_t input_count, View<Matrix> fields) {
  if (!enabled_) return;
  Node node{output->id, layer_, output->frame, input_count, op, operation_, {}, {}};
  hold(output->data.block);
  hold(output->environment);
  for (const TensorPtr& input : node.inputs()) {
    hold(input->data.block);
    hold(input->environment);
  }
  spend(forward_cells);
  if (Collector* collector = heap_.collector()) {
    collector->add_nodes(output->environment->ticket, recorded_nodes);
  }
  std::copy(fields.begin(), fields.end(), node.fields.begin());
  node.cells =
      heap_.allocate(node_bytes(input_count, fields.size()), Component::bookkeeping);
  append(std::move(node));
}

void Engine::append(Node node) {
  nodes_.push_back(std::move(node));
  resize_tape_list(nodes_.size());
}

// c(nodes, list(node)) copies the list of pointers: old and new live for a moment.
void Engine::resize_tape_list(std::size_t length) {
  tape_list_ = heap_.allocate(list_bytes(length), Component::bookkeeping);
}

std::vector<Node> Engine::exchange_nodes(std::vector<Node> nodes) {
  std::vector<Node> previous = std::exchange(nodes_, std::move(nodes));
  resize_tape_list(nodes_.size());
  return previous;
}

void Engine::clear_tape() {
  tape_list_.reset();
  nodes_.clear();
}

void Engine::accumulate(Tensor& tensor, const Matrix& gradient) {
  if (!tensor.gradient) {
    tensor.gradient = gradient;
    heap_.hold(gradient.block, tensor.environment);
    return;
  }
  Matrix sum = real(gradient.shape());
  heap_.claim(sum.block, Component::gradients);
  heap_.hold(sum.block, tensor.environment);
  tensor.gradient = std::move(sum);
}

GradientTable Engine::backward(const TensorPtr& loss) {
  Matrix one = real({1, 1});
  // The walk has its own hold on the nodes: a checkpoint's replay records on the tape.
  std::vector<Node> nodes = std::exchange(nodes_, {});
  GradientTable gradients = walk(loss->id, std::move(one), nodes);

  // .ag_bwd_write_leaf_grads(): every tensor on the tape, intermediate ones too.
  timeline_.start(layer_, "write $grad");
  std::vector<bool> seen(static_cast<std::size_t>(next_id_), false);
  for (const Node& node : nodes) {
    for (const TensorPtr& input : node.inputs()) {
      const auto id = static_cast<std::size_t>(input->id);
      if (!input->requires_gradient || seen[id]) continue;
      seen[id] = true;
      const auto found = gradients.values.find(input->id);
      if (found != gradients.values.end()) accumulate(*input, found->second);
    }
  }
  nodes_ = std::move(nodes);
  return gradients;
}

GradientTable Engine::walk(TensorId seed, Matrix seed_gradient,
                           const std::vector<Node>& nodes) {
  GradientTable gradients;
  gradients.environment = holder();
  entry(gradients, seed) = std::move(seed_gradient);
  const BlockRef reversed =
      heap_.allocate(list_bytes(nodes.size()), Component::bookkeeping);

  // R's loop variables: each holds its last value until it is bound again.
  Matrix grad_out;
  Gradients input_grads;
  Matrix contribution;
  Matrix existing;

  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    const auto upstream = gradients.values.find(node->output);
    grad_out = upstream == gradients.values.end() ? Matrix() : upstream->second;
    if (!grad_out) continue;

    layer_ = node->layer;
    begin(node->operation);
    spend(backward_cells);
    input_grads = node->frame->backward(grad_out);

    const View<TensorPtr> inputs = node->inputs();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& input = *inputs[i];
      if (!input.requires_gradient) continue;
      contribution = input_grads[i];
      if (!contribution) continue;

      const Component owner =
          input.is_parameter ? Component::gradients : Component::activation_gradients;
      Matrix& gradient = entry(gradients, input.id);
      existing = gradient;
      gradient = existing ? real(contribution.shape()) : contribution;
      heap_.claim(gradient.block, owner);
      heap_.hold(gradient.block, gradients.environment);
      if (Collector* collector = heap_.collector()) {
        collector->add_nodes(gradient.block->ticket, gradient_nodes);
      }
    }
  }
  return gradients;
}

Matrix& Engine::entry(GradientTable& gradients, TensorId id) {
  const auto [found, is_new] = gradients.values.try_emplace(id);
  if (is_new) {
    intern_name(id);
    if (gradients.names.insert(id) || !gradients.table) {
      gradients.table = heap_.allocate(gradients.names.bytes(), Component::bookkeeping);
    }
  }
  return found->second;
}

void Engine::intern_name(TensorId id) {
  const auto index = static_cast<std::size_t>(id);
  if (index >= named_.size()) named_.resize(2 * index + 1, false);
  if (named_[index]) return;
  named_[index] = true;
  heap_.allocate_permanent(symbol_bytes, Component::bookkeeping);
}

BlockRef Engine::holder() {
  if (heap_.collector() == nullptr) return BlockRef();
  return heap_.allocate(0, Component::bookkeeping);
}

void Engine::spend(const Garbage& garbage) {
  if (Collector* collector = heap_.collector()) {
    collector->spend(garbage.nodes, garbage.bytes);
  }
}

void Engine::spend_vectors(Extent count, Bytes bytes_each) {
  if (Collector* collector = heap_.collector()) {
    collector->spend_vectors(count, bytes_each);
  }
}

void Engine::draw_random_numbers() { random_seed_ = Matrix(); }

Matrix Engine::random_seed() {
  if (!random_seed_) {
    random_seed_ = integers(random_seed_length);
    heap_.relabel(random_seed_.block, Component::bookkeeping);
  }
  return random_seed_;
}

}  // namespace agbudget
