#include "train/records.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/cpu.h"

namespace jige::train {
namespace {

// JSON has no NaN or infinity.
Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json training_memory_json(const model::TrainingMemory& memory) {
  return {{"weights_bytes", memory.weights.values_bytes},
          {"gradients_bytes", memory.weights.gradients_bytes},
          {"packed_bytes", memory.weights.packed_bytes},
          {"rope_bytes", memory.weights.rope_bytes},
          {"strip_bytes", memory.weights.strip_bytes},
          {"moments_bytes", memory.moments_bytes},
          {"masters_bytes", memory.masters_bytes},
          {"micro_batch_bytes", memory.buffers.total_bytes()},
          {"total_bytes", memory.total_bytes()}};
}

void add_preference(const PreferenceMeans& means, Json& record) {
  record["pairs"] = means.pair_count;
  record["margin"] = finite(means.margin);
  record["accuracy"] = means.accuracy;
  record["chosen_logprob"] = finite(means.chosen_logprob);
  record["rejected_logprob"] = finite(means.rejected_logprob);
}

void add_rewards(const RewardMeans& means, Json& record) {
  record["answers"] = means.answer_count;
  record["reward"] = finite(means.reward);
  record["reward_spread"] = finite(means.spread);
  record["full_share"] = means.full_share;
  record["answer_tokens"] = means.length;
  record["cut_share"] = means.cut_share;
}

void add_reward_step(const RewardStep& step, Json& record) {
  add_rewards(step.means, record);
  record["groups"] = step.group_count;
  record["silent_share"] = step.silent_share;
  if (step.length_reward) record["length_reward"] = *step.length_reward;
  record["clipped_share"] = step.clipped_share;
  if (step.kl) record["kl"] = finite(*step.kl);
  record["logprob_gap"] = step.logprob_gap ? finite(*step.logprob_gap) : Json(nullptr);
  record["draw_s"] = step.draw_seconds;
  record["score_s"] = step.score_seconds;
  record["learn_s"] = step.learn_seconds;
}

void add_evaluation(const EvalInfo& info, Json& record) {
  record["step"] = info.step;
  if (info.rewards) return add_rewards(*info.rewards, record);
  record["loss"] = finite(info.loss);
  if (!info.preference) record["perplexity"] = finite(info.perplexity);
  record["learned"] = info.learned_count;
  if (info.preference) add_preference(*info.preference, record);
}

Json memory_report_json(const MemoryReport& memory) {
  return {{"arena_predicted_bytes", memory.arena_predicted_bytes},
          {"arena_peak_bytes", memory.arena_peak_bytes},
          {"process_predicted_bytes", memory.process_predicted_bytes},
          {"index_bytes", memory.index_bytes},
          {"process_private_peak_bytes", memory.process_private_peak_bytes},
          {"process_peak_bytes", memory.process_peak_bytes},
          {"device_planned_bytes", memory.device_planned_bytes},
          {"device_peak_bytes", memory.device_peak_bytes}};
}

Json pipeline_json(const PipelinePlan& pipeline) {
  const plan::PipelineSchedule& schedule = pipeline.schedule;
  return {{"schedule", schedule.name},
          {"gpus", pipeline.gpus},
          {"devices", schedule.device_count},
          {"micro_batches", schedule.micro_batch_count},
          {"parameters", schedule.host_parameters ? "host" : "device"},
          {"recompute", schedule.recompute},
          {"optimizer", plan::optimizer_name(schedule.optimizer)},
          {"clip", plan::clip_name(schedule.clip)},
          {"device_bytes", pipeline.device_bytes},
          {"host_bytes", pipeline.host_bytes},
          {"predicted_step_s", pipeline.step_s},
          {"predicted_bubble", pipeline.bubble},
          {"binding", pipeline.binding}};
}

}  // namespace

Json plan_json(const TrainPlan& plan) {
  Json json = {{"parameters", plan.parameter_count},
               {"trainable_parameters", plan.trainable_count},
               {"steps", plan.steps_total},
               {"step_first", plan.step_first},
               {"documents", plan.document_count},
               {"skipped_lines", plan.skipped_count},
               {"sequences", plan.sequence_count},
               {"epoch_tokens", plan.epoch_tokens},
               {"epoch_learned", plan.epoch_learned},
               {"held_out_sequences", plan.held_out_count},
               {"context", plan.context},
               {"memory", training_memory_json(plan.memory)},
               {"memory_predicted_bytes", plan.memory_predicted_bytes},
               {"memory_limit_bytes", plan.memory_limit_bytes}};
  json["memory"]["index_bytes"] = plan.index_bytes;
  if (plan.image_count > 0) {
    json["images"] = plan.image_count;
    json["memory"]["images_bytes"] = plan.memory.images_bytes;
    json["memory"]["image_reading_bytes"] = plan.image_reading_bytes;
  }
  if (plan.pairs) {
    json["pairs"] = plan.sequence_count;
    json["memory"]["reference_bytes"] = plan.reference_bytes;
  }
  if (plan.prompts) {
    json["prompts"] = plan.sequence_count;
    json["memory"]["drawing_bytes"] = plan.drawing_bytes;
    json["memory"]["reference_bytes"] = plan.reference_bytes;
    json["memory"]["prompt_bytes"] = plan.prompt_bytes;
  }
  if (plan.pipeline) json["pipeline"] = pipeline_json(*plan.pipeline);
  if (plan.rank_count > 1) {
    json["ranks"] = plan.rank_count;
    json["ranks_here"] = plan.ranks_here;
    json["memory"]["stream_bytes"] = plan.stream_bytes;
    if (plan.pinned_bytes > 0) {
      json["ranks_on_gpu"] = plan.ranks_on_gpu;
      json["memory"]["pinned_bytes"] = plan.pinned_bytes;
    }
    json["shard_optimizer"] = plan.sharded;
  }
  return json;
}

Json start_record(const RunSetup& setup, int thread_count) {
  return {{"kind", "start"},
          {"version", setup.options.program_version},
          {"cpu", cpu_features().model_name},
          {"isa", isa_name(active_isa())},
          {"threads", thread_count},
          {"options", options_json(setup.options)},
          {"model", formats::to_hf_config(setup.architecture->config())},
          {"plan", plan_json(setup.plan)}};
}

Json step_record(const StepInfo& info) {
  Json record = {{"kind", "step"},
                 {"step", info.step},
                 {"loss", finite(info.loss)},
                 {"lr", info.learning_rate},
                 {"grad_norm", finite(info.grad_norm)},
                 {"skipped", info.skipped},
                 {"tokens", info.input_count},
                 {"learned", info.learned_count},
                 {"micro_batches", info.micro_batch_count},
                 {"epoch", info.epoch},
                 {"seconds", info.seconds},
                 {"tokens_per_s", info.tokens_per_s},
                 {"flops_per_s", info.flops_per_s}};
  if (info.flops_share > 0) record["flops_share"] = info.flops_share;
  if (info.weight_share) record["weight_gradient_share"] = *info.weight_share;
  if (info.rank_count > 1) {
    record["ranks"] = info.rank_count;
    record["wait_s"] = info.ranks.wait_s;
    record["wait_max_s"] = info.ranks.wait_max_s;
    record["sent_bytes"] = info.ranks.sent_bytes;
  }
  if (info.experts) {
    record["expert_busiest"] = info.experts->busiest.most;
    record["expert_busiest_mean"] = info.experts->busiest.mean;
    if (info.experts->balance_loss) record["balance_loss"] = finite(*info.experts->balance_loss);
  }
  record["run_seconds"] = info.run_seconds;
  if (info.preference) add_preference(*info.preference, record);
  if (info.rewards) add_reward_step(*info.rewards, record);
  return record;
}

Json eval_record(const EvalInfo& info) {
  Json record = {{"kind", "eval"}};
  add_evaluation(info, record);
  record["best"] = info.best;
  record["seconds"] = info.seconds;
  return record;
}

Json checkpoint_record(const CheckpointInfo& info) {
  return {{"kind", "checkpoint"},
          {"step", info.step},
          {"folder", info.folder},
          {"seconds", info.seconds}};
}

Json result_json(const TrainResult& result) {
  Json json = {{"steps", result.steps_done},
               {"steps_total", result.steps_total},
               {"stopped", result.stopped},
               {"was_complete", result.was_complete}};
  if (result.loss) json["loss"] = finite(*result.loss);
  if (result.eval) {
    json["eval"] = Json::object();
    add_evaluation(*result.eval, json["eval"]);
  }
  if (result.best) json["best_step"] = result.best->step;
  if (!result.stopped) json["model_step"] = result.model_step;
  json["bad_steps"] = result.bad_steps;
  json["tokens"] = result.input_tokens;
  json["seconds"] = result.seconds;
  json["tokens_per_s"] = result.tokens_per_s;
  json["memory"] = memory_report_json(result.memory);
  if (result.step_times) {
    json["predicted_step_s"] = result.step_times->predicted_s;
    json["measured_step_s"] = result.step_times->measured_s;
  }
  json["log"] = result.log_path;
  if (!result.model_folder.empty()) json["model"] = result.model_folder;
  if (!result.adapter_folder.empty()) json["adapter"] = result.adapter_folder;
  return json;
}

bool ends_run(const Json& record) {
  return record.is_object() && record.value("kind", Json()) == "end" &&
         record.value("stopped", Json()) == false;
}

Json end_record(const TrainResult& result) {
  Json record = {{"kind", "end"}};
  record.update(result_json(result));
  return record;
}

}  // namespace jige::train
