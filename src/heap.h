#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace agbudget {

using Bytes = std::int64_t;
using Extent = std::int64_t;

// What a block of memory is for. Every live block has exactly one owner, so the
// components of a peak add up by construction.
enum class Component : std::uint8_t {
  batch,
  weights,
  superseded_weights,
  gradients,
  optimizer_state,
  activations,
  activation_gradients,
  temporaries,
  bookkeeping
};

// R's numbers are doubles.
constexpr Bytes largest_exact = Bytes{1} << 53;

constexpr std::size_t component_count = 9;
using ComponentBytes = std::array<Bytes, component_count>;

[[noreturn]] void throw_too_large();

// Products and sums of counts that throw std::overflow_error rather than wrap.
inline Bytes checked_multiply(Bytes a, Bytes b) {
  Bytes product = 0;
  if (__builtin_mul_overflow(a, b, &product)) throw_too_large();
  return product;
}

inline Bytes checked_add(Bytes a, Bytes b) {
  Bytes sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) throw_too_large();
  return sum;
}

// Bytes a vector's data takes in R's vector heap (src/main/memory.c): up to 128
// bytes R rounds up to one of five classes, beyond that to whole 8-byte words.
// The header is a cons cell and is not counted there.
inline Bytes vector_heap_bytes(Bytes payload) {
  if (payload > 128) return checked_add(payload, 7) / 8 * 8;
  if (payload > 64) return 128;
  if (payload > 32) return 64;
  if (payload > 16) return 32;
  if (payload > 8) return 16;
  return payload > 0 ? 8 : 0;
}

class Collector;
class Heap;

// What R would say of a vector's elements: dim() and typeof().
struct Form {
  Extent rows = 0;
  Extent cols = 0;
  bool has_dim = true;
  std::uint8_t element_bytes = 8;
};

// One vector on the heap. It is released when its last BlockRef goes.
struct Block {
  union {
    Heap* heap;
    Block* next_free;  // in the heap's list of spare records
  };
  Bytes bytes;
  Form form;
  Component component;
  std::uint32_t references;
  std::uint32_t ticket;  // of the collector, where one looks on
};

class BlockRef {
 public:
  BlockRef() = default;
  explicit BlockRef(Block* block) : block_(block) { ++block_->references; }
  BlockRef(const BlockRef& other) : block_(other.block_) {
    if (block_ != nullptr) ++block_->references;
  }
  BlockRef(BlockRef&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  BlockRef& operator=(BlockRef other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~BlockRef() { reset(); }

  inline void reset() noexcept;
  explicit operator bool() const { return block_ != nullptr; }
  const Block* get() const { return block_; }
  const Block* operator->() const { return block_; }

 private:
  friend class Heap;
  Block* block_ = nullptr;
};

// A heap that only counts: it knows how much is live and for what, and holds no
// values. It must outlive every block allocated on it.
class Heap {
 public:
  Heap() = default;
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // Has each allocation and release reported to a model of R's collector.
  void set_collector(Collector* collector) { collector_ = collector; }
  Collector* collector() { return collector_; }

  // Allocates `bytes`, which the caller has rounded (vector_heap_bytes()). The last
  // `attribute_bytes` of them are vectors of their own.
  BlockRef allocate(Bytes bytes, Component component, Bytes attribute_bytes = 0,
                    const Form& form = Form());
  // What R never frees, such as symbols and code: no block is needed to count it.
  void allocate_permanent(Bytes bytes, Component component);
  // What refers to a block, for the collector's model: see there.
  void root(const BlockRef& block);
  void hold(const BlockRef& block, const BlockRef& holder);
  void relabel(const BlockRef& block, Component component);
  // Relabels only what is still a temporary: a value keeps its first owner.
  void claim(const BlockRef& block, Component component);

  Bytes live() const { return live_; }
  const ComponentBytes& live_by_component() const { return live_by_component_; }

  // The highest live bytes since the last mark(), and who owned them then.
  void mark();
  Bytes peak() const { return peak_; }
  const ComponentBytes& peak_by_component() const { return peak_by_component_; }

 private:
  friend class BlockRef;
  void add_live(Bytes bytes, Component component);
  Block* spare_record();
  void release(Block* block) noexcept;

  // A replay makes and drops hundreds of records an operation: they are recycled.
  std::vector<std::unique_ptr<Block[]>> records_;
  Block* free_records_ = nullptr;
  Collector* collector_ = nullptr;
  Bytes live_ = 0;
  Bytes peak_ = 0;
  ComponentBytes live_by_component_{};
  ComponentBytes peak_by_component_{};
};

inline void BlockRef::reset() noexcept {
  if (block_ == nullptr) return;
  Block* block = std::exchange(block_, nullptr);
  if (--block->references == 0) block->heap->release(block);
}

}  // namespace agbudget
