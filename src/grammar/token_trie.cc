#include "grammar/token_trie.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace jige::grammar {

TokenTrie::TokenTrie(std::vector<std::string> texts) : texts_(std::move(texts)) {
  tokens_.resize(texts_.size());
  std::iota(tokens_.begin(), tokens_.end(), 0);
  std::erase_if(tokens_, [&](int32_t id) { return text(id).empty(); });
  std::ranges::sort(tokens_, [&](int32_t a, int32_t b) {
    const int order = text(a).compare(text(b));
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<uint32_t> path;  // the nodes of the last text
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
    }
  };
  std::string_view last;
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view now = text(tokens_[i]);
    const auto common = static_cast<size_t>(std::ranges::mismatch(last, now).in1 - last.begin());
    close(common);
    for (size_t at = common; at < now.size(); ++at) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.byte = static_cast<uint8_t>(now[at]),
                        .depth = static_cast<uint32_t>(at + 1),
                        .token_begin = i,
                        .token_end = i});
    }
    nodes_[path.back()].token_end = i + 1;
    depth_max_ = std::max(depth_max_, static_cast<uint32_t>(now.size()));
    last = now;
  }
  close(0);
  nodes_.shrink_to_fit();
}

size_t TokenTrie::bytes() const {
  const size_t inside = std::string().capacity();  // texts up to this need no memory of their own
  size_t bytes = sizeof *this + texts_.capacity() * sizeof(std::string) +
                 nodes_.capacity() * sizeof(Node) + tokens_.capacity() * sizeof(int32_t);
  for (const std::string& text : texts_) {
    if (text.capacity() > inside) bytes += text.capacity() + 1;
  }
  return bytes;
}

}  // namespace jige::grammar
