// That what `jige inspect` says a model takes is what a loaded one has taken.
#include "cli/memory_report.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/cpu.h"
#include "cli/loaded_model.h"
#include "formats/image_config.h"
#include "formats/model_config.h"
#include "model/image_tower.h"
#include "tensor/cpu_device.h"

namespace jige::cli {
namespace {

TEST(MemoryReport, IsWhatEmbeddingTakes) {
  for (const char* name : {"qwen3", "mistral", "llama"}) {
    ModelFlags flags;
    flags.folder = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/embedding/" + name;
    flags.dtype = "bf16";
    const auto loaded = flags.load({.embeds = true});
    ASSERT_TRUE(loaded) << loaded.error().message;
    const auto report =
        make_memory_report(loaded->model->config(), {.embeds = true,
                                                     .dtype = "bf16",
                                                     .lora_rank = 8,
                                                     .stored = loaded->model->sizes().table_dtype});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->run.total_bytes, loaded->model->peak_bytes()) << name;
  }
}

TEST(MemoryReport, IsWhatReadingImagesTakes) {
  const std::string towers = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/image_towers/";
  for (const auto& [name, dtype] :
       {std::pair("mistral3", "f32"), {"mistral3", "bf16"}, {"smolvlm", "bf16"}}) {
    const std::string folder = towers + name;
    const auto images = formats::load_image_config(folder);
    const auto config = formats::load_model_config(folder);
    ASSERT_TRUE(images && *images && config);
    const auto report =
        make_memory_report(*config, {.images = *images, .dtype = dtype, .lora_rank = 2});
    ASSERT_TRUE(report) << report.error().message;
    ASSERT_TRUE(report->images);
    CpuDevice device;
    const auto tower = model::ImageTower::load(
        folder, **images, device,
        {.compute = dtype == std::string("f32") ? DType::kF32 : DType::kBF16});
    ASSERT_TRUE(tower) << tower.error().message;
    EXPECT_EQ(report->images->total_bytes, (*tower)->peak_bytes()) << dtype;
  }
}

// Blocks that are dropped take scratch of threads and nothing else, where all weights are trained.
// A scratch grows by large steps, so few sizes show it.
TEST(MemoryReport, OfBlocksThatAreDroppedHasTheirScratch) {
  const formats::ModelConfig config{.vocab_size = 300,
                                    .hidden_size = 2048,
                                    .layer_count = 1,
                                    .head_count = 16,
                                    .kv_head_count = 16,
                                    .head_dim = 128,
                                    .ffn_size = 8192,
                                    .context_max = 256};
  MemoryRequest request{.micro_batch_tokens = 2048, .threads = 2, .dtype = "f32"};
  const auto whole = make_memory_report(config, request);
  request.ffn_dropout = 0.1;
  request.ffn_dropout_block = 32;
  const auto dropped = make_memory_report(config, request);
  ASSERT_TRUE(whole && dropped);
  if (active_isa() != Isa::kAvx2) {
    EXPECT_GT(dropped->train->total_bytes, whole->train->total_bytes);
  }
  EXPECT_LE(dropped->train->total_bytes, whole->train->total_bytes + (int64_t{8} << 20));
  EXPECT_EQ(dropped->train_lora->total_bytes, whole->train_lora->total_bytes);
  request.ffn_dropout_block = 96;
  const auto uneven = make_memory_report(config, request);
  ASSERT_FALSE(uneven);
  EXPECT_NE(uneven.error().message.find("does not divide the feed-forward width 8192"),
            std::string::npos);
}

// What a GPU takes: its layout of blocks, memory to turn them back in, and no threads' scratch.
TEST(MemoryReport, OfAGpuIsThatOfItsMemory) {
  const auto config =
      formats::load_model_config(std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/llama3");
  ASSERT_TRUE(config);
  const auto parts_of = [&](DeviceKind device) {
    const auto report = make_memory_report(
        *config, {.device = device, .dtype = "bf16", .quantize = "q4", .lora_rank = 2});
    EXPECT_TRUE(report) << report.error().message;
    std::map<std::string, int64_t> parts;
    for (const MemoryTable* table : {&report->run, &*report->train_lora}) {
      int64_t sum = 0;
      for (const MemoryPart& part : table->parts) {
        parts[part.name + (table == &report->run ? "" : " in training")] = part.bytes;
        sum += part.bytes;
      }
      EXPECT_EQ(sum, table->total_bytes);
    }
    return parts;
  };
  const auto on_gpu = parts_of(DeviceKind::kCuda);
  const auto on_cpu = parts_of(DeviceKind::kCpu);
  EXPECT_GT(on_gpu.at("weights turned back"), 0);
  EXPECT_FALSE(on_cpu.contains("weights turned back"));
  EXPECT_NE(on_gpu.at("weights, packed"), on_cpu.at("weights, packed"));
  EXPECT_FALSE(on_gpu.contains("the process besides in training"));
  EXPECT_TRUE(on_cpu.contains("the process besides in training"));
}

// Ranks on GPUs exchange gradients in the host's memory, where the GPU's has none of it.
TEST(MemoryReport, OfRanksOnGpusTellsWhatTheHostGives) {
  const auto config =
      formats::load_model_config(std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/llama3");
  ASSERT_TRUE(config);
  const auto table_of = [&](int64_t ranks, DeviceKind device) {
    const auto report = make_memory_report(
        *config, {.ranks = ranks, .device = device, .dtype = "bf16", .lora_rank = 2});
    EXPECT_TRUE(report) << report.error().message;
    return *report->train;
  };
  const MemoryTable alone = table_of(1, DeviceKind::kCuda);
  const MemoryTable ranked = table_of(2, DeviceKind::kCuda);
  EXPECT_EQ(ranked.total_bytes, alone.total_bytes);
  EXPECT_TRUE(alone.host_parts.empty());
  ASSERT_EQ(ranked.host_parts.size(), 2u);
  EXPECT_EQ(ranked.host_parts[0].name, "gradients, pinned");
  EXPECT_EQ(ranked.host_parts[0].bytes, ranked.parts[2].bytes);
  EXPECT_EQ(ranked.parts[2].name, "gradients");
  const MemoryTable on_cpu = table_of(2, DeviceKind::kCpu);
  EXPECT_TRUE(on_cpu.host_parts.empty());
  EXPECT_EQ(on_cpu.parts.back().name, "between ranks");
  EXPECT_EQ(ranked.host_parts[1].bytes, on_cpu.parts.back().bytes);
}

// Activations are what divided sequences make less of.
TEST(MemoryReport, OfRanksThatDivideSequencesIsThatOfTheirRows) {
  const auto config =
      formats::load_model_config(std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/llama3");
  ASSERT_TRUE(config);
  const auto activations = [&](int64_t ranks, bool split) {
    const auto report = make_memory_report(
        *config, {.ranks = ranks, .split_context = split, .dtype = "f32", .lora_rank = 2});
    EXPECT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->train->title.find("which divide sequences") != std::string::npos, split);
    EXPECT_EQ(report->train->parts[5].name, "activations");
    return report->train->parts[5].bytes;
  };
  const int64_t whole = activations(1, false);
  EXPECT_EQ(activations(2, false), whole);
  EXPECT_LT(activations(2, true), whole);
  EXPECT_LT(activations(4, true), activations(2, true));
  auto experts = *config;
  experts.experts = {.count = 4, .chosen = 2, .ffn_size = 8};
  const auto refused = make_memory_report(experts, {.ranks = 2, .split_context = true});
  ASSERT_FALSE(refused);
}

}  // namespace
}  // namespace jige::cli
