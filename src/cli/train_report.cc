#include "cli/train_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/counted.h"
#include "base/log.h"
#include "cli/bad_lines.h"
#include "cli/interrupt.h"
#include "cli/shell_word.h"
#include "cli/table.h"
#include "train/logical_device.h"
#include "train/records.h"

namespace jige::cli {
namespace {

std::string context_text(const train::TrainPlan& plan) {
  return fmt::format("sequences of {} tokens at most, the model's context is {}", plan.context,
                     plan.context_max);
}

// Empty where the rank is none that is wider than what it adapts.
std::string wide_rank_text(const train::TrainPlan& plan) {
  if (plan.adapter_rank <= plan.adapter_rank_useful) return "";
  return fmt::format(
      "adapters of rank {} learn no more than those of rank {}, the smaller side of the largest "
      "matrix that is adapted, and take more memory and time; --lora-rank {} does",
      plan.adapter_rank, plan.adapter_rank_useful, plan.adapter_rank_useful);
}

// Empty where nothing is left out.
std::string left_out_text(const train::TrainPlan& plan) {
  if (plan.skipped_share > 0) {
    return fmt::format(
        "weight gradients that are skipped are at most {:.1f} % of a step's products",
        100 * plan.skipped_share);
  }
  if (plan.dropped_share == 0) return "";
  return fmt::format("blocks that are dropped leave out {:.1f} % of a step's products",
                     100 * plan.dropped_share);
}

// Master, gradient and two moments in f32.
constexpr int64_t kStateBytesPerParameter = 16;

std::string shown_count(int64_t count) { return format_count(static_cast<double>(count)); }

// What the data is cut into: what is held out is counted in these, not in documents.
const char* unit_of(const train::TrainPlan& plan) {
  return plan.pairs ? "pair" : plan.prompts ? "prompt" : "sequence";
}

// "spipe over 2 devices, 4 micro-batches, parameters on the host, optimizer async".
std::string pipeline_line(const plan::PipelineSchedule& schedule) {
  return fmt::format("{} over {}, {}, parameters on the {}, optimizer {}, clipping {}{}",
                     schedule.name, counted(schedule.device_count, "logical device"),
                     counted(schedule.micro_batch_count, "micro-batch"),
                     schedule.host_parameters ? "host" : "device",
                     plan::optimizer_name(schedule.optimizer), plan::clip_name(schedule.clip),
                     schedule.recompute ? ", recompute" : "");
}

// "  margin 1.23  right 97 %".
std::string preference_note(const train::PreferenceMeans& means) {
  return fmt::format("  margin {:.3f}  right {:.0f} %", means.margin, 100 * means.accuracy);
}

// "  reward 0.62  full 58 %  30 tokens".
std::string reward_note(const train::RewardMeans& means) {
  return fmt::format("  reward {:.3f}  full {:.0f} %  {:.0f} tokens", means.reward,
                     100 * means.full_share, means.length);
}

// The same with what is learned of it.
// Of a step whose loss is not finite.
const char* why_no_loss(const train::StepInfo& info) {
  if (info.skipped) return "gradients were not finite";
  return info.learned_count > 0 ? "it was not finite" : "nothing was learned";
}

std::string loss_note(double loss, const char* why_none) {
  return std::isfinite(loss) ? fmt::format("loss {:.3f}", loss)
                             : fmt::format("no loss ({})", why_none);
}

std::string reward_step_note(const train::RewardStep& step) {
  std::string note = reward_note(step.means);
  if (step.means.cut_share > 0) note += fmt::format(", {:.0f} % cut", 100 * step.means.cut_share);
  if (step.silent_share > 0) note += fmt::format("  silent {:.0f} %", 100 * step.silent_share);
  if (step.clipped_share > 0) note += fmt::format("  clipped {:.1f} %", 100 * step.clipped_share);
  if (step.kl) note += fmt::format("  kl {:.4f}", *step.kl);
  return note;
}

// "  experts 1.7x": what the busiest expert has, over what it would have of equal use.
std::string expert_note(const train::ExpertInfo& experts) {
  return fmt::format("  experts {:.1f}x", experts.busiest.most);
}

std::string_view times_text(train::TimesSource times) {
  switch (times) {
    case train::TimesSource::kMeasured:
      return "times measured here";
    case train::TimesSource::kGiven:
      return "times of the plan, measured on this machine";
    case train::TimesSource::kAssumed:
      break;
  }
  return "operations counted, rates assumed";
}

// ", on GPU 1" where there are several.
std::string gpu_note(const train::PipelinePlan& pipeline, size_t d) {
  if (pipeline.gpus.size() < 2) return "";
  return fmt::format(
      ", on GPU {}",
      pipeline.gpus[train::gpu_in_turn(pipeline.gpus.size(), static_cast<int32_t>(d))]);
}

void add_pipeline(Table& table, const train::PipelinePlan& pipeline) {
  for (size_t d = 0; d < pipeline.device_bytes.size(); ++d) {
    table.row({fmt::format("  device {}{}", d, gpu_note(pipeline, d)),
               format_bytes(pipeline.device_bytes[d])});
  }
  table.row({"  host", format_bytes(pipeline.host_bytes)});
  table.row({"schedule", pipeline_line(pipeline.schedule)});
  table.row({"step", fmt::format("{:.3g} s predicted, {:.0f} % of it bubble; {}", pipeline.step_s,
                                 100 * pipeline.bubble, times_text(pipeline.times))});
  if (!pipeline.binding.empty()) table.row({"bound by", pipeline.binding});
}

// A last measurement that is worse than the best by less is as good.
constexpr double kWorseShare = 0.01;

// Whose weights the model has, where they are not the last; else that they came out worse than
// others that were measured.
std::string best_text(const train::TrainResult& result) {
  if (!result.best) return "";
  const int64_t step = result.best->step;
  const bool rewards = result.eval && result.eval->rewards;
  const std::string held_out = fmt::format("held-out {} {:.3f}", rewards ? "reward" : "loss",
                                           rewards ? -result.best->cost : result.best->cost);
  if (result.model_step < result.steps_done) {
    const bool early = result.steps_done < result.steps_total;
    return fmt::format(
        "best: {} behind step {}; the model has these weights{}", held_out, step,
        early ? fmt::format(", and the run ended behind step {} of {}, as none was better",
                            result.steps_done, result.steps_total)
              : "");
  }
  if (!result.eval || step == result.steps_done) return "";
  const double worse = train::cost_of(*result.eval) - result.best->cost;
  if (worse < kWorseShare * std::abs(result.best->cost)) return "";
  return fmt::format(
      "{} was best behind step {}, now {:.3f}; with --keep-best the model has the "
      "weights of the best measurement",
      held_out, step, rewards ? result.eval->rewards->reward : result.eval->loss);
}

}  // namespace

train::TrainCallbacks TrainReport::callbacks() {
  return {.on_data = [this](const train::DataProgress& data) { return on_data(data); },
          .on_walk = [this](int64_t done, int64_t total) { return on_walk(done, total); },
          .on_measure = [this](int64_t done, int64_t total) { return on_measure(done, total); },
          .on_reference = [this](int64_t done, int64_t total) { return on_reference(done, total); },
          .on_held_out = [this](int64_t done, int64_t total) { return on_held_out(done, total); },
          .on_plan = [this](const train::TrainPlan& plan) { on_plan(plan); },
          .on_step = [this](const train::StepInfo& info) { on_step(info); },
          .on_eval = [this](const train::EvalInfo& info) { on_eval(info); },
          .on_checkpoint = [this](const train::CheckpointInfo& info) { on_checkpoint(info); },
          .should_stop = [] { return interrupted(); },
          .should_leave = [] { return interrupted(); }};
}

bool TrainReport::on_data(const train::DataProgress& data) {
  if (data.file != data_file_) {
    data_file_ = data.file;
    data_progress_ = std::make_unique<Progress>(
        fmt::format("reading {}", std::filesystem::path(data.file).filename().string()),
        data.total_bytes, output_.quiet);
  }
  data_progress_->update(data.done_bytes, format_bytes(data.done_bytes));
  return !interrupted();
}

bool TrainReport::on_walk(int64_t done, int64_t total) {
  if (!walk_progress_ || total != walk_total_) {
    data_progress_.reset();
    walk_total_ = total;
    walk_progress_ = std::make_unique<Progress>("counting steps", total, output_.quiet);
  }
  walk_progress_->update(done, "");
  return !interrupted();
}

bool TrainReport::on_measure(int64_t done, int64_t total) {
  if (!measure_progress_) {
    data_progress_.reset();
    walk_progress_.reset();
    measure_progress_ = std::make_unique<Progress>("timing blocks", total, output_.quiet);
  }
  measure_progress_->update(done, "");
  return !interrupted();
}

bool TrainReport::on_reference(int64_t done, int64_t total) {
  if (!reference_progress_) {
    data_progress_.reset();
    walk_progress_.reset();
    reference_progress_ =
        std::make_unique<Progress>("scoring pairs by the first weights", total, output_.quiet);
  }
  reference_progress_->update(done, fmt::format("{} tokens", shown_count(done)));
  return !interrupted();
}

bool TrainReport::on_held_out(int64_t done, int64_t total) {
  const double share = static_cast<double>(done) / static_cast<double>(total);
  step_progress_->update(step_ - step_first_,
                         fmt::format("measuring held-out data, {:.0f} %", 100 * share));
  return !interrupted();
}

void TrainReport::on_plan(const train::TrainPlan& plan) {
  data_progress_.reset();
  walk_progress_.reset();
  measure_progress_.reset();
  reference_progress_.reset();
  step_ = step_first_ = plan.step_first;
  step_progress_ =
      std::make_unique<Progress>("training", plan.steps_total - plan.step_first, output_.quiet);
  log_info(
      "{} parameters, {} tokens in {} {}, {} held out; {}{}; memory {}",
      shown_count(plan.parameter_count), shown_count(plan.epoch_tokens),
      shown_count(plan.pairs ? plan.sequence_count : plan.document_count),
      fmt::format(
          "{}{}",
          plan.pairs                 ? "pairs"
          : plan.prompts             ? "prompts"
          : plan.document_count == 1 ? "document"
                                     : "documents",
          plan.image_count > 0 ? fmt::format(" with {}", counted(plan.image_count, "image")) : ""),
      counted(plan.held_out_count, unit_of(plan)), counted(plan.steps_total, "step"),
      plan.step_first > 0 ? fmt::format(", {} done", plan.step_first) : "",
      format_bytes(plan.memory_predicted_bytes));
  warn_of_bad_lines(plan.skipped_count);
  if (plan.context < plan.context_max) log_info("{}", context_text(plan));
  if (const std::string text = wide_rank_text(plan); !text.empty()) log_warn("{}", text);
  if (const std::string text = left_out_text(plan); !text.empty()) log_info("{}", text);
  if (plan.rank_count > 1) {
    const std::string streams = format_bytes(plan.stream_bytes);
    const bool on_gpu = plan.pinned_bytes > 0;
    const std::string besides =
        on_gpu ? fmt::format("and of the host {}, pinned, and {} between ranks",
                             format_bytes(plan.pinned_bytes), streams)
               : fmt::format("{} of it between ranks", streams);
    log_info("{} ranks, {} of them here{}; each with this memory, {}{}{}", plan.rank_count,
             plan.ranks_here, on_gpu ? fmt::format(", {} on this GPU", plan.ranks_on_gpu) : "",
             besides, plan.sharded ? "; the optimizer's state is divided among them" : "",
             plan.split_context ? "; each has a part of every sequence" : "");
  }
  if (!plan.pipeline) return;
  gpus_ = plan.pipeline->gpus;
  const std::vector<int64_t>& devices = plan.pipeline->device_bytes;
  const size_t gpus = plan.pipeline->gpus.size();
  log_info("{}; at most {} on a device, {} on the host{}", pipeline_line(plan.pipeline->schedule),
           format_bytes(*std::ranges::max_element(devices)),
           format_bytes(plan.pipeline->host_bytes),
           gpus > 1 ? fmt::format("; devices are parts of {} GPUs in turns", gpus) : "");
  log_info("a step should take {:.3g} s ({})", plan.pipeline->step_s,
           times_text(plan.pipeline->times));
  const int64_t state = kStateBytesPerParameter * plan.trainable_count;
  if (plan.device_budget_bytes == 0 || state <= plan.device_budget_bytes) return;
  log_info("weights, gradients and moments take {}, a device has {}: stages come and go",
           format_bytes(state), format_bytes(plan.device_budget_bytes));
}

void TrainReport::on_step(const train::StepInfo& info) {
  if (output_.json) print_json(train::step_record(info));
  if (info.rewards) {
    reward_note_ = reward_note(info.rewards->means);
    ++reward_steps_;
    silent_steps_ += info.rewards->silent_share == 1;
  }
  no_loss_ = why_no_loss(info);
  std::string note =
      fmt::format("{}{}{}{}{}{}  {} tokens/s  {:.1f} GFLOP/s", loss_note(info.loss, no_loss_),
                  info.preference ? preference_note(*info.preference) : "",
                  info.rewards ? reward_step_note(*info.rewards) : "", eval_note_,
                  info.experts ? expert_note(*info.experts) : "",
                  info.weight_share ? fmt::format("  W {:.0f} %", 100 * *info.weight_share) : "",
                  shown_count(static_cast<int64_t>(info.tokens_per_s)), info.flops_per_s / 1e9);
  if (info.flops_share > 0) note += fmt::format(" ({:.0f} %)", 100 * info.flops_share);
  if (info.rank_count > 1 && info.seconds > 0) {
    note += fmt::format("  waits {:.0f} %", 100 * info.ranks.wait_s / info.seconds);
  }
  step_ = info.step;
  step_progress_->update(step_ - step_first_, note);
}

void TrainReport::on_eval(const train::EvalInfo& info) {
  if (output_.json) print_json(train::eval_record(info));
  if (info.rewards) {
    log_info("step {}: greedy answers to {}:{}", info.step,
             counted(info.rewards->answer_count, "held-out prompt"), reward_note(*info.rewards));
    eval_note_ = fmt::format("  (held-out {:.3f})", info.rewards->reward);
    return;
  }
  eval_note_ = info.preference ? fmt::format(" (held-out{})", preference_note(*info.preference))
                               : fmt::format(" (held-out {:.3f})", info.loss);
}

void TrainReport::on_checkpoint(const train::CheckpointInfo& info) {
  if (output_.json) print_json(train::checkpoint_record(info));
  log_debug("{}: written in {:.2f} s", info.folder, info.seconds);
}

void TrainReport::finish(const train::TrainResult& result) {
  if (output_.json) print_json(train::end_record(result));
  if (!step_progress_) return;
  std::vector<std::string> notes;  // a run that had but to be measured has no loss of its own
  if (result.loss) notes.push_back(loss_note(*result.loss, no_loss_) + reward_note_);
  if (result.eval && result.eval->rewards) {
    notes.push_back("held-out" + reward_note(*result.eval->rewards));
  } else if (result.eval) {
    notes.push_back(fmt::format("held-out {:.3f}", result.eval->loss) +
                    (result.eval->preference
                         ? preference_note(*result.eval->preference)
                         : fmt::format(" (perplexity {:.2f})", result.eval->perplexity)));
  }
  if (result.tokens_per_s > 0) {
    notes.push_back(shown_count(static_cast<int64_t>(result.tokens_per_s)) + " tokens/s");
  }
  if (!result.was_complete) step_progress_->finish(fmt::format("{}", fmt::join(notes, ", ")));
  step_progress_.reset();
  if (reward_steps_ > 0 && silent_steps_ == reward_steps_) {
    log_warn(
        "nothing was learned in {}: the rewards of each group were all the same; try other "
        "prompts, a larger --group, a higher --temperature or finer rewards",
        counted(reward_steps_, "step"));
  }
  if (result.stopped) return;
  const train::MemoryReport& memory = result.memory;
  if (memory.process_private_peak_bytes > 0) {
    log_info("memory: {} predicted, {} at the peak", format_bytes(memory.process_predicted_bytes),
             format_bytes(memory.process_private_peak_bytes));
  }
  log_devices(memory);
  if (result.step_times) {
    const train::StepTimes& times = *result.step_times;
    log_info("a step: {:.3g} s predicted, {:.3g} s measured (median of this part's)",
             times.predicted_s, times.measured_s);
  }
  if (result.was_complete) log_info("nothing was left to do: all steps are done");
  if (const std::string text = best_text(result); !text.empty()) log_info("{}", text);
  if (!result.adapter_folder.empty()) log_info("adapter: {}", result.adapter_folder);
  if (!result.model_folder.empty()) {
    log_info("model: {}; talk to it with `jige chat {}`", result.model_folder,
             shell_word(result.model_folder));
  }
}

// What was planned beside what was taken, of each GPU or logical device.
void TrainReport::log_devices(const train::MemoryReport& memory) const {
  const auto show = [](const std::string& name, int64_t planned, int64_t peak) {
    log_info("{}: {} planned, {} at the peak", name, format_bytes(planned), format_bytes(peak));
  };
  const auto total = [&](const std::vector<int64_t>& bytes, size_t first) {
    int64_t sum = 0;
    for (size_t d = first; d < bytes.size(); d += gpus_.size()) sum += bytes[d];
    return sum;
  };
  for (size_t d = 0; gpus_.empty() && d < memory.device_peak_bytes.size(); ++d) {
    show(fmt::format("device {}", d), memory.device_planned_bytes[d], memory.device_peak_bytes[d]);
  }
  for (size_t i = 0; i < gpus_.size(); ++i) {
    show(fmt::format("GPU {}", gpus_[i]), total(memory.device_planned_bytes, i),
         total(memory.device_peak_bytes, i));
  }
}

std::string plan_text(const train::TrainPlan& plan, double seconds) {
  Table table({{}, {}});
  table.row({"parameters", fmt::format("{}, {} of them trained", shown_count(plan.parameter_count),
                                       shown_count(plan.trainable_count))});
  if (const std::string text = wide_rank_text(plan); !text.empty()) table.row({"", text});
  const std::string sequences = counted(plan.sequence_count, unit_of(plan));
  table.row({"data",
             fmt::format(
                 "{}{}, {} tokens an epoch",
                 plan.pairs || plan.prompts ? "" : counted(plan.document_count, "document") + ", ",
                 sequences, plan.epoch_tokens)});
  if (plan.skipped_count > 0) table.row({"", bad_lines_text(plan.skipped_count)});
  table.row({"", context_text(plan)});
  table.row({"held out", counted(plan.held_out_count, unit_of(plan))});
  table.row(
      {"steps",
       fmt::format("{}{}", plan.steps_total,
                   plan.step_first > 0 ? fmt::format(", {} of them done", plan.step_first) : "")});
  if (const std::string text = left_out_text(plan); !text.empty()) table.row({"", text});
  table.row({"memory", format_bytes(plan.memory_predicted_bytes)});
  if (plan.pipeline) {
    add_pipeline(table, *plan.pipeline);
  } else {
    table.row({"  weights", format_bytes(plan.memory.weights.total_bytes())});
    table.row({plan.sharded ? "  moments, a share" : "  moments",
               format_bytes(plan.memory.moments_bytes)});
    if (plan.sharded) {
      table.row({"  masters, a share", format_bytes(plan.memory.masters_bytes)});
    }
    table.row({"  activations", format_bytes(plan.memory.buffers.total_bytes())});
    table.row({"  index of the data", format_bytes(plan.index_bytes)});
    if (plan.image_count > 0) {
      table.row({"  what reads images", format_bytes(plan.memory.images_bytes)});
      table.row({"  the largest image", format_bytes(plan.image_reading_bytes)});
    }
    if (plan.split_context) {
      table.row({"    for rows of others", format_bytes(plan.memory.buffers.gathered_bytes)});
    }
    if (plan.prompts) {
      table.row({"  to draw answers", format_bytes(plan.drawing_bytes)});
      table.row({"  prompts", format_bytes(plan.prompt_bytes)});
    }
    if (plan.pairs || plan.reference_bytes > 0) {
      table.row({"  reference", format_bytes(plan.reference_bytes)});
    }
    if (plan.rank_count > 1) {
      const bool on_gpu = plan.pinned_bytes > 0;
      if (on_gpu) {
        table.row({"of the host besides", ""});
        table.row({"  gradients, pinned", format_bytes(plan.pinned_bytes)});
      }
      table.row({"  between ranks", format_bytes(plan.stream_bytes)});
      const std::string where =
          on_gpu ? fmt::format(", {} of those on this GPU", plan.ranks_on_gpu) : "";
      table.row({"ranks", fmt::format("{}, {} of them here{}, each with this memory",
                                      plan.rank_count, plan.ranks_here, where)});
    }
  }
  table.row({"limit", format_bytes(plan.memory_limit_bytes)});
  table.row({"time",
             fmt::format("about {}; up to twice that for small models", format_duration(seconds))});
  return table.render();
}

}  // namespace jige::cli
