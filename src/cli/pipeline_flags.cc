#include "cli/pipeline_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/counted.h"
#include "base/log.h"
#include "base/printable.h"
#include "cli/device_flags.h"
#include "cli/flags.h"
#include "cli/gpu_list.h"
#include "cli/input.h"
#include "cli/model_sizes.h"
#include "cli/schedule_choice.h"
#include "cli/train_plan_progress.h"
#include "formats/json_file.h"
#include "formats/model_config.h"
#include "model/architecture.h"
#include "model/device_support.h"
#include "ops/linear_cuda.h"
#include "train/measured_costs.h"
#include "train/options.h"
#include "train/pipeline_costs.h"
#include "train/run_gpus.h"
#include "train/run_setup.h"

namespace jige::cli {
namespace {

void declare_costs(PipelineFlags& f, Flags& flags) {
  flags.text("[FOLDER]", f.folder, "model folder; its config.json is enough");
  flags.section("Model and costs");
  flags.text("--size NAME", f.size,
             fmt::format("instead of a folder, a Llama of this size: {}",
                         fmt::join(model_size_names(), ", ")));
  flags.integer("--vocab-size N", f.vocab_size, {.min = 0, .max = 1'000'000},
                "with --size: tokens of its tokenizer, fewer than the size's own where it is "
                "trained on little text; 0: the size's own");
  flags.text("--costs FILE", f.costs_file,
             "instead of a folder, times and bytes of every block as JSON (docs/formats.md), or "
             "a plan that has them");
  flags.integer("--micro-batch-tokens N", f.micro_batch_tokens, {.min = 1, .max = 1 << 24},
                "tokens that pass through the model at once");
  flags.integer("--context N", f.context, {.min = 0, .max = 1 << 24},
                "length of a sequence; 0: the model's, but the micro-batch at most");
  flags.choice("--dtype NAME", f.dtype, {"auto", "bf16", "f32"},
               "type of the matrix products; auto: what train takes on this machine");
  flags.toggle("--measure", f.measure,
               "time some of the model's blocks here, on as many logical devices, instead of "
               "assuming rates");
  flags.integer("--threads N", f.threads, thread_range(1),
                "of each device, with --measure; 8 for each processor here at most");
}

void declare_machine(PipelineFlags& f, Flags& flags) {
  flags.section("Machine (assumed rates, unless --costs has them or --measure finds them)");
  flags.text(
      "--device NAME", f.device,
      "cpu, or GPUs here of which devices are parts in turns: cuda, cuda:1, cuda:0,cuda:1 or "
      "cuda:all. Their memory is planned for, and with --measure their times");
  flags.integer("--devices N", f.devices, {.min = 1, .max = 1024},
                "devices that share the work, such as GPUs; with --device as many as are named, or "
                "a multiple");
  flags.bytes("--device-memory SIZE", f.device_memory,
              "budget of each device; without it no limit, or its share of what its GPU has left");
  flags.bytes("--host-memory SIZE", f.host_memory,
              "budget of the host; without it no limit, or with --device what this machine has");
  flags.number("--device-tflops X", f.device_tflops, {.min = 0, .above_min = true},
               "10^12 operations a second that a device achieves");
  flags.number("--fetch-gb-per-s X", f.fetch_gb_per_s, {.min = 0, .above_min = true},
               "between host and device, each way");
  flags.number("--link-gb-per-s X", f.link_gb_per_s, {.min = 0, .above_min = true},
               "between two devices");
  flags.number("--host-optimizer X", f.host_optimizer, {.min = 0, .above_min = true},
               "parameters a second that the host updates for one device");
  flags.number("--device-optimizer X", f.device_optimizer, {.min = 0, .above_min = true},
               "parameters a second that a device updates");
}

void declare_choices(PipelineFlags& f, Flags& flags) {
  flags.section("What may be chosen");
  flags.integer("--micro-batches N", f.micro_batches, {.min = 0, .max = 1 << 16},
                "micro-batches of a step; 0: twice as many as devices");
  flags.choice("--schedule NAME", f.schedule, schedule_choices(),
               "how passes are ordered; auto tries all");
  flags.choice("--optimizer NAME", f.optimizer, {"auto", "device", "sync", "async"},
               "on the device; on the host behind all passes; on the host beside them");
  flags.choice("--parameters NAME", f.parameters, {"auto", "device", "host"},
               "where parameters stay; from the host they are fetched stage by stage");
  flags.choice("--recompute NAME", f.recompute, {"auto", "on", "off"},
               "run forward passes again instead of keeping what they computed");
  flags.choice("--clip NAME", f.clip, {"auto", "none", "exact", "speculate"},
               "updates wait for the gradient norm, or are made again where they must; auto: an "
               "asynchronous optimizer speculates, others wait");
  flags.integer("--forward-stages N", f.forward_stages, {.min = 0, .max = 1024},
                "pieces of the model on each device; 0: tries 1 to --stages-max");
  flags.integer("--backward-stages N", f.backward_stages, {.min = 0, .max = 1024},
                "the same for backward passes, where a schedule has them apart (spipe)");
  flags.integer("--stages-max N", f.stages_max, {.min = 1, .max = 64},
                "most pieces on each device that are tried");
}

Result<formats::ModelConfig> model_config(const PipelineFlags& f) {
  if (f.size.empty()) {
    JIGE_TRY(const std::string found, find_model_folder(f.folder));
    return formats::load_model_config(found);
  }
  const std::vector<std::string> names = model_size_names();
  if (std::ranges::find(names, f.size) == names.end()) {
    return fail(Code::kInvalidArgument, "--size: \"{}\" is not one of {}", f.size,
                fmt::join(names, ", "));
  }
  const ModelShape shape{.size = f.size};
  return make_llama_config(shape, f.vocab_size > 0 ? f.vocab_size : base_size(shape).vocab_size);
}

// Times of blocks on this machine's processor, or on its GPUs.
Result<plan::PipelineCosts> timed_costs(const PipelineFlags& f,
                                        const model::Architecture& architecture,
                                        const plan::PipelineCosts& counted, int64_t length,
                                        DType compute) {
  const bool on_gpus = !f.gpus().empty();
  if (!on_gpus && f.devices * f.threads > threads_max()) {
    return fail(
        Code::kInvalidArgument,
        "--devices: {} logical devices of {} thread{} are too many to be timed here, where {} "
        "threads are the most; give fewer, or assume rates instead of --measure",
        f.devices, f.threads, f.threads == 1 ? "" : "s", threads_max());
  }
  const auto devices = static_cast<int32_t>(f.devices);
  std::vector<std::unique_ptr<Device>> gpus;
  train::GpuShares shares;
  if (on_gpus) {
    JIGE_DO(ops::cuda_matmul_ready());
    JIGE_TRY(gpus, train::make_gpus(f.gpus()));
    JIGE_TRY(shares, train::share_gpus({.gpus = f.gpus(), .devices = devices}));
    log_info("timing some blocks on {}, {}", gpus_text(f.gpus()),
             jige::counted(f.devices, "device"));
  } else {
    log_info("timing some blocks on {} logical device{} of {} thread{}", f.devices,
             f.devices == 1 ? "" : "s", f.threads, f.threads == 1 ? "" : "s");
  }
  TrainPlanProgress progress(f.quiet, "timing blocks");
  const int threads = static_cast<int>(f.threads);
  const int beside =
      f.flags->given("--threads") ? threads : train::optimizer_threads_beside_gpu(devices);
  return train::measure_costs(
      architecture, counted,
      {.devices = devices,
       .micro_batch_tokens = f.micro_batch_tokens,
       .context = length,
       .compute = compute,
       .gpus = train::pointers(gpus),
       .device_bytes = std::move(shares.device_bytes),
       .compute_threads = threads,
       .optimizer_threads = on_gpus ? beside : 1,
       .progress = [shown = progress.listener()](int64_t done, int64_t total) {
         shown(done, total);
         return true;
       }});
}

// Counted, and measured if that is asked for.
Result<plan::PipelineCosts> model_costs(const PipelineFlags& f) {
  const bool on_gpus = !f.gpus().empty();
  JIGE_TRY(const formats::ModelConfig config, model_config(f));
  const DeviceKind kind = on_gpus ? DeviceKind::kCuda : DeviceKind::kCpu;
  JIGE_TRY(const auto architecture,
           model::Architecture::create(config, {}, model::HeadKind::kLanguageModel, kind));
  JIGE_DO(model::check_device_support(kind, "--device " + f.device, *architecture));
  JIGE_TRY(const std::optional<DType> chosen, read_compute_dtype(f.dtype));
  const DType compute = chosen.value_or(default_training_dtype(on_gpus));
  const int64_t length =
      std::min(f.micro_batch_tokens, f.context > 0 ? f.context : config.context_max);
  const plan::PipelineCosts counted =
      train::pipeline_costs(*architecture, {.compute = compute, .position_count = length},
                            {.micro_batch_tokens = f.micro_batch_tokens,
                             .micro_batches = f.micro_batch_count(),
                             .context = length,
                             .device_flops = f.device_tflops * 1e12,
                             .rates = {.fetch_bytes_per_s = f.fetch_gb_per_s * 1e9,
                                       .offload_bytes_per_s = f.fetch_gb_per_s * 1e9,
                                       .link_bytes_per_s = f.link_gb_per_s * 1e9,
                                       .host_parameters_per_s = f.host_optimizer,
                                       .device_parameters_per_s = f.device_optimizer},
                             .several_gpus = f.gpus().size() > 1});
  return f.measure ? timed_costs(f, *architecture, counted, length, compute) : counted;
}

// Of a file that is all costs, or of a plan.
Result<plan::PipelineCosts> file_costs(const PipelineFlags& f) {
  JIGE_DO(check_file("--costs", f.costs_file, "costs as JSON, or a plan that has them"));
  JIGE_TRY(const Json json, formats::load_json_object(f.costs_file));
  const auto part = json.find("costs");
  return plan::costs_from_json(part == json.end() ? json : *part, f.costs_file);
}

}  // namespace

void PipelineFlags::declare(Flags& declared) {
  flags = &declared;
  declare_costs(*this, declared);
  declare_machine(*this, declared);
  declare_choices(*this, declared);
}

Status PipelineFlags::check_given() const {
  if (!measure) {
    JIGE_DO(flags->refuse({"--threads"},
                          "is about devices that are timed here; give --measure, or leave it out"));
  }
  if (size.empty()) {
    JIGE_DO(flags->refuse({"--vocab-size"},
                          "goes with --size; a folder and a file of costs have their own"));
  }
  if (measure) {
    return flags->refuse({"--device-tflops", "--fetch-gb-per-s", "--link-gb-per-s",
                          "--host-optimizer", "--device-optimizer"},
                         "is an assumption about what --measure measures; leave one out");
  }
  if (costs_file.empty()) return {};
  return flags->refuse(
      {"--micro-batch-tokens", "--context", "--dtype", "--device-tflops", "--fetch-gb-per-s",
       "--link-gb-per-s", "--host-optimizer", "--device-optimizer"},
      fmt::format("is an assumption about a model's costs, and --costs {} has them; leave one out",
                  costs_file));
}

Status PipelineFlags::find_gpus() {
  JIGE_TRY(gpus_, named_gpus(device));
  if (gpus_.empty()) return {};
  if (!flags->given("--devices")) devices = std::ssize(gpus_);
  if (devices % std::ssize(gpus_) == 0) return {};
  return fail(Code::kInvalidArgument,
              "--devices: {} cannot be shared out evenly among {} GPUs; give a multiple of {}",
              devices, gpus_.size(), gpus_.size());
}

Status PipelineFlags::set_budget(plan::MemoryBudget& budget) const {
  if (device_memory > 0) budget.device_bytes = device_memory;
  if (host_memory > 0) budget.host_bytes = host_memory;
  if (gpus_.empty()) return {};
  JIGE_TRY(train::GpuShares shares, train::share_gpus({.gpus = gpus_,
                                                       .devices = static_cast<int32_t>(devices),
                                                       .device_bytes = device_memory}));
  budget.device_bytes = shares.device_bytes.front();
  if (!shares.equal()) budget.own_bytes = std::move(shares.device_bytes);
  if (host_memory == 0) budget.host_bytes = train::pipeline_host_bytes();
  return {};
}

Result<plan::TrainPlanRequest> PipelineFlags::request() {
  if (!folder.empty() + !size.empty() + !costs_file.empty() != 1) {
    return fail(
        Code::kInvalidArgument,
        "what is to be trained? give one of: a model folder, --size NAME ({}), --costs FILE",
        fmt::join(model_size_names(), ", "));
  }
  JIGE_DO(check_given());
  JIGE_DO(find_gpus());
  if (measure && !costs_file.empty()) {
    return fail(Code::kInvalidArgument,
                "--measure times a model's blocks, --costs {} has times; give one of them",
                costs_file);
  }
  plan::TrainPlanRequest request;
  JIGE_TRY(request.costs, costs_file.empty() ? model_costs(*this) : file_costs(*this));
  request.devices = static_cast<int32_t>(devices);
  request.micro_batches = {micro_batch_count()};
  JIGE_DO(set_budget(request.budget));
  if (clip != "auto") request.clip = chosen(clip, plan::clip_name, 3).front();
  request.kinds = chosen(schedule, plan::schedule_name, plan::kScheduleKindCount);
  request.optimizers = chosen(optimizer, plan::optimizer_name, 3);
  request.recompute = switched(recompute, "on");
  request.host_parameters = switched(parameters, "host");
  if (forward_stages > 0) request.forward_stages = {static_cast<int32_t>(forward_stages)};
  if (backward_stages > 0) request.backward_stages = {static_cast<int32_t>(backward_stages)};
  request.stages_max = static_cast<int32_t>(stages_max);
  return request;
}

int32_t PipelineFlags::micro_batch_count() const {
  return static_cast<int32_t>(micro_batches > 0 ? micro_batches : 2 * devices);
}

std::string PipelineFlags::summary() const {
  const std::string what = !costs_file.empty() ? costs_file : !size.empty() ? size : folder;
  std::string text = fmt::format("{}, {}, {}", printable(what), counted(devices, "device"),
                                 counted(micro_batch_count(), "micro-batch"));
  if (costs_file.empty()) text += fmt::format(" of {} tokens", micro_batch_tokens);
  return text;
}

}  // namespace jige::cli
