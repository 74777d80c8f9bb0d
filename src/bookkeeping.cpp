#include "bookkeeping.h"

#include <algorithm>
#include <unordered_map>

namespace agbudget {

namespace {

// R_Newhashpjw() of src/main/envir.c.
std::uint32_t pjw_hash(const std::string& name) {
  std::uint32_t hash = 0;
  for (const char c : name) {
    hash = (hash << 4) + static_cast<std::uint32_t>(c);
    const std::uint32_t high = hash & 0xf0000000U;
    if (high != 0) {
      hash ^= high >> 24;
      hash ^= high;
    }
  }
  return hash;
}

using Functions = std::vector<const char*>;

const std::unordered_map<std::string, Bytes>& function_bytes() {
  static const std::unordered_map<std::string, Bytes> bytes{
      // base
      {"pmax", 10168},
      {"mostattributes<-", 6776},
      {"pmin", 10000},
      {"rowSums", 4856},
      {"colSums", 4984},
      {"rowMeans", 4776},
      {"colMeans", 4856},
      {"mean.default", 4976},
      {"max.col", 1344},
      // ggmlR
      {".ag_wrap_result", 1112},
      {".ag_nrow", 1472},
      {".ag_sel_dim", 1616},
      {"ag_sub", 15080},
      {"ag_mul", 14280},
      {"ag_scale", 4072},
      {"ag_relu", 5096},
      {"ag_sigmoid", 4608},
      {"ag_tanh", 4488},
      {"ag_softmax", 7024},
      {"ag_log_softmax", 6688},
      {"ag_log", 4184},
      {"ag_exp", 4392},
      {"ag_pow", 4296},
      {"ag_clamp", 6704},
      {"ag_sum", 9048},
      {"ag_mean", 10976},
      {"ag_reshape", 6192},
      {"ag_transpose", 3704},
      {"ag_slice_rows", 10832},
      {"ag_concat_rows", 12088},
      {"ag_gather", 6728},
      {"ag_argmax", 5776},
      {"ag_cross_entropy_loss", 5568},
      {"ag_softmax_cross_entropy_loss", 9768},
      {"optimizer_sgd", 11648},
      {"ag_dropout", 5224},
      {"ag_batch_norm", 22336},
      {"ag_layer_norm", 15688},
      {"ag_embedding", 8720},
      {"ag_multihead_attention", 27616},
      {"ag_checkpoint", 25136}};
  return bytes;
}

const std::unordered_map<std::string, Functions>& functions_of() {
  static const std::unordered_map<std::string, Functions> functions{
      {"add", {"rowSums"}},
      {"sub", {"ag_sub"}},
      {"mul", {"ag_mul"}},
      {"scale", {"ag_scale"}},
      {"relu", {"ag_relu", "pmax", "mostattributes<-"}},
      {"sigmoid", {"ag_sigmoid", ".ag_wrap_result"}},
      {"tanh", {"ag_tanh", ".ag_wrap_result"}},
      {"softmax", {"ag_softmax", ".ag_wrap_result", "colSums"}},
      {"log_softmax", {"ag_log_softmax", ".ag_wrap_result", "colSums"}},
      {"log", {"ag_log"}},
      {"exp", {"ag_exp"}},
      {"pow", {"ag_pow"}},
      {"clamp", {"ag_clamp", "pmax", "pmin", "mostattributes<-"}},
      {"sum", {"ag_sum", ".ag_wrap_result", "colSums"}},
      {"mean", {"ag_mean", ".ag_wrap_result", "colMeans"}},
      {"reshape", {"ag_reshape"}},
      {"transpose", {"ag_transpose"}},
      {"slice_rows", {"ag_slice_rows", ".ag_nrow"}},
      {"concat_rows", {"ag_concat_rows", ".ag_nrow"}},
      {"gather", {"ag_gather", ".ag_sel_dim"}},
      {"argmax", {"ag_argmax", "max.col"}},
      {"cross_entropy_loss",
       {"ag_cross_entropy_loss", "pmin", "pmax", "mostattributes<-"}},
      {"softmax_cross_entropy_loss",
       {"ag_softmax_cross_entropy_loss", "pmax", "mostattributes<-", "colSums"}},
      {"sgd", {"optimizer_sgd"}},
      {"dropout", {"ag_dropout"}},
      {"batch_norm", {"ag_batch_norm", "rowMeans", "rowSums"}},
      {"layer_norm", {"ag_layer_norm", "colMeans", "rowSums"}},
      {"embedding", {"ag_embedding"}},
      {"attention", {"ag_multihead_attention"}},
      {"checkpoint", {"ag_checkpoint"}}};
  return functions;
}

}  // namespace

bool NameTable::insert(std::int32_t id) {
  hashes_.push_back(pjw_hash(std::to_string(id)));
  ++taken_;
  if (static_cast<double>(taken_) <= 0.85 * static_cast<double>(slots_)) return false;
  slots_ = static_cast<std::size_t>(static_cast<double>(slots_) * 1.2);
  std::vector<bool> taken(slots_, false);
  for (const std::uint32_t hash : hashes_) taken[hash % slots_] = true;
  taken_ = static_cast<std::size_t>(std::count(taken.begin(), taken.end(), true));
  return true;
}

Bytes LoadedCode::load(const char* operation) {
  if (!seen_.insert(operation).second) return 0;
  const auto functions = functions_of().find(operation);
  if (functions == functions_of().end()) return 0;
  Bytes added = 0;
  for (const char* function : functions->second) {
    if (functions_.insert(function).second) added += function_bytes().at(function);
  }
  added = std::min(added, max_code_bytes - loaded_);
  loaded_ += added;
  return added;
}

}  // namespace agbudget
