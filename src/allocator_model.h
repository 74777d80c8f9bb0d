#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "heap.h"
#include "pool.h"

namespace agbudget {

// The C library's allocator as far as it decides how much of a process is resident:
// glibc's malloc (malloc/malloc.c, 2.36; mallopt(3) documents the thresholds). Large
// blocks are mapped and unmapped; the others come from one growing area, from the
// smallest free chunk that fits, the latest of that size, else from its end. What is free
// in the middle of the area stays resident. Once a mapped block is freed, blocks of up to
// its size are no longer mapped, and the area is trimmed only where twice that is free at
// its end.
//
// Left out: the caches of freed small chunks, arenas of other threads.
class AllocatorModel {
 public:
  using Chunk = std::uint32_t;

  Chunk allocate(Bytes bytes);
  void release(Chunk chunk);

  // As if a mapped block of this size had been freed before.
  void set_threshold(Bytes bytes);

  Bytes resident() const { return touched_ + mapped_; }
  Bytes resident_peak() const { return peak_; }

 private:
  struct Piece {
    Bytes size;
    Chunk before;
    Chunk after;
    bool is_free;
    bool is_mapped;
    Chunk newer;  // of the free ones of its size
    Chunk older;
  };
  // The latest free chunk of each size.
  using Bins = std::map<Bytes, Chunk>;

  void add_free(Chunk chunk);
  void remove_free(Chunk chunk);
  void split(Chunk chunk, Bytes size);
  void extend(Bytes size);
  void trim();
  void join(Chunk left, Chunk right);

  Pool<Piece> pieces_;
  Bins bins_;
  std::vector<Bins::node_type> spare_bins_;  // making one costs more than the search
  Chunk last_ = no_chunk;                    // the piece before the area's free end
  Bytes end_of_pieces_ = 0;                  // where that free end, `top`, begins
  Bytes break_ = 0;                          // and where it ends
  Bytes touched_ = 0;                        // resident so far from the area's start
  Bytes mapped_ = 0;
  Bytes peak_ = 0;
  Bytes mmap_threshold_ = 128 * 1024;
  Bytes trim_threshold_ = 128 * 1024;

  static constexpr Chunk no_chunk = static_cast<Chunk>(-1);
};

}  // namespace agbudget
