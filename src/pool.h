#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace agbudget {

// Records by number; the numbers of those that are gone are given again. They lie in
// chunks that never move: a long replay makes half a million, and a growing vector would
// copy them all, time and again, into memory that the system has to provide first.
template <typename Record>
class Pool {
 public:
  using Index = std::uint32_t;

  Index add(const Record& record) {
    const Index index = spare_index();
    (*this)[index] = record;
    return index;
  }
  // Its number may be given to another from now on.
  void remove(Index index) { unused_.push_back(index); }

  Record& operator[](Index index) { return chunks_[index / chunk][index % chunk]; }
  const Record& operator[](Index index) const {
    return chunks_[index / chunk][index % chunk];
  }

 private:
  static constexpr Index chunk = 4096;

  Index spare_index() {
    if (!unused_.empty()) {
      const Index index = unused_.back();
      unused_.pop_back();
      return index;
    }
    // Not std::make_unique(), which would clear it first.
    if (size_ % chunk == 0) chunks_.emplace_back(new Record[chunk]);
    return size_++;
  }

  std::vector<std::unique_ptr<Record[]>> chunks_;
  std::vector<Index> unused_;
  Index size_ = 0;
};

}  // namespace agbudget
