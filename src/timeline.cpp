#include "timeline.h"

#include <algorithm>

#include "bookkeeping.h"

namespace agbudget {

void Timeline::start(int layer, const char* operation) {
  constexpr std::uint32_t events_between_polls = 4096;
  if (++started_ % events_between_polls == 0 && poll_) poll_();
  finish();
  layer_ = layer;
  operation_ = operation;
  heap_.mark();
}

void Timeline::finish() {
  if (operation_ == nullptr) return;
  Event event{step_, phase_, layer_, operation_, heap_.peak(), heap_.peak_by_component()};
  operation_ = nullptr;
  if (phase_ == Phase::setup) {
    const Bytes missing = std::min(loop_code_bytes, event.live);
    event.live -= missing;
    event.components[static_cast<std::size_t>(Component::bookkeeping)] -= missing;
  }
  if (keeps_all_ || events_.empty()) {
    events_.push_back(event);
  } else if (event.live > events_.front().live) {
    events_.front() = event;
  }
}

std::size_t Timeline::highest() const {
  const auto found =
      std::max_element(events_.begin(), events_.end(),
                       [](const Event& a, const Event& b) { return a.live < b.live; });
  return static_cast<std::size_t>(found - events_.begin());
}

}  // namespace agbudget
