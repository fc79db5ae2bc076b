// RangeSet: which elements of a result are final, as ranges in order that do not touch.
//
// Threads: one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace jige::comm {

class RangeSet {
 public:
  // Adds elements [begin, begin + count), those that are there already too.
  void add(int64_t begin, int64_t count) {
    if (count <= 0) return;
    int64_t end = begin + count;
    auto next = ends_.upper_bound(begin);
    if (next != ends_.begin() && std::prev(next)->second >= begin) --next;
    while (next != ends_.end() && next->first <= end) {
      begin = std::min(begin, next->first);
      end = std::max(end, next->second);
      next = ends_.erase(next);
    }
    ends_.emplace(begin, end);
  }

  // Whether all of [begin, begin + count) are there.
  bool covers(int64_t begin, int64_t count) const {
    if (count <= 0) return true;
    const auto next = ends_.upper_bound(begin);
    return next != ends_.begin() && std::prev(next)->second >= begin + count;
  }

 private:
  std::map<int64_t, int64_t> ends_;  // by begin
};

}  // namespace jige::comm
