// The texts of a scoring job as a trie: beginnings that texts share stand in it once.
//
// A node is a run of tokens, [begin, end) counted from the start of its texts, that the same texts
// have. To know how likely the token at place p is, a model runs the token at p - 1 behind those
// before it; so of a node without children the last token is never run. Every token has a slot for
// what is found out about it, given its beginning.
//
//   nodes are numbered depth first, children in the order of the first text that has them, so
//   texts come to their end nearly in the order in which they were given
//
// Threads: values; building is pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/token_runs.h"

namespace jige::plan {

// Tokens from `first` on are to be scored. Runs of those before it may see one another; texts that
// have one token of a run have all of it. REQUIRES: 1 <= first < tokens.size().
struct ScoreText {
  std::span<const int32_t> tokens;
  int32_t first = 1;
  std::span<const TokenRun> runs = {};
};

struct ScoreNode {
  int32_t parent = -1;
  int32_t subtree_end = 0;  // behind the last node below
  int32_t text = 0;         // one that has these tokens
  int32_t begin = 0;
  int32_t end = 0;
  int32_t rows_end = 0;      // tokens [begin, rows_end) are run
  int32_t scored_begin = 0;  // the first place that one of its texts wants scored
  int32_t text_count = 0;    // that go through it, or end here
  int32_t ends_begin = 0;    // texts that end here, in ScoreTrie::end_texts()
  int32_t ends_end = 0;
  int64_t slot_begin = 0;
  int32_t row_count() const { return rows_end - begin; }
  int64_t slot(int32_t place) const { return slot_begin + place - begin; }
};

class ScoreTrie {
 public:
  // With `forks_max` no path has more places than this where what follows must be run for several
  // children: texts that would are run whole from the last such place on. < 0: any number.
  // REQUIRES: less than 2^31 tokens in all.
  static ScoreTrie build(std::span<const ScoreText> texts, int32_t forks_max = -1);

  std::span<const ScoreNode> nodes() const { return nodes_; }
  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }
  const ScoreNode& operator[](int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  std::span<const int32_t> end_texts(const ScoreNode& node) const {
    return std::span(end_texts_)
        .subspan(static_cast<size_t>(node.ends_begin),
                 static_cast<size_t>(node.ends_end - node.ends_begin));
  }
  int64_t slot_count() const { return slot_count_; }
  // Tokens that are run, and those that would be if each text were run by itself.
  int64_t row_count() const { return row_count_; }
  int64_t text_row_count() const { return text_row_count_; }
  // What stands in the slots of a text's tokens from its first scored one on.
  std::vector<float> values_of(int32_t text, std::span<const float> by_slot) const;

 private:
  int32_t add(std::span<const ScoreText> texts, int32_t parent, std::span<const int32_t> ends,
              int32_t text, int32_t end);
  void finish();

  std::vector<ScoreNode> nodes_;
  std::vector<int32_t> end_texts_;
  std::vector<int32_t> end_nodes_;  // by text
  std::vector<int32_t> first_;      // by text
  int64_t slot_count_ = 0;
  int64_t row_count_ = 0;
  int64_t text_row_count_ = 0;
};

}  // namespace jige::plan
