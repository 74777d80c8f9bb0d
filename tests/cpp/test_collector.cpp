#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <utility>
#include <vector>

#include "allocator_model.h"
#include "collector.h"
#include "program.h"
#include "training_step.h"

using agbudget::AllocatorModel;
using agbudget::Bytes;
using agbudget::Collector;
using Ticket = Collector::Ticket;
using Collections = std::array<int, Collector::levels>;

namespace {

constexpr Bytes megabyte = 1000000;
// R_VSIZE of Defn.h, and what an R that has loaded ggmlR uses of it.
constexpr Bytes first_limit = 67108864;
constexpr Bytes idle_live = 6420000;
constexpr Bytes idle_garbage = 100000;

Ticket keep(Collector& collector, Bytes bytes) { return collector.allocate(bytes, 0); }

void waste(Collector& collector, Bytes bytes) {
  collector.drop(collector.allocate(bytes, 0));
}

// A stack of dense layers of one width, as R's front end would trace it.
agbudget::Program dense_layers(int count, std::int64_t width, std::int64_t batch) {
  using agbudget::Opcode;
  agbudget::Program program;
  std::vector<agbudget::ValueId> parameters;
  for (int i = 0; i < count; ++i) {
    parameters.push_back(program.append(Opcode::parameter, {}, {width, width, 1}));
    parameters.push_back(program.append(Opcode::parameter, {}, {width, 1, 0}));
  }
  for (const agbudget::ValueId id : parameters) program.set_requires_gradient(id, true);
  program.begin_forward();
  agbudget::ValueId x = program.append(Opcode::input, {}, {width, batch, 0, 1});
  for (std::size_t i = 0; i < parameters.size(); i += 2) {
    x = program.append(Opcode::linear, {x, parameters[i], parameters[i + 1]}, {1});
  }
  program.set_output(x);
  program.set_parameters(parameters);
  return program;
}

agbudget::TrainingRecord train(int layers, std::int64_t width, std::int64_t batch,
                               agbudget::Loop loop, bool resident = true) {
  agbudget::TrainingPlan plan;
  plan.input = {width, batch};
  plan.loop = loop;
  plan.resident = resident;
  return agbudget::run_training(dense_layers(layers, width, batch), plan);
}

}  // namespace

TEST_CASE("nothing is collected while R's first limit is not reached") {
  Collector collector;
  CHECK(collector.limit() == first_limit);
  CHECK(collector.used() == idle_live + idle_garbage);
  keep(collector, 30 * megabyte);
  waste(collector, 20 * megabyte);
  CHECK(collector.used() == idle_live + idle_garbage + 50 * megabyte);
  CHECK(collector.collections() == Collections{0, 0, 0});
}

TEST_CASE("a full collection grows the limit as AdjustHeapSize() does") {
  Collector collector;
  keep(collector, 40 * megabyte);
  keep(collector, 40 * megabyte);
  // In words: 802500 + 5000000 live, 5000000 asked for, 0.2 of 8388608 to be free:
  // 12480221. That is all of the limit and more, so 80000 and 0.2 of it are added.
  CHECK(collector.limit() == 8 * (12480221 + 80000 + 2496044));
  // Three passes, one collection.
  CHECK(collector.collections() == Collections{0, 0, 1});
  CHECK(collector.used() == idle_live + 80 * megabyte);
}

TEST_CASE("the level rises by one where a collection leaves less than a fifth free") {
  Collector collector;
  for (int i = 0; i < 5; ++i) keep(collector, 10 * megabyte);
  waste(collector, 10 * megabyte);
  waste(collector, 10 * megabyte);
  CHECK(collector.collections() == Collections{1, 0, 0});
  waste(collector, 10 * megabyte);
  CHECK(collector.collections() == Collections{1, 1, 0});
  CHECK(collector.limit() == first_limit);
  waste(collector, 10 * megabyte);
  CHECK(collector.collections() == Collections{1, 1, 1});
  CHECK(collector.limit() > first_limit);
}

TEST_CASE("every twenty-first young collection is a level higher") {
  Collector collector;
  // Two of the twenty were before the first allocation.
  for (int i = 0; i < 19 * 6; ++i) waste(collector, 10 * megabyte);
  CHECK(collector.collections() == Collections{18, 0, 0});
  for (int i = 0; i < 6; ++i) waste(collector, 10 * megabyte);
  CHECK(collector.collections() == Collections{18, 1, 0});
}

