#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bookkeeping.h"
#include "matrix.h"
#include "timeline.h"

namespace agbudget {

struct Frame;
struct Tensor;
using TensorPtr = std::shared_ptr<Tensor>;
using Tensors = std::vector<TensorPtr>;
using TensorId = std::int32_t;

// What a backward rule returns: a gradient for each of the node's inputs, empty
// where R's list has NULL.
using Gradients = std::vector<Matrix>;

// Elements that someone else holds.
template <typename T>
class View {
 public:
  View(const T* first, std::size_t size) : first_(first), size_(size) {}
  const T* begin() const { return first_; }
  const T* end() const { return first_ + size_; }
  std::size_t size() const { return size_; }
  const T& operator[](std::size_t i) const { return first_[i]; }

 private:
  const T* first_;
  std::size_t size_;
};

template <std::size_t N>
using Matrices = std::array<Matrix, N>;

template <typename... M>
Matrices<sizeof...(M)> matrices(const M&... each) {
  return {each...};
}

// ggmlR's ag_tensor (R/autograd.R), or a plain matrix used as an operand.
struct Tensor {
  TensorId id = 0;
  Matrix data;
  Matrix gradient;  // $grad
  bool requires_gradient = false;
  bool is_parameter = false;
  bool is_tensor = true;
  int layer = 0;                 // of a parameter
  std::shared_ptr<Frame> frame;  // the environment of $grad_fn
  BlockRef environment;

  Shape shape() const { return data.shape(); }
};

// A plain matrix or vector of R's in a tensor's place.
TensorPtr plain(Matrix data);

// The environment a grad_fn closes over: everything the operation's call had
// bound, not only what its backward rule reads. It holds the result's matrix but
// not its tensor, whose $grad_fn holds the frame: counted references would never
// fall around that cycle, R's collector does not mind it.
class Frame {
 public:
  Frame() = default;
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  virtual ~Frame() = default;

  virtual View<TensorPtr> operands() const = 0;
  // The numeric ones, which ag_tape_memory() counts.
  virtual View<Matrix> locals() const = 0;
  virtual Gradients backward(const Matrix& grad_out) = 0;

 protected:
  // A graph is a chain as long as the model is deep: releasing it by nested
  // destructors would exhaust the stack.
  static void release(Tensors operands);
};

// The frame of an operation, in one piece of memory: a model has thousands of them.
// The rule is called with the gradient of the result and returns Gradients. It captures
// matrices only, never tensors.
template <std::size_t operand_count, std::size_t local_count, typename Rule>
class OperationFrame final : public Frame {
 public:
  using Operands = std::array<TensorPtr, operand_count>;

  OperationFrame(Operands operands, Matrices<local_count> locals, Matrix result,
                 Rule rule)
      : operands_(std::move(operands)),
        locals_(std::move(locals)),
        result_(std::move(result)),
        rule_(std::move(rule)) {}
  ~OperationFrame() override {
    release(Tensors(std::make_move_iterator(operands_.begin()),
                    std::make_move_iterator(operands_.end())));
  }

  View<TensorPtr> operands() const override { return {operands_.data(), operand_count}; }
  View<Matrix> locals() const override { return {locals_.data(), local_count}; }
  Gradients backward(const Matrix& grad_out) override { return rule_(grad_out); }

 private:
  Operands operands_;
  Matrices<local_count> locals_;
  Matrix result_;  // of the tensor `out`
  Rule rule_;
};

// One entry of .ag_tape$nodes.
struct Node {
  static constexpr std::size_t max_fields = 4;

  TensorId output;
  int layer;
  std::shared_ptr<Frame> frame;
  std::size_t input_count;  // the frame's first operands
  const char* op;           // what ag_record() was told; nullptr where it was not
  const char* operation;    // the function that recorded it
  Matrices<max_fields> fields;
  BlockRef cells;

  View<TensorPtr> inputs() const { return {frame->operands().begin(), input_count}; }
};

// The gradients of one backward pass, by tensor: the environment that backward()
// returns.
struct GradientTable {
  std::unordered_map<TensorId, Matrix> values;
  BlockRef environment;
  NameTable names;
  BlockRef table;
};

// ggmlR's engine: makes tensors, records operations, walks the tape.
class Engine {
 public:
  Engine(Heap& heap, Timeline& timeline) : heap_(heap), timeline_(timeline) {}
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Heap& heap() { return heap_; }
  Timeline& timeline() { return timeline_; }

