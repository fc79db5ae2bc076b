#include "plan/score_trie.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace jige::plan {
namespace {

int32_t common_count(const ScoreText& a, const ScoreText& b) {
  const auto differs =
      std::mismatch(a.tokens.begin(), a.tokens.end(), b.tokens.begin(), b.tokens.end()).first;
  return static_cast<int32_t>(differs - a.tokens.begin());
}

// The trie as sorting gives it: parents are made after their children, node 0 is above all.
class SortedTrie {
 public:
  struct Node {
    int32_t parent = 0;
    int32_t end = 0;
    std::vector<int32_t> ends;  // texts
    std::vector<int32_t> children;
    int32_t text_least = INT32_MAX;
    bool forks = false;  // here or below
    int32_t row_children = 0;
  };

  explicit SortedTrie(std::span<const ScoreText> texts) : texts_(texts) {
    nodes_.emplace_back();
    open_.push_back(0);
    std::vector<int32_t> order(texts.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, [&](int32_t a, int32_t b) {
      const auto by_tokens =
          std::lexicographical_compare_three_way(text(a).tokens.begin(), text(a).tokens.end(),
                                                 text(b).tokens.begin(), text(b).tokens.end());
      return by_tokens != 0 ? by_tokens < 0 : a < b;
    });
    for (size_t i = 0; i < order.size(); ++i) {
      close_behind(i > 0 ? common_count(text(order[i - 1]), text(order[i])) : 0);
      add(order[i]);
    }
    close_behind(0);
    order_children();
  }

  const Node& node(int32_t id) const { return nodes_[static_cast<size_t>(id)]; }
  // Whether anything of it is run: a leaf's last token is not.
  bool has_rows(int32_t id) const {
    const int32_t begin = node(node(id).parent).end;
    return !node(id).children.empty() || node(id).end - begin > 1;
  }

 private:
  const ScoreText& text(int32_t i) const { return texts_[static_cast<size_t>(i)]; }
  Node& at(int32_t id) { return nodes_[static_cast<size_t>(id)]; }

  // Ends what is open behind the first `common` tokens, where the last open node ends then.
  void close_behind(int32_t common) {
    while (node(open_.back()).end > common) {
      const int32_t closed = open_.back();
      open_.pop_back();
      if (node(open_.back()).end < common) {
        open_.push_back(static_cast<int32_t>(nodes_.size()));
        nodes_.push_back({.end = common});
      }
      at(closed).parent = open_.back();
      closed_.push_back(closed);
    }
  }

  void add(int32_t i) {
    const auto size = static_cast<int32_t>(text(i).tokens.size());
    if (size > node(open_.back()).end) {  // else it is the one before it once more
      open_.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back({.end = size});
    }
    at(open_.back()).ends.push_back(i);
  }

  void order_children() {
    for (const int32_t id : closed_) {  // children come before their parents
      Node& one = at(id);
      for (const int32_t i : one.ends) one.text_least = std::min(one.text_least, i);
      Node& parent = at(one.parent);
      parent.text_least = std::min(parent.text_least, one.text_least);
      parent.children.push_back(id);
    }
    for (Node& one : nodes_) {
      std::ranges::sort(one.children, {}, [&](int32_t child) { return node(child).text_least; });
    }
    closed_.push_back(0);
    for (const int32_t id : closed_) {
      Node& one = at(id);
      for (const int32_t child : one.children) {
        one.row_children += has_rows(child);
        one.forks = one.forks || node(child).forks;
      }
      one.forks = one.forks || one.row_children > 1;
    }
  }

  std::span<const ScoreText> texts_;
  std::vector<Node> nodes_;
  std::vector<int32_t> open_;    // the path to the last text
  std::vector<int32_t> closed_;  // in that order
};

}  // namespace

