#include "cli/memory_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "cli/answer_engine.h"
#include "cli/device_flags.h"
#include "cli/embedding_folder.h"
#include "cli/folder_summary.h"
#include "cli/table.h"
#include "comm/transport.h"
#include "model/context_support.h"
#include "model/device_support.h"
#include "model/image_tower.h"
#include "model/inference.h"
#include "model/memory_plan.h"
#include "model/weights_layout.h"
#include "train/image_rows.h"
#include "train/optimizer_shares.h"
#include "train/reference_model.h"
#include "train/run_dropout.h"
#include "train/run_setup.h"
#include "train/staged_gradients.h"

namespace jige::cli {
namespace {

constexpr int64_t kContextDefaultMax = 4096;  // as InferenceOptions
constexpr double kCacheBytesMax = 0x1p60;     // sums of a few such still fit into 64 bits

// One of each sequence, as `jige serve` has them, or as many as the other commands take.
int64_t state_count(const model::Architecture& architecture, const MemoryRequest& request) {
  if (formats::recurrent_layer_count(architecture.config()) == 0) return 0;
  const int64_t usual = request.embeds ? model::kStatesOfEmbeds : model::kStatesDefault;
  return std::max(usual, request.sequences);
}

std::vector<MemoryPart> run_parts(const model::InferenceMemory& memory, bool embeds) {
  std::vector<MemoryPart> parts = {{"weights, packed", memory.weights.packed_bytes},
                                   {"norms, tables", memory.weights.values_bytes},
                                   {"position table", memory.weights.rope_bytes},
                                   {"key/value cache", memory.kv_bytes}};
  if (memory.states_bytes > 0) parts.push_back({"states of sequences", memory.states_bytes});
  parts.push_back({"activations", memory.activations_bytes});
  parts.push_back({embeds ? "rows of vectors" : "logits", memory.logits_bytes});
  if (memory.weights.strip_bytes > 0) {
    parts.push_back({"weights turned back", memory.weights.strip_bytes});
  }
  return parts;
}

// Divided among GPUs, with as many batches under way as there are GPUs.
Result<MemoryTable> running_divided(const model::Architecture& architecture,
                                    const MemoryRequest& request,
                                    const model::InferenceSizes& sizes, MemoryReport& report) {
  JIGE_DO(serve::check_divisible(architecture.config()));
  serve::DivisionRequest division{
      .architecture = [&](bool) -> const model::Architecture& { return architecture; },
      .sizes = sizes,
      .piece_rows_max = std::min(sizes.batch_tokens_max, serve::kGpuPieceRows),
      .places = request.gpus};
  division.sizes.forwards_max = sizes.state_count > 0 ? 1 : std::ssize(request.gpus);
  JIGE_TRY(const std::vector<int64_t> counts, serve::divide_layers(division));
  const std::vector<model::LayerRange> ranges = serve::ranges_of(counts);
  MemoryTable table;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const model::InferenceMemory memory = serve::place_memory(division, i, ranges[i]);
    const serve::LayerPlace& gpu = request.gpus[i];
    const bool used = i == 0 || counts[i] > 0;
    report.gpus.push_back({.name = gpu.name,
                           .layers_begin = ranges[i].begin,
                           .layers_end = ranges[i].end,
                           .bytes = used ? memory.total_bytes() : 0,
                           .room_bytes = gpu.memory_bytes,
                           .read_s = static_cast<double>(memory.weights.packed_bytes) /
                                     static_cast<double>(gpu.computer.bytes_per_s)});
    table.parts.push_back({gpu.name, report.gpus.back().bytes});
    table.total_bytes += report.gpus.back().bytes;
    if (i == 0) table.host_parts = {{"rows between GPUs, pinned", memory.host_rows_bytes}};
  }
  return table;
}

Result<MemoryTable> running(const model::Architecture& architecture, const MemoryRequest& request,
                            MemoryReport& report) {
  const int64_t context = report.context;
  const DType compute = report.run_dtype;
  const model::InferenceOptions defaults;
  const auto blocks_of = [](int64_t tokens) {
    return (tokens + ops::kKvBlockTokens - 1) / ops::kKvBlockTokens;
  };
  // Beside the longest text a step of others, as in inference_sizes().
  const int64_t beside = request.embeds ? blocks_of(defaults.batch_tokens_max) : 0;
  const ops::WeightFormat format = read_weight_format(request.quantize);
  const model::InferenceSizes wanted{
      .device = request.device,
      .compute = compute,
      .table_dtype = request.stored.value_or(compute),
      .kv_dtype = report.kv_dtype,
      .format = format,
      .context_max = context,
      .kv_block_count = blocks_of(context) * request.sequences + beside,
      .state_count = state_count(architecture, request),
      .batch_tokens_max =
          model::forward_rows(architecture.config(), defaults.batch_tokens_max, context),
      .logit_rows_max = request.embeds ? kEmbeddingRows : defaults.logit_rows_max,
      .embeds = request.embeds};
  const std::string title =
      fmt::format("{}, {}, {} {}{} of {} tokens", request.embeds ? "To embed" : "To run",
                  numbers_text(compute, format, report.kv_dtype), request.sequences,
                  request.embeds ? "text" : "sequence", request.sequences == 1 ? "" : "s", context);
  if (!request.gpus.empty()) {
    report.kv_bytes_per_token = model::inference_memory(architecture, wanted).kv_bytes_per_token;
    JIGE_TRY(MemoryTable divided, running_divided(architecture, request, wanted, report));
    divided.title = fmt::format("{}, on {} GPUs", title, request.gpus.size());
    return divided;
  }
  JIGE_TRY(const model::InferenceSizes sizes,
           serve::fit_layers(architecture, wanted, request.layers));
  const model::InferenceMemory memory = model::inference_memory(architecture, sizes);
  report.kv_bytes_per_token = memory.kv_bytes_per_token;
  MemoryTable table{.title = title,
                    .parts = run_parts(memory, request.embeds),
                    .total_bytes = memory.total_bytes()};
  if (const int64_t count = std::ssize(sizes.streamed_layers); count > 0) {
    const int64_t layer_count = architecture.config().layer_count;
    table.title += fmt::format(", {} of {} layers on the GPU", layer_count - count, layer_count);
    table.parts.insert(table.parts.begin() + 1,
                       {"slots of layers that stream", memory.weights.slots_bytes});
    report.streamed_bytes = memory.weights.streamed_bytes;
    table.host_parts = {{"layers that stream, pinned", report.streamed_bytes}};
  }
  return table;
}

// What reads images beside a model that runs, one of the largest size at a time.
Result<MemoryTable> reading_images(const formats::ImageConfig& images, DType compute,
                                   int64_t context) {
  JIGE_TRY(const auto parts, model::ImageParts::create(images));
  const model::ImageTowerMemory memory = model::image_tower_memory(*parts, compute, context);
  return MemoryTable{
      .title = fmt::format("To read images besides, {}, up to {}",
                           numbers_text(compute, ops::WeightFormat::kCompute),
                           largest_image_text(images)),
      .parts = {{"tower", memory.weights_bytes}, {"an image", memory.encoding_bytes}},
      .total_bytes = memory.total_bytes()};
}

// Values that have memory of their own.
const char* values_name(bool adapter, bool sharded) {
  if (sharded) return "norms, tables";
  return adapter ? "adapter, norms, tables" : "weights, f32 masters";
}

const char* moments_name(const MemoryRequest& request) {
  const bool q8 = request.moments == ops::MomentFormat::kQ8;
  if (request.shard_optimizer) return q8 ? "AdamW moments, q8, a share" : "AdamW moments, a share";
  return q8 ? "AdamW moments, q8" : "AdamW moments";
}

// What stands between ranks.
void add_ranks(const MemoryRequest& request, const model::TrainingMemory& memory,
               MemoryTable& table) {
  if (request.ranks == 1) return;
  const auto ranks = static_cast<int>(request.ranks);
  const int64_t streams =
      comm::stream_memory_bytes("shm", ranks, comm::RingPlan::in_rank_order(ranks));
  table.title += fmt::format(", on each of {} ranks{}", ranks,
                             request.split_context ? ", which divide sequences" : "");
  if (request.device == DeviceKind::kCuda) {
    table.host_parts = {{"gradients, pinned", train::staged_bytes(memory.weights)},
                        {"between ranks", streams}};
    return;
  }
  table.parts.push_back({"between ranks", streams});
  table.total_bytes += streams;
}

// What draws answers beside a model that is trained, and its first weights. Prompts come on top.
Status add_rewards(const model::Architecture& architecture, const model::WeightsOptions& options,
                   const MemoryRequest& request, MemoryTable& table) {
  if (!request.rewards) return {};
  train::TrainOptions run{.base_format = options.format,
                          .compute = options.compute,
                          .context = options.position_count,
                          .ranks = train::RankOptions{.size = static_cast<int>(request.ranks)}};
  run.grpo = train::GrpoOptions{.prompts_per_step = request.rewards->prompts_per_step,
                                .group = request.rewards->group,
                                .answers_max = request.rewards->draw_at_once};
  const train::DrawSizes sizes = train::draw_sizes(run);
  JIGE_TRY(const int64_t drawing, make_answer_engine()->memory_bytes(architecture, options, sizes));
  table.title += fmt::format(", from rewards, {} answers drawn at once", sizes.answers_max);
  table.parts.push_back({"to draw answers", drawing});
  table.total_bytes += drawing;
  if (!request.rewards->reference) return {};
  JIGE_TRY(const auto base, model::Architecture::create(architecture.config()));
  JIGE_TRY(const int64_t reference,
           train::ReferenceModel::memory_bytes(
               run, *base, request.stored.value_or(architecture.config().stored_dtype)));
  table.parts.push_back({"the first weights", reference});
  table.total_bytes += reference;
  return {};
}

// Scratch of each thread where blocks of feed-forward layers are dropped.
Result<int64_t> dropped_scratch(const model::Architecture& architecture,
                                const MemoryRequest& request, DType compute) {
  train::TrainOptions options;
  options.compute = compute;
  options.micro_batch_tokens = request.micro_batch_tokens;
  options.ffn_dropout = architecture.lora() ? 0 : request.ffn_dropout;
  options.ffn_dropout_block = request.ffn_dropout_block;
  JIGE_DO(train::validate_dropout(options));
  JIGE_DO(train::check_block_dropout(architecture, options));
  return train::block_scratch_bytes(architecture, options, request.threads);
}

// What training reaches is said in its title, the rest of which is the same for all weights and for
// adapters.
Result<MemoryTable> training(const model::Architecture& architecture, const MemoryRequest& request,
                             model::WeightsOptions options, const std::string& what) {
  const DType compute = options.compute;
  options.values_in_gradients = request.shard_optimizer;
  const int context_ranks = request.split_context ? static_cast<int>(request.ranks) : 1;
  if (request.split_context) {
    JIGE_DO(model::check_context_support(architecture.config(), "--split-context"));
  }
  model::TrainingMemory memory = model::training_memory(
      architecture, options, request.micro_batch_tokens, request.moments, context_ranks);
  if (request.shard_optimizer) {
    const train::ShareMemory share = train::largest_share_memory(
        architecture, options,
        {.ranks = static_cast<int>(request.ranks), .moments = request.moments});
    memory.moments_bytes = share.moments_bytes;
    memory.masters_bytes = share.masters_bytes;
  }
  const bool on_gpu = request.device == DeviceKind::kCuda;
  JIGE_TRY(const int64_t scratch_bytes, dropped_scratch(architecture, request, compute));
  const int64_t besides =
      on_gpu ? 0
             : train::process_overhead_bytes(architecture, compute,
                                             {.of_each = request.threads,
                                              .micro_batch_tokens = memory.buffers.row_count,
                                              .scratch_bytes = scratch_bytes});
  const bool adapter = architecture.lora().has_value();
  MemoryTable table = {
      .title = fmt::format("To train {}, {}, {} tokens at once", what,
                           numbers_text(compute, options.format), request.micro_batch_tokens),
      .parts = {{values_name(adapter, request.shard_optimizer), memory.weights.values_bytes},
                {"weights, packed", memory.weights.packed_bytes},
                {"gradients", memory.weights.gradients_bytes},
                {moments_name(request), memory.moments_bytes},
                {"position table", memory.weights.rope_bytes},
                {"activations", memory.buffers.total_bytes()}},
      .total_bytes = memory.total_bytes() + besides};
  if (!on_gpu) table.parts.push_back({"the process besides", besides});
  if (request.shard_optimizer) {
    table.parts.push_back({"f32 masters, a share", memory.masters_bytes});
  }
  if (memory.weights.strip_bytes > 0) {
    table.parts.push_back({"weights turned back", memory.weights.strip_bytes});
  }
  JIGE_DO(add_rewards(architecture, options, request, table));
  add_ranks(request, memory, table);
  return table;
}

// What training with images takes besides; nothing where it is refused.
std::optional<MemoryTable> training_images(const model::Architecture& architecture,
                                           const MemoryRequest& request, DType compute,
                                           int64_t context) {
  const bool refused =
      request.device == DeviceKind::kCuda || request.rewards || request.split_context;
  if (!request.images || refused) return std::nullopt;
  const auto memory = train::image_rows_memory({.folder = {},
                                                .config = *request.images,
                                                .compute = compute,
                                                .context = context,
                                                .micro_batch_tokens = request.micro_batch_tokens},
                                               architecture);
  if (!memory) return std::nullopt;
  return MemoryTable{
      .title = fmt::format("To train on images besides, {}, up to {}",
                           numbers_text(compute, ops::WeightFormat::kCompute),
                           largest_image_text(*request.images)),
      .parts = {{"tower", memory->tower.weights_bytes},
                {"an image", memory->tower.encoding_bytes},
                {"rows of a micro-batch", memory->rows_bytes + memory->angles_bytes}},
      .total_bytes = memory->total_bytes()};
}

// What training with all weights and with an adapter takes.
Status add_training(const formats::ModelConfig& config, const MemoryRequest& request,
                    MemoryReport& report) {
  constexpr auto kHead = model::HeadKind::kLanguageModel;
  const int64_t train_context = request.context > 0
                                    ? request.context
                                    : std::min(config.context_max, request.micro_batch_tokens);
  model::WeightsOptions options{.compute = report.train_dtype,
                                .use = model::PackFor::kTraining,
                                .position_count = train_context};
  JIGE_TRY(const auto whole, model::Architecture::create(config, {}, kHead, request.device));
  JIGE_TRY(report.train, training(*whole, request, options, "all weights"));
  report.train_images = training_images(*whole, request, report.train_dtype, train_context);
  JIGE_TRY(const auto adapted,
           model::Architecture::create(
               config,
               formats::LoraConfig{.rank = request.lora_rank,
                                   .alpha = static_cast<double>(request.lora_rank),
                                   .dropout = request.lora_dropout,
                                   .use_dora = request.lora_dora,
                                   .target_modules = request.lora_targets},
               kHead, request.device));
  options.table_dtype = request.stored.value_or(config.stored_dtype);
  options.format = read_weight_format(request.quantize);
  JIGE_TRY(report.train_lora,
           training(*adapted, request, options,
                    fmt::format("an adapter of rank {} (--lora)", request.lora_rank)));
  return {};
}

std::string table_text(const MemoryTable& memory) {
  Table table({{}, {"", Table::Align::kRight}});
  for (const MemoryPart& part : memory.parts) table.row({part.name, format_bytes(part.bytes)});
  table.rule();
  table.row({"together", format_bytes(memory.total_bytes)});
  if (!memory.host_parts.empty()) table.row({"of the host besides", ""});
  for (const MemoryPart& part : memory.host_parts) {
    table.row({"  " + part.name, format_bytes(part.bytes)});
  }
  return memory.title + "\n" + table.render();
}

// "layers 0 to 11 and the ends, 3.1 GiB of 8.0 GiB", and which of them the others wait for.
std::string divided_text(const std::vector<GpuMemory>& gpus) {
  Table table({{"GPU"},
               {"layers"},
               {"of its memory"},
               {"reads in a step, at least", Table::Align::kRight}});
  const GpuMemory* busiest = &gpus.front();
  const GpuMemory* fullest = &gpus.front();
  const auto fullness = [](const GpuMemory& gpu) {
    return static_cast<double>(gpu.bytes) /
           static_cast<double>(std::max<int64_t>(gpu.room_bytes, 1));
  };
  for (const GpuMemory& gpu : gpus) {
    const int64_t count = gpu.layers_end - gpu.layers_begin;
    std::string layers = count == 0 ? "none"
                         : count == 1
                             ? fmt::format("{}", gpu.layers_begin)
                             : fmt::format("{} to {}", gpu.layers_begin, gpu.layers_end - 1);
    if (&gpu == &gpus.front()) layers += ", the ends";
    table.row({gpu.name, layers,
               fmt::format("{} of {}", format_bytes(gpu.bytes), format_bytes(gpu.room_bytes)),
               fmt::format("{:.3g} ms", 1e3 * gpu.read_s)});
    if (gpu.read_s > busiest->read_s) busiest = &gpu;
    if (fullness(gpu) > fullness(*fullest)) fullest = &gpu;
  }
  return table.render() +
         fmt::format(
             "  ({} is what others wait for, {} has least room left; by the clock and width "
             "of memories, computed)\n",
             busiest->name, fullest->name);
}

Json table_json(const MemoryTable& memory, DType dtype) {
  Json json{{"dtype", dtype_info(dtype).name}};
  for (const MemoryPart& part : memory.parts) json["parts"][part.name] = part.bytes;
  json["total_bytes"] = memory.total_bytes;
  for (const MemoryPart& part : memory.host_parts) json["host_parts"][part.name] = part.bytes;
  return json;
}

}  // namespace

