// Grammar: what a text may be, as rules over bytes.
//
// A rule is a graph of nodes: kBytes takes one byte of a set and goes on, kSplit goes on in any of
// several ways, kCall reads another rule and goes on, kReturn ends the rule. An Acceptor runs the
// grammar: its open calls are a stack, of at most kDepthMax frames.
//
// Graphs are built from the end: every function of GrammarBuilder takes the node that follows and
// returns the one to begin with.
//
//   GrammarBuilder builder;
//   const RuleId root = builder.add_rule();
//   builder.define(root, builder.text("yes", builder.end()));
//   JIGE_TRY(const Grammar grammar, builder.finish(root));
//
// Invariants of a Grammar: need(node) is the number of frames that some way from the node to the
// end of its rule takes beyond those that are open, so whoever keeps depth + need(node) within
// kDepthMax always has a way to the end; kNeedless nodes have none.
// Threads: a Grammar is immutable; a builder belongs to one thread.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace jige::grammar {

using NodeId = int32_t;
using RuleId = int32_t;
using ByteSet = std::bitset<256>;

inline constexpr int32_t kDepthMax = 60;  // JSON of it nests less than parsers read
inline constexpr int32_t kNeedless = INT32_MAX;
inline constexpr size_t kNodesMax = size_t{1} << 18;
inline constexpr size_t kRulesMax = size_t{1} << 15;

struct Node {
  enum class Kind : uint8_t { kReturn, kBytes, kSplit, kCall };
  Kind kind = Kind::kReturn;
  int32_t first = 0;   // kBytes: the set; kSplit: the first branch; kCall: the rule
  int32_t second = 0;  // kBytes, kCall: the node that follows; kSplit: the number of branches
};

class Grammar {
 public:
  NodeId start() const { return start_; }
  const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  size_t node_count() const { return nodes_.size(); }
  std::span<const NodeId> branches(const Node& split) const {
    return std::span(branches_).subspan(static_cast<size_t>(split.first),
                                        static_cast<size_t>(split.second));
  }
  NodeId entry(RuleId rule) const { return rules_[static_cast<size_t>(rule)]; }
  size_t bytes() const;
  int32_t need(NodeId id) const { return needs_[static_cast<size_t>(id)]; }

  // Bytes that no set tells apart are of one class.
  int class_of(uint8_t byte) const { return class_of_[byte]; }
  int class_count() const { return static_cast<int>(samples_.size()); }
  // REQUIRES: a kBytes node.
  bool takes(const Node& bytes, int byte_class) const {
    return sets_[static_cast<size_t>(bytes.first)][samples_[static_cast<size_t>(byte_class)]];
  }

 private:
  friend class GrammarBuilder;
  void find_classes();
  void find_needs();
  int32_t need_of(const Node& node) const;

  std::vector<Node> nodes_;
  std::vector<NodeId> branches_;
  std::vector<ByteSet> sets_;
  std::vector<NodeId> rules_;
  std::vector<int32_t> needs_;
  std::array<uint8_t, 256> class_of_{};
  std::vector<uint8_t> samples_;  // a byte of each class
  NodeId start_ = 0;
};

class GrammarBuilder {
 public:
  GrammarBuilder();

  // The end of a rule.
  NodeId end() const { return 0; }
  NodeId bytes(const ByteSet& set, NodeId next);
  NodeId byte(char value, NodeId next);
  NodeId text(std::string_view text, NodeId next);
  NodeId split(std::span<const NodeId> branches);
  NodeId split(std::initializer_list<NodeId> branches) {
    return split(std::span(branches.begin(), branches.size()));
  }
  NodeId call(RuleId rule, NodeId next);

  // A split whose branches come later: loops.
  NodeId reserve_split();
  void set_split(NodeId split, std::initializer_list<NodeId> branches);

  RuleId add_rule();
  void define(RuleId rule, NodeId entry);

  // Whether there is more than a grammar may hold; what is built from then on is thrown away, and
  // finish() fails.
  bool overflowed() const { return overflowed_; }

  // The grammar of the texts of `root`. Fails with kInvalidArgument when it is too large, when no
  // text fits it, when none but the empty one does, or when every one nests too deeply.
  // REQUIRES: every rule is defined.
  Result<Grammar> finish(RuleId root);

 private:
  NodeId add(Node node);
  bool takes_a_byte() const;

  Grammar grammar_;
  std::unordered_map<ByteSet, int32_t> set_ids_;
  bool overflowed_ = false;
};

}  // namespace jige::grammar