int32_t ScoreTrie::add(std::span<const ScoreText> texts, int32_t parent,
                       std::span<const int32_t> ends, int32_t text, int32_t end) {
  const int32_t id = size();
  ScoreNode node{.parent = parent, .text = text, .end = end};
  if (parent >= 0) node.begin = (*this)[parent].end;
  node.scored_begin = INT32_MAX;
  node.ends_begin = static_cast<int32_t>(end_texts_.size());
  for (const int32_t one : ends) {
    end_texts_.push_back(one);
    end_nodes_[static_cast<size_t>(one)] = id;
    node.scored_begin = std::min(node.scored_begin, texts[static_cast<size_t>(one)].first);
  }
  node.ends_end = static_cast<int32_t>(end_texts_.size());
  node.text_count = static_cast<int32_t>(ends.size());
  node.slot_begin = slot_count_;
  slot_count_ += node.end - node.begin;
  nodes_.push_back(node);
  return id;
}

ScoreTrie ScoreTrie::build(std::span<const ScoreText> texts, int32_t forks_max) {
  const SortedTrie sorted(texts);
  ScoreTrie trie;
  trie.end_nodes_.resize(texts.size());
  for (const ScoreText& text : texts) {
    const auto size = static_cast<int32_t>(text.tokens.size());
    JIGE_CHECK(1 <= text.first && text.first < size, "{} of {} tokens", text.first, size);
    trie.first_.push_back(text.first);
    trie.text_row_count_ += size - 1;
  }
  struct Place {
    int32_t node;    // of the sorted trie
    int32_t parent;  // of this one
    int32_t forks;   // above it
    bool whole;      // texts below stand each alone, behind `parent`
  };
  std::vector<Place> places;
  const auto push_children = [&](int32_t node, Place below) {
    const std::vector<int32_t>& children = sorted.node(node).children;
    for (size_t i = children.size(); i > 0; --i) {
      below.node = children[i - 1];
      places.push_back(below);
    }
  };
  push_children(0, {.node = 0, .parent = -1, .forks = 0, .whole = false});
  while (!places.empty()) {
    Place place = places.back();
    places.pop_back();
    const SortedTrie::Node& from = sorted.node(place.node);
    place.whole = place.whole || (forks_max >= 0 && place.forks >= forks_max && from.forks);
    if (place.whole) {
      if (!from.ends.empty()) trie.add(texts, place.parent, from.ends, from.ends[0], from.end);
      push_children(place.node, place);
      continue;
    }
    const int32_t forks = place.forks + (from.row_children > 1 ? 1 : 0);
    const int32_t id = trie.add(texts, place.parent, from.ends, from.text_least, from.end);
    push_children(place.node, {.node = 0, .parent = id, .forks = forks, .whole = false});
  }
  trie.finish();
  return trie;
}

void ScoreTrie::finish() {
  for (ScoreNode& node : nodes_) {
    node.subtree_end = static_cast<int32_t>(&node - nodes_.data()) + 1;
    node.rows_end = node.end - 1;
  }
  for (size_t i = nodes_.size(); i > 0; --i) {
    const ScoreNode& node = nodes_[i - 1];
    row_count_ += node.row_count();
    if (node.parent < 0) continue;
    ScoreNode& parent = nodes_[static_cast<size_t>(node.parent)];
    parent.rows_end = parent.end;
    parent.text_count += node.text_count;
    parent.scored_begin = std::min(parent.scored_begin, node.scored_begin);
    parent.subtree_end = std::max(parent.subtree_end, node.subtree_end);
  }
}

std::vector<float> ScoreTrie::values_of(int32_t text, std::span<const float> by_slot) const {
  const int32_t first = first_[static_cast<size_t>(text)];
  int32_t id = end_nodes_[static_cast<size_t>(text)];
  std::vector<float> values(static_cast<size_t>((*this)[id].end - first));
  for (; id >= 0 && (*this)[id].end > first; id = (*this)[id].parent) {
    const ScoreNode& node = (*this)[id];
    for (int32_t place = std::max(node.begin, first); place < node.end; ++place) {
      values[static_cast<size_t>(place - first)] = by_slot[static_cast<size_t>(node.slot(place))];
    }
  }
  return values;
}

}  // namespace jige::plan
