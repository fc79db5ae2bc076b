// jige inspect: what a model folder holds, and the memory it takes to run and to train.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/bytes.h"
#include "base/cpu.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/device_flags.h"
#include "cli/flags.h"
#include "cli/folder_summary.h"
#include "cli/gpu_list.h"
#include "cli/image_model.h"
#include "cli/input.h"
#include "cli/layer_flags.h"
#include "cli/memory_report.h"
#include "cli/output.h"
#include "cli/shell_word.h"
#include "cli/table.h"
#include "cli/train_flags.h"
#include "ops/moments.h"
#include "tensor/cuda_device.h"
#include "train/grpo_options.h"

namespace jige::cli {
namespace {

std::string shape_text(const std::vector<int64_t>& dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

class InspectCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Shows what a model folder holds: architecture, parameters, types, tokenizer, and the "
        "memory it takes to run it (an embedding model: to embed), to read images where it does, "
        "to train it and to train an "
        "adapter on it, exactly, by part. "
        "A folder with config.json alone will do.");
    flags_ = &flags;
    flags.text("FOLDER", folder_, "model or adapter folder, or folder of a run");
    flags.section("Memory");
    flags.integer("--context N", context_, {.min = 0, .max = int64_t{1} << 31},
                  "length of a sequence; 0: the model's own, but 4096 at most");
    flags.integer("--sequences N", sequences_, {.min = 1, .max = 1 << 20},
                  "sequences whose keys and values are kept when it runs");
    flags.integer("--micro-batch-tokens N", micro_batch_tokens_, {.min = 1, .max = 1 << 24},
                  "tokens that are trained at once");
    flags.integer("--ranks N", ranks_, {.min = 1, .max = 4096},
                  "that train together on this machine, each with the memory shown; of GPUs, also "
                  "where they share one");
    flags.toggle("--shard-optimizer", shard_optimizer_,
                 "that each keep a share of moments and masters only; shown is the largest share");
    flags.toggle("--split-context", split_context_,
                 "that each have a part of every sequence, as jige train --split-context");
    declare_image_pixels(flags, image_pixels_);
    flags.choice("--moments NAME", moments_, ops::moment_format_names(),
                 "how AdamW's two moments are kept in training: f32, or q8, codes of 8 bits");
    flags.number("--ffn-dropout P", ffn_dropout_, {.max = 1, .below_max = true},
                 "as jige train --ffn-dropout: with the scratch that leaving out blocks takes");
    flags.integer("--ffn-dropout-block N", ffn_dropout_block_, {.min = 32, .max = 1 << 16},
                  "columns of one of these blocks");
    flags.integer("--threads N", threads_, thread_range(0),
                  "that train, of each rank; 0: as many as the process may use, shared by ranks");
    flags.text(
        "--device NAME", device_,
        "what computes: cpu, this machine, or a GPU (cuda), whose memory is shown then; with "
        "several GPUs of this machine (cuda:0,cuda:1 or cuda:all) what each has of a model "
        "that runs");
    flags.bytes(
        "--device-memory SIZE", device_memory_bytes_,
        "with --device cuda: what it may take of a GPU, or of each, to run; layers that do not fit "
        "one stream from the host's memory");
    flags.integer("--resident-layers N", layers_.resident_layers, {.min = 0, .max = 1 << 20},
                  "with --device cuda: layers that stay on the GPU, the others stream");
    flags.choice("--dtype NAME", dtype_, {"auto", "f32", "bf16"},
                 "type of the matrix products; auto: bf16 for weights of 16 bits, else f32");
    flags.choice("--quantize NAME", quantize_, weight_format_names(),
                 "keep the weight matrices in 8.5 (q8) or 4.5 (q4, the head q8) bits a number, or "
                 "experts in 4.5 and all else in 8.5 (mxfp4), where the model runs and where an "
                 "adapter is trained on it");
    declare_kv_cache(flags, kv_cache_);
    flags.integer("--lora-rank N", lora_rank_, {.min = 1, .max = formats::kLoraRankMax},
                  "rank of that adapter");
    flags.texts("--lora-target NAME", lora_targets_,
                "a linear layer that it adapts; may be given several times. Without it, all");
    flags.toggle("--dora", lora_dora_, "that adapter has lengths of rows, too (DoRA)");
    flags.number("--lora-dropout P", lora_dropout_, {.max = 1, .below_max = true},
                 "of that adapter; above 0 it takes more memory");
    flags.section("Training from rewards (as jige train --grpo)");
    flags.toggle("--grpo", grpo_, "training as shown is from rewards: with what draws answers");
    flags.integer("--prompts-per-step N", rewards_.prompts_per_step, {.min = 1, .max = 1 << 16},
                  "prompts of a step");
    flags.integer("--group N", rewards_.group, {.min = 2, .max = train::kGroupMax},
                  "answers to each of them");
    flags.integer("--draw-at-once N", rewards_.draw_at_once, {.min = 1, .max = 4096},
                  "answers that are drawn at once, of each rank");
    flags.number("--kl X", kl_, {}, "above 0: with the first weights, which are kept then");
    flags.section("More");
    flags.toggle("--tensors", tensors_, "list every tensor");
    output_.declare(flags, "print one JSON object");
    flags.example("jige inspect models/tiny");
    flags.example("jige inspect models/llama-3.2-1b --context 8192 --dtype bf16 --json");
    flags.example("jige inspect models/llama-3.1-70b --device cuda:all --quantize q4");
    flags.example("jige inspect models/tiny --grpo --group 16 --kl 0.01");
  }

