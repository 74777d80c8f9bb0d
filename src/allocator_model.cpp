#include "allocator_model.h"

#include <algorithm>
#include <utility>

namespace agbudget {

namespace {

// mallopt(3): M_TOP_PAD, and the most that M_MMAP_THRESHOLD rises to by itself.
constexpr Bytes top_pad = 128 * 1024;
constexpr Bytes largest_threshold = 32 * 1024 * 1024;
// malloc.c: FASTBIN_CONSOLIDATION_THRESHOLD, MINSIZE, the header of a chunk.
constexpr Bytes trim_attempt = 65536;
constexpr Bytes smallest_chunk = 32;
constexpr Bytes chunk_header = 8;
constexpr Bytes alignment = 16;
constexpr Bytes page = 4096;

Bytes round_up(Bytes bytes, Bytes unit) {
  return checked_add(bytes, unit - 1) / unit * unit;
}

}  // namespace

void AllocatorModel::set_threshold(Bytes bytes) {
  mmap_threshold_ = std::min(bytes, largest_threshold);
  trim_threshold_ = 2 * mmap_threshold_;
}

void AllocatorModel::add_free(Chunk chunk) {
  Piece& piece = pieces_[chunk];
  piece.is_free = true;
  piece.newer = no_chunk;
  piece.older = no_chunk;
  const auto bin = bins_.lower_bound(piece.size);
  if (bin != bins_.end() && bin->first == piece.size) {
    piece.older = bin->second;
    pieces_[bin->second].newer = chunk;
    bin->second = chunk;
    return;
  }
  if (spare_bins_.empty()) {
    bins_.emplace_hint(bin, piece.size, chunk);
    return;
  }
  Bins::node_type node = std::move(spare_bins_.back());
  spare_bins_.pop_back();
  node.key() = piece.size;
  node.mapped() = chunk;
  bins_.insert(bin, std::move(node));
}

void AllocatorModel::remove_free(Chunk chunk) {
  Piece& piece = pieces_[chunk];
  piece.is_free = false;
  if (piece.older != no_chunk) pieces_[piece.older].newer = piece.newer;
  if (piece.newer != no_chunk) {
    pieces_[piece.newer].older = piece.older;
    return;
  }
  const auto bin = bins_.find(piece.size);
  bin->second = piece.older;
  if (piece.older == no_chunk) spare_bins_.push_back(bins_.extract(bin));
}

AllocatorModel::Chunk AllocatorModel::allocate(Bytes bytes) {
  const Bytes size =
      std::max(smallest_chunk, round_up(checked_add(bytes, chunk_header), alignment));
  const auto fitting = bins_.lower_bound(size);
  Chunk chunk = no_chunk;
  if (fitting != bins_.end()) {
    chunk = fitting->second;
    remove_free(chunk);
    if (pieces_[chunk].size - size >= smallest_chunk) split(chunk, size);
    return chunk;
  }
  if (break_ - end_of_pieces_ < size + smallest_chunk) {
    if (size >= mmap_threshold_) {
      const Bytes mapped = round_up(size + chunk_header, page);
      mapped_ = checked_add(mapped_, mapped);
      peak_ = std::max(peak_, resident());
      return pieces_.add({mapped, no_chunk, no_chunk, false, true, no_chunk, no_chunk});
    }
    extend(size);
  }
  chunk = pieces_.add({size, last_, no_chunk, false, false, no_chunk, no_chunk});
  if (last_ != no_chunk) pieces_[last_].after = chunk;
  last_ = chunk;
  end_of_pieces_ = checked_add(end_of_pieces_, size);
  touched_ = std::max(touched_, end_of_pieces_);
  peak_ = std::max(peak_, resident());
  return chunk;
}

// sysmalloc(): the area grows by what is missing, padded, in whole pages.
void AllocatorModel::extend(Bytes size) {
  const Bytes top = break_ - end_of_pieces_;
  const Bytes missing = checked_add(size, top_pad + smallest_chunk - top);
  break_ = checked_add(break_, round_up(missing, page));
}

// A piece that was free has one after it: what borders the free end is part of that.
void AllocatorModel::split(Chunk chunk, Bytes size) {
  const Piece whole = pieces_[chunk];
  const Chunk rest = pieces_.add(
      {whole.size - size, chunk, whole.after, false, false, no_chunk, no_chunk});
  pieces_[chunk].size = size;
  pieces_[chunk].after = rest;
  pieces_[whole.after].before = rest;
  add_free(rest);
}

void AllocatorModel::join(Chunk left, Chunk right) {
  Piece& into = pieces_[left];
  const Piece& from = pieces_[right];
  into.size += from.size;
  into.after = from.after;
  if (from.after != no_chunk) {
    pieces_[from.after].before = left;
  } else {
    last_ = left;
  }
  pieces_.remove(right);
}

void AllocatorModel::release(Chunk chunk) {
  if (pieces_[chunk].is_mapped) {
    const Bytes size = pieces_[chunk].size;
    if (size > mmap_threshold_ && size <= largest_threshold) set_threshold(size);
    mapped_ -= size;
    pieces_.remove(chunk);
    return;
  }
  const Chunk before = pieces_[chunk].before;
  if (before != no_chunk && pieces_[before].is_free) {
    remove_free(before);
    join(before, chunk);
    chunk = before;
  }
  const Chunk after = pieces_[chunk].after;
  if (after != no_chunk && pieces_[after].is_free) {
    remove_free(after);
    join(chunk, after);
  }
  const Bytes size = pieces_[chunk].size;
  if (pieces_[chunk].after == no_chunk) {
    // It borders the free end and becomes part of it.
    end_of_pieces_ -= size;
    last_ = pieces_[chunk].before;
    if (last_ != no_chunk) pieces_[last_].after = no_chunk;
    pieces_.remove(chunk);
    if (break_ - end_of_pieces_ >= trim_attempt) trim();
    return;
  }
  add_free(chunk);
  if (size >= trim_attempt) trim();
}

// systrim()
void AllocatorModel::trim() {
  const Bytes top = break_ - end_of_pieces_;
  if (top < trim_threshold_) return;
  const Bytes surplus = (top - smallest_chunk - 1 - top_pad) / page * page;
  if (surplus <= 0) return;
  break_ -= surplus;
  touched_ = std::min(touched_, break_);
}

}  // namespace agbudget
