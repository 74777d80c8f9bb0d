#pragma once

#include <map>
#include <string>
#include <vector>

#include "tape.h"

namespace agbudget {

// What ag_tape_memory() (R/ag_tape_memory.R) reports, in object.size() bytes: each
// matrix once, charged to operands first, then to what closures captured, then to
// the fields recorded beside them.
struct TapeReport {
  struct Operation {
    std::int64_t nodes = 0;
    Bytes bytes = 0;
  };
  std::int64_t nodes = 0;
  Bytes operands = 0;
  Bytes activations = 0;
  Bytes fields = 0;
  std::map<std::string, Operation> by_operation;
  // Beside ggmlR's figures: what each layer's nodes keep, its parameters left out.
  std::vector<Bytes> by_layer;
};

TapeReport report_tape(const std::vector<Node>& nodes, std::size_t layer_count);

}  // namespace agbudget
