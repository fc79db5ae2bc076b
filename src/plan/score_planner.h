// ScorePlanner: in which forwards a model runs the texts of a scoring job (score_trie.h), every
// token of the trie once, over a paged key/value cache that may be much smaller than the job.
//
//   ScorePlanner planner(trie, {.rows_max = 512, .pool = {.block_count = 288}});
//   while (planner.next(texts, forward)) …run it…
//
// A forward takes rows of nodes whose parents have been run, in the order of the trie, as many as
// fit. A text enters when the blocks of all that is left of its path are free; it holds them, or
// others hold them for it, until it is done. Since texts enter depth first, what is held once those
// inside are done is the beginning of the next one's path, so that one fits too: nothing is ever
// given up and run again.
// Where children part within a block, one goes on in it and the others in copies, each of which is
// made when its owner begins. What is kept for children still to come is then the newest copy, and
// so a path never holds two blocks for one place once its neighbours are done.
// States of recurrent layers, where a model has them, go forward alone: each branch has one. The
// last child goes on with that of its parent, others with a copy.
//
// Invariants: (1) a row's context is the path of its text, in blocks that nobody else writes to
//             (2) blocks and states that are held never pass the options; at the end none is held
//             (3) while texts are left next() gives rows, if each fits the cache by itself and no
//                 path has as many forks as there are states
//             (4) forwards run in their order, the copies of each first and in theirs
//             (5) a run of tokens that see one another is in one forward
// Threads: none; one caller. A pure state machine: the same job gives the same forwards.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/kv_block_pool.h"
#include "plan/score_trie.h"
#include "plan/serve_scheduler.h"

namespace jige::plan {

struct ScorePlanOptions {
  int32_t rows_max = 512;   // of a forward
  int32_t state_count = 0;  // 0: the model has no states
  KvBlockPoolOptions pool;  // has no prefix cache here
};

// Rows of one node, behind what is before them.
struct ScorePiece {
  int32_t text = 0;  // one that has these rows, and what is before them
  int32_t row_begin = 0;
  int32_t row_count = 0;
  int32_t context_count = 0;
  std::vector<BlockId> blocks;  // of all places up to the last row
  int32_t state = kNoState;
};

// What is wanted of a row: how likely `token` is behind it.
struct ScoredToken {
  int32_t row = 0;
  int32_t token = 0;
  int64_t slot = 0;
};

struct ScoreForward {
  std::vector<BlockCopy> copies;
  std::vector<StateCopy> state_copies;
  std::vector<int32_t> tokens;
  std::vector<ScorePiece> pieces;  // cover the rows in order
  std::vector<ScoredToken> scored;
  std::vector<int32_t> texts_done;  // all of whose tokens have been scored then
};

class ScorePlanner {
 public:
  // The trie must outlive the planner. REQUIRES: rows_max > 0 and as many as a
  // run of tokens that see one another, a pool that holds the rows of each
  // text by itself; of a trie with states, forks_max < state_count.
  ScorePlanner(const ScoreTrie& trie, const ScorePlanOptions& options);

  // The next forward of the texts that the trie was built of; false when there is none.
  bool next(std::span<const ScoreText> texts, ScoreForward& forward);

  const KvBlockPool& pool() const { return pool_; }
  int64_t copied_block_count() const { return copied_block_count_; }
  int64_t copied_state_count() const { return copied_state_count_; }
  // States that nobody holds.
  int32_t free_state_count() const { return static_cast<int32_t>(free_states_.size()); }

 private:
  struct NodeState {
    int32_t done = 0;        // places [begin, done) have been run or are in the forward
    int32_t text_count = 0;  // that are not done
    bool opened = false;
    bool complete = false;
    int32_t open_children = 0;      // opened with rows, with texts that are not done
    int32_t children_to_start = 0;  // with rows
    int32_t last_started = -1;      // of the children
    int32_t reserved_blocks = 0;    // until it starts
    int32_t reserved_states = 0;
    std::vector<BlockId> blocks;  // that it runs in, from the one that holds `begin` on
    BlockId tail = -1;  // once complete: holds the places before its end, for children to come
    int32_t state = kNoState;
  };

  const ScoreNode& node(int32_t id) const { return trie_[id]; }
  NodeState& at(int32_t id) { return states_[static_cast<size_t>(id)]; }
  int32_t block_of(int32_t place) const { return place / pool_.block_tokens(); }
  int32_t blocks_for(int32_t places) const { return block_of(places + pool_.block_tokens() - 1); }
  bool parent_complete(int32_t id);
  // Opens paths to leaves, in order, while fewer rows than a forward holds can be run.
  void admit();
  bool reserve(int32_t begin, int32_t end);
  void start(int32_t id, ScoreForward& forward);
  void start_in_block(int32_t id, ScoreForward& forward);
  void start_state(int32_t id, ScoreForward& forward);
  void add_rows(std::span<const ScoreText> texts, int32_t id, int32_t count, ScoreForward& forward);
  void add_scored(std::span<const ScoreText> texts, int32_t id, int32_t place, int32_t row,
                  ScoreForward& forward) const;
  std::vector<BlockId> table_of(int32_t id);
  void complete(int32_t id, ScoreForward& forward);
  void end_texts(int32_t id, ScoreForward& forward);
  void release(int32_t id);
  BlockId take_block();

  const ScoreTrie& trie_;
  const ScorePlanOptions options_;
  KvBlockPool pool_;
  std::vector<NodeState> states_;     // by node
  std::vector<int32_t> open_;         // opened and not complete, in order
  std::vector<int32_t> free_states_;  // of recurrent layers
  int32_t next_node_ = 0;             // all before it are opened
  int64_t ready_rows_ = 0;            // of open nodes whose parents are complete
  int32_t reserved_blocks_ = 0;
  int32_t reserved_states_ = 0;
  int64_t copied_block_count_ = 0;
  int64_t copied_state_count_ = 0;
};

}  // namespace jige::plan
