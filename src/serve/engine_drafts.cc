#include "serve/engine_drafts.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace jige::serve {
namespace {

// What is known of a draft model's guesses for all: at first as if from so many, and what is kept.
constexpr double kTrialsOfAll = 10;
constexpr double kTrialsKept = 200;
// One of so many sequences tries the draft model as if nothing were known about it: who was wrong
// about some texts, or slow, may be right about others, or quick.
constexpr int64_t kTriedAgain = 32;
// Steps that it is tried in, to be measured, for one guess each, whatever they cost.
constexpr int64_t kTrialSteps = 4;
// Copies of the text are taken where they are at least this likely, beside the model's guesses.
constexpr double kTextChance = 0.5;

}  // namespace

EngineDrafts::EngineDrafts(const DraftOptions& options, int64_t sequences, int64_t tokens_max,
                           int64_t sample_rows_max, DraftModel* model)
    : options_(options),
      sample_rows_max_(sample_rows_max),
      model_(model),
      model_rate_(kModelChance, kTrialsOfAll, kTrialsKept) {
  if (model_) model_->clear();
  if (!enabled()) return;
  for (int64_t i = 0; i < sequences; ++i) {
    free_.push_back(std::make_unique<Speculator>(tokens_max));
  }
}

int64_t EngineDrafts::bytes_for(const DraftOptions& options, int64_t sequences,
                                int64_t tokens_max) {
  return options.tokens_max > 0 ? sequences * Speculator::bytes_for(tokens_max) : 0;
}

void EngineDrafts::follow(plan::RequestId sequence, const TokenSequence& tokens,
                          int64_t tokens_left) {
  if (!enabled()) return;
  ++sequences_;
  auto found = used_.find(sequence);
  if (found == used_.end()) {
    if (free_.empty()) return;
    found = used_.emplace(sequence, std::move(free_.back())).first;
    free_.pop_back();
    begin_again(sequence, 0);
  }
  Speculator& speculator = *found->second;
  speculator.follow(tokens);
  model_rate_.judge(speculator.of_model().hits, speculator.of_model().missed);
  // What is run together is followed by one token more.
  const int64_t room = std::min(tokens_left, sample_rows_max_) - 1;
  const auto count_max = static_cast<int32_t>(std::clamp<int64_t>(room, 0, options_.tokens_max));
  followed_.push_back({sequence, &speculator, tokens, tokens_left, count_max});
  const DraftWish of_model = model_wish(followed_.back());
  const DraftWish of_text = speculator.wish(count_max);
  const bool likely = !options_.adaptive || of_text.chance >= kTextChance * of_model.chance;
  const bool free = speculator.level() == 0 && likely;
  wishes_.push_back(free || of_model.count_max == 0 ? of_text : of_model);
}

DraftWish EngineDrafts::model_wish(const Followed& one) {
  if (!model_ || one.count_max == 0) return {};
  // What it must be worth is what a step costs without it.
  if (options_.adaptive && !cost_.known()) return {};
  const double chance = one.speculator->model_chance();
  const auto token_count = static_cast<int64_t>(one.tokens.size());
  const bool too_long = token_count > model_->model().context_max();
  if (too_long || (options_.adaptive && chance < kDraftChanceLeast)) {
    model_->forget(one.sequence);  // its place may be of use to others
    return {};
  }
  if (!model_->take(one.sequence, token_count + one.tokens_left)) return {};
  int32_t room = model_->guesses_max(one.sequence, one.tokens.size());
  if (options_.adaptive && trial_steps_ > 0) room = std::min(room, 1);
  if (room == 0 || !may_read(one)) return {};
  return {.chance = chance, .count_max = std::min(one.count_max, room), .by_model = true};
}

bool EngineDrafts::may_read(const Followed& one) {
  if (!options_.adaptive) return true;
  const auto sequences = std::max<int64_t>(1, std::ssize(used_));
  return worth_reading(model_->missing(one.sequence, one.tokens), model_->row_seconds(),
                       cost_.seconds(sequences) / static_cast<double>(sequences), one.tokens_left);
}

