// The steps of a run: trainer.h.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "train/evaluate.h"
#include "train/preference_passes.h"
#include "train/process_memory.h"
#include "train/rank_exchange.h"
#include "train/records.h"
#include "train/reward_passes.h"
#include "train/run_dropout.h"
#include "train/run_gpus.h"
#include "train/shared_state.h"
#include "train/step_flops.h"
#include "train/trainer.h"

namespace jige::train {
namespace {

// Mean number of tokens that a row sees: itself and those before it.
// The two answers of a pair are taken as equally long.
double mean_context(const MicroBatch& micro_batch, bool pairs) {
  double sum = 0;
  for (const Sequence& sequence : micro_batch.sequences) {
    const double halves = pairs ? 2 : 1;
    const double count = static_cast<double>(sequence.count) / halves;
    sum += halves * count * (count + 1) / 2;
  }
  return sum / static_cast<double>(micro_batch.input_count);
}

std::optional<ExpertInfo> expert_info(const ExpertUse& use, const StepPlan& plan,
                                      const TrainOptions& options) {
  if (use.expert_count == 0) return std::nullopt;
  ExpertInfo info{.busiest = busiest_experts(use), .balance_loss = {}};
  const double balance = options.expert_balance.value_or(0);
  if (balance > 0) {
    info.balance_loss = balance * use.balance.value() / static_cast<double>(plan.input_count);
  }
  return info;
}

// Of weight gradients that a step skipped.
double skipped_flops(const StepOutcome& outcome, const StepPlan& learned) {
  if (!outcome.rows) return 0;
  return 2 * outcome.rows->skipped_elements * static_cast<double>(learned.input_count);
}

}  // namespace

Result<std::optional<StepInfo>> Trainer::run_step() {
  const StopWatch watch;
  if (state_.cursor >= setup_.cursor_max()) {
    return fail(Code::kCorrupt, "{}: the data ends before step {}; the checkpoint's cursor is {}",
                setup_.checkpoints_folder(), state_.step + 1, state_.cursor);
  }
  const StepPlan plan = planner_->plan(state_.cursor);
  StepInfo info{.step = state_.step + 1,
                .steps_total = setup_.plan.steps_total,
                .learning_rate = learning_rate(setup_.options.schedule, state_.step + 1),
                .epoch = planner_->epoch_of(plan.cursor_end)};
  const TrainOptions& options = setup_.options;
  const Result<StepOutcome> run =
      engine_->run(setup_.dataset.corpus, plan,
                   {.step = info.step,
                    .learning_rate = info.learning_rate,
                    .dropout = step_dropout(options, info.step, plan.input_count),
                    .balance = options.expert_balance.value_or(0),
                    .expert_bias_rate = options.expert_bias_rate,
                    .before_update = [this] { checkpoint_.wait_written(); },
                    .should_stop = callbacks_.should_stop,
                    .should_save = [this] { return setup_.leads() && time_is_up(); },
                    .should_leave = callbacks_.should_leave});
  if (!run) return tl::unexpected(step_failure(info.step, run.error()));
  if (run->left) return std::optional<StepInfo>();
  const StepOutcome& outcome = *run;
  const StepPlan& learned = outcome.learned ? *outcome.learned : plan;
  info.input_count = learned.input_count;
  info.learned_count = learned.learned_count;
  info.micro_batch_count = std::ssize(learned.micro_batches);
  info.preference = outcome.preference;
  info.rewards = outcome.rewards;
  info.loss = info.preference ? info.preference->loss
              : info.rewards  ? info.rewards->loss
                              : outcome.loss_sum / static_cast<double>(plan.learned_count);
  info.experts = expert_info(outcome.experts, learned, options);
  info.grad_norm = outcome.optimizer.grad_norm;
  info.skipped = !outcome.optimizer.applied;
  info.rank_count = setup_.plan.rank_count;
  info.ranks = outcome.ranks;
  stop_asked_ = outcome.stop;
  save_asked_ = outcome.save;
  info.seconds = watch.seconds();
  info.tokens_per_s = static_cast<double>(learned.input_count) / info.seconds;
  if (outcome.rows) info.weight_share = outcome.rows->share;
  info.flops_per_s = (step_flops(learned) - skipped_flops(outcome, learned)) / info.seconds;
  if (options.gemm_flops_per_s > 0) {
    // The rate was measured on one rank.
    info.flops_share = info.flops_per_s / options.gemm_flops_per_s / setup_.plan.rank_count;
  }

  state_.step = info.step;
  state_.cursor = plan.cursor_end;
  state_.update_count = engine_->optimizer().update_count();
  state_.input_tokens += learned.input_count;
  state_.learned_tokens += learned.learned_count;
  state_.seconds += info.seconds;
  state_.bad_steps += info.skipped ? 1 : 0;
  state_.bad_steps_in_row = info.skipped ? state_.bad_steps_in_row + 1 : 0;
  info.run_seconds = state_.seconds;
  return std::optional(std::move(info));
}

double Trainer::step_flops(const StepPlan& learned) const {
  double flops = 0;
  for (const MicroBatch& micro_batch : learned.micro_batches) {
    flops += training_flops(*setup_.architecture, setup_.options,
                            static_cast<double>(micro_batch.input_count),
                            mean_context(micro_batch, engine_->preference() != nullptr));
  }
  return flops;
}

Status Trainer::check_reference(bool resumed) const {
  const TrainOptions& options = setup_.options;
  const bool several = setup_.plan.rank_count > 1;
  // Adapters know their base anyway.
  if (options.grpo->loss.kl == 0 || options.lora || !(resumed || several)) return {};
  JIGE_TRY(const std::string checksum, hash_weights(options.init_folder));
  if (resumed && setup_.source && checksum != setup_.source->checksum) {
    return fail(Code::kInvalidArgument,
                "{}: is the reference of this run, and its weights are not those that the run "
                "began with; put them back, or start anew in another folder",
                options.init_folder);
  }
  if (!several) return {};
  return check_same(*options.ranks->group, checksum,
                    fmt::format("the weights in {}, the reference,", options.init_folder));
}

Status Trainer::start_rewards(bool resumed) {
  if (nothing_left()) return {};
  JIGE_DO(check_reference(resumed));
  return engine_->rewards()->start(
      {.device = *device_,
       .dataset = setup_.dataset,
       .tokenizer_folder = setup_.tokenizer_folder,
       .bytes = setup_.plan.drawing_bytes + setup_.plan.reference_bytes});
}

Error Trainer::step_failure(int64_t step, Error error) {
  // The checkpoint under way is of masters that change only once it is written.
  if (const Status written = await_checkpoint(); !written) log_warn("{}", written.error().message);
  if (!setup_.leads()) return error;
  const std::string remedy =
      whole_step_ < 0 ? "there is no checkpoint yet"
                      : fmt::format(
                            "the checkpoint of step {} is whole, and the same command goes on "
                            "from it",
                            whole_step_);
  error.message = fmt::format("step {} failed; {}: {}", step, remedy, error.message);
  return error;
}

Status Trainer::finish_step(const StepInfo& info) {
  ++steps_here_;
  tokens_here_ += info.input_count;
  seconds_here_ += info.seconds;
  last_loss_ = info.loss;
  note_memory();
  // Before the update of this step had to wait for it, so it is over.
  JIGE_DO(await_checkpoint());
  JIGE_DO(write_log(step_record(info)));
  if (callbacks_.on_step) callbacks_.on_step(info);
  if (info.skipped) {
    log_warn("step {}: gradients are not finite, the step is skipped", info.step);
  }
  const bool last = info.step == info.steps_total;
  if (diverged(info)) {
    ends_alike_ = diverged_ = true;
    return divergence(info);
  }
  const int64_t every = setup_.options.eval_every_steps;
  if (last || (every > 0 && info.step % every == 0)) JIGE_DO(run_evaluation());
  if (state_.evaluation_due) return {};  // the run ends here, behind a checkpoint that says so
  if (last || is_best_kept() || checkpoint_due()) JIGE_DO(start_checkpoint());
  return {};
}

// However few steps a run has: one in which none could be applied has made nothing, and one that
// ends with a loss that is no number has made weights that nobody can use.
bool Trainer::diverged(const StepInfo& info) const {
  const bool last = info.step == info.steps_total;
  return state_.bad_steps_in_row >= setup_.options.optimizer.bad_steps_in_row_max ||
         (last && info.skipped && (state_.update_count == 0 || !std::isfinite(info.loss)));
}

Status Trainer::divergence(const StepInfo& info) const {
  const TrainOptions& options = setup_.options;
  if (state_.update_count == 0 && !options.init_folder.empty()) {
    return fail(Code::kCorrupt,
                "{}: cannot be trained: its weights hold NaN, infinity, or numbers too large to "
                "compute with; none of {} steps had finite gradients (loss {})",
                options.init_folder, info.step, info.loss);
  }
  return fail(Code::kInvalidArgument,
              "training diverged: {} step{} in a row up to step {} had no finite gradients (loss "
              "{}, learning rate {:.3g}); lower the learning rate, or look at the data of {}",
              state_.bad_steps_in_row, state_.bad_steps_in_row == 1 ? "" : "s", info.step,
              info.loss, info.learning_rate, options.data.files.front());
}

Status Trainer::check_weights() {
  const std::span<const model::NamedParam> params = engine_->optimizer().params();
  const model::NodeStreams streams = engine_->streams();
  std::vector<double> squares(params.size());
  for (size_t begin = 0, end = 0; begin < params.size(); begin = end) {
    Stream& stream = streams[params[begin].node];
    std::vector<TensorView> values;
    for (end = begin; end < params.size() && &streams[params[end].node] == &stream; ++end) {
      values.push_back(params[end].value);
    }
    ops::sums_of_squares(stream, values, &squares[begin]);
  }
  streams.synchronize();
  if (std::ranges::all_of(squares, [](double sum) { return std::isfinite(sum); })) return {};
  diverged_ = true;
  const TrainOptions& options = setup_.options;
  if (state_.update_count == 0 && !options.init_folder.empty()) {
    return fail(Code::kCorrupt, "{}: cannot be trained: its weights hold NaN or infinity",
                options.init_folder);
  }
  return fail(Code::kInvalidArgument,
              "training diverged: the weights behind step {} hold NaN or infinity, and are not "
              "kept; lower the learning rate, or look at the data of {}",
              state_.step, options.data.files.front());
}

Result<std::optional<EvalInfo>> Trainer::measure_held_out() {
  if (RewardPasses* const rewards = engine_->rewards()) {
    JIGE_TRY(const auto means, rewards->measure(state_.step, callbacks_.should_leave));
    return means ? std::optional(EvalInfo{.rewards = means}) : std::nullopt;
  }
  const Corpus& corpus = setup_.dataset.held_out_corpus();
  const bool several = setup_.plan.rank_count > 1;
  const WalkProgress progress = [&](int64_t done, int64_t total) {
    return !callbacks_.on_held_out || callbacks_.on_held_out(done, total) || several;
  };
  if (engine_->preference() == nullptr) {
    JIGE_TRY(const auto evaluation, evaluate(corpus, evaluation_, *engine_, progress));
    if (!evaluation) return std::optional<EvalInfo>();
    return std::optional(EvalInfo{.loss = evaluation->loss,
                                  .perplexity = std::exp(evaluation->loss),
                                  .learned_count = evaluation->learned_count});
  }
  JIGE_TRY(const auto means, engine_->preference()->measure(corpus, evaluation_, progress));
  if (!means) return std::optional<EvalInfo>();
  EvalInfo info{.loss = means->loss, .preference = means};
  for (const MicroBatch& micro_batch : evaluation_) info.learned_count += micro_batch.learned_count;
  return std::optional(info);
}

Status Trainer::run_evaluation() {
  state_.evaluation_due = false;
  if (evaluation_.empty()) return {};
  const StopWatch watch;
  Result<std::optional<EvalInfo>> measured = measure_held_out();
  if (!measured) {
    return tl::unexpected(step_failure(
        state_.step,
        {measured.error().code, "measuring held-out data: " + measured.error().message}));
  }
  std::optional<EvalInfo>& info = *measured;
  state_.evaluation_due = !info;
  if (!info) return {};
  info->step = state_.step;
  info->seconds = watch.seconds();
  info->best = note_measurement(*info, state_.best);
  last_eval_ = *info;
  JIGE_DO(write_log(eval_record(*info)));
  if (callbacks_.on_eval) callbacks_.on_eval(*info);
  return {};
}

std::optional<int64_t> Trainer::kept_step() const {
  if (!setup_.options.keeps_best() || !state_.best) return std::nullopt;
  return state_.best->step;
}

bool Trainer::is_best_kept() const { return kept_step() == state_.step; }

int64_t Trainer::model_step() const { return kept_step().value_or(state_.step); }

bool Trainer::out_of_patience() const {
  const int64_t patience = setup_.options.patience;
  return patience > 0 && state_.best && state_.best->since >= patience;
}

bool Trainer::checkpoint_due() const {
  const TrainOptions& options = setup_.options;
  if (options.checkpoint_every_steps > 0 && state_.step % options.checkpoint_every_steps == 0) {
    return true;
  }
  if (std::ranges::find(options.checkpoint_steps, state_.step) != options.checkpoint_steps.end()) {
    return true;
  }
  return shards() ? save_asked_ : time_is_up();
}

bool Trainer::time_is_up() const {
  const double every = setup_.options.checkpoint_every_seconds;
  return every > 0 && checkpoint_watch_.seconds() - checkpoint_seconds_ >= every;
}

Status Trainer::start_checkpoint() {
  if (!setup_.leads()) {
    checkpoint_step_ = state_.step;
    return shards()
               ? send_moments(*setup_.options.ranks->group, engine_->optimizer(), engine_->stream())
               : Status();
  }
  JIGE_DO(await_checkpoint());
  JIGE_DO(check_weights());
  // The log comes first: a checkpoint may not point behind the end of its log.
  JIGE_DO(log_->sync());
  state_.log_bytes = log_->size();
  JIGE_TRY(auto streams, engine_->make_streams());
  const Optimizer& optimizer = engine_->optimizer();
  checkpoint_.start(
      {.run_folder = setup_.checkpoints_folder(),
       .origin = setup_.origin(),
       .keep_last = setup_.options.checkpoints_kept,
       .keep_step = kept_step()},
      setup_.identity, state_,
      {.optimizer = optimizer,
       .gate = engine_->row_gate(),
       .moments = shards()
                      ? gathered_moments(*setup_.options.ranks->group, optimizer, engine_->stream())
                      : nullptr},
      std::move(streams), setup_.options.ranks ? setup_.options.ranks->writing : nullptr);
  checkpoint_step_ = state_.step;
  checkpoint_seconds_ = checkpoint_watch_.seconds();
  // The next gradients take the place of values.
  return shards() ? await_checkpoint() : Status();
}

Status Trainer::await_checkpoint() {
  JIGE_TRY(const std::optional<CheckpointInfo> info, checkpoint_.finish());
  if (!info) return {};
  whole_step_ = info->step;
  JIGE_DO(write_log(checkpoint_record(*info)));
  if (callbacks_.on_checkpoint) callbacks_.on_checkpoint(*info);
  return {};
}

void Trainer::note_memory() {
  int64_t bytes = process_private_bytes();
  if (setup_.plan.ranks_on_gpu > 1) return;  // what is free there tells of all of them
  if (setup_.options.on_gpu()) {             // it is the GPU's memory that was predicted
    const auto free_bytes = gpus_free_bytes(setup_.options);
    bytes = free_bytes ? gpu_free_first_bytes_ - *free_bytes : 0;
  }
  private_peak_bytes_ = std::max(private_peak_bytes_, bytes);
}

}  // namespace jige::train
