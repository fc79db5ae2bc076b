#include "serve/engine_drafts.h"

#include <algorithm>
#include <set>
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
                          int64_t tokens_left, const Beside& beside) {
  if (!enabled()) return;
  ++sequences_;
  auto found = used_.find(sequence);
  if (found == used_.end()) {
    if (free_.empty()) return;
    found = used_.emplace(sequence, std::move(free_.back())).first;
    free_.pop_back();
    begin_again(sequence);
  }
  Speculator& speculator = *found->second;
  speculator.follow(tokens);
  model_rate_.judge(speculator.of_model().hits, speculator.of_model().missed);
  // What is run together is followed by one token more.
  const int64_t room = std::min(tokens_left, sample_rows_max_) - 1;
  const auto count_max = static_cast<int32_t>(std::clamp<int64_t>(room, 0, options_.tokens_max));
  followed_.push_back({sequence, &speculator, tokens, tokens_left, beside, count_max});
  Followed& one = followed_.back();
  const DraftWish of_model = model_wish(one);
  const DraftWish of_text = text_wish(one);
  const DraftWish forced = forced_wish(one);
  const auto promises_more = [&](const DraftWish& other) {
    return forced.count_max > 0 &&
           forced.gain_of(forced.count_max) >= other.gain_of(other.count_max);
  };
  one.without_model = promises_more(of_text) ? forced : of_text;
  const bool likely = !options_.adaptive || of_text.chance >= kTextChance * of_model.chance;
  const bool is_free =
      one.without_model.forced ? promises_more(of_model) : speculator.level() == 0 && likely;
  const bool by_model = of_model.count_max > 0 && !(is_free && one.without_model.count_max > 0);
  wishes_.push_back(by_model ? of_model : one.without_model);
}

DraftWish EngineDrafts::text_wish(const Followed& one) {
  DraftWish wish = one.speculator->wish(one.count_max);
  if (wish.count_max == 0 || !one.has_rules()) return wish;
  Answer ahead = one.beside.answer->ahead();
  const auto guesses = one.speculator->draft(one.tokens, wish.count_max);
  const auto end = std::ranges::find_if_not(guesses, [&](int32_t id) { return ahead.follow(id); });
  wish.count_max = static_cast<int32_t>(end - guesses.begin());
  // What it may not have says nothing about copies.
  one.speculator->draft(one.tokens, wish.count_max);
  return wish;
}

DraftWish EngineDrafts::forced_wish(Followed& one) {
  const Answer* const answer = one.beside.answer;
  if (one.count_max == 0 || !answer || !answer->has_constraint()) return {};
  Answer ahead = answer->ahead();
  while (std::ssize(one.forced) < one.count_max) {
    const std::optional<int32_t> token = ahead.forced();
    if (!token || !ahead.follow(*token)) break;
    one.forced.push_back(*token);
  }
  one.speculator->note_forced(one.forced);
  return {.chance = one.speculator->forced_chance(),
          .count_max = static_cast<int32_t>(std::ssize(one.forced)),
          .forced = true};
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
  if (!model_->take(one.sequence, token_count + one.tokens_left, one.beside.cache_salt)) return {};
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

void EngineDrafts::begin_again(plan::RequestId sequence) {
  const auto found = used_.find(sequence);
  if (found == used_.end()) return;
  const bool tries = begun_count_++ % kTriedAgain == 0;
  if (tries) trial_steps_ = kTrialSteps;
  found->second->clear(tries ? kModelChance : model_rate_.chance());
  if (model_) model_->forget(sequence);
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
    wishes_[i] = followed_[i].without_model;
    wishes_[i].invests = invests;
    changed = true;
  };
  int64_t rows = model_->rows_max();
  int64_t readers = model_->readers_max();
  const std::vector<size_t> chosen = chosen_by_missing();
  for (size_t i = 0; i < wishes_.size(); ++i) {
    if (wishes_[i].by_model && wishes_[i].count == 0) use_text(i, false);
  }
  std::set<plan::PrefixHash> being_read;
  for (const size_t i : chosen) {
    const int64_t missing = followed_[i].piece;
    const auto block = model_->next_block(followed_[i].sequence, followed_[i].tokens);
    const bool waits = block && !being_read.insert(*block).second;
    followed_[i].piece = waits ? 0 : std::min(missing, rows);
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
    Followed& one = followed_[i];
    const int32_t count = wishes_[i].by_model ? wishes_[i].count : 0;
    const bool reads = count > 0 || wishes_[i].invests;
    if (!reads || one.piece == 0) continue;
    if (count > 0 && one.has_rules()) {
      one.ahead = std::make_unique<Answer>(one.beside.answer->ahead());
    }
    works_.push_back({one.sequence, one.tokens, one.piece, count, one.ahead.get()});
  }
  if (works_.empty()) return;
  const StopWatch watch;
  const Status status = model_->run(works_);
  model_seconds_ = watch.seconds();
  model_counts_ = model_->counts();
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
    const DraftWish& wish = wishes_[i];
    if (wish.count == 0 || wish.by_model) continue;
    const Followed& one = followed_[i];
    const auto count = static_cast<size_t>(wish.count);
    tell(one.sequence, wish.forced ? std::span(one.forced).first(count)
                                   : one.speculator->draft(one.tokens, wish.count));
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
