#include "serve/engine_drafts.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "model/memory_plan.h"
#include "serve/roofline.h"

namespace jige::serve {

using plan::GuessSource;

namespace {

// What is known of a draft model's guesses for all: at first as if from so many, and what is kept.
constexpr double kTrialsOfAll = 10;
constexpr double kTrialsKept = 200;
// One of so many sequences tries the draft model as if nothing were known about it: who was wrong
// about some texts, or slow, may be right about others, or quick.
constexpr int64_t kTriedAgain = 32;
// Steps that it is tried in, to be measured, for one guess each, whatever they cost.
constexpr int64_t kTrialSteps = 4;
// Where costs do not decide: copies go before the draft model where they are at least this likely.
constexpr double kCopyChance = 0.5;

// Of guesses of these sources, those in front of the first that may be wrong.
int32_t certain_count(std::span<const GuessSource> sources) {
  const auto first = std::ranges::find_if(
      sources, [](GuessSource source) { return source != GuessSource::kOnly; });
  return static_cast<int32_t>(first - sources.begin());
}

}  // namespace

plan::StateCosts state_costs(const model::InferenceModel& model) {
  const model::InferenceSizes& sizes = model.sizes();
  if (sizes.state_count == 0) return {};
  const RooflineModel roofline(model.architecture(), sizes);
  const int64_t bytes = model::inference_memory(model.architecture(), sizes).states_bytes;
  const double moved = 2.0 * static_cast<double>(bytes) / static_cast<double>(sizes.state_count);
  return {.there = true,
          .spare_price = moved / (moved + roofline.body_bytes(1) + roofline.head_bytes())};
}

EngineDrafts::EngineDrafts(const DraftOptions& options, int64_t sequences, int64_t tokens_max,
                           int64_t sample_rows_max, DraftModel* model,
                           const plan::StateCosts& states)
    : options_(options),
      sample_rows_max_(sample_rows_max),
      model_(options.model ? model : nullptr),
      model_rate_(plan::kModelChance, kTrialsOfAll, kTrialsKept),
      states_(states) {
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
  again_count_ += beside.again_count;
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
  const int64_t room = std::min(tokens_left, sample_rows_max_ - beside.again_count) - 1;
  const auto count_max = static_cast<int32_t>(std::clamp<int64_t>(room, 0, options_.tokens_max));
  followed_.push_back({sequence, &speculator, tokens, tokens_left, beside, count_max});
  guess_known(followed_.back());
  followed_.back().model_max = model_room(followed_.back());
}

void EngineDrafts::guess_known(Followed& one) const {
  const Answer* const answer = one.beside.answer;
  const auto count_max = static_cast<size_t>(one.count_max);
  if (count_max == 0) return;
  if (answer && answer->has_rules()) one.ahead = std::make_unique<Answer>(answer->ahead());
  if (options_.forced && one.ahead) add_forced(*one.ahead, count_max, one.known);
  one.forced_count = one.known.size();
  if (!options_.copied || one.forced_count == count_max) return;
  const std::span<const int32_t> copy = one.speculator->copy(one.tokens, one.count_max);
  if (copy.empty() || (one.ahead && one.ahead->done())) return;
  // The draft model may have to go on where the copy begins.
  std::optional<Answer> behind;
  if (one.ahead) behind.emplace(one.ahead->ahead());
  add_copy({behind ? &*behind : nullptr, options_.forced}, copy, one.speculator->copy_source(),
           count_max, one.known);
}

int32_t EngineDrafts::model_room(const Followed& one) {
  if (!model_ || one.count_max == 0) return 0;
  // What it must be worth is what a step costs without it.
  if (options_.adaptive && !cost_.known()) return 0;
  const double chance = one.speculator->trust().chance(GuessSource::kModel);
  const auto token_count = static_cast<int64_t>(one.tokens.size());
  const bool too_long = token_count > model_->model().context_max();
  if (too_long || (options_.adaptive && chance < plan::kGuessChanceLeast)) {
    model_->forget(one.sequence);  // its place may be of use to others
    return 0;
  }
  if (!model_->take(one.sequence, token_count + one.tokens_left, one.beside.cache_salt)) return 0;
  if (one.ahead && one.ahead->done()) return 0;
  int32_t room = std::min(model_->guesses_max(one.sequence, one.tokens.size() + one.forced_count),
                          one.count_max - static_cast<int32_t>(one.forced_count));
  if (options_.adaptive && trial_steps_ > 0) room = std::min(room, 1);
  return room > 0 && may_read(one) ? room : 0;
}

bool EngineDrafts::may_read(const Followed& one) const {
  if (!options_.adaptive) return true;
  const auto sequences = std::max<int64_t>(1, std::ssize(used_));
  return plan::worth_reading(model_->missing(one.sequence, one.tokens), model_->row_seconds(),
                             cost_.seconds(sequences) / static_cast<double>(sequences),
                             one.tokens_left);
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
  found->second->clear(tries ? plan::kModelChance : model_rate_.chance());
  if (model_) model_->forget(sequence);
}

// Nothing while the draft model is to be measured.
plan::StepCost EngineDrafts::model_cost() const {
  return model_ && trial_steps_ == 0 ? model_->step_cost() : plan::StepCost();
}

plan::GuessWish EngineDrafts::wish_of(const Followed& one, bool by_model) const {
  const plan::GuessTrust& trust = one.speculator->trust();
  plan::GuessWish wish{.model_max = by_model ? one.model_max : 0,
                       .model_chance = trust.chance(GuessSource::kModel)};
  const size_t count = by_model ? one.forced_count : one.known.size();
  for (size_t i = 0; i < count; ++i) wish.known.push_back(trust.chance(one.known.sources[i]));
  wish.certain_count = certain_count(std::span(one.known.sources).first(count));
  wish.again_count = one.beside.again_count;
  return wish;
}

bool EngineDrafts::prefers_copy(const Followed& one) const {
  if (one.known.size() == one.forced_count) return false;
  const GuessSource source = one.known.sources[one.forced_count];
  if (!options_.adaptive) {
    return source != GuessSource::kShortCopy &&
           one.speculator->trust().chance(source) >= kCopyChance;
  }
  const plan::StepCost of_model = model_cost();
  return plan::best_speedup(wish_of(one, false), cost_, sequences_, of_model, states_) >=
         plan::best_speedup(wish_of(one, true), cost_, sequences_, of_model, states_);
}

void EngineDrafts::share() {
  const int64_t room = sample_rows_max_ - sequences_ - again_count_;
  if (options_.adaptive) {
    plan::share_step(wishes_, cost_, sequences_, room, model_cost(), states_);
  } else {
    plan::fill_step(wishes_, room, states_);
  }
}

std::vector<size_t> EngineDrafts::chosen_by_missing() {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < wishes_.size(); ++i) {
    if (wishes_[i].model_count == 0) continue;
    followed_[i].piece = model_->missing(followed_[i].sequence, followed_[i].tokens);
    chosen.push_back(i);
  }
  std::ranges::stable_sort(chosen, {}, [&](size_t i) { return followed_[i].piece; });
  return chosen;
}

