// That what `jige inspect` says a model takes is what a loaded one has taken.
#include "cli/memory_report.h"

#include <gtest/gtest.h>

#include "cli/loaded_model.h"
#include "formats/model_config.h"

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

}  // namespace
}  // namespace jige::cli
