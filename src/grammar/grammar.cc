#include "grammar/grammar.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"

namespace jige::grammar {

// Two bytes are of one class when they belong to the same sets.
void Grammar::find_classes() {
  std::array<int, 256> current{};
  int count = 1;
  for (const ByteSet& set : sets_) {
    std::map<std::pair<int, bool>, int> finer;
    for (size_t byte = 0; byte < 256; ++byte) {
      const auto key = std::pair(current[byte], bool{set[byte]});
      current[byte] = finer.emplace(key, static_cast<int>(finer.size())).first->second;
    }
    count = static_cast<int>(finer.size());
    if (count == 256) break;
  }
  samples_.resize(static_cast<size_t>(count));
  for (size_t byte = 0; byte < 256; ++byte) {
    class_of_[byte] = static_cast<uint8_t>(current[byte]);
    samples_[static_cast<size_t>(current[byte])] = static_cast<uint8_t>(byte);
  }
}

int32_t Grammar::need_of(const Node& node) const {
  switch (node.kind) {
    case Node::Kind::kReturn:
      return 0;
    case Node::Kind::kBytes:
      return need(node.second);
    case Node::Kind::kSplit: {
      int32_t least = kNeedless;
      for (const NodeId branch : branches(node)) least = std::min(least, need(branch));
      return least;
    }
    case Node::Kind::kCall: {
      const int32_t inside = need(entry(node.first));
      const int32_t after = need(node.second);
      if (inside == kNeedless || after == kNeedless) return kNeedless;
      // A call at the end of a rule leaves no frame behind.
      const bool frame = this->node(node.second).kind != Node::Kind::kReturn;
      const int32_t depth = std::max(inside + (frame ? 1 : 0), after);
      return depth > kDepthMax ? kNeedless : depth;
    }
  }
  return kNeedless;
}

// The least fixed point from above. Forth and back in turns, so that chains of rules end soon
// whichever way they run.
size_t Grammar::bytes() const {
  return sizeof *this + nodes_.capacity() * sizeof(Node) + branches_.capacity() * sizeof(NodeId) +
         sets_.capacity() * sizeof(ByteSet) + rules_.capacity() * sizeof(NodeId) +
         needs_.capacity() * sizeof(int32_t) + samples_.capacity();
}

void Grammar::find_needs() {
  needs_.assign(nodes_.size(), kNeedless);
  for (bool changed = true, forth = true; changed; forth = !forth) {
    changed = false;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const size_t at = forth ? i : nodes_.size() - 1 - i;
      const int32_t found = need_of(nodes_[at]);
      changed |= found != needs_[at];
      needs_[at] = found;
    }
  }
}

GrammarBuilder::GrammarBuilder() { add({}); }

NodeId GrammarBuilder::add(Node node) {
  if (grammar_.nodes_.size() >= kNodesMax) {
    overflowed_ = true;
    return end();
  }
  grammar_.nodes_.push_back(node);
  return static_cast<NodeId>(grammar_.nodes_.size() - 1);
}

NodeId GrammarBuilder::bytes(const ByteSet& set, NodeId next) {
  const auto id = static_cast<int32_t>(grammar_.sets_.size());
  const auto [it, is_new] = set_ids_.emplace(set, id);
  if (is_new) grammar_.sets_.push_back(set);
  return add({Node::Kind::kBytes, it->second, next});
}

NodeId GrammarBuilder::byte(char value, NodeId next) {
  return bytes(ByteSet().set(static_cast<uint8_t>(value)), next);
}

NodeId GrammarBuilder::text(std::string_view text, NodeId next) {
  for (size_t i = text.size(); i-- > 0;) next = byte(text[i], next);
  return next;
}

NodeId GrammarBuilder::split(std::span<const NodeId> branches) {
  if (branches.size() == 1) return branches[0];
  std::vector<NodeId>& all = grammar_.branches_;
  if (all.size() + branches.size() > 2 * kNodesMax) overflowed_ = true;
  if (overflowed_) return end();
  const auto first = static_cast<int32_t>(all.size());
  all.insert(all.end(), branches.begin(), branches.end());
  return add({Node::Kind::kSplit, first, static_cast<int32_t>(branches.size())});
}

NodeId GrammarBuilder::call(RuleId rule, NodeId next) {
  return add({Node::Kind::kCall, rule, next});
}

NodeId GrammarBuilder::reserve_split() { return add({Node::Kind::kSplit, 0, 0}); }

void GrammarBuilder::set_split(NodeId split, std::initializer_list<NodeId> branches) {
  if (overflowed_) return;
  Node& node = grammar_.nodes_[static_cast<size_t>(split)];
  node.first = static_cast<int32_t>(grammar_.branches_.size());
  node.second = static_cast<int32_t>(branches.size());
  grammar_.branches_.insert(grammar_.branches_.end(), branches.begin(), branches.end());
}

RuleId GrammarBuilder::add_rule() {
  if (grammar_.rules_.size() >= kRulesMax) {
    overflowed_ = true;
    return 0;
  }
  grammar_.rules_.push_back(-1);
  return static_cast<RuleId>(grammar_.rules_.size() - 1);
}

void GrammarBuilder::define(RuleId rule, NodeId entry) {
  grammar_.rules_[static_cast<size_t>(rule)] = entry;
}

// Whether a byte can be read from the start, on a way that comes to an end.
bool GrammarBuilder::takes_a_byte() const {
  std::vector<bool> seen(grammar_.nodes_.size());
  std::vector<NodeId> open = {grammar_.start_};
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    if (seen[static_cast<size_t>(id)] || grammar_.need(id) == kNeedless) continue;
    seen[static_cast<size_t>(id)] = true;
    const Node& node = grammar_.node(id);
    if (node.kind == Node::Kind::kBytes) return true;
    if (node.kind == Node::Kind::kSplit) {
      for (const NodeId branch : grammar_.branches(node)) open.push_back(branch);
    } else if (node.kind == Node::Kind::kCall) {
      open.push_back(grammar_.entry(node.first));
      open.push_back(node.second);
    }
  }
  return false;
}

Result<Grammar> GrammarBuilder::finish(RuleId root) {
  if (overflowed_) {
    return fail(Code::kInvalidArgument,
                "it makes a grammar of more than {} nodes or {} rules; ask for less", kNodesMax,
                kRulesMax);
  }
  for (const NodeId entry : grammar_.rules_) JIGE_CHECK(entry >= 0, "a rule is not defined");
  grammar_.start_ = grammar_.entry(root);
  grammar_.find_classes();
  grammar_.find_needs();
  if (grammar_.need(grammar_.start_) == kNeedless) {
    return fail(Code::kInvalidArgument,
                "no text fits it, or every one nests more than {} rules deep", kDepthMax);
  }
  if (!takes_a_byte()) {
    return fail(Code::kInvalidArgument, "only the empty text fits it");
  }
  return std::move(grammar_);
}

}  // namespace jige::grammar