bool EngineDrafts::settle() {
  bool changed = false;
  const auto use_known = [&](size_t i, bool invests) {
    followed_[i].by_model = false;
    wishes_[i] = wish_of(followed_[i], false);
    wishes_[i].invests = invests;
    changed = true;
  };
  int64_t rows = model_->rows_max();
  int64_t readers = model_->readers_max();
  const std::vector<size_t> chosen = chosen_by_missing();
  for (size_t i = 0; i < wishes_.size(); ++i) {
    if (followed_[i].by_model && wishes_[i].model_count == 0) use_known(i, false);
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
    if (!ready) use_known(i, true);
  }
  return changed;
}

void EngineDrafts::run_model() {
  works_.clear();
  std::vector<size_t> guessed;
  for (size_t i = 0; i < followed_.size(); ++i) {
    Followed& one = followed_[i];
    const bool guesses = wishes_[i].model_count > 0;
    if ((!guesses && !wishes_[i].invests) || one.piece == 0) continue;
    works_.push_back({one.sequence, one.tokens, one.piece, guesses ? wishes_[i].count() : 0,
                      guesses ? one.ahead.get() : nullptr});
    if (!guesses) continue;
    works_.back().guesses = one.known.first(one.forced_count);
    works_.back().adds_forced = options_.forced;
    guessed.push_back(i);
  }
  if (works_.empty()) return;
  const StopWatch watch;
  const Status status = model_->run(works_);
  model_seconds_ = watch.seconds();
  model_counts_ = model_->counts();
  trial_steps_ -= !guessed.empty() && trial_steps_ > 0 ? 1 : 0;
  if (!status) {
    log_error("the draft model is not used any more, since it failed: {}", status.error().message);
    model_ = nullptr;
    return;
  }
  auto work = works_.begin();
  for (const size_t i : guessed) {
    work =
        std::ranges::find(work, works_.end(), followed_[i].sequence, &DraftModel::Work::sequence);
    followed_[i].told = &work->guesses;
  }
}

void EngineDrafts::decide(const Tell& tell, int64_t spare_count) {
  model_seconds_ = 0;
  states_.spare_count = spare_count;
  for (Followed& one : followed_) {
    one.by_model = one.model_max > 0 && !prefers_copy(one);
    wishes_.push_back(wish_of(one, one.by_model));
  }
  share();
  if (model_ && settle()) share();
  if (model_) run_model();
  for (size_t i = 0; i < followed_.size(); ++i) {
    const Followed& one = followed_[i];
    if (one.told) {
      one.speculator->note(*one.told, one.known);
    } else {
      one.speculator->note(one.known);
    }
    const size_t count = std::min(static_cast<size_t>(wishes_[i].count()), one.known.size());
    const std::span<const int32_t> tokens =
        one.told ? std::span(one.told->tokens) : std::span(one.known.tokens).first(count);
    const std::span<const GuessSource> sources = one.told ? one.told->sources : one.known.sources;
    if (tokens.empty()) continue;
    tell(one.sequence, tokens, certain_count(sources.first(tokens.size())));
  }
  sequences_ = again_count_ = 0;
  followed_.clear();
  wishes_.clear();
}

std::span<const GuessSource> EngineDrafts::sources(plan::RequestId sequence, int64_t count) const {
  if (count == 0) return {};
  const auto found = used_.find(sequence);
  JIGE_CHECK(found != used_.end(), "sequence {} has no guesses", sequence);
  return found->second->sources().first(static_cast<size_t>(count));
}

}  // namespace jige::serve
