#include "train/trainer.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "formats/tensor_folder.h"
#include "model/init.h"
#include "ops/linear_cuda.h"
#include "train/evaluate.h"
#include "train/export.h"
#include "train/one_device_engine.h"
#include "train/option_flags.h"
#include "train/pipeline_engine.h"
#include "train/preference_engine.h"
#include "train/process_memory.h"
#include "train/rank_engine.h"
#include "train/rank_exchange.h"
#include "train/records.h"
#include "train/reward_engine.h"
#include "train/run_gpus.h"
#include "train/run_remains.h"
#include "train/run_source.h"
#include "train/shared_device.h"
#include "train/shared_state.h"

namespace jige::train {

namespace {

// A rank that fails tells the others why.
template <typename T>
Result<T> told_to_ranks(const TrainOptions& options, Result<T> result) {
  if (!result && options.ranks && options.ranks->group) {
    options.ranks->group->fail_with(result.error());
  }
  return result;
}

// What ranks must agree on besides the identity.
std::string agreement(const RunSetup& setup) {
  const TrainOptions& options = setup.options;
  return dump_json(Json{{"identity", *setup.identity},
                        {"steps", setup.plan.steps_total},
                        {"micro_batch_tokens", options.micro_batch_tokens},
                        {"eval_every_steps", options.eval_every_steps},
                        {"keep_best", options.keeps_best()},
                        {"patience", options.patience},
                        {"eval_tokens_max", options.eval_tokens_max},
                        {"eval_content", setup.dataset.eval_keys},
                        {"bad_steps_in_row_max", options.optimizer.bad_steps_in_row_max},
                        {"sum", gradient_sum_name(options.ranks->sum)},
                        {"split_context", options.ranks->split_context},
                        {"shard_optimizer", options.ranks->shard_optimizer}});
}

// Whether a run's last record says that its results are written, with the weights of this step.
// Runs from before there was a choice have the last ones, and with them nothing else is asked for.
bool wrote_model(const Json& last, int64_t step) {
  return ends_run(last) && get_int_or(last, "model_step", step, "the log").value_or(-1) == step;
}

Status check_identity(const RunSetup& setup, const formats::CheckpointReader& checkpoint) {
  const auto identity = checkpoint.state().find("identity");
  if (identity == checkpoint.state().end()) {
    return fail(Code::kCorrupt, "{}: state.json has no field \"identity\"", checkpoint.folder());
  }
  return check_same_identity(*identity, *setup.identity, checkpoint.folder());
}

}  // namespace

Trainer::Trainer(std::shared_ptr<RunLock> lock, RunSetup setup, std::unique_ptr<CpuDevice> device,
                 TrainCallbacks callbacks)
    : lock_(std::move(lock)),
      setup_(std::move(setup)),
      callbacks_(std::move(callbacks)),
      device_(std::move(device)) {}

Trainer::~Trainer() = default;

Result<std::unique_ptr<Trainer>> Trainer::create(const TrainOptions& options,
                                                 TrainCallbacks callbacks) {
  return told_to_ranks(options, create_on_rank(options, std::move(callbacks)));
}

Result<std::unique_ptr<Trainer>> Trainer::create_on_rank(const TrainOptions& given,
                                                         TrainCallbacks callbacks) {
  JIGE_DO(validate(given));
  const int64_t free_before = free_heap_bytes();
  TrainOptions options = given;
  JIGE_DO(share_device(options));
  std::shared_ptr<RunLock> lock = options.lock;
  std::optional<RunSetup> setup;
  auto device = std::make_unique<CpuDevice>(CpuDeviceOptions{.thread_count = options.thread_count});
  const auto prepare = [&]() -> Status {
    const bool leads = !options.ranks || options.ranks->rank == 0;
    if (!leads) JIGE_DO(make_folders(options.out_folder));
    if (!lock && leads) {
      JIGE_TRY(RunLock taken, RunLock::take(options.out_folder));
      lock = std::make_shared<RunLock>(std::move(taken));
    }
    if (lock) remove_run_remains(options.out_folder);
    JIGE_TRY(setup, prepare_run(options, callbacks, device->team()));
    return {};
  };
  const bool alone = !options.ranks || !options.ranks->group;
  JIGE_DO(alone ? prepare() : after_rank_0(*options.ranks->group, prepare));
  std::optional<formats::CheckpointReader> checkpoint;
  if (setup->leads()) {
    JIGE_TRY(checkpoint, find_checkpoint(*setup));
    JIGE_TRY(setup->source, check_source(*setup, checkpoint));
    if (checkpoint) JIGE_DO(check_identity(*setup, *checkpoint));
  }
  std::unique_ptr<Trainer> trainer(
      new Trainer(std::move(lock), std::move(*setup), std::move(device), std::move(callbacks)));
  // The tokenizer is gone; what it held shall not stand beside the arenas.
  return_freed_memory(free_before);
  JIGE_DO(trainer->allocate());
  JIGE_DO(trainer->set_state(checkpoint));
  if (trainer->setup_.leads()) {
    // A run that ended has that behind what the last checkpoint knows of, and then its results.
    const std::string& log_path = trainer->setup_.options.log_path;
    trainer->was_written_ =
        trainer->nothing_left() && wrote_model(last_record(log_path), trainer->model_step());
    JIGE_TRY(
        trainer->log_,
        StepLog::open(log_path, trainer->was_written_ ? INT64_MAX : trainer->state_.log_bytes));
  }
  return trainer;
}

Status Trainer::set_state(const std::optional<formats::CheckpointReader>& checkpoint) {
  const bool alone = !setup_.options.ranks || setup_.options.ranks->size == 1;
  if (setup_.leads() && !checkpoint) JIGE_DO(start_weights());
  if (!alone)
    JIGE_DO(check_same(*setup_.options.ranks->group, agreement(setup_), "data or options"));
  if (engine_->preference()) JIGE_DO(share_reference(checkpoint));
  state_.evaluation_due = engine_->rewards() && !checkpoint;
  if (setup_.leads() && checkpoint) JIGE_DO(resume(*checkpoint));
  if (!alone) JIGE_DO(join_ranks(checkpoint));
  return engine_->rewards() ? start_rewards(checkpoint.has_value()) : Status();
}

Status Trainer::join_ranks(const std::optional<formats::CheckpointReader>& checkpoint) {
  comm::AsyncGroup& group = *setup_.options.ranks->group;
  if (!setup_.leads()) JIGE_DO(load_base());
  JIGE_DO(share_state(group, state_, engine_->optimizer(), checkpoint ? &*checkpoint : nullptr,
                      engine_->stream()));
  JIGE_DO(broadcast_bytes(group, 0, std::as_writable_bytes(std::span(&checkpoint_step_, 1))));
  if (setup_.leads()) return {};
  engine_->weights().pack(engine_->streams());
  engine_->refresh();
  setup_.plan.step_first = state_.step;
  return {};
}

Result<std::optional<formats::CheckpointReader>> Trainer::find_checkpoint(const RunSetup& setup) {
  JIGE_DO(check_resume(setup.options.out_folder, setup.options.resume));
  const std::string folder = setup.checkpoints_folder();
  if (formats::list_checkpoints(folder).empty()) return std::nullopt;
  JIGE_TRY(auto reader, formats::CheckpointReader::open_latest(folder));
  return std::optional(std::move(reader));
}

Status Trainer::make_engine() {
  const TrainOptions& options = setup_.options;
  const auto create = [&](const auto& engine, auto& device) {
    return engine(device, *setup_.architecture, setup_.weights_options, setup_.memory, options);
  };
  if (options.on_gpu()) {
    JIGE_DO(ops::cuda_matmul_ready());
    JIGE_TRY(gpus_, make_gpus(options.gpus));
    JIGE_TRY(gpu_free_first_bytes_, gpus_free_bytes(options));
  }
  Device& device = gpus_.empty() ? static_cast<Device&>(*device_) : *gpus_.front();
  if (setup_.pipeline) {
    JIGE_TRY(auto engine,
             PipelineEngine::create(pointers(gpus_), *setup_.architecture, setup_.weights_options,
                                    *setup_.pipeline, options));
    pipeline_ = engine.get();
    engine_ = std::move(engine);
  } else if (options.ranks && options.ranks->size > 1) {
    JIGE_TRY(engine_, create(RankEngine::create, device));
  } else if (options.dpo) {
    JIGE_TRY(engine_, create(PreferenceEngine::create, device));
  } else if (options.grpo) {
    JIGE_TRY(engine_, create(RewardEngine::create, device));
  } else {
    JIGE_TRY(engine_, create(OneDeviceEngine::create, device));
  }
  return {};
}

Status Trainer::allocate() {
  JIGE_DO(make_engine());
  const TrainOptions& options = setup_.options;
  planner_.emplace(setup_.dataset.training, setup_.planner_options());
  evaluation_ =
      choose_evaluation(setup_.dataset.held_out, {.tokens_max = options.eval_tokens_max,
                                                  .micro_batch_tokens = options.micro_batch_tokens,
                                                  .seed = options.seed});
  if (!options.keeps_best() || !evaluation_.empty()) return {};
  return fail(Code::kInvalidArgument,
              "{} chooses among measurements of held-out data, and nothing is held out: give "
              "{}, or a larger {}",
              flag_of(options.patience > 0 ? "patience" : "keep_best"), flag_of("data.eval_files"),
              flag_of("data.eval_fraction"));
}

Status Trainer::start_weights() {
  const TrainOptions& options = setup_.options;
  if (!options.init_folder.empty()) {
    JIGE_TRY(const auto files, formats::TensorFolder::open(options.init_folder));
    JIGE_DO(model::load_weights(engine_->weights(), engine_->streams(), files));
  }
  if (options.init_folder.empty() || options.lora) {
    model::initialise_weights(engine_->weights(), engine_->streams(), options.seed);
  }
  engine_->refresh();
  return {};
}

// What an adapter adapts, which is no part of the state.
Status Trainer::load_base() {
  if (!setup_.options.lora) return {};
  JIGE_TRY(const auto files, formats::TensorFolder::open(setup_.options.init_folder));
  return model::load_weights(engine_->weights(), engine_->streams(), files);
}

Status Trainer::resume(const formats::CheckpointReader& checkpoint) {
  const Json& state = checkpoint.state();
  const auto run = state.find("run");
  if (run == state.end()) {
    return fail(Code::kCorrupt, "{}: state.json has no field \"run\"", checkpoint.folder());
  }
  JIGE_TRY(state_, RunState::from_json(*run, checkpoint.folder() + "/state.json"));
  check_best();
  const bool complete = state_.step == setup_.plan.steps_total;
  if (complete && ends_run(last_record(setup_.options.log_path))) state_.evaluation_due = false;
  if (state_.step != checkpoint.step() || state_.step > setup_.plan.steps_total ||
      state_.update_count > state_.step * setup_.updates_per_step() ||
      (!complete && state_.cursor >= setup_.cursor_max())) {
    return fail(Code::kCorrupt,
                "{}: its state contradicts itself: step {} of {}, {} updates, cursor {}",
                checkpoint.folder(), state_.step, setup_.plan.steps_total, state_.update_count,
                state_.cursor);
  }
  JIGE_DO(load_base());
  JIGE_DO(restore_parameters(checkpoint, engine_->optimizer(), engine_->streams()));
  if (RowGate* const gate = engine_->row_gate()) {
    JIGE_DO(restore_row_gate(checkpoint, *gate, engine_->stream()));
  }
  engine_->weights().pack(engine_->streams());
  engine_->refresh();
  engine_->optimizer().set_update_count(state_.update_count);
  setup_.plan.step_first = state_.step;
  checkpoint_step_ = whole_step_ = state_.step;
  return {};
}

void Trainer::check_best() {
  if (!setup_.options.keeps_best() || !state_.best) return;
  for (const auto& name : formats::list_checkpoints(setup_.checkpoints_folder())) {
    if (name.step == state_.best->step) return;
  }
  log_warn(
      "{}: the checkpoint of step {}, whose held-out data came out best, was not kept: the best "
      "from here on counts",
      setup_.checkpoints_folder(), state_.best->step);
  state_.best.reset();
}

Result<TrainResult> Trainer::run() {
  Result<TrainResult> result = run_on_rank();
  return ends_alike_ ? result : told_to_ranks(setup_.options, std::move(result));
}

Result<bool> Trainer::run_steps() {
  const int64_t steps_total = setup_.plan.steps_total;
  if (state_.evaluation_due) {
    JIGE_DO(run_evaluation());
    if (is_best_kept() && checkpoint_step_ != state_.step) JIGE_DO(start_checkpoint());
  }
  while (state_.step < steps_total && !state_.evaluation_due && !out_of_patience()) {
    JIGE_TRY(const std::optional<StepInfo> info, run_step());
    if (!info) return true;
    JIGE_DO(finish_step(*info));
    const bool asked = setup_.plan.rank_count > 1
                           ? stop_asked_
                           : callbacks_.should_stop && callbacks_.should_stop();
    if (asked && state_.step < steps_total) return true;
  }
  return state_.evaluation_due;
}

Result<TrainResult> Trainer::run_on_rank() {
  if (callbacks_.on_plan) callbacks_.on_plan(setup_.plan);
  const bool was_complete = nothing_left();
  if (!was_complete) JIGE_DO(write_log(start_record(setup_, device_->team().size())));
  JIGE_TRY(const bool stopped, run_steps());
  if (checkpoint_step_ != state_.step) JIGE_DO(start_checkpoint());
  JIGE_DO(await_checkpoint());
  note_memory();
  TrainResult result = make_result();
  // Moments and activations are done with; converting tensors needs room.
  JIGE_DO(engine_->end_steps());
  result.stopped = stopped;
  result.was_complete = was_complete;
  if (!setup_.leads()) return result;
  if (!stopped) JIGE_DO(write_model(result));
  if (!was_written_) JIGE_DO(write_log(end_record(result)));
  JIGE_DO(log_->sync());
  return result;
}

Status Trainer::write_log(const Json& record) { return log_ ? log_->write(record) : Status(); }

Status Trainer::write_adapter(const std::string& folder) {
  if (model_step() == state_.step) {
    return export_adapter(model::Masters::of(engine_->weights()), engine_->streams(),
                          setup_.options.init_folder, folder);
  }
  return export_step({.out_folder = folder, .adapter = true});
}

Status Trainer::write_whole_model(const std::string& folder) {
  const TrainOptions& options = setup_.options;
  const ExportOptions model_options{.folder = folder,
                                    .tokenizer_folder = setup_.tokenizer_folder,
                                    .image_folder = setup_.image_folder,
                                    .dtype = options.export_dtype};
  if (options.lora) {
    return export_merged(options.init_folder, options.out_folder + "/adapter", setup_.special,
                         model_options);
  }
  if (model_step() != state_.step) return export_step({.out_folder = folder});
  return export_model(model::Masters::of(engine_->weights()), setup_.special, engine_->streams(),
                      model_options);
}

Status Trainer::export_step(CheckpointExportOptions what) {
  what.run_folder = setup_.options.out_folder;
  what.step = model_step();
  what.dtype = setup_.options.export_dtype;
  what.replace = true;
  what.tokenizer_folder = setup_.tokenizer_folder;
  what.base_folder = setup_.options.lora ? setup_.options.init_folder : setup_.image_folder;
  Result<CheckpointExport> exported = export_checkpoint(what);
  if (exported) return {};
  return tl::unexpected(with_context(std::move(exported.error()),
                                     "writing the best weights, of step {}", *what.step));
}

Status Trainer::write_model(TrainResult& result) {
  const TrainOptions& options = setup_.options;
  const auto exists = [](const std::string& path) {
    std::error_code error;
    return std::filesystem::exists(path, error);
  };
  if (options.lora) {
    result.adapter_folder = options.out_folder + "/adapter";
    if (!was_written_ || !exists(result.adapter_folder)) {
      JIGE_DO(write_adapter(result.adapter_folder));
    }
    if (!options.merge_lora) return {};
  }
  result.model_folder = options.out_folder + "/model";
  if (was_written_ && exists(result.model_folder)) {
    // Written again where it is asked for in another type, or was damaged.
    const auto written = formats::load_model_config(result.model_folder);
    if (written && written->stored_dtype == options.export_dtype) return {};
  }
  return write_whole_model(result.model_folder);
}

MemoryReport Trainer::memory_report() const {
  const EngineMemory arenas = engine_->memory();
  MemoryReport report{.arena_predicted_bytes = arenas.predicted_bytes,
                      .arena_peak_bytes = arenas.peak_bytes,
                      .process_predicted_bytes = setup_.plan.memory_predicted_bytes,
                      .index_bytes = setup_.plan.index_bytes,
                      .process_private_peak_bytes = private_peak_bytes_,
                      .process_peak_bytes = process_peak_bytes()};
  for (int32_t d = 0; pipeline_ != nullptr && d < pipeline_->schedule().device_count; ++d) {
    report.device_planned_bytes.push_back(setup_.pipeline->device_bytes[static_cast<size_t>(d)]);
    report.device_peak_bytes.push_back(pipeline_->device_peak_bytes(d));
  }
  return report;
}

std::optional<StepTimes> Trainer::step_times() const {
  const std::optional<double> seconds = pipeline_ ? pipeline_->step_seconds() : std::nullopt;
  if (!seconds) return std::nullopt;
  return StepTimes{.predicted_s = setup_.pipeline->step_s, .measured_s = *seconds};
}

TrainResult Trainer::make_result() {
  return {.steps_done = state_.step,
          .steps_total = setup_.plan.steps_total,
          .loss = last_loss_,
          .eval = last_eval_,
          .best = state_.best,
          .model_step = model_step(),
          .bad_steps = state_.bad_steps,
          .input_tokens = state_.input_tokens,
          .seconds = state_.seconds,
          .tokens_per_s = seconds_here_ > 0 ? static_cast<double>(tokens_here_) / seconds_here_ : 0,
          .memory = memory_report(),
          .step_times = step_times(),
          .log_path = setup_.options.log_path};
}

}  // namespace jige::train