void EngineDrafts::forget(plan::RequestId sequence) {
  const auto found = used_.find(sequence);
  if (found == used_.end()) return;
  if (model_) model_->forget(sequence);
  free_.push_back(std::move(found->second));
  used_.erase(found);
}

void EngineDrafts::begin_again(plan::RequestId sequence, size_t kept) {
  const auto found = used_.find(sequence);
  if (found == used_.end()) return;
  const bool tries = begun_count_++ % kTriedAgain == 0;
  if (tries) trial_steps_ = kTrialSteps;
  found->second->clear(tries ? kModelChance : model_rate_.chance());
  if (model_) model_->rewind(sequence, kept);
}

void EngineDrafts::share() {
  const int64_t room = sample_rows_max_ - sequences_;
  if (options_.adaptive) {
    const bool known = model_ && trial_steps_ == 0;
    share_step(wishes_, cost_, sequences_, room, known ? model_->step_cost() : StepCost());
    return;
  }
  int64_t left = std::max<int64_t>(room, 0);
  for (DraftWish& wish : wishes_) {
    wish.count = static_cast<int32_t>(std::min<int64_t>(left, wish.count_max));
    left -= wish.count;
  }
}

std::vector<size_t> EngineDrafts::chosen_by_missing() {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < wishes_.size(); ++i) {
    if (!wishes_[i].by_model || wishes_[i].count == 0) continue;
    followed_[i].piece = model_->missing(followed_[i].sequence, followed_[i].tokens);
    chosen.push_back(i);
  }
  std::ranges::stable_sort(chosen, {}, [&](size_t i) { return followed_[i].piece; });
  return chosen;
}

bool EngineDrafts::settle() {
  bool changed = false;
  const auto use_text = [&](size_t i, bool invests) {
    wishes_[i] = followed_[i].speculator->wish(followed_[i].count_max);
    wishes_[i].invests = invests;
    changed = true;
  };
  int64_t rows = model_->rows_max();
  int64_t readers = model_->readers_max();
  const std::vector<size_t> chosen = chosen_by_missing();
  for (size_t i = 0; i < wishes_.size(); ++i) {
    if (wishes_[i].by_model && wishes_[i].count == 0) use_text(i, false);
  }
  for (const size_t i : chosen) {
    const int64_t missing = followed_[i].piece;
    followed_[i].piece = std::min(missing, rows);
    rows -= followed_[i].piece;
    const bool ready = followed_[i].piece == missing && readers > 0;
    readers -= ready ? 1 : 0;
    if (!ready) use_text(i, true);
  }
  return changed;
}

void EngineDrafts::run_model() {
  works_.clear();
  for (size_t i = 0; i < followed_.size(); ++i) {
    const Followed& one = followed_[i];
    const int32_t count = wishes_[i].by_model ? wishes_[i].count : 0;
    const bool reads = count > 0 || wishes_[i].invests;
    if (reads && one.piece > 0) works_.push_back({one.sequence, one.tokens, one.piece, count, {}});
  }
  if (works_.empty()) return;
  const StopWatch watch;
  const Status status = model_->run(works_);
  model_seconds_ = watch.seconds();
  const bool guessed = std::ranges::any_of(works_, [](const auto& work) { return work.count > 0; });
  trial_steps_ -= guessed && trial_steps_ > 0 ? 1 : 0;
  if (status) return;
  log_error("the draft model is not used any more, since it failed: {}", status.error().message);
  model_ = nullptr;
  works_.clear();
}

void EngineDrafts::decide(const Tell& tell) {
  model_seconds_ = 0;
  works_.clear();
  share();
  if (model_ && settle()) share();
  if (model_) run_model();
  for (size_t i = 0; i < followed_.size(); ++i) {
    const Followed& one = followed_[i];
    if (wishes_[i].count == 0 || wishes_[i].by_model) continue;
    tell(one.sequence, one.speculator->draft(one.tokens, wishes_[i].count));
  }
  for (const DraftModel::Work& work : works_) {
    if (work.guesses.empty()) continue;
    used_.at(work.sequence)->note_model_draft(work.guesses);
    tell(work.sequence, work.guesses);
  }
  sequences_ = 0;
  followed_.clear();
  wishes_.clear();
}

}  // namespace jige::serve
