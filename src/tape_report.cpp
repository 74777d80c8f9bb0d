#include "tape_report.h"

#include <unordered_set>

namespace agbudget {

TapeReport report_tape(const std::vector<Node>& nodes, std::size_t layer_count) {
  TapeReport report;
  report.by_layer.assign(layer_count, 0);
  std::unordered_set<const Block*> seen;
  const auto first_size = [&seen](const Matrix& matrix) -> Bytes {
    if (!matrix || !seen.insert(matrix.block.get()).second) return 0;
    return object_size(matrix);
  };

  for (const Node& node : nodes) {
    Bytes parameters = 0;
    Bytes operands = 0;
    for (const TensorPtr& input : node.inputs()) {
      if (!input->is_tensor) continue;
      const Bytes bytes = first_size(input->data);
      operands += bytes;
      if (input->is_parameter) parameters += bytes;
    }
    Bytes activations = 0;
    for (const Matrix& local : node.frame->locals()) activations += first_size(local);
    Bytes fields = 0;
    for (const Matrix& field : node.fields) fields += first_size(field);

    const Bytes total = operands + activations + fields;
    TapeReport::Operation& operation =
        report.by_operation[node.op == nullptr ? "<closure only>" : node.op];
    ++operation.nodes;
    operation.bytes += total;
    ++report.nodes;
    report.operands += operands;
    report.activations += activations;
    report.fields += fields;
    report.by_layer[static_cast<std::size_t>(node.layer)] += total - parameters;
  }
  return report;
}

}  // namespace agbudget
