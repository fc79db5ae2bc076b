#include "serve/scorer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "model/batch_limits.h"
#include "serve/context_hint.h"

namespace jige::serve {
namespace {

Result<std::vector<float>> finite_logprobs(std::vector<float> logprobs, size_t first) {
  for (size_t i = 0; i < logprobs.size(); ++i) {
    if (std::isfinite(logprobs[i])) continue;
    return fail(Code::kCorrupt,
                "the model's weights hold NaN, infinity, or numbers too large to compute with: "
                "the log-probability of token {} of the text is {}",
                first + i, logprobs[i]);
  }
  return logprobs;
}

}  // namespace

Scorer::Scorer(model::InferenceModel& model, int32_t adapter) : model_(model), adapter_(adapter) {
  JIGE_CHECK(model.sizes().scores, "a Scorer needs a model loaded with scores");
}

int64_t Scorer::context_max() const {
  return std::min(model_.context_max(), model_.sizes().kv_block_count * ops::kKvBlockTokens);
}

Status Scorer::check(const ScoredText& text) const {
  const std::vector<int32_t>& tokens = text.tokens;
  const size_t first = text.first;
  if (tokens.size() < 2) {
    return fail(Code::kInvalidArgument, "{} token(s) have no probability; give at least two",
                tokens.size());
  }
  if (first < 1 || first >= tokens.size()) {
    return fail(Code::kInvalidArgument, "the first scored token is {}; it must be in 1..{}", first,
                tokens.size() - 1);
  }
  // The last token is a target only.
  if (static_cast<int64_t>(tokens.size()) - 1 > context_max()) {
    return fail(Code::kInvalidArgument,
                "the text has {} tokens and the context holds {}; shorten it{}", tokens.size(),
                context_max(), context_hint(context_max(), model_.config().context_max));
  }
  const GivenTable table(text.given, tokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i < first && table.has(tokens[i])) continue;
    JIGE_DO(model::check_range("a token id", tokens[i], 0, model_.config().vocab_size - 1));
  }
  JIGE_DO(table.check({.vocab_size = model_.config().vocab_size,
                       .width = model_.config().hidden_size,
                       .turns_by_places = model_.turns_by_places(),
                       .layer_count = model_.config().layer_count}));
  return table.check_mutual(tokens, model_.sizes().batch_tokens_max);
}

Status Scorer::score_all(std::span<const ScoredText> texts, const DoneCallback& done,
                         const std::atomic<bool>* cancelled) {
  std::vector<plan::ScoreText> planned;
  std::vector<GivenTable> tables;
  std::vector<std::vector<plan::TokenRun>> runs;
  for (const ScoredText& text : texts) {
    JIGE_DO(check(text));
    tables.emplace_back(text.given, text.tokens);
    runs.push_back(tables.back().mutual_runs(text.tokens));
    planned.push_back(
        {.tokens = text.tokens, .first = static_cast<int32_t>(text.first), .runs = runs.back()});
  }
  const model::InferenceSizes& sizes = model_.sizes();
  const auto states = static_cast<int32_t>(sizes.state_count);
  const auto trie = plan::ScoreTrie::build(planned, states > 0 ? states - 1 : -1);
  plan::ScorePlanner planner(trie,
                             {.rows_max = static_cast<int32_t>(sizes.batch_tokens_max),
                              .state_count = states,
                              .pool = {.block_count = static_cast<int32_t>(sizes.kv_block_count),
                                       .block_tokens = static_cast<int32_t>(ops::kKvBlockTokens)}});
  std::vector<float> by_slot(static_cast<size_t>(trie.slot_count()));
  counts_.text_tokens += trie.text_row_count();
  plan::ScoreForward forward;
  while (planner.next(planned, forward)) {
    if (cancelled && cancelled->load()) return fail(Code::kCancelled, "by a signal");
    JIGE_DO(run(forward, tables, by_slot));
    for (const int32_t text : forward.texts_done) {
      const auto index = static_cast<size_t>(text);
      JIGE_DO(done(index, finite_logprobs(trie.values_of(text, by_slot), texts[index].first)));
    }
  }
  return {};
}

Status Scorer::run(const plan::ScoreForward& forward, std::span<const GivenTable> tables,
                   std::vector<float>& by_slot) {
  for (const plan::BlockCopy& copy : forward.copies) {
    JIGE_DO(model_.copy_block(copy.src, copy.dst));
  }
  for (const plan::StateCopy& copy : forward.state_copies) {
    JIGE_DO(model_.copy_state(copy.src, copy.dst));
  }
  std::vector<ops::SequenceSpan> sequences;
  std::vector<int32_t> tokens = forward.tokens;
  PlacedRows placed;
  std::vector<const model::ImagePlaces*> places;
  bool any_places = false;
  for (const plan::ScorePiece& piece : forward.pieces) {
    const GivenTable& table = tables[static_cast<size_t>(piece.text)];
    table.place(std::span(tokens).subspan(static_cast<size_t>(piece.row_begin),
                                          static_cast<size_t>(piece.row_count)),
                piece.row_begin, placed);
    places.push_back(table.places());
    any_places = any_places || places.back();
    sequences.push_back({.row_begin = piece.row_begin,
                         .row_count = piece.row_count,
                         .context_count = piece.context_count,
                         .blocks = piece.blocks.data(),
                         .state = std::max(piece.state, 0)});
  }
  const std::vector<int32_t> adapters(sequences.size(), adapter_);
  std::vector<model::TargetRow> targets;
  for (const plan::ScoredToken& scored : forward.scored) {
    targets.push_back({.row = scored.row, .token = scored.token});
  }
  if (!any_places) places.clear();
  JIGE_TRY(const std::span<const float> losses, model_.losses({.tokens = tokens,
                                                               .sequences = sequences,
                                                               .logit_rows = {},
                                                               .adapters = adapters,
                                                               .given = placed.given,
                                                               .mutual = placed.mutual,
                                                               .places = places},
                                                              targets));
  for (size_t i = 0; i < losses.size(); ++i) {
    by_slot[static_cast<size_t>(forward.scored[i].slot)] = -losses[i];
  }
  ++counts_.forwards;
  counts_.computed_tokens += std::ssize(forward.tokens);
  counts_.copied_blocks += std::ssize(forward.copies);
  return {};
}

Result<TokenScores> Scorer::score(std::span<const int32_t> tokens, size_t first) {
  const ScoredText text{.tokens = {tokens.begin(), tokens.end()}, .first = first};
  TokenScores scores{.tokens = text.tokens, .logprobs = {}};
  const auto keep = [&](size_t, Result<std::vector<float>> logprobs) -> Status {
    JIGE_TRY(scores.logprobs, std::move(logprobs));
    return {};
  };
  JIGE_DO(score_all(std::span(&text, 1), keep));
  return scores;
}

Result<TokenScores> Scorer::score_text(const text::Tokenizer& tokenizer, std::string_view text) {
  JIGE_TRY(const std::vector<int32_t> tokens, tokenizer.encode(text, {}));
  return score(tokens);
}

}  // namespace jige::serve
