#include "train/reward_engine.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/rng.h"
#include "train/sequences.h"

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

std::vector<ScoredAnswer> scored(const std::vector<AnswerGroup>& groups,
                                 std::span<const double> rewards) {
  std::vector<ScoredAnswer> answers;
  for (const AnswerGroup& group : groups) {
    for (const DrawnAnswer& answer : group) {
      answers.push_back({.reward = rewards[answers.size()],
                         .token_count = std::ssize(answer.tokens),
                         .cut = answer.cut});
    }
  }
  return answers;
}

}  // namespace

Result<std::unique_ptr<RewardEngine>> RewardEngine::create(
    CpuDevice& device, const model::Architecture& architecture,
    const model::WeightsOptions& weights_options, const Sizes& sizes, const TrainOptions& options,
    const Dataset& dataset) {
  std::unique_ptr<RewardEngine> engine(new RewardEngine(options, dataset, sizes));
  engine->cpu_ = &device;
  JIGE_DO(engine->allocate(device, architecture, weights_options, sizes.memory, options));
  engine->tasks_ = two_pass_tasks(architecture.node_count());
  return engine;
}

// What draws may be there for longer than the weights that it was lent.
RewardEngine::~RewardEngine() { options_.grpo->source->detach(); }

Status RewardEngine::start(const std::string& tokenizer_folder) {
  const GrpoOptions& grpo = *options_.grpo;
  // What was loaded and packed is read on another stream.
  stream_->synchronize();
  JIGE_DO(
      grpo.source->attach(*weights_, *cpu_, tokenizer_folder, draw_sizes(grpo, options_.context)));
  if (grpo.loss.kl == 0) return {};
  JIGE_TRY(reference_, ReferenceModel::load(options_, *cpu_));
  return {};
}

Result<std::vector<AnswerGroup>> RewardEngine::draw(std::span<const Prompt* const> prompts,
                                                    int64_t step) {
  const GrpoOptions& grpo = *options_.grpo;
  const uint64_t key = derive_key(options_.seed, "answers", static_cast<uint64_t>(step));
  std::vector<DrawRequest> requests;
  for (const Prompt* prompt : prompts) {
    requests.push_back({.prompt = prompt->ids,
                        .continues_text = !prompt->chat,
                        .seed = derive_key(key, "prompt", requests.size()),
                        .count = static_cast<int32_t>(grpo.group),
                        .options = grpo.draw});
  }
  return grpo.source->draw(requests);
}

Result<std::vector<double>> RewardEngine::score(std::span<const Prompt* const> prompts,
                                                const std::vector<AnswerGroup>& groups,
                                                int64_t step) {
  std::vector<AnswerToScore> answers;
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const DrawnAnswer& answer : groups[i]) answers.push_back({prompts[i], answer.text});
  }
  return scorer_.score(answers, step);
}

Result<std::vector<RewardEngine::Learned>> RewardEngine::choose(
    std::span<const Prompt* const> prompts, const std::vector<AnswerGroup>& groups,
    std::span<const double> rewards, RewardStep& info) {
  std::vector<Learned> learned;
  int64_t silent = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto advantages = group_advantages(
        options_.grpo->loss.advantage, rewards.subspan(i * groups[i].size(), groups[i].size()));
    silent += advantages.empty() ? 1 : 0;
    for (size_t k = 0; k < advantages.size(); ++k) {
      Learned one{.prompt = prompts[i], .answer = &groups[i][k], .advantage = advantages[k]};
      if (reference_) {
        std::vector<int32_t> text = one.prompt->ids;
        text.insert(text.end(), one.answer->tokens.begin(), one.answer->tokens.end());
        JIGE_TRY(one.reference, reference_->logprobs(text, std::ssize(one.answer->tokens)));
      }
      learned.push_back(std::move(one));
    }
  }
  info.group_count = std::ssize(groups);
  info.silent_share = static_cast<double>(silent) / static_cast<double>(groups.size());
  return learned;
}

