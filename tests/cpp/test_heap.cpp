#include <catch2/catch.hpp>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "heap.h"

using agbudget::BlockRef;
using agbudget::Bytes;
using agbudget::Component;
using agbudget::Heap;

namespace {

Bytes of(const Heap& heap, Component component) {
  return heap.live_by_component()[static_cast<std::size_t>(component)];
}

Bytes sum(const agbudget::ComponentBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), Bytes{0});
}

}  // namespace

TEST_CASE("a block is live from its allocation to its last reference") {
  Heap heap;
  {
    BlockRef first = heap.allocate(100, Component::weights);
    CHECK(heap.live() == 100);
    BlockRef second = first;
    first.reset();
    CHECK_FALSE(first);
    CHECK(heap.live() == 100);
    const BlockRef third = std::move(second);
    CHECK_FALSE(second);  // NOLINT: what a move leaves is part of the contract
    CHECK(heap.live() == 100);
    CHECK(third->references == 1);
  }
  CHECK(heap.live() == 0);
  CHECK(heap.peak() == 100);
}

TEST_CASE("assignment releases what was held, also from itself") {
  Heap heap;
  BlockRef a = heap.allocate(10, Component::weights);
  BlockRef b = heap.allocate(20, Component::weights);
  a = b;
  CHECK(heap.live() == 20);
  BlockRef& self = a;
  a = self;
  CHECK(heap.live() == 20);
  CHECK(a->references == 2);
  a = BlockRef();
  b = BlockRef();
  CHECK(heap.live() == 0);
}

TEST_CASE("resetting an empty reference does nothing") {
  BlockRef empty;
  empty.reset();
  CHECK_FALSE(empty);
  CHECK(empty.get() == nullptr);
}

TEST_CASE("the peak is the highest since the mark") {
  Heap heap;
  BlockRef a = heap.allocate(100, Component::weights);
  { const BlockRef b = heap.allocate(50, Component::temporaries); }
  CHECK(heap.peak() == 150);
  heap.mark();
  CHECK(heap.peak() == 100);
  { const BlockRef c = heap.allocate(10, Component::temporaries); }
  CHECK(heap.peak() == 110);
  a.reset();
  CHECK(heap.peak() == 110);
  heap.mark();
  CHECK(heap.peak() == 0);
}

TEST_CASE("components add up, at every moment and at the peak") {
  Heap heap;
  const BlockRef a = heap.allocate(100, Component::weights);
  BlockRef b = heap.allocate(50, Component::temporaries);
  const BlockRef c = heap.allocate(0, Component::batch);
  CHECK(sum(heap.live_by_component()) == heap.live());
  CHECK(sum(heap.peak_by_component()) == heap.peak());
  b.reset();
  CHECK(sum(heap.live_by_component()) == 100);
  CHECK(sum(heap.peak_by_component()) == 150);
}

TEST_CASE("relabelling moves a block's bytes between components") {
  Heap heap;
  BlockRef a = heap.allocate(100, Component::temporaries);
  heap.relabel(a, Component::weights);
  CHECK(of(heap, Component::weights) == 100);
  CHECK(of(heap, Component::temporaries) == 0);
  heap.relabel(a, Component::weights);
  CHECK(of(heap, Component::weights) == 100);
  heap.relabel(BlockRef(), Component::weights);
  CHECK(heap.live() == 100);
  a.reset();
  CHECK(of(heap, Component::weights) == 0);
}

TEST_CASE("claiming takes temporaries only") {
  Heap heap;
  const BlockRef a = heap.allocate(100, Component::temporaries);
  const BlockRef b = heap.allocate(10, Component::weights);
  heap.claim(a, Component::activations);
  heap.claim(b, Component::activations);
  heap.claim(a, Component::gradients);
  heap.claim(BlockRef(), Component::gradients);
  CHECK(of(heap, Component::activations) == 100);
  CHECK(of(heap, Component::weights) == 10);
  CHECK(of(heap, Component::gradients) == 0);
}

TEST_CASE("counts throw rather than wrap") {
  constexpr Bytes largest = std::numeric_limits<Bytes>::max();
  CHECK(agbudget::checked_multiply(1LL << 31, 1LL << 31) == 1LL << 62);
  CHECK_THROWS_AS(agbudget::checked_multiply(1LL << 32, 1LL << 31), std::overflow_error);
  CHECK(agbudget::checked_add(largest - 1, 1) == largest);
  CHECK_THROWS_AS(agbudget::checked_add(largest, 1), std::overflow_error);
  CHECK_THROWS_AS(agbudget::vector_heap_bytes(largest), std::overflow_error);

  Heap heap;
  // Beyond 2^53 R's doubles would not hold every count.
  constexpr Bytes exact = Bytes{1} << 53;
  const BlockRef a = heap.allocate(exact - 8, Component::weights);
  CHECK_THROWS_AS(heap.allocate(16, Component::weights), std::overflow_error);
  CHECK_THROWS_AS(heap.allocate(largest, Component::weights), std::overflow_error);
  CHECK(heap.live() == exact - 8);
  CHECK(of(heap, Component::weights) == exact - 8);
  const BlockRef b = heap.allocate(8, Component::weights);
  CHECK(heap.peak() == exact);
}
