#pragma once

#include <cstddef>

#include "matrix.h"

namespace agbudget {

// Sizes of what R and ggmlR keep beside the matrices: hashed environments, lists
// and their names. Rules of R 4.2 (src/main/envir.c, memory.c) and of the objects
// that R/autograd.R makes.

inline Bytes list_bytes(std::size_t length) {
  return vector_heap_bytes(static_cast<Bytes>(length) * bytes_per_pointer);
}

// new.env() has a table of 29 slots; R_HashResize() grows it by 1.2 when 85 % of
// the slots are taken.
inline Bytes hash_table_bytes(std::size_t entries) {
  std::size_t slots = 29;
  while (static_cast<double>(entries) > 0.85 * static_cast<double>(slots)) {
    slots = static_cast<std::size_t>(static_cast<double>(slots) * 1.2);
  }
  return list_bytes(slots);
}

// ag_tensor(): the environment's table, its integer id, and the class.
constexpr Bytes tensor_environment_bytes = 29 * bytes_per_pointer + 8 + 16;

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
constexpr Garbage forward_cells{500, 900};
constexpr Garbage backward_cells{430, 900};
constexpr Garbage optimizer_cells{550, 1500};
// ggmlR's code is loaded from its data base when it first runs.
constexpr Garbage loading_constructors{3000, 160000};
constexpr Garbage loading_operations{3000, 110000};
constexpr Garbage loading_backward{7000, 400000};

// Mersenne Twister with inversion: 626 integers.
constexpr Extent random_seed_length = 626;

}  // namespace agbudget