  // Fresh values, temporaries until something keeps them.
  Matrix real(Shape shape) { return matrix(shape, bytes_per_double); }
  Matrix logical(Shape shape) { return matrix(shape, bytes_per_integer); }
  Matrix integers(Extent length) { return vector(length, bytes_per_integer); }
  Matrix reals(Extent length) { return vector(length, bytes_per_double); }

  // The layer and operation that the next allocations belong to.
  void set_layer(int layer) { layer_ = layer; }
  int layer() const { return layer_; }
  void begin(const char* operation);

  TensorPtr tensor(Matrix data, Component owner = Component::activations);
  // A tensor for an operation's result: requires a gradient if an operand does.
  TensorPtr result(Matrix data, std::initializer_list<const Tensor*> operands);

  // ag_record(): `locals` is what the frame has bound besides its operands, of which
  // the first `input_count` are the node's inputs.
  template <std::size_t operand_count, std::size_t local_count, std::size_t field_count,
            typename Rule>
  void record(const TensorPtr& output, const char* op,
              TensorPtr (&&operands)[operand_count], Matrices<local_count> locals,
              const Matrices<field_count>& fields, Rule backward,
              std::size_t input_count = operand_count) {
    static_assert(field_count <= Node::max_fields);
    using Recorded = OperationFrame<operand_count, local_count, Rule>;
    for (const Matrix& local : locals) keep(local);
    for (const Matrix& field : fields) keep(field);
    typename Recorded::Operands held;
    std::move(std::begin(operands), std::end(operands), held.begin());
    const auto needs_gradient = [](const TensorPtr& t) { return t->requires_gradient; };
    const bool any_gradient =
        std::any_of(held.begin(), held.begin() + input_count, needs_gradient);
    output->frame = std::make_shared<Recorded>(std::move(held), std::move(locals),
                                               output->data, std::move(backward));
    if (any_gradient) {
      record_always(output, op, input_count, {fields.data(), field_count});
    }
  }
  // Records whatever the inputs are, as ag_checkpoint() does.
  void record_always(const TensorPtr& output, const char* op, std::size_t input_count,
                     View<Matrix> fields);
  bool recording(const Tensor& operand) const {
    return enabled_ && operand.requires_gradient;
  }

  bool enabled() const { return enabled_; }
  void set_enabled(bool enabled) { enabled_ = enabled; }
  std::vector<Node>& nodes() { return nodes_; }
  std::vector<Node> exchange_nodes(std::vector<Node> nodes);
  void clear_tape();

  // backward(): the gradients of every tensor below `loss`, left in each $grad.
  GradientTable backward(const TensorPtr& loss);
  // The walk itself, shared with the replay of a checkpoint.
  GradientTable walk(TensorId seed, Matrix seed_gradient, const std::vector<Node>& nodes);
  // What backward() and optimizers do where a gradient is already there.
  void accumulate(Tensor& tensor, const Matrix& gradient);

  // The environment of a function that does one step; empty where the loop does it.
  void set_step_frame(BlockRef frame) { step_frame_ = std::move(frame); }

  // An environment, promise or list of arguments that will refer to values: see
  // Collector::hold(). To be released before them. Empty where no collector looks on.
  BlockRef holder();
  // What R's evaluator leaves for the collector; only its model asks.
  void spend(const Garbage& garbage);
  void spend_vectors(Extent count, Bytes bytes_each);

  // .Random.seed: R makes a new vector whenever a draw has used the old one.
  void draw_random_numbers();
  Matrix random_seed();
  void set_random_seed(Matrix seed) { random_seed_ = std::move(seed); }

 private:
  Matrix matrix(Shape shape, Bytes element_bytes);
  Matrix vector(Extent length, Bytes element_bytes);
  void keep(const Matrix& matrix);
  void hold(const BlockRef& block);
  void append(Node node);
  void resize_tape_list(std::size_t length);
  Matrix& entry(GradientTable& gradients, TensorId id);
  void intern_name(TensorId id);

  Heap& heap_;
  Timeline& timeline_;
  std::vector<Node> nodes_;
  BlockRef tape_list_;
  Matrix random_seed_;
  LoadedCode loaded_code_;
  std::vector<bool> named_;  // by tensor id: whether it is a symbol already
  TensorId next_id_ = 1;
  int layer_ = 0;
  const char* operation_ = "";
  bool enabled_ = false;
  BlockRef step_frame_;
};

}  // namespace agbudget
