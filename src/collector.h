#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator_model.h"
#include "heap.h"
#include "pool.h"

namespace agbudget {

// R's own collector (src/main/memory.c of R 4.2) on the counting heap's events. R
// does not release a vector when its last reference goes but when a collection
// reaches it, so a process holds more than the counting heap says: this class says
// how much more. It decides when R collects, which generations, what that frees, how
// the limit R_VSize grows, and gives blocks to and takes them from a model of malloc.
//
// Where R's nodes (cells, environments, closures) decide, it works with estimates:
// they are not simulated. The order of collections is chaotic, so the result is a
// likely figure.
class Collector {
 public:
  using Ticket = std::uint32_t;
  static constexpr Ticket no_ticket = static_cast<Ticket>(-1);
  static constexpr int levels = 3;

  Collector();

  // A vector of `bytes` in the vector heap, `attribute_bytes` of them in a vector of
  // its own. May collect first, as allocVector3() does.
  Ticket allocate(Bytes bytes, Bytes attribute_bytes);
  // One that is never freed, and so needs no ticket.
  void allocate_permanent(Bytes bytes);
  // The last reference to it went.
  void drop(Ticket ticket);
  // The values that outlive a training step (the model, the tape, the loop's
  // variables) now lead to it.
  void root(Ticket ticket);
  // `holder` refers to it now, and does until one of them goes.
  void hold(Ticket ticket, Ticket holder);
  // So many nodes (cells, environments, closures) come and go with it.
  void add_nodes(Ticket ticket, std::int32_t nodes);
  // Nodes and small vectors that are garbage at once.
  void spend(std::int64_t nodes, Bytes small_bytes);
  // The same for vectors large enough for malloc.
  void spend_vectors(std::int64_t count, Bytes bytes_each);

  // Live and dead bytes that R counts against its limit, and that limit.
  Bytes used() const { return 8 * used_words_; }
  Bytes limit() const { return 8 * limit_words_; }
  const std::array<int, levels>& collections() const { return collections_; }
  // The most that is resident, above what was before the first allocation.
  Bytes resident_peak() const { return allocator_.resident_peak() - resident_at_start_; }

 private:
  // R's names: New, Old[0], Old[1].
  enum class Generation : std::uint8_t { young, old, oldest, freed };

  struct Item {
    std::int64_t words;
    std::int32_t nodes;
    AllocatorModel::Chunk chunk;
    Ticket holder;
    std::uint32_t held;  // items that name it as their holder
    Generation generation;
    bool is_dead;
    bool is_rooted;
    bool has_chunk;
  };

  Ticket append(std::int64_t words, std::int32_t nodes, Bytes malloc_bytes);
  void make_room(std::int64_t words);
  void collect(std::int64_t words);
  void sweep(int level);
  void sweep_young(int level);
  void free_item(Ticket ticket);
  void let_go(Item& item);
  void adjust_limits(std::int64_t words);
  static int index(Generation generation);
  bool is_aged(const Item& item, int level) const;
  bool is_kept_dead(const Item& item, int level) const;
  void touch_pages();

  Pool<Item> items_;  // a freed one stays while others name it
  std::vector<Ticket> young_;
  std::vector<Ticket> old_;
  std::vector<Ticket> oldest_dead_;
  Generation root_generation_ = Generation::old;

  std::int64_t used_words_;
  std::int64_t limit_words_;
  std::int64_t garbage_words_;
  std::int64_t nodes_;
  std::int64_t garbage_nodes_;
  std::int64_t node_limit_;
  std::int64_t nodes_at_last_adjustment_;
  std::int64_t page_nodes_;
  int adjustments_ = 1;
  int next_level_ = 0;
  std::array<int, 2> countdown_;
  std::array<int, levels> collections_{};
  AllocatorModel allocator_;
  Bytes resident_at_start_ = 0;
};

}  // namespace agbudget
