// The memory a model takes to run and to train, part by part, from the functions that size the
// buffers (model/memory_plan.h, train): so what is reported is what is allocated.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "formats/image_config.h"
#include "formats/model_config.h"
#include "ops/moments.h"
#include "serve/layer_division.h"
#include "serve/layer_fit.h"
#include "tensor/device.h"

namespace jige::cli {

// What a run that learns from rewards draws at once, and whether it keeps its first weights.
struct RewardRequest {
  int64_t prompts_per_step = 8;
  int64_t group = 8;
  int64_t draw_at_once = 64;
  bool reference = false;
};

struct MemoryRequest {
  int64_t context = 0;  // 0: the model's, but 4096 at most; to train, what a micro-batch holds
  int64_t sequences = 1;
  bool embeds = false;  // it runs for vectors of texts, as `jige embed` does
  std::optional<formats::ImageConfig> images = {};  // that it reads
  std::optional<DType> image_dtype = {};            // to read them in; empty: the language model's
  int64_t micro_batch_tokens = 2048;
  int64_t ranks = 1;             // that train together, on one machine
  bool shard_optimizer = false;  // which they divide among them
  bool split_context = false;    // each has a part of every sequence
  ops::MomentFormat moments = ops::MomentFormat::kF32;
  double ffn_dropout = 0;  // TrainOptions, of all weights; scratch of threads alone depends on them
  int64_t ffn_dropout_block = 64;
  int threads = 1;                       // that train, of each rank
  DeviceKind device = DeviceKind::kCpu;  // that computes; a GPU: its memory alone
  std::string dtype = "auto";            // of the matrix products
  std::string quantize = "none";         // the weights that run, or that an adapter is trained on
  std::string kv_cache = "compute";      // of what runs
  serve::LayerBudget layers;             // of what runs
  std::vector<serve::LayerPlace> gpus = {};  // that share what runs; none: one device has all of it
  int64_t lora_rank = 1;
  std::vector<std::string> lora_targets;  // none: all
  double lora_dropout = 0;
  bool lora_dora = false;
  std::optional<DType> stored;           // of the weights in the folder, for auto
  std::optional<RewardRequest> rewards;  // learned from, where training is shown; none: texts are
};

struct MemoryPart {
  std::string name;
  int64_t bytes = 0;
};

struct MemoryTable {
  std::string title;
  std::vector<MemoryPart> parts;
  int64_t total_bytes = 0;
  std::vector<MemoryPart> host_parts;  // of the host, besides a GPU's
};

// What one of several GPUs has of a model that runs.
struct GpuMemory {
  std::string name;
  int64_t layers_begin = 0, layers_end = 0;
  int64_t bytes = 0, room_bytes = 0;
  double read_s = 0;  // for its weights, by the rate of its memory: the least time of a step there
};

struct MemoryReport {
  DType run_dtype = DType::kF32;
  DType kv_dtype = DType::kF32;
  DType train_dtype = DType::kF32;
  int64_t context = 0;
  int64_t kv_bytes_per_token = 0;
  int64_t streamed_bytes = 0;         // that an iteration copies to the GPU, where layers stream
  MemoryTable run;                    // of several GPUs together
  std::vector<GpuMemory> gpus;        // of several
  std::optional<MemoryTable> images;  // besides, where it reads any; of the host
  std::optional<MemoryTable> train;   // not of models that cannot be trained
  std::optional<MemoryTable> train_lora;
  std::optional<MemoryTable> train_images;  // besides either, where the data has images
};

// With several GPUs, what training takes is left out: `jige plan train` says it. Fails with
// kInvalidArgument on a context that the model does not have, with kUnsupported on what cannot be
// trained so, or whose layers cannot be divided, and as serve::fit_layers() and
// serve::divide_layers().
Result<MemoryReport> make_memory_report(const formats::ModelConfig& config,
                                        const MemoryRequest& request);

std::string memory_text(const MemoryReport& report);
Json memory_json(const MemoryReport& report);

}  // namespace jige::cli
