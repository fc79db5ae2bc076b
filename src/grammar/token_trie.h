// TokenTrie: the texts of a vocabulary's tokens as a tree of bytes, for walks that decide about
// many tokens at once.
//
// Nodes stand in the order of a walk: behind a node come those below it, up to its `end`.
// Tokens without a text (special ones, holes) are not in it.
// Threads: immutable after building.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace jige::grammar {

class TokenTrie {
 public:
  struct Node {
    uint8_t byte = 0;
    uint32_t depth = 0;        // bytes up to here; 1 and more
    uint32_t end = 0;          // the node behind the last one below
    uint32_t token_begin = 0;  // of its tokens
    uint32_t token_end = 0;
  };

  // `texts` are those of the ids 0, 1, …; empty: not a token of the trie.
  explicit TokenTrie(std::vector<std::string> texts);

  std::span<const Node> nodes() const { return nodes_; }
  std::span<const int32_t> tokens(const Node& node) const {
    return std::span(tokens_).subspan(node.token_begin, node.token_end - node.token_begin);
  }
  // The text of a token; empty where it has none.
  std::string_view text(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < texts_.size() ? texts_[static_cast<size_t>(id)]
                                                              : std::string_view();
  }
  size_t vocab_size() const { return texts_.size(); }
  uint32_t depth_max() const { return depth_max_; }
  size_t bytes() const;

 private:
  std::vector<std::string> texts_;
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;  // by their texts
  uint32_t depth_max_ = 0;
};

}  // namespace jige::grammar
