#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "matrix.h"

namespace agbudget {

// Sizes of what R and ggmlR keep beside the matrices: hashed environments, lists
// and their names, and the code of functions. Rules of R 4.2 (src/main/envir.c,
// memory.c) and of the objects that ggmlR's R/autograd.R makes; each was compared with
// what gc() reports over a thousand calls.

inline Bytes list_bytes(std::size_t length) {
  return vector_heap_bytes(static_cast<Bytes>(length) * bytes_per_pointer);
}

// ag_tensor(): the environment's table of 29 slots and its integer id.
constexpr Bytes tensor_environment_bytes = 29 * bytes_per_pointer + 8;

// ag_record(): the node's list and its names, the list of inputs and its names.
inline Bytes node_bytes(std::size_t inputs, std::size_t fields) {
  return 2 * list_bytes(4 + fields) + 2 * list_bytes(inputs);
}

// What evaluating ggmlR's code leaves behind beside its vectors: nodes (promises,
// environments, list cells) and small vectors. Estimates, from gc()'s counts on
// matrices of 3 x 3: an operation takes 420 to 1090 nodes, layers by their operations.
struct Garbage {
  std::int64_t nodes;
  Bytes bytes;
};
constexpr Garbage forward_cells{450, 900};
constexpr std::int32_t recorded_nodes = 40;  // kept with the result
constexpr std::int32_t gradient_nodes = 8;   // with its name
constexpr Garbage backward_cells{430, 900};
constexpr Garbage optimizer_cells{550, 1500};
// ggmlR's code is loaded from its data base when it first runs.
constexpr Garbage loading_constructors{3000, 160000};
constexpr Garbage loading_operations{3000, 110000};
constexpr Garbage loading_backward{7000, 400000};

// Code that an R which has trained before holds and one that builds its first model does
// not. A constant like those of LoadedCode, and like them kept below 200 kB: 220 to 237
// kB were measured.
constexpr Bytes loop_code_bytes = 195000;

// A name in an environment becomes a symbol, which R never frees. Ids are short.
constexpr Bytes symbol_bytes = 8;

// Mersenne Twister with inversion: 626 integers.
constexpr Extent random_seed_length = 626;

// The table of `new.env(hash = TRUE)`, by the ids that ggmlR uses as names.
//
// R counts a slot as taken for every new name, and grows the table by 1.2 when that
// exceeds 85 % of the slots; moving to the new table, it counts anew, and now only
// slots that really are (R_HashSet(), R_HashResize()).
class NameTable {
 public:
  // Returns whether the table grew.
  bool insert(std::int32_t id);
  Bytes bytes() const { return list_bytes(slots_); }

 private:
  std::vector<std::uint32_t> hashes_;
  std::size_t slots_ = 29;
  std::size_t taken_ = 0;
};

// R loads a function's code when it is first called, and keeps it. These are measured
// constants (bytes of byte code and constants), not rules; together they are never
// counted as more than `max_code_bytes`. Functions that the smallest training run
// calls, with which an idle R is compared, are not among them.
class LoadedCode {
 public:
  // What calling `operation` adds to what has been loaded.
  Bytes load(const char* operation);

 private:
  static constexpr Bytes max_code_bytes = 200000;

  std::unordered_set<const char*> seen_;
  std::unordered_set<std::string> functions_;
  Bytes loaded_ = 0;
};

}  // namespace agbudget
