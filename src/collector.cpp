#include "collector.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace agbudget {

namespace {

// memory.c: LEVEL_0_FREQ and LEVEL_1_FREQ, R_MinFreeFrac, and the fractions by which
// AdjustHeapSize() grows and shrinks the limits.
constexpr std::array<int, 2> collect_counts_max{20, 5};
constexpr double min_free_fraction = 0.2;
constexpr double grow_fraction = 0.70;
constexpr double shrink_fraction = 0.30;
constexpr double grow_increment_fraction = 0.2;
constexpr double shrink_increment_fraction = 0.2;
constexpr std::int64_t node_grow_minimum = 40000;
constexpr std::int64_t word_grow_minimum = 80000;
constexpr int aggressive_adjustments = 50;
// Defn.h: R_VSIZE in words and R_NSIZE.
constexpr std::int64_t initial_words = 67108864 / 8;
constexpr std::int64_t initial_nodes = 350000;
constexpr Bytes largest_small_vector = 128;
constexpr Bytes vector_header = 48;
constexpr Bytes node_bytes_each = 56;
constexpr std::int64_t nodes_per_page = 142;
constexpr Bytes page_bytes = nodes_per_page * node_bytes_each + 8;

// An R 4.2.2 that has loaded ggmlR and has compiled the function that trains, just
// before the model is built; read off gc() and a record of its calls of malloc.
constexpr std::int64_t start_words = 6420000 / 8;
constexpr std::int64_t start_garbage_words = 100000 / 8;
constexpr std::int64_t start_nodes = 461000;
constexpr std::int64_t start_garbage_nodes = 50000;
constexpr std::int64_t start_node_limit = 660874;
constexpr std::int64_t start_nodes_at_last_adjustment = 231306;
constexpr std::int64_t start_page_nodes = 720000;
constexpr int start_level_0_collections = 2;
constexpr Bytes start_threshold = 2011136;
constexpr std::array<Bytes, 2> start_holes{3014320, 957568};
constexpr int start_small_holes = 100;
constexpr Bytes start_small_hole = 30000;

}  // namespace

Collector::Collector()
    : used_words_(start_words + start_garbage_words),
      limit_words_(initial_words),
      garbage_words_(start_garbage_words),
      nodes_(start_nodes + start_garbage_nodes),
      garbage_nodes_(start_garbage_nodes),
      node_limit_(start_node_limit),
      nodes_at_last_adjustment_(start_nodes_at_last_adjustment),
      page_nodes_(start_page_nodes),
      countdown_(collect_counts_max) {
  countdown_[0] -= start_level_0_collections;
  std::vector<AllocatorModel::Chunk> holes;
  const auto add_hole = [&](Bytes bytes) {
    holes.push_back(allocator_.allocate(bytes));
    allocator_.allocate(1);
  };
  allocator_.set_threshold(std::numeric_limits<Bytes>::max());  // none is mapped
  for (const Bytes hole : start_holes) add_hole(hole);
  for (int i = 0; i < start_small_holes; ++i) add_hole(start_small_hole);
  for (const AllocatorModel::Chunk hole : holes) allocator_.release(hole);
  allocator_.set_threshold(start_threshold);
  resident_at_start_ = allocator_.resident();
}

Collector::Ticket Collector::append(std::int64_t words, std::int32_t nodes,
                                    Bytes malloc_bytes) {
  Item item{words, nodes,           0, no_ticket, 0, Generation::young, false,
            false, malloc_bytes > 0};
  if (item.has_chunk) item.chunk = allocator_.allocate(malloc_bytes);
  used_words_ += words;
  nodes_ += nodes;
  const Ticket ticket = items_.add(item);
  young_.push_back(ticket);
  return ticket;
}

Collector::Ticket Collector::allocate(Bytes bytes, Bytes attribute_bytes) {
  const std::int64_t words = (bytes + 7) / 8;
  make_room(words);
  const Bytes data = bytes - attribute_bytes;
  // An attribute takes a cell and its vector.
  return append(words, attribute_bytes > 0 ? 3 : 1,
                data > largest_small_vector ? data + vector_header : 0);
}

