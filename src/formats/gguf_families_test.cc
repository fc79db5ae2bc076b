// GGUF files of families whose layers are not Llama's, there and back.
#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/gguf_config.h"
#include "formats/gguf_export.h"
#include "formats/gguf_import.h"
#include "formats/gguf_test_support.h"
#include "formats/json_file.h"
#include "tensor/dtype.h"

namespace jige::formats {
namespace {

// A fixture as readers of GGUF files take it: their layers have fixed patterns.
std::string usual_folder(const ScratchFolder& scratch, const std::string& name) {
  const std::string folder = folder_to_export(scratch, name);
  Json config = load_json_object(folder + "/config.json").value();
  if (name == "smollm3") config["no_rope_layers"] = {1, 1, 1};
  if (name == "gemma3") {
    config["query_pre_attn_scalar"] = config["head_dim"];
    config["layer_types"] = {"sliding_attention", "sliding_attention", "sliding_attention"};
  }
  write_or_fail(folder + "/config.json", dump_json(config));
  return folder;
}

void expect_same_config(const std::string& folder, const std::string& back) {
  const ModelConfig config = load_model_config(folder).value();
  ModelConfig again = load_model_config(back).value();
  again.bos_id = config.bos_id;  // the tokenizer's
  again.eos_ids = config.eos_ids;
  again.pad_id = config.pad_id;
  EXPECT_EQ(again, config);
}

TEST(GgufFamilies, FilesAreReadBack) {
  for (const char* name : {"olmo2", "granite", "smollm3", "gemma3"}) {
    SCOPED_TRACE(name);
    const ScratchFolder scratch;
    const std::string folder = usual_folder(scratch, name), back = scratch.file("back");
    const std::string file = scratch.file("a.gguf");
    const auto made = export_gguf({.folder = folder, .file = file});
    ASSERT_TRUE(made) << made.error().message;
    const auto read = import_gguf({.file = file, .folder = back});
    ASSERT_TRUE(read) << read.error().message;
    expect_same_config(folder, back);
    if (std::string_view(name) != "gemma3") expect_same_tensors(folder, back);
  }
}

// Files hold one more than weights of such norms, rounded.
TEST(GgufFamilies, NormsThatAddOneComeBackWithinRounding) {
  const ScratchFolder scratch;
  const std::string folder = usual_folder(scratch, "gemma3"), back = scratch.file("back");
  ASSERT_TRUE(export_gguf({.folder = folder, .file = scratch.file("a.gguf")}));
  const auto file = GgufFile::open(scratch.file("a.gguf"));
  ASSERT_TRUE(file);
  ASSERT_TRUE(import_gguf({.file = scratch.file("a.gguf"), .folder = back}));
  const TensorFolder before = TensorFolder::open(folder).value();
  const TensorFolder after = TensorFolder::open(back).value();
  for (const StoredTensor* tensor : before.tensors()) {
    const TensorView a = before.view(tensor->name).value();
    const TensorView b = after.view(tensor->name).value();
    ASSERT_EQ(a.shape, b.shape);
    const float rounding = tensor->dims.size() == 1 ? 1.2e-7f : 0.0f;
    for (int64_t i = 0; i < a.count(); ++i) {
      ASSERT_NEAR(a.as<float>()[i], b.as<float>()[i], rounding) << tensor->name;
    }
  }
  const GgufTensor* norm = file->header().find("blk.1.post_ffw_norm.weight");
  ASSERT_NE(norm, nullptr);
  float first;
  std::memcpy(&first, file->data(*norm), sizeof first);
  const auto weight = before.view("model.layers.1.post_feedforward_layernorm.weight");
  EXPECT_EQ(first, 1.0f + weight->as<float>()[0]);
}

TEST(GgufFamilies, PatternsOfLayersAreThoseOfReaders) {
  EXPECT_EQ(gguf_unturned_layers(5), (std::vector<uint8_t>{0, 0, 0, 1, 0}));
  EXPECT_TRUE(gguf_unturned_layers(3).empty());
  EXPECT_EQ(gguf_sliding_layers(7, 6), (std::vector<uint8_t>{1, 1, 1, 1, 1, 0, 1}));
  ModelConfig config;
  config.layer_count = 26;
  config.hidden_size = 5376;
  config.head_count = 32;
  config.head_dim = 128;
  EXPECT_EQ(gguf_gemma3_score_dim(config), 128);
  config.layer_count = 62;  // the one of 27 B
  EXPECT_EQ(gguf_gemma3_score_dim(config), 168);
}

TEST(GgufFamilies, RefusesKeysThatMakeNoModel) {
  const auto refused = [](const char* architecture, const char* key, uint32_t value, Code code,
                          const char* words) {
    GgufBuilder file = small_gguf_llama();
    const std::string prefix = std::string(architecture) + ".";
    file.text("general.architecture", architecture)
        .number(prefix + "block_count", 1)
        .number(prefix + "context_length", 64)
        .number(prefix + "embedding_length", 32)
        .number(prefix + "feed_forward_length", 48)
        .number(prefix + "attention.head_count", 4)
        .number(prefix + "attention.head_count_kv", 2)
        .number(prefix + "attention.sliding_window", 8)
        .real(prefix + "attention.layer_norm_rms_epsilon", 1e-5f)
        .number(prefix + key, value);
    const ScratchFolder scratch;
    write_or_fail(scratch.file("a.gguf"), file.bytes());
    const auto opened = GgufFile::open(scratch.file("a.gguf"));
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_FAILS_WITH(read_gguf_config(*opened), code, words);
  };
  refused("gemma3", "attention.sliding_window_pattern", 0, Code::kCorrupt,
          "sliding_window_pattern");
  refused("gemma3", "final_logit_softcapping", 30, Code::kUnsupported, "final_logit_softcapping");
  refused("gemma3", "block_count", 4000000000u, Code::kCorrupt, "block_count");
  refused("smollm3", "block_count", 0, Code::kCorrupt, "block_count");
  refused("smollm3", "attention.sliding_window", 8, Code::kUnsupported, "sliding_window");
  refused("olmo2", "logit_scale", 3, Code::kUnsupported, "logit_scale");
}

}  // namespace
}  // namespace jige::formats