  Status run() override {
    output_.apply();
    JIGE_DO(find_gpus());
    if (!on_gpu_) {
      JIGE_DO(flags_->refuse({"--device-memory", "--resident-layers"},
                             "is about the memory of a GPU: add --device cuda, or leave it out"));
    }
    if (!gpus_.empty() && layers_.resident_layers) {
      return fail(Code::kUnsupported,
                  "--resident-layers: layers that are divided among GPUs do not stream");
    }
    if (device_memory_bytes_ > 0) layers_.device_bytes = device_memory_bytes_;
    if (shard_optimizer_ && ranks_ == 1) {
      return fail(Code::kInvalidArgument,
                  "--shard-optimizer divides the optimizer's state among ranks: give --ranks");
    }
    JIGE_DO(check_split());
    JIGE_DO(check_blocks());
    if (!grpo_) {
      JIGE_DO(flags_->refuse({"--prompts-per-step", "--group", "--draw-at-once", "--kl"},
                             "is about training from rewards: add --grpo, or leave it out"));
    } else if (on_gpu_) {
      return fail(Code::kUnsupported, "--grpo with --device cuda is not supported yet");
    }
    JIGE_TRY(const ops::MomentFormat moments, ops::parse_moment_format(moments_));
    JIGE_TRY(folder_, find_inspectable_folder(folder_));
    JIGE_TRY(FolderSummary summary, summarise_folder(folder_));
    if (summary.images) {
      JIGE_TRY(summary.images, read_image_config(folder_, image_pixels_));
    }
    const auto image_dtype =
        summary.images ? stored_image_dtype(folder_, *summary.images) : std::nullopt;
    std::optional<MemoryReport> memory;
    if (summary.config) {
      JIGE_TRY(memory, make_memory_report(*summary.config,
                                          {.context = context_,
                                           .sequences = sequences_,
                                           .embeds = summary.embeds(),
                                           .images = summary.images,
                                           .image_dtype = image_dtype,
                                           .micro_batch_tokens = micro_batch_tokens_,
                                           .ranks = ranks_,
                                           .shard_optimizer = shard_optimizer_,
                                           .split_context = split_context_,
                                           .moments = moments,
                                           .ffn_dropout = ffn_dropout_,
                                           .ffn_dropout_block = ffn_dropout_block_,
                                           .threads = threads_each(),
                                           .device = on_gpu_ ? DeviceKind::kCuda : DeviceKind::kCpu,
                                           .dtype = dtype_,
                                           .quantize = quantize_,
                                           .kv_cache = kv_cache_,
                                           .layers = layers_,
                                           .gpus = gpus_,
                                           .lora_rank = lora_rank_,
                                           .lora_targets = lora_targets_,
                                           .lora_dropout = lora_dropout_,
                                           .lora_dora = lora_dora_,
                                           .stored = summary.dominant_dtype,
                                           .rewards = rewards()}));
    }
    output_.json ? print_as_json(summary, memory) : print_as_text(summary, memory);
    return {};
  }