void Collector::allocate_permanent(Bytes bytes) {
  const std::int64_t words = (bytes + 7) / 8;
  make_room(words);
  used_words_ += words;
  ++nodes_;
  if (bytes > largest_small_vector) allocator_.allocate(bytes + vector_header);
}

void Collector::drop(Ticket ticket) {
  Item& item = items_[ticket];
  item.is_dead = true;
  // Its holder let it go, unless the holder went first.
  if (item.holder != no_ticket && !items_[item.holder].is_dead) let_go(item);
  if (item.generation == Generation::oldest) oldest_dead_.push_back(ticket);
}

void Collector::root(Ticket ticket) { items_[ticket].is_rooted = true; }

void Collector::hold(Ticket ticket, Ticket holder) {
  Item& item = items_[ticket];
  let_go(item);
  item.holder = holder;
  ++items_[holder].held;
}

void Collector::let_go(Item& item) {
  if (item.holder == no_ticket) return;
  Item& holder = items_[item.holder];
  if (--holder.held == 0 && holder.generation == Generation::freed) {
    items_.remove(item.holder);
  }
  item.holder = no_ticket;
}

void Collector::add_nodes(Ticket ticket, std::int32_t nodes) {
  items_[ticket].nodes += nodes;
  nodes_ += nodes;
  touch_pages();
}

void Collector::spend(std::int64_t nodes, Bytes small_bytes) {
  make_room(small_bytes / 8);
  nodes_ += nodes;
  garbage_nodes_ += nodes;
  used_words_ += small_bytes / 8;
  garbage_words_ += small_bytes / 8;
  touch_pages();
}

void Collector::spend_vectors(std::int64_t count, Bytes bytes_each) {
  // In a few portions, since collections come in between. They fit into holes that
  // nothing larger would.
  constexpr std::int64_t portions = 8;
  const std::int64_t each = (count + portions - 1) / portions;
  for (std::int64_t left = count; left > 0; left -= each) {
    spend(std::min(left, each), std::min(left, each) * bytes_each);
  }
}

void Collector::make_room(std::int64_t words) {
  if (nodes_ >= node_limit_ || limit_words_ - used_words_ < words) collect(words);
}

// RunGenCollect(): the level goes up where a collection frees too little, at once
// where what is asked for still does not fit.
void Collector::collect(std::int64_t words) {
  while (next_level_ < 2) {
    int& countdown = countdown_[static_cast<std::size_t>(next_level_)];
    if (countdown-- > 0) break;
    countdown = collect_counts_max[static_cast<std::size_t>(next_level_)];
    ++next_level_;
  }
  for (;;) {
    const int level = next_level_;
    sweep(level);
    if (level == 2) {
      next_level_ = 0;
      ++collections_[2];
      adjust_limits(words);
      return;
    }
    const std::int64_t free_words = limit_words_ - used_words_;
    const std::int64_t free_nodes = node_limit_ - nodes_;
    const double wanted = min_free_fraction * static_cast<double>(limit_words_);
    const double wanted_nodes = min_free_fraction * static_cast<double>(node_limit_);
    if (static_cast<double>(free_nodes) < wanted_nodes ||
        static_cast<double>(free_words) < static_cast<double>(words) + wanted) {
      ++next_level_;
      if (free_nodes <= 0 || free_words < words) continue;
    } else {
      next_level_ = 0;
    }
    ++collections_[static_cast<std::size_t>(level)];
    return;
  }
}

// R's numbers: -1 for New.
int Collector::index(Generation generation) {
  if (generation == Generation::old) return 0;
  if (generation == Generation::oldest) return 1;
  return -1;
}

// AgeNodeAndChildren(): before a collection, what the generations to be collected
// lead to is moved to the generation of what leads to it.
bool Collector::is_aged(const Item& item, int level) const {
  const auto ages = [level](Generation generation) {
    return index(generation) >= 0 && index(generation) < level;
  };
  if (item.is_rooted && ages(root_generation_)) return true;
  if (item.holder == no_ticket) return false;
  const Item& holder = items_[item.holder];
  return ages(holder.generation) ||
         (holder.generation == Generation::young && is_aged(holder, level));
}

