#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "heap.h"

namespace agbudget {

enum class Phase : std::uint8_t { setup, forward, backward, step };

// The highest live bytes while one operation ran, above an idle R that has trained
// before, and who owned them. While the model is built R has not loaded the training
// loop's code yet, so bookkeeping may then be negative.
struct Event {
  int step;
  Phase phase;
  int layer;
  const char* operation;  // a literal
  Bytes live;
  ComponentBytes components;
};

// Cuts the heap's history into events. Starting one ends the one before, so every
// allocation belongs to exactly one event.
class Timeline {
 public:
  // Without `keeps_all` only the highest event is kept.
  explicit Timeline(Heap& heap, bool keeps_all = true)
      : heap_(heap), keeps_all_(keeps_all) {}

  // Called every few thousand events, so that a long replay can be ended.
  void set_poll(std::function<void()> poll) { poll_ = std::move(poll); }

  void enter(int step, Phase phase) {
    finish();
    step_ = step;
    phase_ = phase;
  }
  void start(int layer, const char* operation);
  void finish();

  const std::vector<Event>& events() const { return events_; }
  std::vector<Event> take_events() { return std::move(events_); }
  // Index of the first event that reaches the highest live bytes.
  std::size_t highest() const;

 private:
  Heap& heap_;
  bool keeps_all_;
  int step_ = 0;
  Phase phase_ = Phase::setup;
  int layer_ = 0;
  const char* operation_ = nullptr;
  std::vector<Event> events_;
  std::function<void()> poll_;
  std::uint32_t started_ = 0;
};

}  // namespace agbudget
