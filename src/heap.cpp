#include "heap.h"

#include <stdexcept>

#include "collector.h"

namespace agbudget {

namespace {

Bytes& of(ComponentBytes& bytes, Component component) {
  return bytes[static_cast<std::size_t>(component)];
}

}  // namespace

void throw_too_large() { throw std::overflow_error("a byte count exceeds 2^53"); }

Block* Heap::spare_record() {
  constexpr std::size_t chunk = 256;
  if (free_records_ == nullptr) {
    records_.push_back(std::make_unique<Block[]>(chunk));
    for (std::size_t i = 0; i < chunk; ++i) {
      Block* record = &records_.back()[i];
      record->next_free = free_records_;
      free_records_ = record;
    }
  }
  return std::exchange(free_records_, free_records_->next_free);
}

void Heap::add_live(Bytes bytes, Component component) {
  const Bytes live = checked_add(live_, bytes);
  if (live > largest_exact) throw_too_large();
  live_ = live;
  of(live_by_component_, component) += bytes;
  if (live_ > peak_) {
    peak_ = live_;
    peak_by_component_ = live_by_component_;
  }
}

void Heap::allocate_permanent(Bytes bytes, Component component) {
  if (collector_ != nullptr) collector_->allocate_permanent(bytes);
  add_live(bytes, component);
}

BlockRef Heap::allocate(Bytes bytes, Component component, Bytes attribute_bytes,
                        const Form& form) {
  const std::uint32_t ticket =
      collector_ == nullptr ? 0 : collector_->allocate(bytes, attribute_bytes);
  add_live(bytes, component);
  Block* block = spare_record();
  block->heap = this;
  block->bytes = bytes;
  block->form = form;
  block->references = 0;
  block->ticket = ticket;
  block->component = component;
  return BlockRef(block);
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
  block->next_free = free_records_;
  free_records_ = block;
}

}  // namespace agbudget
