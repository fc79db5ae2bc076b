#include "serve/draft_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "ops/likeliest.h"
#include "serve/draft_options.h"

namespace jige::serve {
namespace {

// What a forward over a guess may read of each sequence: its last token, and one that came with it.
constexpr int64_t kRowsOfGuess = 2;
// Rows of a forward that says how long one of many takes.
constexpr double kRowsOfPiece = 64;

}  // namespace

Result<std::unique_ptr<DraftModel>> DraftModel::load(const DraftModelPlan& plan,
                                                     model::InferenceModel& large,
                                                     int64_t memory_bytes_max) {
  const int64_t blocks = large.sizes().kv_block_count;
  JIGE_TRY(auto model, model::InferenceModel::load(plan.folder(), large.device(),
                                                   plan.options(blocks, memory_bytes_max)));
  const int64_t ids =
      std::min<int64_t>({plan.ids_max(), large.config().vocab_size, model->config().vocab_size});
  const plan::KvBlockPoolOptions pool{
      .block_count = static_cast<int32_t>(model->sizes().kv_block_count),
      .block_tokens = ops::kKvBlockTokens,
      .prefix_cache = plan.prefix_cache()};
  return std::unique_ptr<DraftModel>(
      new DraftModel(std::move(model), static_cast<int32_t>(ids), pool));
}

DraftModel::DraftModel(std::unique_ptr<model::InferenceModel> model, int32_t ids_max,
                       const plan::KvBlockPoolOptions& pool)
    : model_(std::move(model)), ids_max_(ids_max), pool_options_(pool), pool_(pool) {}

void DraftModel::clear() {
  places_.clear();
  pool_ = plan::KvBlockPool(pool_options_);
  promised_blocks_ = 0;
  counts_ = {};
}

bool DraftModel::take(plan::RequestId sequence, int64_t tokens_max, uint64_t cache_salt) {
  if (places_.contains(sequence)) return true;
  tokens_max = std::min(tokens_max, model_->context_max());
  const int64_t count = (tokens_max + ops::kKvBlockTokens - 1) / ops::kKvBlockTokens;
  if (count > free_block_count()) return false;
  promised_blocks_ += count;
  Place& place = places_[sequence];
  place.prefix = {plan::prefix_seed(cache_salt)};
  place.tokens_max = tokens_max;
  place.promised_blocks = count;
  place.blocks.reserve(static_cast<size_t>(count));
  return true;
}

void DraftModel::forget(plan::RequestId sequence) {
  const auto found = places_.find(sequence);
  if (found == places_.end()) return;
  // Later blocks first, so that the beginnings of prompts are kept longest.
  const std::vector<plan::BlockId>& blocks = found->second.blocks;
  for (size_t i = blocks.size(); i > 0; --i) pool_.release(blocks[i - 1]);
  promised_blocks_ -= found->second.promised_blocks;
  places_.erase(found);
}

DraftModel::Place& DraftModel::place_of(plan::RequestId sequence) {
  const auto found = places_.find(sequence);
  JIGE_CHECK(found != places_.end(), "sequence {} has no place in the draft model", sequence);
  return found->second;
}

int32_t DraftModel::guesses_max(plan::RequestId sequence, size_t token_count) const {
  const auto found = places_.find(sequence);
  if (found == places_.end() || found->second.unknown) return 0;
  // All but the last guess are run, too.
  const int64_t room = found->second.tokens_max - static_cast<int64_t>(token_count) + 1;
  return static_cast<int32_t>(std::clamp<int64_t>(room, 0, kDraftTokensMax));
}

int64_t DraftModel::missing(plan::RequestId sequence, const TokenSequence& tokens) {
  Place& place = place_of(sequence);
  for (size_t i = 0; i < place.ahead.size() && place.read < tokens.size(); ++i) {
    if (tokens[place.read] != place.ahead[i]) break;
    ++place.read;
  }
  place.ahead.clear();
  JIGE_CHECK(tokens.size() > 0, "a sequence of no tokens");
  use_known(place, tokens);
  place.read = std::min(place.read, tokens.size() - 1);
  return static_cast<int64_t>(tokens.size() - place.read);
}

std::span<const int32_t> DraftModel::next_tokens(const Place& place, const TokenSequence& tokens) {
  block_tokens_.clear();
  for (size_t i = place.known_end() - ops::kKvBlockTokens; i < place.known_end(); ++i) {
    block_tokens_.push_back(tokens[i]);
  }
  return block_tokens_;
}

// The last token is read in any case, so no block that holds it is of use.
void DraftModel::use_known(Place& place, const TokenSequence& tokens) {
  while (place.read < place.known_end() && place.known_end() < tokens.size()) {
    const std::span<const int32_t> next = next_tokens(place, tokens);
    const auto found = pool_.find(place.prefix.back(), next);
    if (!found) return;
    const size_t index = place.prefix.size() - 1;
    if (index < place.blocks.size()) {
      pool_.release(place.blocks[index]);
      place.blocks[index] = *found;
    } else {
      place.blocks.push_back(*found);
    }
    counts_.known_tokens += static_cast<int64_t>(place.known_end() - place.read);
    place.read = place.known_end();
    place.prefix.push_back(plan::extend_prefix(place.prefix.back(), next));
  }
}

void DraftModel::publish(Place& place, const TokenSequence& tokens) {
  while (place.known_end() <= place.read && place.known_end() < tokens.size()) {
    const std::span<const int32_t> next = next_tokens(place, tokens);
    pool_.publish(place.blocks[place.prefix.size() - 1], place.prefix.back(), next);
    place.prefix.push_back(plan::extend_prefix(place.prefix.back(), next));
  }
}

std::optional<plan::PrefixHash> DraftModel::next_block(plan::RequestId sequence,
                                                       const TokenSequence& tokens) {
  const Place& place = place_of(sequence);
  if (place.read >= place.known_end() || place.known_end() >= tokens.size()) return std::nullopt;
  return plan::extend_prefix(place.prefix.back(), next_tokens(place, tokens));
}

void DraftModel::add_row(Place& place, int32_t token, size_t position) {
  const size_t block = position / ops::kKvBlockTokens;
  JIGE_CHECK(block + 1 >= place.prefix.size(), "token {} is of a block that is known", position);
  if (block == place.blocks.size()) {
    const auto taken = pool_.acquire();
    JIGE_CHECK(taken && std::ssize(place.blocks) < place.promised_blocks,
               "a block of {} that were promised is not there", place.promised_blocks);
    place.blocks.push_back(*taken);
  }
  const bool goes_on = !sequences_.empty() && sequences_.back().blocks == place.blocks.data();
  if (!goes_on) {
    sequences_.push_back({.row_begin = static_cast<int32_t>(tokens_.size()),
                          .row_count = 0,
                          .context_count = static_cast<int32_t>(position),
                          .blocks = place.blocks.data()});
  }
  ++sequences_.back().row_count;
  tokens_.push_back(token);
}

// False where a token is none of the model's.
bool DraftModel::add_piece(const Work& work, Place& place) {
  const auto end = place.read + static_cast<size_t>(work.piece);
  for (size_t i = place.read; i < end; ++i) {
    place.unknown = place.unknown || work.tokens[i] >= model_->config().vocab_size;
  }
  if (place.unknown) return false;
  for (size_t i = place.read; i < end; ++i) add_row(place, work.tokens[i], i);
  return true;
}

void DraftModel::add_guesses(Running& one, int64_t rows_max) {
  const Work& work = *one.work;
  const std::span<const int32_t> left = std::span(work.guesses.tokens).subspan(one.cached);
  // What is forced may be a token that the model does not know.
  one.open =
      std::ranges::all_of(left, [&](int32_t id) { return id < model_->config().vocab_size; });
  if (!one.open) return;
  one.added = static_cast<size_t>(std::min(std::ssize(left), rows_max));
  for (size_t i = one.cached; i < one.cached + one.added; ++i) {
    add_row(*one.place, work.guesses.tokens[i], work.tokens.size() + i);
  }
  if (one.added < left.size()) return;
  readers_.push_back(one.work);
  logit_rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
}

Status DraftModel::run(std::span<Work> works) {
  std::vector<Running> running;
  int64_t longest = 0;
  int64_t pieces_left = 0;
  for (const Work& work : works) pieces_left += work.piece;
  for (Work& work : works) {
    if (work.piece == 0) continue;
    pieces_left -= work.piece;
    Place& place = place_of(work.sequence);
    const bool all = place.read + static_cast<size_t>(work.piece) == work.tokens.size();
    JIGE_CHECK(work.count == 0 || all, "a guess behind tokens that were not read");
    if (!add_piece(work, place)) continue;
    longest = std::max(longest, work.piece);
    running.push_back({.work = &work, .place = &place, .open = work.count > 0});
    const int64_t room = rows_max() - std::ssize(tokens_) - pieces_left;
    if (running.back().open) add_guesses(running.back(), room);
  }
  for (bool first = true; !tokens_.empty(); first = false) {
    JIGE_DO(forward(first && longest > kRowsOfGuess));
    for (Running& one : running) {
      Work& work = *one.work;
      if (first) {
        one.place->read += static_cast<size_t>(work.piece);
        counts_.read_tokens += work.piece;
        publish(*one.place, work.tokens);
      }
      for (; one.added > 0; --one.added) {
        one.place->ahead.push_back(work.guesses.tokens[one.cached++]);
      }
      const auto count = std::ssize(work.guesses.tokens);
      one.open = one.open && count < work.count && count > static_cast<int64_t>(one.cached) &&
                 !(work.ahead && work.ahead->done());
      if (one.open) add_guesses(one, rows_max() - std::ssize(tokens_));
    }
  }
  return {};
}

Status DraftModel::forward(bool reads_pieces) {
  const StopWatch watch;
  Status status;
  if (fault_) status = fault_();
  if (status && !tokens_.empty()) {
    const bool all_ids = ids_max_ == model_->config().vocab_size;
    draws_.clear();
    for (const Work* work : readers_) {
      const bool likeliest = all_ids && !work->ahead;
      draws_.push_back({.kind = likeliest ? ops::RowDraw::kLikeliest : ops::RowDraw::kHost});
    }
    const auto rows = model_->forward_drawn(
        {.tokens = tokens_, .sequences = sequences_, .logit_rows = logit_rows_}, draws_);
    if (!rows) status = tl::unexpected<Error>(rows.error());
    for (size_t i = 0; status && i < readers_.size(); ++i) {
      Work& work = *readers_[i];
      const auto token = guess(work, *rows, i);
      if (!token) continue;
      work.guesses.add(*token, plan::GuessSource::kModel);
      const auto count_max = static_cast<size_t>(work.count);
      if (work.ahead && work.adds_forced) add_forced(*work.ahead, count_max, work.guesses);
    }
    const auto row_count = static_cast<double>(tokens_.size());
    if (status && row_count >= kRowsOfPiece) row_seconds_ = watch.seconds() / row_count;
    // The first one also finds caches cold and buffers untouched.
    const bool counts = status && !reads_pieces && model_->forward_count() > 1;
    if (counts) step_cost_.add(std::ssize(tokens_), watch.seconds());
  }
  tokens_.clear();
  sequences_.clear();
  logit_rows_.clear();
  readers_.clear();
  return status;
}

std::optional<int32_t> DraftModel::guess(const Work& work, const model::LogitRows& rows,
                                         size_t row) const {
  if (const int32_t drawn = rows.token(row); drawn >= 0) return drawn;
  const std::span<const float> logits = rows.row(row).first(static_cast<size_t>(ids_max_));
  return work.ahead ? work.ahead->guess(logits) : ops::likeliest(logits);
}

}  // namespace jige::serve
