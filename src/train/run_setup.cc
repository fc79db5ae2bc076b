#include "train/run_setup.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/bytes.h"
#include "base/free_memory.h"
#include "formats/checkpoint.h"
#include "formats/image_model_names.h"
#include "formats/staged_folder.h"
#include "formats/tensor_folder.h"
#include "formats/xxhash64.h"
#include "model/context_support.h"
#include "model/device_support.h"
#include "model/weights.h"
#include "model/weights_layout.h"
#include "ops/linear_cuda.h"
#include "train/optimizer_shares.h"
#include "train/option_flags.h"
#include "train/process_memory.h"
#include "train/run_dropout.h"
#include "train/run_gpus.h"
#include "train/run_images.h"
#include "train/run_memory.h"
#include "train/tokenize.h"

namespace jige::train {
namespace {

constexpr int64_t kMicroBatchesMax = 4096;

// Code, libraries, allocator, stacks and tokeniser buffers.
constexpr int64_t kProcessOverheadBytes = int64_t{3} << 20;

Result<formats::ModelConfig> read_config(const TrainOptions& options) {
  if (options.config) return *options.config;
  return formats::load_model_config(options.init_folder);
}

// A new model takes the special tokens of its tokenizer where the configuration names none.
void add_special_tokens(formats::ModelConfig& config, const text::SpecialTokens& special) {
  if (config.bos_id < 0) config.bos_id = special.bos_id;
  if (config.pad_id < 0) config.pad_id = special.pad_id;
  if (config.eos_ids.empty()) config.eos_ids = special.eos_ids;
}

// What transformers does to routers in training alone and Jige does not, or in another way.
Status check_experts(const formats::ModelConfig& config, const TrainOptions& options) {
  const formats::ExpertConfig& experts = config.experts;
  const std::string_view flag = flag_of("expert_balance");
  const bool balances = options.expert_balance.value_or(0) > 0;
  if (experts.count == 0 && (balances || options.expert_bias_rate > 0)) {
    return fail(Code::kInvalidArgument, "{} is about experts, and the model has none: leave it out",
                balances ? flag : flag_of("expert_bias_rate"));
  }
  if (!experts.choice_bias && options.expert_bias_rate > 0) {
    return fail(
        Code::kInvalidArgument,
        "{} moves a bias for the choice of experts, and routers of this {} model have none; "
        "give {} instead",
        flag_of("expert_bias_rate"), formats::family_name(config.family), flag);
  }
  const std::string where = options.init_folder.empty() ? "" : options.init_folder + "/";
  if (experts.jitter > 0.0) {
    return fail(Code::kUnsupported,
                "{}config.json: field \"router_jitter_noise\" asks for noise before the router in "
                "training, which Jige does not compute; set it to 0 to train without",
                where);
  }
  if (!experts.balance_loss || options.expert_balance) return {};
  return fail(Code::kUnsupported,
              "{}config.json: field \"output_router_logits\" asks for a loss for unequal use of "
              "experts over a whole batch and all layers at once, which depends on how sequences "
              "are batched; Jige has one of each sequence and layer: give {} X ({} 0: none)",
              where, flag, flag);
}

Status choose_context(const formats::ModelConfig& config, TrainOptions& options) {
  const int64_t room = options.micro_batch_tokens / (options.dpo ? 2 : 1);
  if (options.context == 0) options.context = std::clamp<int64_t>(room, 1, config.context_max);
  JIGE_DO(formats::check_context(config, options.context));
  if (options.dpo && 2 * options.context > options.micro_batch_tokens) {
    return fail(
        Code::kInvalidArgument,
        "the context is {}, but a micro-batch has {} tokens, too few for the two answers of "
        "a pair; raise {} to {} or choose a smaller {}",
        options.context, options.micro_batch_tokens, flag_of("micro_batch_tokens"),
        2 * options.context, flag_of("context"));
  }
  if (options.context > options.micro_batch_tokens) {
    return fail(Code::kInvalidArgument,
                "the context is {}, but a micro-batch has {} tokens; raise {} or choose a smaller "
                "{}",
                options.context, options.micro_batch_tokens, flag_of("micro_batch_tokens"),
                flag_of("context"));
  }
  if (options.grpo) return {};  // a step is as large as its answers come to be
  // No micro-batch is larger than a step; what is planned for is used.
  const int64_t longest = options.dpo ? 2 * options.context : options.context;
  options.micro_batch_tokens =
      std::min(options.micro_batch_tokens, std::max(options.step_tokens, longest));
  return {};
}

// What the end of the run will replace is refused before the run if it is not ours.
Status check_results(const TrainOptions& options) {
  std::error_code error;
  if (!options.init_folder.empty() &&
      std::filesystem::equivalent(options.init_folder, options.out_folder + "/model", error)) {
    return fail(Code::kInvalidArgument,
                "{}: is what the run starts from, and its result would take its place; choose "
                "another output folder",
                options.init_folder);
  }
  if (options.lora) JIGE_DO(formats::check_replaceable(options.out_folder + "/adapter"));
  if (options.lora && !options.merge_lora) return {};
  return formats::check_replaceable(options.out_folder + "/model");
}

Status make_identity(RunSetup& setup) {
  Json identity = identity_json(setup.options);
  identity["model"] = formats::to_hf_config(setup.architecture->config());
  Json hashes = Json::array();
  for (const uint64_t key : setup.dataset.keys) hashes.push_back(formats::checksum_text(key));
  identity["data"]["content"] = std::move(hashes);
  // The base of an adapter decides its results; a whole model's masters are in its checkpoints.
  if (setup.architecture->lora()) {
    JIGE_TRY(identity["lora"]["base"], hash_weights(setup.options.init_folder));
  }
  setup.identity = std::make_shared<const Json>(std::move(identity));
  return {};
}

// What is read of the folder to start from, before memory is counted and taken for a model that it
// may not hold. A run that goes on needs it for adapters alone.
Status look_into_folder(RunSetup& setup) {
  const TrainOptions& options = setup.options;
  const bool starts =
      setup.leads() && formats::list_checkpoints(setup.checkpoints_folder()).empty();
  if (options.init_folder.empty() || !(starts || options.lora)) return {};
  JIGE_TRY(const auto files, formats::TensorFolder::open(options.init_folder));
  JIGE_DO(model::check_weights(*setup.architecture, files));
  if (!options.lora) return {};
  JIGE_TRY(setup.weights_options.table_dtype,
           model::stored_table_dtype(*setup.architecture, files));
  return {};
}

Status choose_model(RunSetup& setup, const text::Tokenizer& tokenizer) {
  TrainOptions& options = setup.options;
  JIGE_TRY(formats::ModelConfig config, read_config(options));
  JIGE_DO(check_experts(config, options));
  JIGE_DO(choose_context(config, options));
  if (tokenizer.vocab_size() > config.vocab_size) {
    return fail(Code::kInvalidArgument,
                "{}: the tokenizer has {} tokens, the model vocab_size {}; they do not belong "
                "together",
                setup.tokenizer_folder, tokenizer.vocab_size(), config.vocab_size);
  }
  add_special_tokens(config, tokenizer.special());
  setup.weights_options = {.compute = options.compute,
                           .use = model::PackFor::kTraining,
                           .position_count = options.context,
                           .values_in_gradients = options.ranks && options.ranks->shards(),
                           .format = options.base_format};
  JIGE_TRY(setup.architecture,
           model::Architecture::create(config, options.lora, model::HeadKind::kLanguageModel,
                                       options.on_gpu() ? DeviceKind::kCuda : DeviceKind::kCpu));
  JIGE_DO(model::check_weight_format(*setup.architecture, options.base_format));
  JIGE_DO(check_block_dropout(*setup.architecture, options));
  JIGE_DO(check_row_gate(*setup.architecture, setup.weights_options, options));
  JIGE_DO(look_into_folder(setup));
  const int context_ranks = options.ranks ? options.ranks->context_ranks() : 1;
  if (context_ranks > 1) {
    JIGE_DO(model::check_context_support(config, flag_of("split_context")));
  }
  setup.memory =
      model::training_memory(*setup.architecture, setup.weights_options, options.micro_batch_tokens,
                             options.optimizer.moments, context_ranks);
  if (options.ranks && options.ranks->shards()) {
    const ShareMemory share = share_memory(*setup.architecture, setup.weights_options,
                                           {.rank = options.ranks->rank,
                                            .ranks = options.ranks->size,
                                            .moments = options.optimizer.moments});
    setup.memory.moments_bytes = share.moments_bytes;
    setup.memory.masters_bytes = share.masters_bytes;
  }
  setup.plan.memory = setup.memory;
  setup.plan.parameter_count = formats::parameter_count(config);
  setup.plan.trainable_count = setup.memory.weights.trainable_count;
  if (options.lora) {
    setup.plan.adapter_rank = options.lora->rank;
    setup.plan.adapter_rank_useful = setup.architecture->adapter_rank_useful();
  }
  const double context_mean = static_cast<double>(options.context) / 2;
  setup.plan.dropped_share = dropped_flops(*setup.architecture, options, 1) /
                             setup.architecture->forward_flops(1, context_mean);
  setup.plan.skipped_share = skipped_share(*setup.architecture, setup.weights_options, options);
  setup.plan.context = options.context;
  setup.plan.context_max = config.context_max;
  return options.pipeline ? Status{} : check_memory(setup);
}

void count_prompts(RunSetup& setup) {
  TrainPlan& plan = setup.plan;
  plan.prompts = true;
  plan.document_count = plan.sequence_count;
  plan.epoch_tokens = plan.epoch_learned = 0;
  for (const Prompt& prompt : setup.dataset.prompts.prompts) {
    plan.epoch_tokens += std::ssize(prompt.ids);
  }
}

Status choose_data(RunSetup& setup, const text::Tokenizer& tokenizer,
                   const TrainCallbacks& callbacks, ThreadTeam& team) {
  const TrainOptions& options = setup.options;
  DatasetOptions data{.data = options.data,
                      .tokenizer_folder = setup.tokenizer_folder,
                      .vocab_size = setup.architecture->config().vocab_size,
                      .context = options.context,
                      .seed = options.seed,
                      .pairs = options.dpo.has_value(),
                      .progress = callbacks.on_data};
  JIGE_DO(offer_images(setup, tokenizer, data));
  if (options.grpo) {
    JIGE_TRY(setup.dataset, load_prompts(data, options.grpo->draw.tokens_max,
                                         options.grpo->reward.rule, tokenizer));
  } else {
    JIGE_TRY(setup.dataset, load_dataset(data, tokenizer, team));
  }
  TrainPlan& plan = setup.plan;
  plan.document_count = setup.dataset.corpus.document_count();
  plan.pairs = setup.dataset.corpus.holds_pairs();
  plan.skipped_count = setup.dataset.skipped_count;
  plan.sequence_count = static_cast<int64_t>(setup.dataset.training.size());
  plan.held_out_count = static_cast<int64_t>(setup.dataset.held_out.size());
  plan.epoch_tokens = setup.dataset.input_count();
  plan.epoch_learned = setup.dataset.learned_count();
  if (options.grpo) count_prompts(setup);
  return add_images(setup, data);
}

// Fills steps_total from steps or epochs, and checks the schedule against it.
Status choose_steps(RunSetup& setup, const WalkProgress& progress) {
  TrainOptions& options = setup.options;
  int64_t steps = options.steps;
  if (steps == 0) {
    StepPlanner planner(setup.dataset.training, setup.planner_options());
    JIGE_TRY(steps, planner.count_steps(formats::kCheckpointStepMax, progress));
  }
  if (steps > formats::kCheckpointStepMax) {
    return fail(Code::kInvalidArgument, "the run has more than {} steps; raise {}, or take fewer",
                formats::kCheckpointStepMax, flag_of("step_tokens"));
  }
  JIGE_DO(check_dropout_turns(options, steps));
  options.schedule.steps_total = steps;
  setup.plan.steps_total = steps;
  return validate(options.schedule);
}

// Logical devices of the CPU are in this process's memory, as the host is.
void share_machine(RunSetup& setup) {
  TrainOptions& options = setup.options;
  TrainPlan& plan = setup.plan;
  plan.memory_limit_bytes =
      options.memory_limit_bytes > 0 ? options.memory_limit_bytes : machine_memory_bytes();
  plan.memory_predicted_bytes =
      process_overhead_bytes(
          *setup.architecture, setup.weights_options.compute,
          {.devices = static_cast<int>(options.pipeline->devices),
           .of_each = std::max(options.thread_count, 1),
           .micro_batch_tokens = options.micro_batch_tokens,
           .scratch_bytes = block_scratch_bytes(*setup.architecture, options,
                                                std::max(options.thread_count, 1))}) +
      plan.index_bytes;
  options.pipeline->total_bytes =
      std::max<int64_t>(plan.memory_limit_bytes - plan.memory_predicted_bytes, 1);
}

// Those of GPUs are parts of their memory, and the host has what the machine has left.
Status share_with_gpus(RunSetup& setup) {
  TrainOptions& options = setup.options;
  PipelineOptions& pipeline = *options.pipeline;
  JIGE_TRY(const int64_t gpu_bytes, share_run_gpus(options));
  const int64_t host_bytes = pipeline_host_bytes();
  if (pipeline.host_bytes == 0) pipeline.host_bytes = host_bytes;
  pipeline.host_bytes = std::min(pipeline.host_bytes, host_bytes);
  setup.plan.memory_limit_bytes = gpu_bytes + host_bytes + kProcessOverheadBytes;
  setup.plan.memory_predicted_bytes = kProcessOverheadBytes;
  return {};
}

// "8.0 GiB of memory for each device"; of unequal ones "8.0 GiB, 4.0 GiB of memory for devices".
std::string budgets_text(const PipelineOptions& pipeline) {
  if (pipeline.own_bytes.empty()) {
    return fmt::format("{} of memory for each device", format_bytes(pipeline.device_bytes));
  }
  std::vector<std::string> shown;
  for (const int64_t bytes : pipeline.own_bytes) shown.push_back(format_bytes(bytes));
  return fmt::format("{} of memory for devices", fmt::join(shown, ", "));
}

Status choose_pipeline(RunSetup& setup, const TrainCallbacks& callbacks) {
  const TrainOptions& options = setup.options;
  if (!options.pipeline) return {};
  StepPlanner planner(setup.dataset.training, setup.planner_options());
  JIGE_TRY(const int64_t most,
           planner.most_micro_batches(setup.plan.steps_total, callbacks.on_walk));
  if (most > kMicroBatchesMax) {
    return fail(Code::kInvalidArgument,
                "a step has {} micro-batches, a schedule at most {}; raise {}", most,
                kMicroBatchesMax, flag_of("micro_batch_tokens"));
  }
  std::vector<std::unique_ptr<Device>> gpus;
  GpuShares shares;
  if (options.on_gpu()) {
    JIGE_TRY(gpus, make_gpus(options.gpus));
    JIGE_TRY(shares, share_gpus({.gpus = options.gpus, .devices = options.pipeline->devices}));
    const Device& first = *gpus.front();
    JIGE_DO(model::check_device_support(first.kind(), first.name(), *setup.architecture));
    JIGE_DO(ops::cuda_matmul_ready());
    JIGE_DO(share_with_gpus(setup));
  } else {
    share_machine(setup);
  }
  const PipelineOptions& pipeline = *options.pipeline;
  auto planned = plan_pipeline(pipeline, {.architecture = *setup.architecture,
                                          .weights = setup.weights_options,
                                          .micro_batch_tokens = options.micro_batch_tokens,
                                          .micro_batches = static_cast<int32_t>(most),
                                          .device_flops = options.gemm_flops_per_s,
                                          .gpus = pointers(gpus),
                                          .device_bytes = std::move(shares.device_bytes),
                                          .compute_threads = std::max(options.thread_count, 1),
                                          .optimizer_threads = optimizer_threads(options),
                                          .measure_progress = callbacks.on_measure});
  if (!planned && planned.error().code != Code::kExhausted)
    return tl::unexpected(std::move(planned.error()));
  if (!planned) {
    const auto shown = [](int64_t bytes) { return format_bytes(bytes); };
    return options.on_gpu()
               ? with_context(std::move(planned.error()), "with {} and {} for the host",
                              budgets_text(pipeline), shown(pipeline.host_bytes))
               : with_context(std::move(planned.error()),
                              "with {} of memory for all devices and the host",
                              shown(pipeline.total_bytes));
  }
  setup.pipeline = std::move(*planned);
  setup.pipeline->gpus = options.gpus;
  setup.plan.memory_predicted_bytes += setup.pipeline->total_bytes();
  setup.plan.pipeline = *setup.pipeline;
  for (int32_t d = 0; d < pipeline.devices; ++d) {
    setup.plan.device_budget_bytes =
        std::max(setup.plan.device_budget_bytes, pipeline.budget_of(d));
  }
  return {};
}

}  // namespace

int64_t process_overhead_bytes(const model::Architecture& architecture, DType compute,
                               const TrainingThreads& threads) {
  const int64_t scratch =
      std::max(threads.scratch_bytes,
               model::thread_scratch_bytes(architecture, compute, threads.micro_batch_tokens,
                                           threads.of_each));
  return kProcessOverheadBytes + int64_t{threads.devices} * threads.of_each * scratch;
}

int64_t pipeline_host_bytes() {
  return std::max<int64_t>(host_free_bytes() - kProcessOverheadBytes, 1);
}

Result<std::string> hash_weights(const std::string& folder) {
  JIGE_TRY(const auto files, formats::TensorFolder::open(folder));
  formats::XxHash64 hash;
  for (const formats::TensorFile& file : files.files()) {
    hash.update(file.bytes().data(), file.bytes().size());
  }
  return formats::checksum_text(hash.digest());
}

RunOrigin RunSetup::origin() const {
  const auto absolute = [](const std::string& folder) {
    std::error_code error;
    if (folder.empty()) return folder;
    const std::string path = std::filesystem::absolute(folder, error).string();
    return error ? folder : path;
  };
  return {.tokenizer_folder = absolute(tokenizer_folder),
          .base_folder = options.lora ? absolute(options.init_folder) : "",
          .image_folder = options.lora ? "" : absolute(image_folder),
          .export_dtype = options.export_dtype,
          .source = source};
}

StepPlannerOptions RunSetup::planner_options() const {
  return {.seed = options.seed,
          .step_tokens = options.grpo ? options.grpo->prompts_per_step : options.step_tokens,
          .micro_batch_tokens = options.micro_batch_tokens,
          .cursor_max = cursor_max(),
          .parts = even_parts(options)};
}

uint64_t RunSetup::cursor_max() const {
  if (options.epochs <= 0) return UINT64_MAX;
  const double sequences = options.epochs * static_cast<double>(dataset.training.size());
  return std::max<uint64_t>(static_cast<uint64_t>(std::llround(sequences)), 1);
}

Result<RunSetup> prepare_run(const TrainOptions& options, const TrainCallbacks& callbacks,
                             ThreadTeam& team) {
  JIGE_DO(validate(options));
  RunSetup setup{.options = options, .threads = team.size()};
  TrainOptions& completed = setup.options;
  if (completed.log_path.empty()) completed.log_path = completed.out_folder + "/log.jsonl";
  if (completed.data.cache_folder.empty()) {
    completed.data.cache_folder = completed.out_folder + "/cache";
  }
  JIGE_DO(check_results(completed));
  setup.tokenizer_folder =
      completed.tokenizer_folder.empty() ? completed.init_folder : completed.tokenizer_folder;
  JIGE_TRY(const text::Tokenizer tokenizer, text::Tokenizer::load(setup.tokenizer_folder));
  setup.special = tokenizer.special();
  if (!completed.init_folder.empty()) {
    JIGE_TRY(const bool reads_images, formats::has_images(completed.init_folder));
    if (reads_images) setup.image_folder = completed.init_folder;
  }
  JIGE_DO(choose_model(setup, tokenizer));
  JIGE_DO(choose_data(setup, tokenizer, callbacks, team));
  JIGE_DO(check_read_memory(setup));
  JIGE_DO(choose_steps(setup, callbacks.on_walk));
  JIGE_DO(choose_pipeline(setup, callbacks));
  JIGE_DO(make_identity(setup));
  return setup;
}

}  // namespace jige::train
