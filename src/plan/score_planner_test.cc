#include "plan/score_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace jige::plan {
namespace {

using TokenIds = std::vector<int32_t>;

struct ScoreJob {
  std::vector<TokenIds> tokens;
  std::vector<ScoreText> texts;
  void add(TokenIds text, int32_t first) {
    tokens.push_back(std::move(text));
    texts.push_back({.first = first});
  }
  void finish() {
    for (size_t i = 0; i < texts.size(); ++i) texts[i].tokens = tokens[i];
  }
  int64_t longest() const {
    size_t most = 0;
    for (const TokenIds& text : tokens) most = std::max(most, text.size());
    return static_cast<int64_t>(most);
  }
};

// Texts that begin like others, or are their beginnings, or are there twice.
ScoreJob random_job(uint64_t seed) {
  Rng rng(derive_key(seed, "score job"));
  ScoreJob job;
  const uint64_t count = 1 + rng.below(24);
  const uint64_t letters = 1 + rng.below(4);
  const uint64_t length = 2 + rng.below(30);
  for (uint64_t i = 0; i < count; ++i) {
    TokenIds text;
    if (i > 0 && rng.below(3) > 0) {
      const TokenIds& other = job.tokens[rng.below(i)];
      text.assign(other.begin(),
                  other.begin() + static_cast<ptrdiff_t>(rng.below(other.size() + 1)));
    }
    const uint64_t more = rng.below(length);
    for (uint64_t k = 0; k < more || text.size() < 2; ++k) {
      text.push_back(static_cast<int32_t>(rng.below(letters)));
    }
    const auto first = static_cast<int32_t>(1 + rng.below(text.size() - 1));
    job.add(std::move(text), first);
  }
  job.finish();
  return job;
}

// Runs forwards on a cache whose blocks remember what was put into them: the whole text up to
// there.
class PaperModel {
 public:
  PaperModel(const ScoreJob& job, const ScoreTrie& trie, const ScorePlanOptions& options)
      : job_(job),
        trie_(trie),
        block_tokens_(options.pool.block_tokens),
        blocks_(static_cast<size_t>(options.pool.block_count),
                std::vector<TokenIds>(static_cast<size_t>(block_tokens_))),
        states_(static_cast<size_t>(options.state_count)),
        numbers_(static_cast<size_t>(trie.slot_count()), -1) {}

  void run(const ScoreForward& forward) {
    for (const BlockCopy& copy : forward.copies) {
      blocks_[static_cast<size_t>(copy.dst)] = blocks_[static_cast<size_t>(copy.src)];
    }
    for (const StateCopy& copy : forward.state_copies) {
      states_[static_cast<size_t>(copy.dst)] = states_[static_cast<size_t>(copy.src)];
    }
    std::vector<TokenIds> seen(forward.tokens.size());  // by row
    int32_t next_row = 0;
    std::set<int32_t> taken;
    for (const ScorePiece& piece : forward.pieces) {
      ASSERT_EQ(piece.row_begin, next_row);
      next_row += piece.row_count;
      run_piece(forward, piece, seen);
      if (!states_.empty()) {
        EXPECT_TRUE(taken.insert(piece.state).second) << "a state twice";
      }
    }
    ASSERT_EQ(next_row, std::ssize(forward.tokens));
    // Every row's context is still what it was when all rows have been written.
    for (const ScorePiece& piece : forward.pieces) check_context(piece, seen);
    for (const ScoredToken& scored : forward.scored) {
      TokenIds text = seen[static_cast<size_t>(scored.row)];
      text.push_back(scored.token);
      EXPECT_TRUE(slots_.emplace(scored.slot, text).second) << "scored twice";
      numbers_[static_cast<size_t>(scored.slot)] = static_cast<float>(scored.slot);
    }
    for (const int32_t text : forward.texts_done) end_text(text);
  }