Result<MemoryReport> make_memory_report(const formats::ModelConfig& config,
                                        const MemoryRequest& request) {
  JIGE_DO(formats::check_context(config, request.context));
  const auto head = request.embeds ? model::HeadKind::kNormAlone : model::HeadKind::kLanguageModel;
  JIGE_TRY(const auto architecture, model::Architecture::create(config, {}, head, request.device));
  const ops::WeightFormat format = read_weight_format(request.quantize);
  JIGE_DO(model::check_weight_format(*architecture, format));
  JIGE_DO(model::check_device_support(request.device, "--device cuda", *architecture));
  JIGE_TRY(const std::optional<DType> chosen, read_compute_dtype(request.dtype));
  MemoryReport report;
  const bool wide = request.stored.value_or(config.stored_dtype) == DType::kF32;
  report.run_dtype = chosen.value_or(wide ? DType::kF32 : DType::kBF16);
  report.kv_dtype = read_kv_cache(request.kv_cache).value_or(report.run_dtype);
  report.train_dtype = chosen.value_or(default_training_dtype());
  report.context =
      request.context > 0 ? request.context : std::min(config.context_max, kContextDefaultMax);
  double cache_columns = 0;
  for (int64_t layer = 0; layer < config.layer_count; ++layer) {
    const model::CacheShape cache = model::cache_shape(config, layer);
    cache_columns += static_cast<double>(cache.kv_head_count * cache.head_dim);
  }
  const double cache_bytes = 8.0 * cache_columns * static_cast<double>(report.context) *
                             static_cast<double>(request.sequences);
  if (cache_bytes > kCacheBytesMax) {
    return fail(
        Code::kInvalidArgument,
        "--sequences: {} of {} tokens would keep up to {:.3g} bytes of keys and values, more "
        "than any machine has; give fewer",
        request.sequences, report.context, cache_bytes);
  }
  JIGE_TRY(report.run, running(*architecture, request, report));
  if (request.images) {
    JIGE_TRY(report.images,
             reading_images(*request.images, request.image_dtype.value_or(report.run_dtype),
                            report.context));
  }
  const bool trains = !config.looks_ahead && request.gpus.empty();
  if (trains) JIGE_DO(add_training(config, request, report));
  return report;
}

