// DraftModel: a small model that guesses how sequences go on, for a large one that verifies.
//
//   if (model.take(sequence, tokens_max)) …        // a place with cache blocks for all its tokens
//   const int64_t missing = model.missing(sequence, tokens);    // what it has not read
//   DraftModel::Work work{sequence, tokens, /*piece=*/missing, /*count=*/4};
//   JIGE_DO(model.run(std::span(&work, 1)));                    // work.guesses
//
// One forward reads what all sequences lack, or pieces of it, and what was guessed for them before;
// each further one makes the next guess of all: the likeliest token, of those that the sequence's
// answer may have. What is forced behind it comes without a forward, and is read by the next one.
// What was guessed wrongly is forgotten as missing() compares.
//
// A place is promised all the blocks it will ever need, or is not given: a sequence never runs out
// of them, and no other one loses any. Blocks full of what was read are known prefixes, as those of
// the large model are (plan/kv_block_pool.h): sequences that begin with the same tokens, under the
// same salt, share them, also while both run, and they are kept until a place needs the room. The
// pool is the model's own: it runs ahead of the large model's, whose blocks are not there yet.
//
// Invariants: blocks in use are not more than promised; of a place the first `read` tokens are
// those of its sequence; a known block is written no more. Memory is that of DraftModelPlan from
// load() on, but for a few words a place and a block.
// Threads: one at a time. The model is its user's alone while that lives.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/inference.h"
#include "plan/kv_block_pool.h"
#include "plan/serve_scheduler.h"
#include "serve/answer.h"
#include "serve/draft_finder.h"
#include "serve/draft_model_plan.h"
#include "serve/guess_row.h"

namespace jige::serve {

class DraftModel {
 public:
  // On the large model's device. Fails as InferenceModel::load does.
  static Result<std::unique_ptr<DraftModel>> load(const DraftModelPlan& plan,
                                                  model::InferenceModel& large,
                                                  int64_t memory_bytes_max = kUnlimitedBytes);

  // Forgets all sequences and known prefixes.
  void clear();
  // Sees to it that a sequence of up to `tokens_max` tokens has a place; false where too few blocks
  // are left. A place that is there stays as it is. Known prefixes are those of the same salt.
  bool take(plan::RequestId sequence, int64_t tokens_max, uint64_t cache_salt = 0);
  // Gives its blocks back; unknown ones are ignored.
  void forget(plan::RequestId sequence);

  // The most guesses that may follow so many tokens: what its place and its context leave; 0
  // without a place, and where the sequence has tokens that the model does not know.
  int32_t guesses_max(plan::RequestId sequence, size_t token_count) const;
  // How many of the sequence's tokens are to be read before its next guess, the last one in any
  // case. REQUIRES: guesses_max() > 0; the others are as they were.
  int64_t missing(plan::RequestId sequence, const TokenSequence& tokens);
  // The name of the next whole block that it would read, with all before it; nothing where none is
  // missing. Sequences with the same one would read the same. REQUIRES: missing() of these tokens.
  std::optional<plan::PrefixHash> next_block(plan::RequestId sequence, const TokenSequence& tokens);

  struct Work {
    plan::RequestId sequence = 0;
    TokenSequence tokens;
    int64_t piece = 0;  // of what is missing, to be read
    int32_t count = 0;  // guesses that are wanted; some only if the piece is all that is missing
    Answer* ahead = nullptr;  // follows the guesses, which are such as it may have; null: any
    bool adds_forced = true;  // what it forces is a guess, too
    // The result: begins with what was guessed before, behind which `ahead` stands; fewer than
    // `count` where there are none.
    GuessRow guesses = {};
  };
  // REQUIRES: pieces of rows_max() tokens in all, at most readers_max() works with a count; that is
  // more than the guesses before, by up to guesses_max() behind them. Fails as
  // InferenceModel::forward does; no sequence is spoiled by that.
  Status run(std::span<Work> works);

  int64_t rows_max() const { return model_->sizes().batch_tokens_max; }
  int64_t readers_max() const { return model_->sizes().logit_rows_max; }
  // Of forwards that read little but make guesses, and how long a row takes in one of many; 0: none
  // was seen.
  const plan::StepCost& step_cost() const { return step_cost_; }
  double row_seconds() const { return row_seconds_; }

  // Since clear(): tokens of sequences that were read, and that were not, being known.
  struct Counts {
    int64_t read_tokens = 0;
    int64_t known_tokens = 0;
  };
  const Counts& counts() const { return counts_; }

  const model::InferenceModel& model() const { return *model_; }
  const plan::KvBlockPool& pool() const { return pool_; }
  // That were promised to nobody.
  int64_t free_block_count() const { return pool_.capacity() - promised_blocks_; }
  // To be injected by tests: an error makes the next forward fail.
  void set_fault(std::function<Status()> fault) { fault_ = std::move(fault); }

 private:
  struct Place {
    std::vector<plan::BlockId> blocks;     // up to the last row so far; never moves
    std::vector<plan::PrefixHash> prefix;  // prefix[i]: hash before block i; but the last: known
    int64_t tokens_max = 0;
    int64_t promised_blocks = 0;
    size_t read = 0;             // tokens of the sequence in the cache
    std::vector<int32_t> ahead;  // guesses in the cache behind them
    bool unknown = false;        // it has a token that the model does not know
    // Where the first block that is not known ends.
    size_t known_end() const { return prefix.size() * ops::kKvBlockTokens; }
  };

  DraftModel(std::unique_ptr<model::InferenceModel> model, int32_t ids_max,
             const plan::KvBlockPoolOptions& pool);
  Place& place_of(plan::RequestId sequence);
  // The tokens of the first block that is not known. REQUIRES: so many are there.
  std::span<const int32_t> next_tokens(const Place& place, const TokenSequence& tokens);
  // Goes on behind what is known by now.
  void use_known(Place& place, const TokenSequence& tokens);
  // Full blocks of what was read are known from now on, but for one that holds the last token.
  void publish(Place& place, const TokenSequence& tokens);
  // A work that is run.
  struct Running {
    Work* work;
    Place* place;
    size_t cached = 0;  // of its guesses
    size_t added = 0;   // of them, rows of the next forward
    bool open = false;  // more guesses are wanted and may come
  };
  bool add_piece(const Work& work, Place& place);
  void add_row(Place& place, int32_t token, size_t position);
  // Guesses that are not in the cache, up to `rows_max` of them; behind the last one is guessed.
  void add_guesses(Running& one, int64_t rows_max);
  // Runs the rows that were added, and appends a guess to each of readers_, and what is forced
  // behind it.
  Status forward(bool reads_pieces);
  std::optional<int32_t> guess(const Work& work, const model::LogitRows& rows, size_t row) const;

  std::unique_ptr<model::InferenceModel> model_;
  const int32_t ids_max_;
  const plan::KvBlockPoolOptions pool_options_;
  std::map<plan::RequestId, Place> places_;
  plan::KvBlockPool pool_;
  int64_t promised_blocks_ = 0;
  Counts counts_;
  plan::StepCost step_cost_;
  double row_seconds_ = 0;
  std::function<Status()> fault_;
  // Of the next forward.
  std::vector<int32_t> tokens_;
  std::vector<ops::SequenceSpan> sequences_;
  std::vector<int32_t> logit_rows_;
  std::vector<Work*> readers_;  // of logit_rows_
  std::vector<ops::RowDraw> draws_;
  std::vector<int32_t> block_tokens_;  // of next_tokens()
};

}  // namespace jige::serve
