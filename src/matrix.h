#pragma once

#include "heap.h"

namespace agbudget {

struct Shape {
  Extent rows = 0;
  Extent cols = 0;

  Extent length() const { return checked_multiply(rows, cols); }
  bool operator==(const Shape& other) const {
    return rows == other.rows && cols == other.cols;
  }
  bool operator!=(const Shape& other) const { return !(*this == other); }
};

constexpr Bytes bytes_per_double = 8;
constexpr Bytes bytes_per_integer = 4;  // logicals too
constexpr Bytes bytes_per_pointer = 8;
// R's `dim` attribute is an integer vector of two.
constexpr Bytes dim_bytes = 8;

// An R matrix or vector without its values. Copies share the block, as R's
// bindings share a value; an empty one stands for R's NULL, which has no shape.
struct Matrix {
  BlockRef block;

  explicit operator bool() const { return static_cast<bool>(block); }
  Shape shape() const { return {block->form.rows, block->form.cols}; }
  bool has_dim() const { return block->form.has_dim; }
  Bytes element_bytes() const { return block->form.element_bytes; }
};

// What object.size() says of it: the header, the data, and for a matrix the
// `dim` attribute with its list cell and symbol (src/main/size.c). Its size classes
// are not quite those of the heap: it knows one of 48 bytes.
inline Bytes object_size(const Matrix& matrix) {
  constexpr Bytes header = 48;
  constexpr Bytes dim_attribute = 168;
  if (!matrix) return 0;
  const Bytes payload = checked_multiply(matrix.shape().length(), matrix.element_bytes());
  const Bytes data = payload > 32 && payload <= 48 ? 48 : vector_heap_bytes(payload);
  return header + data + (matrix.has_dim() ? dim_attribute : 0);
}

}  // namespace agbudget