std::string memory_text(const MemoryReport& report) {
  constexpr double kCopiesBytesPerS = 25e9;  // of PCIe 4.0 with 16 lanes
  const double copies_ms = 1e3 * static_cast<double>(report.streamed_bytes) / kCopiesBytesPerS;
  const std::string streamed =
      report.streamed_bytes > 0
          ? fmt::format("  (at least {:.3g} ms an iteration, if copies reach 25 GB/s)\n", copies_ms)
          : "";
  std::string text = table_text(report.run) + streamed;
  if (!report.gpus.empty()) text += divided_text(report.gpus);
  if (report.kv_bytes_per_token > 0) {
    text += fmt::format("  ({} more for each token of context)\n",
                        format_bytes(report.kv_bytes_per_token));
  }
  if (report.images) text += "\n" + table_text(*report.images);
  if (!report.train) return text;
  text += "\n" + table_text(*report.train) + "\n" + table_text(*report.train_lora);
  return report.train_images ? text + "\n" + table_text(*report.train_images) : text;
}

Json memory_json(const MemoryReport& report) {
  Json json{{"context", report.context}, {"kv_bytes_per_token", report.kv_bytes_per_token}};
  json["run"] = table_json(report.run, report.run_dtype);
  json["run"]["kv_cache"] = kv_cache_name(report.kv_dtype);
  for (const GpuMemory& gpu : report.gpus) {
    json["run"]["gpus"].push_back({{"name", gpu.name},
                                   {"layers_begin", gpu.layers_begin},
                                   {"layers_end", gpu.layers_end},
                                   {"bytes", gpu.bytes},
                                   {"room_bytes", gpu.room_bytes},
                                   {"read_s", gpu.read_s}});
  }
  if (report.images) json["images"] = table_json(*report.images, report.run_dtype);
  if (!report.train) return json;
  json["train"] = table_json(*report.train, report.train_dtype);
  json["train_lora"] = table_json(*report.train_lora, report.train_dtype);
  if (report.train_images) {
    json["train_images"] = table_json(*report.train_images, report.train_dtype);
  }
  return json;
}

}  // namespace jige::cli