 private:
  // One that is named need not be here; several are asked for what they have.
  Status find_gpus() {
    JIGE_TRY(const std::vector<int> named, named_gpus(device_));
    on_gpu_ = !named.empty();
    if (named.size() < 2) return {};
    JIGE_TRY(const std::vector<CudaDeviceInfo> present, list_cuda_devices());
    for (const int index : named) {
      int64_t room = device_memory_bytes_;
      if (room == 0) {
        JIGE_TRY(const int64_t free_bytes, cuda_free_bytes(index));
        room = without_kernels(free_bytes);
      }
      gpus_.push_back({.name = fmt::format("cuda:{}", index),
                       .memory_bytes = room,
                       .computer = serve::gpu_as_computer(present.at(static_cast<size_t>(index)))});
    }
    return {};
  }

  Status check_split() const {
    if (!split_context_) return {};
    if (ranks_ == 1) {
      return fail(Code::kInvalidArgument,
                  "--split-context divides sequences among ranks: give --ranks");
    }
    if (!grpo_ && !on_gpu_) return {};
    return fail(Code::kUnsupported, "--split-context with {} is not supported yet",
                grpo_ ? "--grpo" : "--device cuda");
  }
  Status check_blocks() const {
    if (ffn_dropout_ == 0) {
      return flags_->refuse({"--ffn-dropout-block"},
                            "is about blocks that are dropped: give --ffn-dropout, or leave it "
                            "out");
    }
    const char* const other = on_gpu_          ? "--device cuda"
                              : grpo_          ? "--grpo"
                              : split_context_ ? "--split-context"
                                               : nullptr;
    if (other == nullptr) return {};
    return fail(Code::kUnsupported, "--ffn-dropout with {} is not supported yet", other);
  }
  // As `jige train` chooses them.
  int threads_each() const {
    if (threads_ > 0) return static_cast<int>(threads_);
    return static_cast<int>(std::max<int64_t>(1, cpu_features().logical_count / ranks_));
  }

  std::optional<RewardRequest> rewards() const {
    if (!grpo_) return std::nullopt;
    RewardRequest made = rewards_;
    made.reference = kl_ > 0;
    return made;
  }

  void print_as_json(const FolderSummary& summary,
                     const std::optional<MemoryReport>& memory) const {
    Json json = summary_json(summary);
    if (memory) json["memory"] = memory_json(*memory);
    if (tensors_) {
      json["tensors"] = Json::array();
      for (const TensorLine& tensor : summary.tensors) {
        json["tensors"].push_back({{"name", tensor.name},
                                   {"dtype", tensor.dtype},
                                   {"shape", tensor.dims},
                                   {"bytes", tensor.bytes}});
      }
    }
    print_json(json);
  }

  void print_as_text(const FolderSummary& summary,
                     const std::optional<MemoryReport>& memory) const {
    std::string text = folder_ + "\n" + summary_text(summary);
    if (memory) text += "\n" + memory_text(*memory);
    if (!gpus_.empty()) {
      text += fmt::format("\nTo train it on these GPUs: jige plan train {} --device {}\n",
                          shell_word(folder_), device_);
    }
    if (tensors_) {
      Table table({{"tensor"}, {"type"}, {"shape"}, {"bytes", Table::Align::kRight}});
      for (const TensorLine& tensor : summary.tensors) {
        table.row({tensor.name, tensor.dtype, shape_text(tensor.dims), format_bytes(tensor.bytes)});
      }
      text += "\n" + table.render();
    }
    print_text(text);
  }

  std::string folder_;
  int64_t context_ = 0;
  int64_t sequences_ = 1;
  int64_t image_pixels_ = 0;
  int64_t micro_batch_tokens_ = 2048;
  int64_t ranks_ = 1;
  bool shard_optimizer_ = false;
  bool split_context_ = false;
  std::string moments_ = "f32";
  double ffn_dropout_ = 0;
  int64_t ffn_dropout_block_ = 64;
  int64_t threads_ = 0;
  std::string device_ = "cpu";
  int64_t device_memory_bytes_ = 0;
  bool on_gpu_ = false;
  std::vector<serve::LayerPlace> gpus_;  // where several share the model
  serve::LayerBudget layers_;
  std::string dtype_ = "auto";
  std::string quantize_ = "none";
  std::string kv_cache_ = "compute";
  int64_t lora_rank_ = kLoraRankDefault;
  std::vector<std::string> lora_targets_;
  double lora_dropout_ = 0;
  bool lora_dora_ = false;
  bool grpo_ = false;
  RewardRequest rewards_;
  double kl_ = 0;
  const Flags* flags_ = nullptr;
  bool tensors_ = false;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_inspect_command() { return std::make_unique<InspectCommand>(); }

}  // namespace jige::cli
