#include "serve/draft_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "ops/likeliest.h"

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
  return std::unique_ptr<DraftModel>(new DraftModel(std::move(model), static_cast<int32_t>(ids)));
}

DraftModel::DraftModel(std::unique_ptr<model::InferenceModel> model, int32_t ids_max)
    : model_(std::move(model)), ids_max_(ids_max) {
  clear();
}

void DraftModel::clear() {
  places_.clear();
  free_.clear();
  const auto count = static_cast<int32_t>(model_->sizes().kv_block_count);
  for (int32_t block = count; block-- > 0;) free_.push_back(block);
}

bool DraftModel::take(plan::RequestId sequence, int64_t tokens_max) {
  if (places_.contains(sequence)) return true;
  tokens_max = std::min(tokens_max, model_->context_max());
  const int64_t count = (tokens_max + ops::kKvBlockTokens - 1) / ops::kKvBlockTokens;
  if (count > std::ssize(free_)) return false;
  Place place{.tokens_max = tokens_max};
  place.blocks.assign(free_.end() - count, free_.end());
  free_.resize(free_.size() - static_cast<size_t>(count));
  places_.emplace(sequence, std::move(place));
  return true;
}

void DraftModel::forget(plan::RequestId sequence) {
  const auto found = places_.find(sequence);
  if (found == places_.end()) return;
  free_.insert(free_.end(), found->second.blocks.begin(), found->second.blocks.end());
  places_.erase(found);
}

void DraftModel::rewind(plan::RequestId sequence, size_t kept) {
  const auto found = places_.find(sequence);
  if (found == places_.end()) return;
  Place& place = found->second;
  place.read = std::min(place.read, kept);
  place.ahead.clear();
  place.unknown = false;
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
  place.read = std::min(place.read, tokens.size() - 1);
  return static_cast<int64_t>(tokens.size() - place.read);
}

void DraftModel::add_row(Place& place, int32_t token, size_t position) {
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

Status DraftModel::run(std::span<Work> works) {
  std::vector<Work*> read;
  int64_t pieces = 0;
  for (Work& work : works) {
    if (work.piece == 0) continue;
    Place& place = place_of(work.sequence);
    const bool all = place.read + static_cast<size_t>(work.piece) == work.tokens.size();
    JIGE_CHECK(work.count == 0 || all, "a guess behind tokens that were not read");
    if (!add_piece(work, place)) continue;
    read.push_back(&work);
    pieces = std::max(pieces, work.piece);
    if (work.count == 0) continue;
    readers_.push_back(&work);
    logit_rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
  }
  JIGE_DO(forward(pieces > kRowsOfGuess));
  for (Work* work : read) place_of(work->sequence).read += static_cast<size_t>(work->piece);
  for (size_t guess = 1;; ++guess) {
    std::vector<Work*> going_on;
    for (Work* work : read) {
      if (work->guesses.size() < guess || static_cast<size_t>(work->count) == guess) continue;
      going_on.push_back(work);
      add_row(place_of(work->sequence), work->guesses.back(), work->tokens.size() + guess - 1);
      readers_.push_back(work);
      logit_rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
    }
    if (going_on.empty()) return {};
    std::vector<int32_t> last;
    for (const Work* work : going_on) last.push_back(work->guesses.back());
    JIGE_DO(forward(false));
    for (size_t i = 0; i < going_on.size(); ++i) {
      place_of(going_on[i]->sequence).ahead.push_back(last[i]);
    }
  }
}

Status DraftModel::forward(bool reads_pieces) {
  const StopWatch watch;
  Status status;
  if (fault_) status = fault_();
  if (status && !tokens_.empty()) {
    const bool all_ids = ids_max_ == model_->config().vocab_size;
    draws_.assign(readers_.size(),
                  {.kind = all_ids ? ops::RowDraw::kLikeliest : ops::RowDraw::kHost});
    const auto rows = model_->forward_drawn(
        {.tokens = tokens_, .sequences = sequences_, .logit_rows = logit_rows_}, draws_);
    if (!rows) status = tl::unexpected<Error>(rows.error());
    for (size_t i = 0; status && i < readers_.size(); ++i) {
      const int32_t drawn = rows->token(i);
      const auto token = drawn >= 0
                             ? std::optional(drawn)
                             : ops::likeliest(rows->row(i).first(static_cast<size_t>(ids_max_)));
      if (token) readers_[i]->guesses.push_back(*token);
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

}  // namespace jige::serve