// What a value in a generation that is not collected leads to is kept, though both
// may be dead.
bool Collector::is_kept_dead(const Item& item, int level) const {
  if (item.holder == no_ticket) return false;
  const Item& holder = items_[item.holder];
  if (!holder.is_dead || holder.generation == Generation::freed) return false;
  return index(holder.generation) >= level || is_kept_dead(holder, level);
}

void Collector::free_item(Ticket ticket) {
  Item& item = items_[ticket];
  if (item.has_chunk) allocator_.release(item.chunk);
  used_words_ -= item.words;
  nodes_ -= item.nodes;
  item.generation = Generation::freed;
  let_go(item);
  if (item.held == 0) items_.remove(ticket);
}

// One pass over the new values and the generations below `level`.
void Collector::sweep(int level) {
  std::vector<Ticket> survivors;
  const std::vector<Ticket> young = std::exchange(young_, {});
  std::vector<std::pair<Ticket, Generation>> moves;
  const auto visit = [&](Ticket ticket, Generation next) {
    const Item& item = items_[ticket];
    if (item.is_dead && !is_kept_dead(item, level)) {
      moves.emplace_back(ticket, Generation::freed);
      return;
    }
    if (is_aged(item, level)) next = Generation::oldest;
    moves.emplace_back(ticket, next);
  };
  for (const Ticket ticket : young) visit(ticket, Generation::old);
  if (level >= 1) {
    const std::vector<Ticket> old = std::exchange(old_, {});
    for (const Ticket ticket : old) visit(ticket, Generation::oldest);
  }
  if (level >= 2) {
    for (const Ticket ticket : oldest_dead_) {
      moves.emplace_back(ticket, Generation::freed);
    }
    oldest_dead_.clear();
  }
  for (const auto& [ticket, generation] : moves) {
    if (generation == Generation::freed) {
      free_item(ticket);
      continue;
    }
    Item& item = items_[ticket];
    item.generation = generation;
    if (generation == Generation::old) old_.push_back(ticket);
    if (generation == Generation::oldest && item.is_dead) oldest_dead_.push_back(ticket);
  }
  if (level >= 1) root_generation_ = Generation::oldest;
  used_words_ -= std::exchange(garbage_words_, 0);
  nodes_ -= std::exchange(garbage_nodes_, 0);
}

// AdjustHeapSize(), after a full collection.
void Collector::adjust_limits(std::int64_t words) {
  const double nodes_needed = static_cast<double>(nodes_) +
                              min_free_fraction * static_cast<double>(initial_nodes);
  if (nodes_needed / static_cast<double>(node_limit_) > grow_fraction) {
    std::int64_t change =
        node_grow_minimum + static_cast<std::int64_t>(grow_increment_fraction *
                                                      static_cast<double>(node_limit_));
    if (adjustments_ < aggressive_adjustments) {
      ++adjustments_;
      const std::int64_t expected = 2 * nodes_ - nodes_at_last_adjustment_;
      nodes_at_last_adjustment_ = nodes_;
      const std::int64_t wanted =
          static_cast<std::int64_t>(static_cast<double>(expected) / grow_fraction);
      change = std::max(change, wanted - node_limit_);
    }
    node_limit_ += change;
  }
  const std::int64_t needed =
      used_words_ + words +
      static_cast<std::int64_t>(min_free_fraction * static_cast<double>(initial_words));
  const double occupied = static_cast<double>(needed) / static_cast<double>(limit_words_);
  if (occupied > 1) limit_words_ = needed;
  if (occupied > grow_fraction) {
    limit_words_ +=
        word_grow_minimum + static_cast<std::int64_t>(grow_increment_fraction *
                                                      static_cast<double>(limit_words_));
  } else if (occupied < shrink_fraction) {
    limit_words_ -= static_cast<std::int64_t>(shrink_increment_fraction *
                                              static_cast<double>(limit_words_));
    limit_words_ = std::max({limit_words_, needed, initial_words});
  }
}

void Collector::touch_pages() {
  while (nodes_ > page_nodes_) {
    allocator_.allocate(page_bytes);
    page_nodes_ += nodes_per_page;
  }
}

}  // namespace agbudget
