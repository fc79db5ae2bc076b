// A long list of pairs of texts, all in one block of memory: the merges of a tokenizer.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace jige::text {

class TextPairs {
 public:
  void add(std::string_view left, std::string_view right) {
    texts_.append(left).append(right);
    ends_.emplace_back(texts_.size() - right.size(), texts_.size());
  }
  size_t size() const { return ends_.size(); }
  bool empty() const { return ends_.empty(); }
  bool operator==(const TextPairs&) const = default;

  // What pair `index` has on its left, on its right, and both as one text. Valid until the next
  // add().
  std::string_view left(size_t index) const { return part(begin(index), ends_[index].first); }
  std::string_view right(size_t index) const {
    return part(ends_[index].first, ends_[index].second);
  }
  std::string_view joined(size_t index) const { return part(begin(index), ends_[index].second); }

 private:
  size_t begin(size_t index) const { return index == 0 ? 0 : ends_[index - 1].second; }
  std::string_view part(size_t begin, size_t end) const {
    return std::string_view(texts_).substr(begin, end - begin);
  }

  std::string texts_;
  std::vector<std::pair<size_t, size_t>> ends_;  // of the left and the right text
};

}  // namespace jige::text
