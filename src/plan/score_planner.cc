#include "plan/score_planner.h"

#include <algorithm>

#include "base/check.h"
#include "plan/token_runs.h"

namespace jige::plan {
namespace {

KvBlockPoolOptions without_prefixes(KvBlockPoolOptions pool) {
  pool.prefix_cache = false;
  return pool;
}

}  // namespace

ScorePlanner::ScorePlanner(const ScoreTrie& trie, const ScorePlanOptions& options)
    : trie_(trie),
      options_(options),
      pool_(without_prefixes(options.pool)),
      states_(static_cast<size_t>(trie.size())) {
  JIGE_CHECK(options.rows_max > 0, "forwards of {} rows", options.rows_max);
  for (int32_t state = options.state_count; state > 0; --state) free_states_.push_back(state - 1);
  for (int32_t id = 0; id < trie.size(); ++id) {
    const ScoreNode& one = node(id);
    at(id).done = one.begin;
    at(id).text_count = one.text_count;
    if (one.parent >= 0 && one.row_count() > 0) ++at(one.parent).children_to_start;
    JIGE_CHECK(blocks_for(one.rows_end) <= pool_.capacity(), "{} tokens in {} blocks", one.rows_end,
               pool_.capacity());
  }
}

bool ScorePlanner::parent_complete(int32_t id) {
  return node(id).parent < 0 || at(node(id).parent).complete;
}

bool ScorePlanner::next(std::span<const ScoreText> texts, ScoreForward& forward) {
  forward = {};
  admit();
  for (const int32_t id : open_) {
    const auto room = options_.rows_max - static_cast<int32_t>(forward.tokens.size());
    if (room == 0) break;
    if (!parent_complete(id)) continue;
    const std::span<const TokenRun> runs = texts[static_cast<size_t>(node(id).text)].runs;
    const int32_t count =
        uncut_count(runs, at(id).done, std::min(room, node(id).rows_end - at(id).done));
    if (count == 0) continue;
    if (at(id).done == node(id).begin) start(id, forward);
    add_rows(texts, id, count, forward);
  }
  // Completed behind the loop: children of what is run here wait for the next forward.
  const std::vector<int32_t> before = open_;
  std::erase_if(open_, [&](int32_t id) { return at(id).done == node(id).rows_end; });
  for (const int32_t id : before) {
    if (at(id).done == node(id).rows_end) complete(id, forward);
  }
  JIGE_CHECK(!forward.tokens.empty() || (open_.empty() && next_node_ == trie_.size()),
             "{} nodes are open and nothing can be run", open_.size());
  return !forward.tokens.empty();
}

void ScorePlanner::admit() {
  while (next_node_ < trie_.size() && ready_rows_ < options_.rows_max) {
    int32_t end = next_node_ + 1;  // behind the first leaf
    while (node(end - 1).subtree_end > end) ++end;
    if (!reserve(next_node_, end)) return;
    for (int32_t id = next_node_; id < end; ++id) {
      const ScoreNode& one = node(id);
      at(id).opened = true;
      if (one.row_count() == 0) continue;  // it is complete when its parent is
      open_.push_back(id);
      if (one.parent >= 0) ++at(one.parent).open_children;
      if (parent_complete(id)) ready_rows_ += one.row_count();
    }
    next_node_ = end;
  }
}

// Blocks and states for a path from a place where it parts from those that are open.
bool ScorePlanner::reserve(int32_t begin, int32_t end) {
  int32_t block_count = 0, state_count = 0;
  for (int32_t id = begin; id < end; ++id) {
    const ScoreNode& one = node(id);
    NodeState& state = at(id);
    state.reserved_blocks = 0;
    state.reserved_states = 0;
    if (one.row_count() == 0) continue;
    state.reserved_blocks = blocks_for(one.rows_end) - blocks_for(one.begin);
    const bool parts = id == begin && one.parent >= 0;
    const bool in_block = one.begin % pool_.block_tokens() != 0;
    if (parts && in_block && at(one.parent).open_children > 0) ++state.reserved_blocks;
    if (options_.state_count > 0) {
      bool others = one.parent < 0;
      // Behind it, children of its parent that have rows.
      for (int32_t next = one.subtree_end; !others && next < node(one.parent).subtree_end;
           next = node(next).subtree_end) {
        others = node(next).row_count() > 0;
      }
      state.reserved_states = others ? 1 : 0;
    }
    block_count += state.reserved_blocks;
    state_count += state.reserved_states;
  }
  if (reserved_blocks_ + block_count > pool_.available_count()) return false;
  if (options_.state_count > 0 && reserved_states_ + state_count > free_state_count()) return false;
  reserved_blocks_ += block_count;
  reserved_states_ += state_count;
  return true;
}

BlockId ScorePlanner::take_block() {
  const Result<BlockId> taken = pool_.acquire();
  JIGE_CHECK(taken, "a text has entered without its blocks");
  return *taken;
}

void ScorePlanner::start(int32_t id, ScoreForward& forward) {
  const ScoreNode& one = node(id);
  NodeState& state = at(id);
  reserved_blocks_ -= state.reserved_blocks;
  if (one.begin % pool_.block_tokens() != 0) start_in_block(id, forward);
  while (block_of(one.begin) + std::ssize(state.blocks) < blocks_for(one.rows_end)) {
    state.blocks.push_back(take_block());
  }
  if (options_.state_count > 0) start_state(id, forward);
  if (one.parent < 0) return;
  at(one.parent).last_started = id;
  --at(one.parent).children_to_start;
}

void ScorePlanner::start_in_block(int32_t id, ScoreForward& forward) {
  const int32_t parent = node(id).parent;
  const BlockId tail = at(parent).tail;
  const int32_t neighbour = at(parent).last_started;
  if (neighbour < 0 || at(neighbour).text_count == 0) {
    pool_.retain(tail);
    at(id).blocks.push_back(tail);
    return;
  }
  const BlockId copy = take_block();
  at(id).blocks.push_back(copy);
  forward.copies.push_back({.src = tail, .dst = copy});
  ++copied_block_count_;
  // Those that keep the old one for children to come keep the new one.
  for (int32_t above = parent; above >= 0 && at(above).tail == tail; above = node(above).parent) {
    pool_.retain(copy);
    pool_.release(tail);
    at(above).tail = copy;
  }
}

void ScorePlanner::start_state(int32_t id, ScoreForward& forward) {
  NodeState& state = at(id);
  reserved_states_ -= state.reserved_states;
  const int32_t parent = node(id).parent;
  if (parent >= 0 && at(parent).children_to_start == 1) {
    std::swap(state.state, at(parent).state);
    return;
  }
  JIGE_CHECK(!free_states_.empty(), "a text has entered without its state");
  state.state = free_states_.back();
  free_states_.pop_back();
  if (parent < 0) return;
  forward.state_copies.push_back({.src = at(parent).state, .dst = state.state});
  ++copied_state_count_;
}

void ScorePlanner::add_rows(std::span<const ScoreText> texts, int32_t id, int32_t count,
                            ScoreForward& forward) {
  NodeState& state = at(id);
  const std::span<const int32_t> tokens = texts[static_cast<size_t>(node(id).text)].tokens;
  ScorePiece piece{.text = node(id).text,
                   .row_begin = static_cast<int32_t>(forward.tokens.size()),
                   .row_count = count,
                   .context_count = state.done,
                   .blocks = table_of(id),
                   .state = state.state};
  piece.blocks.resize(static_cast<size_t>(blocks_for(state.done + count)));
  for (int32_t i = 0; i < count; ++i) {
    const int32_t place = state.done + i;
    forward.tokens.push_back(tokens[static_cast<size_t>(place)]);
    add_scored(texts, id, place + 1, piece.row_begin + i, forward);
  }
  forward.pieces.push_back(std::move(piece));
  state.done += count;
  ready_rows_ -= count;
}

// The tokens at `place`, behind the row, that somebody wants scored.
void ScorePlanner::add_scored(std::span<const ScoreText> texts, int32_t id, int32_t place,
                              int32_t row, ScoreForward& forward) const {
  const auto add = [&](const ScoreNode& one) {
    if (place < one.scored_begin) return;
    const int32_t token = texts[static_cast<size_t>(one.text)].tokens[static_cast<size_t>(place)];
    forward.scored.push_back({.row = row, .token = token, .slot = one.slot(place)});
  };
  if (place < node(id).end) return add(node(id));
  for (int32_t child = id + 1; child < node(id).subtree_end; child = node(child).subtree_end) {
    add(node(child));
  }
}

std::vector<BlockId> ScorePlanner::table_of(int32_t id) {
  int32_t end = blocks_for(node(id).rows_end);
  std::vector<BlockId> table(static_cast<size_t>(end));
  for (; id >= 0; id = node(id).parent) {
    const int32_t begin = block_of(node(id).begin);
    const std::vector<BlockId>& blocks = at(id).blocks;
    if (begin >= end) continue;
    JIGE_CHECK(begin + std::ssize(blocks) >= end, "{} blocks from {} on, up to {}", blocks.size(),
               begin, end);
    std::copy_n(blocks.begin(), end - begin, table.begin() + begin);
    end = begin;
  }
  return table;
}

void ScorePlanner::complete(int32_t id, ScoreForward& forward) {
  const ScoreNode& one = node(id);
  NodeState& state = at(id);
  state.complete = true;
  if (state.children_to_start > 0 && one.end % pool_.block_tokens() != 0) {
    state.tail = state.blocks.back();
    state.blocks.pop_back();
  }
  if (state.state != kNoState && state.children_to_start == 0) {
    free_states_.push_back(std::exchange(state.state, kNoState));
  }
  for (int32_t child = id + 1; child < one.subtree_end; child = node(child).subtree_end) {
    if (node(child).row_count() > 0 && at(child).opened) ready_rows_ += node(child).row_count();
    if (node(child).row_count() == 0) end_texts(child, forward);
  }
  end_texts(id, forward);
}

void ScorePlanner::end_texts(int32_t id, ScoreForward& forward) {
  const std::span<const int32_t> texts = trie_.end_texts(node(id));
  if (texts.empty()) return;
  forward.texts_done.insert(forward.texts_done.end(), texts.begin(), texts.end());
  for (int32_t above = id; above >= 0; above = node(above).parent) {
    at(above).text_count -= static_cast<int32_t>(texts.size());
    if (at(above).text_count == 0) release(above);
  }
}

void ScorePlanner::release(int32_t id) {
  NodeState& state = at(id);
  for (const BlockId block : state.blocks) pool_.release(block);
  state.blocks.clear();
  if (state.tail >= 0) pool_.release(std::exchange(state.tail, -1));
  if (node(id).parent >= 0 && node(id).row_count() > 0) --at(node(id).parent).open_children;
}

}  // namespace jige::plan
