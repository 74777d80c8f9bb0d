// Runs single rules of the core and says what they took, R's own bookkeeping left out.

#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "tape.h"

namespace counting {

using agbudget::Bytes;
using agbudget::Component;
using agbudget::Extent;

// Sizes as a reader would work them out: doubles and integers, and a `dim` of two
// integers. Extents are chosen so that nothing is rounded.
constexpr Bytes doubles(Extent n) { return 8 * n; }
constexpr Bytes ints(Extent n) { return (4 * n + 7) / 8 * 8; }
constexpr Bytes dims = 8;
constexpr Bytes matrix(Extent rows, Extent cols) { return doubles(rows * cols) + dims; }
constexpr Bytes logical(Extent rows, Extent cols) { return ints(rows * cols) + dims; }

// Bytes that equal what a reader works out, but for the few single numbers (lengths,
// scalars: 8 bytes each) that every node keeps beside its matrices.
struct Amount {
  Bytes bytes = 0;
  Bytes numbers = 0;

  bool operator==(Bytes expected) const {
    return bytes >= expected && bytes <= expected + numbers;
  }
};

inline std::ostream& operator<<(std::ostream& stream, const Amount& amount) {
  return stream << amount.bytes;
}

// What one operation took, over what was live before it.
struct Taken {
  Amount kept;              // after the forward pass, with the tape on
  Amount forward_peak;      // while it ran
  Bytes backward_peak = 0;  // while its backward rule ran
  Bytes gradients = 0;      // what that leaves
};

class Bench {
 public:
  Bench() { engine.set_enabled(true); }

  agbudget::TensorPtr constant(Extent rows, Extent cols) {
    return engine.tensor(engine.real({rows, cols}));
  }
  agbudget::TensorPtr parameter(Extent rows, Extent cols) {
    agbudget::TensorPtr tensor =
        engine.tensor(engine.real({rows, cols}), Component::weights);
    tensor->requires_gradient = true;
    tensor->is_parameter = true;
    return tensor;
  }
  // A plain matrix, or a vector where `has_dim` is false.
  agbudget::TensorPtr plain(Extent rows, Extent cols, bool has_dim = true) {
    return agbudget::plain(has_dim ? engine.real({rows, cols})
                                   : engine.reals(rows * cols));
  }

  Bytes live() const {
    return without_bookkeeping(heap.live(), heap.live_by_component());
  }
  Bytes peak() const {
    return without_bookkeeping(heap.peak(), heap.peak_by_component());
  }

  // The forward pass alone.
  template <typename Operation>
  Taken forward(Operation operation) {
    Taken taken;
    const Bytes before = live();
    const std::size_t nodes = engine.nodes().size();
    // An operation may consist of several, each of which marks the heap.
    timeline.finish();
    const std::size_t first = timeline.events().size();
    output = operation();
    timeline.finish();
    for (std::size_t i = first; i < timeline.events().size(); ++i) {
      const agbudget::Event& event = timeline.events()[i];
      const Bytes bytes = without_bookkeeping(event.live, event.components) - before;
      taken.forward_peak.bytes = std::max(taken.forward_peak.bytes, bytes);
    }
    taken.kept.bytes = live() - before;
    const Bytes numbers = 24 * static_cast<Bytes>(engine.nodes().size() - nodes);
    taken.kept.numbers = taken.forward_peak.numbers = numbers;
    return taken;
  }

  // And the last node's backward rule, given a gradient of the output's shape.
  template <typename Operation>
  Taken run(Operation operation) {
    Taken taken = forward(operation);
    REQUIRE(output->frame != nullptr);
    const agbudget::Matrix gradient = engine.real(output->shape());
    const Bytes before = live();
    heap.mark();
    gradients = output->frame->backward(gradient);
    taken.backward_peak = peak() - before;
    taken.gradients = live() - before;
    return taken;
  }

  agbudget::Heap heap;
  agbudget::Timeline timeline{heap};
  agbudget::Engine engine{heap, timeline};
  agbudget::TensorPtr output;
  agbudget::Gradients gradients;

 private:
  static Bytes without_bookkeeping(Bytes bytes, const agbudget::ComponentBytes& of) {
    return bytes - of[static_cast<std::size_t>(Component::bookkeeping)];
  }
};

}  // namespace counting