  // REQUIRES: all forwards have been run.
  void check_end() const {
    EXPECT_EQ(done_.size(), job_.texts.size());
    std::set<TokenIds> wanted, runs;
    int64_t alone = 0;
    for (const ScoreText& text : job_.texts) {
      const TokenIds all(text.tokens.begin(), text.tokens.end());
      for (size_t i = 1; i < all.size(); ++i) {
        const TokenIds beginning(all.begin(), all.begin() + static_cast<ptrdiff_t>(i));
        runs.insert(beginning);
        ++alone;
        if (static_cast<int32_t>(i) < text.first) continue;
        TokenIds scored = beginning;
        scored.push_back(all[i]);
        wanted.insert(scored);
      }
    }
    std::set<TokenIds> scored;
    for (const auto& [slot, text] : slots_) scored.insert(text);
    EXPECT_EQ(scored, wanted);
    EXPECT_EQ(trie_.text_row_count(), alone);
    EXPECT_EQ(row_count_, trie_.row_count());
    least_rows_ = std::ssize(runs);
  }

  int64_t row_count() const { return row_count_; }
  // Of a plan that runs every beginning once.
  int64_t least_rows() const { return least_rows_; }

 private:
  TokenIds& in_cache(const ScorePiece& piece, int32_t place) {
    const auto block =
        static_cast<size_t>(piece.blocks[static_cast<size_t>(place / block_tokens_)]);
    return blocks_[block][static_cast<size_t>(place % block_tokens_)];
  }

  void run_piece(const ScoreForward& forward, const ScorePiece& piece,
                 std::vector<TokenIds>& seen) {
    TokenIds text;
    if (piece.context_count > 0) text = in_cache(piece, piece.context_count - 1);
    ASSERT_EQ(std::ssize(text), piece.context_count) << "the context is not there";
    if (!states_.empty()) {
      EXPECT_TRUE(piece.context_count == 0 || states_[static_cast<size_t>(piece.state)] == text);
    }
    for (int32_t row = piece.row_begin; row < piece.row_begin + piece.row_count; ++row) {
      text.push_back(forward.tokens[static_cast<size_t>(row)]);
      in_cache(piece, static_cast<int32_t>(std::ssize(text)) - 1) = text;
      seen[static_cast<size_t>(row)] = text;
      ++row_count_;
    }
    if (!states_.empty()) states_[static_cast<size_t>(piece.state)] = text;
  }

  void check_context(const ScorePiece& piece, const std::vector<TokenIds>& seen) {
    const TokenIds& last = seen[static_cast<size_t>(piece.row_begin + piece.row_count - 1)];
    for (size_t place = 0; place < last.size(); ++place) {
      const TokenIds& kept = in_cache(piece, static_cast<int32_t>(place));
      EXPECT_TRUE(std::equal(kept.begin(), kept.end(), last.begin(),
                             last.begin() + static_cast<ptrdiff_t>(place) + 1))
          << "place " << place << " of " << last.size();
    }
  }

  void end_text(int32_t text) {
    EXPECT_TRUE(done_.insert(text).second) << "done twice";
    const ScoreText& one = job_.texts[static_cast<size_t>(text)];
    const std::vector<float> values = trie_.values_of(text, numbers_);
    ASSERT_EQ(std::ssize(values), std::ssize(one.tokens) - one.first);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto found = slots_.find(static_cast<int64_t>(values[i]));
      ASSERT_NE(found, slots_.end());
      const auto end = one.tokens.begin() + one.first + static_cast<ptrdiff_t>(i) + 1;
      EXPECT_EQ(found->second, TokenIds(one.tokens.begin(), end));
    }
  }

  const ScoreJob& job_;
  const ScoreTrie& trie_;
  int32_t block_tokens_;
  std::vector<std::vector<TokenIds>> blocks_;
  std::vector<TokenIds> states_;
  std::vector<float> numbers_;  // of slots that have been scored
  std::map<int64_t, TokenIds> slots_;
  std::set<int32_t> done_;
  int64_t row_count_ = 0;
  mutable int64_t least_rows_ = 0;
};

struct RunCounts {
  int64_t forwards = 0;
  int64_t rows = 0;
  int64_t least_rows = 0;
  int64_t copied_blocks = 0;
  int64_t copied_states = 0;
};

