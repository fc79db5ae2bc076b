#include "train/reward_passes.h"

#include <cmath>

#include "base/rng.h"

namespace jige::train {
namespace {

// The prompts of a plan, in its order.
std::vector<const Prompt*> prompts_of(const StepPlan& plan, const PromptSet& set) {
  std::vector<const Prompt*> prompts;
  for (const MicroBatch& micro_batch : plan.micro_batches) {
    for (const Sequence& sequence : micro_batch.sequences) {
      prompts.push_back(&set.prompts[static_cast<size_t>(sequence.begin)]);
    }
  }
  return prompts;
}

std::vector<ScoredAnswer> scored(const AnswerRound& round) {
  std::vector<ScoredAnswer> answers;
  for (const AnswerGroup& group : round.groups) {
    for (const DrawnAnswer& answer : group) {
      answers.push_back({.reward = round.rewards[answers.size()],
                         .token_count = std::ssize(answer.tokens),
                         .cut = answer.cut});
    }
  }
  return answers;
}

}  // namespace

void RewardPasses::Sums::add(const Sums& other) {
  loss += other.loss;
  clipped += other.clipped;
  kl += other.kl;
  gap += other.gap;
}

RewardPasses::RewardPasses(const TrainOptions& options, StepEngine& engine, Executor& executor)
    : options_(options),
      grpo_(*options.grpo),
      engine_(engine),
      executor_(executor),
      tasks_(two_pass_tasks(engine.weights().architecture().node_count())),
      rounds_(options, engine.weights().architecture().config().vocab_size) {}

// What draws may be there for longer than the weights that it was lent.
RewardPasses::~RewardPasses() { grpo_.source->detach(); }

Status RewardPasses::start(const RewardPlace& place) {
  place_.emplace(place);
  // What was loaded and packed is read on another stream.
  engine_.stream().synchronize();
  JIGE_DO(grpo_.source->attach(engine_.weights(), place.device, place.tokenizer_folder,
                               draw_sizes(options_)));
  if (grpo_.loss.kl == 0) return {};
  JIGE_TRY(reference_, ReferenceModel::load(options_, place.device));
  return {};
}

void RewardPasses::end() {
  rounds_.end();
  grpo_.source->detach();
  reference_.reset();
}

std::vector<double> RewardPasses::worths() {
  std::vector<double> worths = round_.rewards;
  if (grpo_.overlong.penalty == 0) return worths;
  double sum = 0;
  size_t at = 0;
  for (const AnswerGroup& group : round_.groups) {
    for (const DrawnAnswer& answer : group) {
      const double added =
          length_reward(grpo_.overlong, std::ssize(answer.tokens), grpo_.draw.tokens_max);
      worths[at++] += added;
      sum += added;
    }
  }
  info_.length_reward = sum / static_cast<double>(worths.size());
  return worths;
}

void RewardPasses::choose() {
  learned_.clear();
  int64_t silent = 0;
  const std::vector<double> worth = worths();
  const std::span<const double> step = worth;
  for (size_t i = 0; i < prompts_.size(); ++i) {
    const AnswerGroup& group = round_.groups[i];
    const auto advantages =
        group_advantages(grpo_.loss.advantage, step.subspan(i * group.size(), group.size()), step);
    const size_t before = learned_.size();
    for (size_t k = 0; k < advantages.size(); ++k) {
      if (group[k].cut && grpo_.overlong.masks) continue;
      learned_.push_back({.prompt = prompts_[i], .answer = &group[k], .advantage = advantages[k]});
    }
    silent += learned_.size() == before ? 1 : 0;
  }
  info_.group_count = std::ssize(prompts_);
  info_.silent_share = static_cast<double>(silent) / static_cast<double>(prompts_.size());
}

void RewardPasses::pack() {
  std::vector<Sequence> sequences;
  token_count_ = 0;
  for (const Learned& one : learned_) {
    const int64_t tokens = std::ssize(one.answer->tokens);
    sequences.push_back({.begin = std::ssize(sequences),
                         .count = static_cast<int32_t>(std::ssize(one.prompt->ids) + tokens - 1),
                         .learned_count = static_cast<int32_t>(tokens)});
    token_count_ += static_cast<double>(tokens);
  }
  micro_batches_ = pack_evenly(sequences, options_.micro_batch_tokens, even_parts(options_));
}

Result<bool> RewardPasses::begin_step(const StepPlan& plan, const StepRates& rates) {
  prompts_ = prompts_of(plan, place_->dataset.prompts);
  JIGE_TRY(
      auto round,
      rounds_.run({.prompts = prompts_,
                   .key = derive_key(options_.seed, "answers", static_cast<uint64_t>(rates.step)),
                   .group = grpo_.group,
                   .draw = grpo_.draw,
                   .step = rates.step,
                   .should_leave = rates.should_leave}));
  if (!round) return false;
  round_ = std::move(*round);
  learn_watch_ = StopWatch();
  info_ = {.means = reward_means(scored(round_)),
           .draw_seconds = round_.draw_seconds,
           .score_seconds = round_.score_seconds};
  sums_ = {};
  updates_done_ = 0;
  choose();
  pack();
  return true;
}

void RewardPasses::begin_update() { records_.assign(learned_.size(), {}); }

void RewardPasses::fill_batch(const MicroBatch& micro_batch) {
  batch_ = {};
  for (const Sequence& sequence : micro_batch.sequences) {
    const Learned& one = learned_[static_cast<size_t>(sequence.begin)];
    const std::vector<int32_t>& prompt = one.prompt->ids;
    const std::vector<int32_t>& answer = one.answer->tokens;
    batch_.tokens.insert(batch_.tokens.end(), prompt.begin(), prompt.end());
    batch_.tokens.insert(batch_.tokens.end(), answer.begin(), answer.end() - 1);
    batch_.targets.resize(batch_.targets.size() + prompt.size() - 1, -1);
    batch_.targets.insert(batch_.targets.end(), answer.begin(), answer.end());
    for (int32_t i = 0; i < sequence.count; ++i) batch_.positions.push_back(i);
    batch_.counts.push_back(sequence.count);
  }
}

RewardPasses::Sums RewardPasses::weigh(const Learned& one, std::span<const float> losses,
                                       std::span<float> weights) const {
  Sums sums;
  for (size_t k = 0; k < losses.size(); ++k) {
    const TokenLogProbs logprobs{.now = -double{losses[k]},
                                 .drawn = one.answer->logprobs[k],
                                 .reference = one.reference.empty() ? 0 : one.reference[k]};
    const TokenTerms terms = token_terms(grpo_.loss, one.advantage, logprobs);
    weights[k] = static_cast<float>(terms.weight / token_count_);
    sums.add({.loss = terms.loss,
              .clipped = terms.clipped ? 1. : 0.,
              .kl = terms.kl,
              .gap = std::abs(logprobs.now - logprobs.drawn)});
  }
  return sums;
}

Status RewardPasses::forward(size_t micro_batch) {
  const MicroBatch& batch = micro_batches_[micro_batch];
  fill_batch(batch);
  executor_.load(engine_.stream(), batch_, {});
  executor_.run(engine_.stream(), tasks_.forward);
  const std::span<const float> losses = executor_.token_losses(engine_.stream());
  token_weights_.assign(losses.size(), 0);
  size_t row = 0;
  for (const Sequence& sequence : batch.sequences) {
    const auto number = static_cast<size_t>(sequence.begin);
    Learned& one = learned_[number];
    const size_t count = one.answer->tokens.size();
    if (reference_ && one.reference.empty()) {
      std::vector<int32_t> text = one.prompt->ids;
      text.insert(text.end(), one.answer->tokens.begin(), one.answer->tokens.end());
      JIGE_TRY(one.reference, reference_->logprobs(text, std::ssize(one.answer->tokens)));
    }
    row += one.prompt->ids.size() - 1;
    records_[number] =
        weigh(one, losses.subspan(row, count), std::span(token_weights_).subspan(row, count));
    row += count;
  }
  executor_.weigh_tokens(engine_.stream(), token_weights_);
  return {};
}

Result<bool> RewardPasses::end_update() {
  static_assert(sizeof(Sums) == 4 * sizeof(double), "ranks complete them as numbers");
  JIGE_DO(engine_.complete({reinterpret_cast<double*>(records_.data()), records_.size() * 4}));
  Sums update;
  for (const Sums& record : records_) update.add(record);
  if (updates_done_ == 0) gap_ = update.gap;
  sums_.add(update);
  ++updates_done_;
  return std::isfinite(update.loss);
}

void RewardPasses::end_step(StepOutcome& outcome) {
  StepPlan& learned = outcome.learned.emplace();
  for (int64_t i = 0; i < updates_done_; ++i) {
    for (const MicroBatch& micro_batch : micro_batches_) {
      learned.input_count += micro_batch.input_count;
      learned.learned_count += micro_batch.learned_count;
      learned.micro_batches.push_back(micro_batch);
    }
  }
  if (updates_done_ > 0) {
    const double all = token_count_ * static_cast<double>(updates_done_);
    info_.loss = sums_.loss / all;
    info_.clipped_share = sums_.clipped / all;
    info_.logprob_gap = gap_ / token_count_;
    if (grpo_.loss.kl > 0) info_.kl = sums_.kl / all;
  }
  info_.learn_seconds = learn_watch_.seconds();
  outcome.rewards = info_;
}

Result<std::optional<RewardMeans>> RewardPasses::measure(
    int64_t step, const std::function<bool()>& should_leave) {
  RoundOrder order{.draw = {.temperature = 0, .tokens_max = grpo_.draw.tokens_max},
                   .step = step,
                   .should_leave = should_leave};
  for (const Prompt& prompt : place_->dataset.eval_prompts.prompts) {
    order.prompts.push_back(&prompt);
  }
  JIGE_TRY(const auto round, rounds_.run(order));
  if (!round) return std::optional<RewardMeans>();
  return std::optional(reward_means(scored(*round)));
}

void RewardPasses::add_memory(EngineMemory& memory) const {
  if (!place_) return;
  memory.predicted_bytes += place_->bytes;
  memory.peak_bytes += grpo_.source->peak_bytes() + (reference_ ? reference_->peak_bytes() : 0);
}

}  // namespace jige::train
