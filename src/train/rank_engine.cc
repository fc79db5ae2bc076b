#include "train/rank_engine.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/check.h"
#include "train/expert_bias.h"

namespace jige::train {

Result<std::unique_ptr<StepEngine>> RankEngine::create(Device& device,
                                                       const model::Architecture& architecture,
                                                       const model::WeightsOptions& weights_options,
                                                       const model::TrainingMemory& memory,
                                                       const TrainOptions& options) {
  JIGE_CHECK(options.ranks && options.ranks->group && options.ranks->group->size() > 1,
             "an engine for several ranks without a group");
  std::unique_ptr<RankEngine> engine(new RankEngine());
  JIGE_DO(engine->allocate(device, architecture, weights_options, memory, options));
  engine->group_ = options.ranks->group.get();
  const OptimizerShares* shares = engine->optimizer_->shares();
  JIGE_TRY(engine->carrier_, GradientCarrier::make(device, *engine->weights_));
  engine->sync_ = GradientSync::make(*options.ranks, *engine->carrier_, *engine->weights_, shares);
  if (options.ranks->split_context) {
    engine->context_.emplace(*engine->group_, *engine->executor_, *engine->weights_,
                             static_cast<ContextRelay&>(*engine->sync_));
  }
  if (options.dpo) {
    engine->preference_.emplace(*options.dpo, *engine, *engine->executor_,
                                options.micro_batch_tokens);
  }
  if (shares) {
    engine->sharded_.emplace(*engine->group_, *engine->carrier_, *engine->weights_,
                             *engine->optimizer_);
  }
  return engine;
}

void RankEngine::refresh() {
  if (sharded_) sharded_->take_masters(*stream_);
}

int64_t RankEngine::sent_bytes() const {
  return sync_->sent_bytes() + (sharded_ ? sharded_->sent_bytes() : 0) +
         (context_ ? context_->sent_bytes() : 0);
}

Status RankEngine::waited(const std::function<Status()>& wait) {
  const Event busy = stream_->record();
  const StopWatch watch;
  const Status done = wait();
  if (busy.complete()) wait_s_ += watch.seconds();
  return done;
}

// Before anything of the step can arrive.
void RankEngine::start_gradients(int64_t micro_batch_count) {
  bool any = context_.has_value();
  bool starts = context_ && sync_->is_own(0);
  for (int64_t i = 0; i < micro_batch_count && !context_; ++i) {
    any |= sync_->is_own(i);
    starts |= sync_->is_own(i) && sync_->starts(i);
  }
  if (starts) weights_->start_gradients(*stream_);
  if (!any) weights_->zero_gradients(*stream_);
  stream_->synchronize();
}

Status RankEngine::run_weights(size_t node, int64_t micro_batch, const Task& task) {
  JIGE_DO(waited([&] { return sync_->before(*stream_, node, micro_batch); }));
  executor_->run(
      *stream_, std::span(&task, 1),
      sync_->starts(micro_batch) ? model::GradientUse::kStore : model::GradientUse::kAdd);
  // The holder gives the table's sum away as soon as it is there.
  const bool last = micro_batch + 1 == micro_batch_count_ && sync_->holder() == group_->rank();
  if (node == 0 && last) weights_->finish_gradients(*stream_);
  return waited([&] { return sync_->after(*stream_, node, micro_batch); });
}

Status RankEngine::run_forward(const Corpus& corpus, const StepPlan& plan, int64_t micro_batch,
                               const BatchTerms& terms) {
  const auto i = static_cast<size_t>(micro_batch);
  if (preference_) return preference_->forward(corpus, i, terms);
  JIGE_DO(read_batch(corpus, plan.micro_batches[i], batch_));
  if (context_) return context_->forward(*stream_, batch_, terms);
  JIGE_DO(load(batch_, terms));
  const auto head = static_cast<int32_t>(weights_->architecture().head_node());
  for (int32_t node = 0; node < head; ++node) {
    const Task forward{StepTaskKind::kForward, node, 0};
    executor_->run(*stream_, std::span(&forward, 1));
  }
  return {};
}

Status RankEngine::run_backward(int64_t micro_batch) {
  const auto head = static_cast<int32_t>(weights_->architecture().head_node());
  JIGE_DO(run_weights(static_cast<size_t>(head), micro_batch, {StepTaskKind::kHeadPass, head, 0}));
  for (int32_t node = head - 1; node >= 0; --node) {
    const Task input{StepTaskKind::kBackwardInput, node, 0};
    executor_->run(*stream_, std::span(&input, 1));
    JIGE_DO(run_weights(static_cast<size_t>(node), micro_batch,
                        {StepTaskKind::kBackwardWeight, node, 0}));
  }
  return {};
}

Status RankEngine::wait_for_totals() {
  for (size_t node = 0; node < weights_->architecture().node_count(); ++node) {
    JIGE_DO(waited([&] { return sync_->await_total(*stream_, node); }));
  }
  return {};
}

Result<std::vector<double>> RankEngine::take_squares_of_holder() {
  const std::span<const model::NamedParam> params = optimizer_->params();
  std::vector<double> squares(params.size());
  if (sync_->holder() == group_->rank()) {
    std::vector<TensorView> grads;
    for (const model::NamedParam& param : params) grads.push_back(param.grad);
    ops::sums_of_squares(*stream_, grads, squares.data());
    stream_->synchronize();
  }
  JIGE_DO(waited([&] { return carrier_->await_fetched(); }));
  JIGE_DO(waited([&] {
    return broadcast_bytes(*group_, sync_->holder(), std::as_writable_bytes(std::span(squares)));
  }));
  JIGE_DO(wait_for_totals());
  return squares;
}

Result<std::vector<double>> RankEngine::take_totals() {
  if (sync_->holder() >= 0) return take_squares_of_holder();
  const std::span<const model::NamedParam> params = optimizer_->params();
  std::vector<double> squares(params.size());
  for (size_t node = weights_->architecture().node_count(); node-- > 0;) {
    const auto* memory = static_cast<const float*>(weights_->gradient_memory(node).data);
    // A tied head's gradient has still to be added to the table's, which comes last. Totals of
    // several sizes may take other links, so that the one that began last is the first to be there.
    if (node == 0) {
      JIGE_DO(wait_for_totals());
      weights_->finish_gradients(*stream_);
    }
    for (size_t i = 0; i < params.size(); ++i) {
      if (params[i].node != node) continue;
      const TensorView& grad = params[i].grad;
      const int64_t begin = static_cast<const float*>(grad.data) - memory;
      JIGE_DO(waited([&] { return sync_->await_total(*stream_, node, {begin, grad.count()}); }));
      ops::sums_of_squares(*stream_, {{grad}}, &squares[i]);
    }
  }
  stream_->synchronize();
  return squares;
}

Result<OptimizerReport> RankEngine::update(std::span<const double> squares, const StepRates& rates,
                                           bool refuse) {
  if (sharded_) {
    const OptimizerReport report = optimizer_->decide(squares, refuse);
    JIGE_DO(sharded_->run(*stream_, report, rates.learning_rate));
    wait_s_ += sharded_->wait_s();
    return report;
  }
  const OptimizerReport report = optimizer_->apply(
      *stream_, squares,
      {.learning_rate = rates.learning_rate, .refuse = refuse, .renew_packed = true});
  if (report.applied) weights_->pack_others(*stream_);
  stream_->synchronize();
  return report;
}

Status RankEngine::run_passes(int64_t micro_batch, const Pass& forward) {
  JIGE_DO(forward(micro_batch));
  if (context_) {
    JIGE_DO(context_->backward(*stream_, micro_batch));
    context_->add_losses(*stream_, loss_);
    return {};
  }
  JIGE_DO(run_backward(micro_batch));
  if (!preference_ && !rewards_) executor_->add_losses(*stream_, loss_);
  executor_->add_expert_use(*stream_, *experts_);
  return {};
}

Status RankEngine::evaluate(HostBatch& batch, ExactSum& sum) {
  if (!context_) return WholeModelEngine::evaluate(batch, sum);
  JIGE_DO(context_->forward(*stream_, batch, {}, true));
  context_->add_losses(*stream_, sum);
  return {};
}

Result<std::vector<double>> RankEngine::sum_gradients(int64_t micro_batch_count,
                                                      const Pass& forward) {
  micro_batch_count_ = micro_batch_count;
  start_gradients(micro_batch_count);
  JIGE_DO(sync_->begin(context_ ? context_->chunk_count(micro_batch_count) : micro_batch_count));
  const double waited_before = context_ ? context_->wait_s() : 0;
  for (int64_t i = 0; i < micro_batch_count; ++i) {
    if (takes(static_cast<size_t>(i))) JIGE_DO(run_passes(i, forward));
  }
  if (context_) wait_s_ += context_->wait_s() - waited_before;
  JIGE_DO(sync_->finish(*stream_));
  return take_totals();
}

Result<StepWord> RankEngine::say_word(const StepRates& rates) {
  StepWord own{.loss = loss_, .wait_s = wait_s_, .experts = experts_->take()};
  own.stop = rates.should_stop && rates.should_stop();
  own.save = rates.should_save && rates.should_save();
  return exchange(*group_, own);
}

Status RankEngine::run_plan(const Corpus& corpus, const StepPlan& plan, const StepRates& rates,
                            StepOutcome& outcome) {
  if (preference_) preference_->begin_step(plan);
  const auto forward = [&](int64_t micro_batch) {
    BatchTerms terms{.loss_weight = preference_ ? 1 : loss_weight_of(plan),
                     .dropout = rates.dropout,
                     .balance_weight = balance_weight_of(plan, rates.balance)};
    for (int64_t i = 0; i < micro_batch; ++i) {
      terms.dropout.token_begin += plan.micro_batches[static_cast<size_t>(i)].input_count;
    }
    return run_forward(corpus, plan, micro_batch, terms);
  };
  JIGE_TRY(const std::vector<double> squares,
           sum_gradients(std::ssize(plan.micro_batches), forward));
  JIGE_TRY(const StepWord all, say_word(rates));
  outcome = {.loss_sum = all.loss.value(),
             .experts = all.experts,
             .stop = all.stop,
             .save = all.save,
             .ranks = {.wait_max_s = all.wait_s}};
  if (preference_) {
    JIGE_TRY(const PreferenceSums sums, preference_->end_step());
    outcome.loss_sum = sums.loss();
    outcome.preference = sums.means();
  }
  if (rates.before_update) rates.before_update();
  JIGE_TRY(outcome.optimizer, update(squares, rates, !std::isfinite(outcome.loss_sum)));
  if (outcome.optimizer.applied) {
    move_choice_biases(*stream_, *weights_, outcome.experts, rates.expert_bias_rate);
  }
  return {};
}

Status RankEngine::run_rewards(const StepPlan& plan, const StepRates& rates, StepOutcome& outcome) {
  JIGE_TRY(const bool drawn, rewards_->begin_step(plan, rates));
  outcome.left = !drawn;
  if (outcome.left) return {};
  wait_s_ += rewards_->wait_seconds();
  const auto forward = [&](int64_t micro_batch) {
    return rewards_->forward(static_cast<size_t>(micro_batch));
  };
  // Where there is nothing to learn, nothing is wrong.
  outcome.optimizer.applied = true;
  for (int64_t i = 0; i < rewards_->update_count() && outcome.optimizer.applied; ++i) {
    rewards_->begin_update();
    JIGE_TRY(const std::vector<double> squares,
             sum_gradients(std::ssize(rewards_->micro_batches()), forward));
    JIGE_TRY(const bool finite, rewards_->end_update());
    if (rates.before_update) rates.before_update();
    JIGE_TRY(outcome.optimizer, update(squares, rates, !finite));
  }
  JIGE_TRY(const StepWord all, say_word(rates));
  outcome.experts = all.experts;
  outcome.stop = all.stop;
  outcome.save = all.save;
  outcome.ranks.wait_max_s = all.wait_s;
  rewards_->end_step(outcome);
  return {};
}

Result<StepOutcome> RankEngine::run(const Corpus& corpus, const StepPlan& plan,
                                    const StepRates& rates) {
  const int64_t sent_before = sent_bytes();
  wait_s_ = 0;
  loss_ = {};
  StepOutcome outcome;
  JIGE_DO(rewards_ ? run_rewards(plan, rates, outcome) : run_plan(corpus, plan, rates, outcome));
  outcome.ranks.sent_bytes = sent_bytes() - sent_before;
  outcome.ranks.wait_s = wait_s_;
  outcome.ranks.wait_max_s = std::max(outcome.ranks.wait_max_s, wait_s_);
  return outcome;
}

Status RankEngine::add_ranks(ExactSum& sum) {
  JIGE_TRY(const StepWord all, exchange(*group_, {.loss = sum}));
  sum = all.loss;
  return {};
}

Status RankEngine::complete(std::span<double> numbers) {
  auto* bytes = reinterpret_cast<std::byte*>(numbers.data());
  // Sums of whole numbers, all but one of which are zero.
  return group_
      ->start({.dtype = DType::kI32,
               .count = static_cast<int64_t>(numbers.size_bytes() / 4),
               .src = bytes,
               .dst = bytes})
      .wait();
}

}  // namespace jige::train