RunCounts run_job(const ScoreJob& job, const ScorePlanOptions& options) {
  const int32_t forks_max = options.state_count > 0 ? options.state_count - 1 : -1;
  const ScoreTrie trie = ScoreTrie::build(job.texts, forks_max);
  ScorePlanner planner(trie, options);
  PaperModel model(job, trie, options);
  RunCounts run;
  ScoreForward forward;
  while (planner.next(job.texts, forward)) {
    EXPECT_LE(std::ssize(forward.tokens), options.rows_max);
    EXPECT_GT(std::ssize(forward.tokens), 0);
    model.run(forward);
    planner.pool().check_invariants();
    ++run.forwards;
    if (::testing::Test::HasFailure()) return run;
  }
  model.check_end();
  EXPECT_EQ(planner.pool().live_count(), 0);
  EXPECT_EQ(planner.free_state_count(), options.state_count);
  run.rows = model.row_count();
  run.least_rows = model.least_rows();
  run.copied_blocks = planner.copied_block_count();
  run.copied_states = planner.copied_state_count();
  return run;
}

// With as few blocks as the longest text needs, and with more.
TEST(ScorePlanner, RunsEveryBeginningOnceBehindItsOwnContext) {
  int64_t copied = 0, tight = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const ScoreJob job = random_job(seed);
    Rng rng(derive_key(seed, "options"));
    ScorePlanOptions options{.rows_max = static_cast<int32_t>(1 + rng.below(40))};
    options.pool.block_tokens = static_cast<int32_t>(1 + rng.below(8));
    const auto least = static_cast<int32_t>((job.longest() - 1 + options.pool.block_tokens - 1) /
                                            options.pool.block_tokens);
    const auto more = static_cast<int32_t>(rng.below(3) > 0 ? rng.below(30) : 0);
    options.pool.block_count = least + more;
    const RunCounts run = run_job(job, options);
    ASSERT_FALSE(HasFailure());
    EXPECT_EQ(run.rows, run.least_rows);
    copied += run.copied_blocks;
    tight += more == 0;
  }
  // The jobs are worth something only if all of this happens in them.
  EXPECT_GT(copied, 300);
  EXPECT_GT(tight, 100);
}

TEST(ScorePlanner, GivesEachBranchAStateOfItsOwn) {
  int64_t copied = 0, again = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const ScoreJob job = random_job(seed);
    Rng rng(derive_key(seed, "states"));
    ScorePlanOptions options{.rows_max = static_cast<int32_t>(1 + rng.below(40)),
                             .state_count = static_cast<int32_t>(1 + rng.below(6))};
    options.pool = {.block_count = static_cast<int32_t>(job.longest() + rng.below(20)),
                    .block_tokens = 4};
    const RunCounts run = run_job(job, options);
    ASSERT_FALSE(HasFailure());
    EXPECT_GE(run.rows, run.least_rows);
    copied += run.copied_states;
    again += run.rows > run.least_rows;
  }
  EXPECT_GT(copied, 300);
  EXPECT_GT(again, 30);
}

// Every text is the one before it and a token more, and each has a neighbour: the worst for blocks.
TEST(ScorePlanner, NeedsNoMoreBlocksThanTheLongestTextHas) {
  ScoreJob job;
  TokenIds spine = {0, 0};
  for (int32_t i = 0; i < 120; ++i) {
    spine.push_back(i % 7);
    TokenIds side = spine;
    side.insert(side.end(), {100, 101, 102});
    job.add(side, 1);
    job.add(spine, 1);
  }
  job.finish();
  for (const bool backwards : {false, true}) {
    if (backwards) {
      std::ranges::reverse(job.tokens);
      job.finish();
    }
    const auto blocks = static_cast<int32_t>((job.longest() - 1 + 15) / 16);
    const RunCounts run = run_job(job, {.rows_max = 64, .pool = {.block_count = blocks}});
    EXPECT_EQ(run.rows, run.least_rows);
  }
}