void RewardEngine::fill_batch(const MicroBatch& micro_batch, std::span<const Learned> answers) {
  batch_ = {};
  for (const Sequence& sequence : micro_batch.sequences) {
    const Learned& one = answers[static_cast<size_t>(sequence.begin)];
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

void RewardEngine::learn(const MicroBatch& micro_batch, std::span<const Learned> answers,
                         model::GradientUse gradients, Sums& sums) {
  fill_batch(micro_batch, answers);
  executor_->load(*stream_, batch_, {});
  executor_->run(*stream_, tasks_.forward);
  const std::span<const float> losses = executor_->token_losses(*stream_);
  token_weights_.assign(losses.size(), 0);
  size_t row = 0;
  for (const Sequence& sequence : micro_batch.sequences) {
    const Learned& one = answers[static_cast<size_t>(sequence.begin)];
    row += one.prompt->ids.size() - 1;
    for (size_t k = 0; k < one.answer->tokens.size(); ++k, ++row) {
      const TokenLogProbs logprobs{.now = -double{losses[row]},
                                   .drawn = one.answer->logprobs[k],
                                   .reference = one.reference.empty() ? 0 : one.reference[k]};
      const TokenTerms terms = token_terms(options_.grpo->loss, one.advantage, logprobs);
      token_weights_[row] = static_cast<float>(terms.weight / sums.tokens);
      sums.loss += terms.loss;
      sums.clipped += terms.clipped ? 1 : 0;
      sums.kl += terms.kl;
      if (sums.updates == 0) sums.gap += std::abs(logprobs.now - logprobs.drawn);
    }
  }
  executor_->weigh_tokens(*stream_, token_weights_);
  executor_->run(*stream_, tasks_.backward, gradients);
  executor_->add_expert_use(*stream_, *experts_);
  stream_->synchronize();
}

Status RewardEngine::update(std::span<const Learned> answers, const StepRates& rates,
                            StepOutcome& outcome, Sums& sums) {
  std::vector<Sequence> sequences;
  sums.tokens = 0;
  for (const Learned& one : answers) {
    const int64_t tokens = std::ssize(one.answer->tokens);
    sequences.push_back({.begin = std::ssize(sequences),
                         .count = static_cast<int32_t>(std::ssize(one.prompt->ids) + tokens - 1),
                         .learned_count = static_cast<int32_t>(tokens)});
    sums.tokens += static_cast<double>(tokens);
  }
  weights_->start_gradients(*stream_);
  auto gradients = model::GradientUse::kStore;
  const double loss_before = sums.loss;
  for (MicroBatch& micro_batch : pack_micro_batches(sequences, options_.micro_batch_tokens)) {
    learn(micro_batch, answers, gradients, sums);
    gradients = model::GradientUse::kAdd;
    outcome.learned->input_count += micro_batch.input_count;
    outcome.learned->learned_count += micro_batch.learned_count;
    outcome.learned->micro_batches.push_back(std::move(micro_batch));
  }
  sums.updates += 1;
  weights_->finish_gradients(*stream_);
  if (rates.before_update) rates.before_update();
  const bool finite = std::isfinite(sums.loss - loss_before);
  outcome.optimizer = optimizer_->step(
      *stream_, {.learning_rate = rates.learning_rate, .refuse = !finite, .renew_packed = true});
  if (outcome.optimizer.applied) weights_->pack_others(*stream_);
  stream_->synchronize();
  return {};
}

Result<StepOutcome> RewardEngine::run(const Corpus& /*corpus*/, const StepPlan& plan,
                                      const StepRates& rates) {
  StepOutcome outcome;
  outcome.learned.emplace();
  // Where there is nothing to learn, nothing is wrong.
  outcome.optimizer.applied = true;
  RewardStep info;
  const std::vector<const Prompt*> prompts = prompts_of(plan, dataset_.prompts);
  const StopWatch draw_watch;
  JIGE_TRY(const std::vector<AnswerGroup> groups, draw(prompts, rates.step));
  info.draw_seconds = draw_watch.seconds();
  const StopWatch score_watch;
  JIGE_TRY(const std::vector<double> rewards, score(prompts, groups, rates.step));
  info.score_seconds = score_watch.seconds();
  const StopWatch learn_watch;
  info.means = reward_means(scored(groups, rewards));
  JIGE_TRY(const std::vector<Learned> answers, choose(prompts, groups, rewards, info));
  Sums sums;
  for (int64_t i = 0; i < options_.grpo->updates && !answers.empty(); ++i) {
    JIGE_DO(update(answers, rates, outcome, sums));
    if (!outcome.optimizer.applied) break;
  }
  if (!answers.empty()) {
    const double all = sums.tokens * sums.updates;
    info.loss = sums.loss / all;
    info.clipped_share = sums.clipped / all;
    info.logprob_gap = sums.gap / sums.tokens;
    if (reference_) info.kl = sums.kl / all;
  }
  info.learn_seconds = learn_watch.seconds();
  outcome.experts = experts_->take();
  outcome.rewards = info;
  return outcome;
}

Result<RewardMeans> RewardEngine::measure(int64_t step) {
  const GrpoOptions& grpo = *options_.grpo;
  std::vector<DrawRequest> requests;
  std::vector<const Prompt*> prompts;
  for (const Prompt& prompt : dataset_.eval_prompts.prompts) {
    requests.push_back({.prompt = prompt.ids,
                        .continues_text = !prompt.chat,
                        .options = {.temperature = 0, .tokens_max = grpo.draw.tokens_max}});
    prompts.push_back(&prompt);
  }
  JIGE_TRY(const std::vector<AnswerGroup> groups, grpo.source->draw(requests));
  JIGE_TRY(const std::vector<double> rewards, score(prompts, groups, step));
  return reward_means(scored(groups, rewards));
}

Status RewardEngine::end_steps() {
  scorer_.end();
  options_.grpo->source->detach();
  reference_.reset();
  return WholeModelEngine::end_steps();
}

EngineMemory RewardEngine::memory() const {
  EngineMemory memory = WholeModelEngine::memory();
  memory.predicted_bytes += beside_bytes_;
  memory.peak_bytes +=
      options_.grpo->source->peak_bytes() + (reference_ ? reference_->peak_bytes() : 0);
  return memory;
}

}  // namespace jige::train
