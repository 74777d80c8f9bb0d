#include "heap.h"

#include <stdexcept>

#include "collector.h"

namespace agbudget {

namespace {

Bytes& of(ComponentBytes& bytes, Component component) {
  return bytes[static_cast<std::size_t>(component)];
}

[[noreturn]] void throw_too_large() {
  throw std::overflow_error("a byte count exceeds 2^63 - 1");
}

}  // namespace

Bytes checked_multiply(Bytes a, Bytes b) {
  Bytes product = 0;
  if (__builtin_mul_overflow(a, b, &product)) throw_too_large();
  return product;
}

Bytes checked_add(Bytes a, Bytes b) {
  Bytes sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) throw_too_large();
  return sum;
}

Bytes vector_heap_bytes(Bytes payload) {
  if (payload <= 0) return 0;
  for (const Bytes size_class : {8, 16, 32, 64, 128}) {
    if (payload <= size_class) return size_class;
  }
  return checked_add(payload, 7) / 8 * 8;
}

void BlockRef::reset() noexcept {
  if (block_ == nullptr) return;
  Block* block = std::exchange(block_, nullptr);
  if (--block->references == 0) block->heap->release(block);
}

BlockRef Heap::allocate(Bytes bytes, Component component, Bytes attribute_bytes) {
  const std::uint32_t ticket =
      collector_ == nullptr ? 0 : collector_->allocate(bytes, attribute_bytes);
  live_ = checked_add(live_, bytes);
  of(live_by_component_, component) += bytes;
  if (live_ > peak_) {
    peak_ = live_;
    peak_by_component_ = live_by_component_;
  }
  return BlockRef(new Block{this, bytes, 0, ticket, component});
}

void Heap::relabel(const BlockRef& block, Component component) {
  if (!block || block->component == component) return;
  of(live_by_component_, block->component) -= block->bytes;
  of(live_by_component_, component) += block->bytes;
  block.block_->component = component;
}

void Heap::claim(const BlockRef& block, Component component) {
  if (block && block->component == Component::temporaries) relabel(block, component);
}

void Heap::root(const BlockRef& block) {
  if (collector_ != nullptr && block) collector_->root(block->ticket);
}

void Heap::hold(const BlockRef& block, const BlockRef& holder) {
  if (collector_ == nullptr || !block || !holder) return;
  collector_->hold(block->ticket, holder->ticket);
}

void Heap::mark() {
  peak_ = live_;
  peak_by_component_ = live_by_component_;
}

void Heap::release(Block* block) noexcept {
  if (collector_ != nullptr) collector_->drop(block->ticket);
  live_ -= block->bytes;
  of(live_by_component_, block->component) -= block->bytes;
  delete block;
}

}  // namespace agbudget