TEST_CASE("a value that survived is not released by a young collection") {
  Collector collector;
  const Ticket value = keep(collector, 10 * megabyte);
  for (int i = 0; i < 6; ++i) waste(collector, 10 * megabyte);
  REQUIRE(collector.collections() == Collections{1, 0, 0});
  collector.drop(value);
  for (int i = 0; i < 5; ++i) waste(collector, 10 * megabyte);
  REQUIRE(collector.collections() == Collections{2, 0, 0});
  // The dead value, and what was asked for last.
  CHECK(collector.used() == idle_live + 20 * megabyte);
}

TEST_CASE("a dead value is kept by what it was reached from and is older") {
  Collector collector;
  const Ticket holder = keep(collector, 0);
  const Ticket beside = keep(collector, 0);
  for (int i = 0; i < 7; ++i) waste(collector, 10 * megabyte);
  REQUIRE(collector.collections() == Collections{1, 0, 0});
  const Ticket held = keep(collector, 8 * megabyte);
  const Ticket let_go = keep(collector, 9 * megabyte);
  collector.hold(held, holder);
  collector.hold(let_go, beside);
  // The one goes with its holder, the other is let go by it.
  collector.drop(holder);
  collector.drop(held);
  collector.drop(let_go);
  for (int i = 0; i < 4; ++i) waste(collector, 10 * megabyte);
  REQUIRE(collector.collections() == Collections{2, 0, 0});
  CHECK(collector.used() == idle_live + 8 * megabyte + 10 * megabyte);
}

TEST_CASE("R collects where its nodes run out, too") {
  Collector collector;
  for (int i = 0; i < 149; ++i) collector.spend(1000, 0);
  CHECK(collector.collections() == Collections{0, 0, 0});
  for (int i = 0; i < 2; ++i) collector.spend(1000, 0);
  CHECK(collector.collections() == Collections{1, 0, 0});
}

TEST_CASE("what is live never exceeds what R counts, nor that the limit") {
  Collector collector;
  std::vector<std::pair<Ticket, Bytes>> live;
  Bytes live_bytes = 0;
  std::uint32_t state = 1;
  for (int i = 0; i < 20000; ++i) {
    state = state * 1664525u + 1013904223u;
    if (live.size() > 40 || (state >> 20) % 2 == 0) {
      if (live.empty()) continue;
      const std::size_t which = (state >> 8) % live.size();
      collector.drop(live[which].first);
      live_bytes -= live[which].second;
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
    } else {
      const Bytes bytes = 8 * ((state >> 8) % 500000);
      live.emplace_back(collector.allocate(bytes, 0), bytes);
      live_bytes += bytes;
    }
    REQUIRE(live_bytes + idle_live <= collector.used());
    REQUIRE(collector.used() <= collector.limit());
  }
}

TEST_CASE("a process takes at least the peak of the heap") {
  const auto loop = GENERATE(agbudget::Loop::retained, agbudget::Loop::released);
  const auto record = train(4, 512, 256, loop);
  CHECK(record.resident_bytes > record.peak().live);
  CHECK(record.resident_bytes < 3 * record.peak().live);
}

TEST_CASE("the model of the collector repeats itself and changes nothing else") {
  const auto first = train(6, 300, 200, agbudget::Loop::retained);
  const auto second = train(6, 300, 200, agbudget::Loop::retained);
  const auto without = train(6, 300, 200, agbudget::Loop::retained, false);
  CHECK(first.resident_bytes == second.resident_bytes);
  CHECK(first.collections == second.collections);
  CHECK(without.resident_bytes == 0);
  CHECK(first.peak().live == without.peak().live);
  CHECK(first.peak_event == without.peak_event);
}

TEST_CASE("malloc maps a large block and gives it back") {
  AllocatorModel allocator;
  const auto block = allocator.allocate(megabyte);
  CHECK(allocator.resident() == 1003520);  // 245 pages
  allocator.release(block);
  CHECK(allocator.resident() == 0);
  CHECK(allocator.resident_peak() == 1003520);
}

TEST_CASE("once a mapped block was freed, blocks of its size stay in the heap") {
  AllocatorModel allocator;
  allocator.release(allocator.allocate(megabyte));
  const auto first = allocator.allocate(megabyte);
  const auto second = allocator.allocate(megabyte);
  const Bytes both = allocator.resident();
  CHECK(both == 2 * 1000016);
  allocator.release(first);  // in the middle: nothing to trim
  CHECK(allocator.resident() == both);

  SECTION("the smallest hole that fits is used again") {
    allocator.allocate(600000);
    allocator.allocate(300000);
    CHECK(allocator.resident() == both);
  }
  SECTION("neighbours coalesce, and the end is trimmed from twice the size on") {
    const auto third = allocator.allocate(1000100);
    allocator.release(second);
    CHECK(allocator.resident() == both + 1000112);
    allocator.release(third);
    CHECK(allocator.resident() < 200000);
  }
}