// Contexts of 56 tokens with four endings of 33 each, as a known benchmark has them on average.
TEST(ScorePlanner, FillsForwardsAndRunsContextsOnce) {
  ScoreJob job;
  Rng rng(7);
  for (int32_t question = 0; question < 60; ++question) {
    TokenIds context = {0};
    while (context.size() < 56) context.push_back(static_cast<int32_t>(rng.below(1000)));
    for (int32_t choice = 0; choice < 4; ++choice) {
      TokenIds text = context;
      while (text.size() < 89) text.push_back(static_cast<int32_t>(rng.below(1000)));
      job.add(text, 56);
    }
  }
  job.finish();
  const RunCounts run = run_job(job, {.rows_max = 512, .pool = {.block_count = 128}});
  EXPECT_EQ(run.rows, run.least_rows);
  EXPECT_LE(run.rows, 60 * (56 + 4 * 32));
  // The first row is all that can be run at first, and the last forwards are not full.
  EXPECT_LE(run.forwards, run.rows / 512 + 4);
  EXPECT_LE(run.copied_blocks, 60 * 4);
}

TEST(ScorePlanner, EndsTextsNearlyInTheirOrder) {
  ScoreJob job;
  for (int32_t i = 0; i < 300; ++i) {
    TokenIds text = {0, 500 - i};
    while (text.size() < 20) text.push_back(static_cast<int32_t>(text.size()));
    job.add(text, 1);
  }
  job.finish();
  const ScoreTrie trie = ScoreTrie::build(job.texts);
  ScorePlanner planner(trie, {.rows_max = 100, .pool = {.block_count = 64}});
  ScoreForward forward;
  std::vector<int32_t> done;
  while (planner.next(job.texts, forward)) {
    done.insert(done.end(), forward.texts_done.begin(), forward.texts_done.end());
  }
  EXPECT_TRUE(std::ranges::is_sorted(done));
  EXPECT_EQ(done.size(), job.texts.size());
}

// Rows of an image that see one another are in one forward, whatever else is.
TEST(ScorePlanner, CutsNoRunOfTokensThatSeeOneAnother) {
  std::vector<std::vector<int32_t>> tokens(3);
  const std::vector<TokenRun> runs = {{4, 13}, {15, 24}};
  for (int32_t text = 0; text < 3; ++text) {
    for (int32_t i = 0; i < 30; ++i) {  // the third has another second image
      tokens[static_cast<size_t>(text)].push_back(
          i >= 26 || (text == 2 && i >= 15) ? 100 * (text + 1) + i : i);
    }
  }
  std::vector<ScoreText> texts;
  for (const auto& one : tokens) texts.push_back({.tokens = one, .first = 26, .runs = runs});
  for (const int32_t rows_max : {9, 10, 12, 17, 40}) {
    SCOPED_TRACE(rows_max);
    const ScoreTrie trie = ScoreTrie::build(texts);
    ScorePlanner planner(trie,
                         {.rows_max = rows_max, .pool = {.block_count = 20, .block_tokens = 4}});
    ScoreForward forward;
    size_t done = 0;
    int64_t rows = 0;
    while (planner.next(texts, forward)) {
      for (const ScorePiece& piece : forward.pieces) {
        for (const TokenRun& run : runs) {
          for (const int32_t cut : {piece.context_count, piece.context_count + piece.row_count}) {
            EXPECT_FALSE(run.begin < cut && cut < run.end) << cut;
          }
        }
        const auto& own = tokens[static_cast<size_t>(piece.text)];
        for (int32_t i = 0; i < piece.row_count; ++i) {
          EXPECT_EQ(forward.tokens[static_cast<size_t>(piece.row_begin + i)],
                    own[static_cast<size_t>(piece.context_count + i)]);
        }
        rows += piece.row_count;
      }
      done += forward.texts_done.size();
    }
    EXPECT_EQ(done, 3u);
    EXPECT_EQ(rows, trie.row_count());
  }
}

TEST(ScorePlanner, HasNothingToDoWithoutTexts) {
  const ScoreTrie trie = ScoreTrie::build({});
  ScorePlanner planner(trie, {.pool = {.block_count = 1}});
  ScoreForward forward;
  EXPECT_FALSE(planner.next({}, forward));
}

}  // namespace
}  // namespace jige::plan
