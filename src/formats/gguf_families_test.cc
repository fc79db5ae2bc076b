// GGUF files of families whose layers are not Llama's, there and back.
#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/gguf_config.h"
#include "formats/gguf_export.h"
#include "formats/gguf_import.h"
#include "formats/gguf_test_support.h"
#include "formats/image_model_names.h"
#include "formats/json_file.h"
#include "formats/model_families.h"
#include "tensor/dtype.h"

namespace jige::formats {
namespace {

// A fixture as readers of GGUF files take it: their layers have fixed patterns.
std::string usual_folder(const ScratchFolder& scratch, const std::string& name) {
  const std::string folder = folder_to_export(scratch, name);
  Json config = load_json_object(folder + "/config.json").value();
  if (name == "smollm3") config["no_rope_layers"] = {1, 1, 1};
  if (name == "gemma2" || name == "gemma3") {
    config["query_pre_attn_scalar"] = config["head_dim"];
  }
  if (name == "gemma3") {
    config["layer_types"] = {"sliding_attention", "sliding_attention", "sliding_attention"};
  }
  if (name == "seed_oss" || name == "arcee") config["mlp_bias"] = false;
  if (name == "arcee" || name == "cohere2") config["attention_bias"] = false;
  if (name == "cohere2") {
    config["layer_types"] = {"sliding_attention", "sliding_attention", "sliding_attention"};
  }
  if (name == "lfm2") config["conv_bias"] = false;
  if (name == "lfm2_moe") config["routed_scaling_factor"] = 1.0;
  if (name.starts_with("hunyuan")) config["rope_parameters"] = {{"rope_theta", 500.0}};
  if (name == "exaone4") {
    config["sliding_window"] = nullptr;
    config["layer_types"] = {"full_attention", "full_attention", "full_attention",
                             "full_attention"};
    config["rope_parameters"] = {{"rope_theta", 500.0}};
  }
  if (name == "olmo3") config["rope_parameters"]["full_attention"] = Json{{"rope_theta", 150000.0}};
  if (name == "ernie4_5") config["use_bias"] = false;
  if (name == "minicpm3") {
    config["scale_emb"] = 12;
    config["scale_depth"] = 1.4;
    config["dim_model_base"] = 256;
  }
  if (name == "qwen2_moe") {
    config["num_hidden_layers"] = 1;
    config["mlp_only_layers"] = Json::array();
    config["layer_types"] = {"full_attention"};
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

// Every tensor of a folder is that of another one, which may have more.
void expect_tensors_of(const std::string& folder, const std::string& other) {
  const TensorFolder tensors = TensorFolder::open(folder).value();
  const TensorFolder others = TensorFolder::open(other).value();
  for (const StoredTensor* tensor : tensors.tensors()) {
    const TensorView a = tensors.view(tensor->name).value();
    const TensorView b = others.view(tensor->name).value();
    ASSERT_EQ(a.shape, b.shape) << tensor->name;
    ASSERT_EQ(a.dtype, b.dtype) << tensor->name;
    const auto bytes = static_cast<size_t>(dtype_bytes(a.dtype, a.count()));
    EXPECT_EQ(std::memcmp(a.data, b.data, bytes), 0) << tensor->name;
  }
}

TEST(GgufFamilies, FilesAreReadBack) {
  for (const char* name : {"olmo2",      "granite",    "smollm3",          "gemma2",
                           "gemma3",     "starcoder2", "stablelm",         "seed_oss",
                           "olmoe",      "qwen2_moe",  "qwen3_moe",        "mixtral",
                           "ministral3", "arcee",      "nemotron",         "gemma",
                           "glm4",       "cohere2",    "hunyuan_v1_dense", "lfm2",
                           "lfm2_moe",   "glm4_moe",   "minimax_m2",       "hunyuan_v1_moe",
                           "phi",        "phi3",       "phi4_mini",        "exaone4",
                           "olmo3",      "gpt_neox",   "cohere",           "ernie4_5",
                           "minicpm3",   "jais2"}) {
    SCOPED_TRACE(name);
    const ScratchFolder scratch;
    const std::string folder = usual_folder(scratch, name), back = scratch.file("back");
    const std::string file = scratch.file("a.gguf");
    const auto made = export_gguf({.folder = folder, .file = file});
    ASSERT_TRUE(made) << made.error().message;
    const auto read = import_gguf({.file = file, .folder = back});
    ASSERT_TRUE(read) << read.error().message;
    expect_same_config(folder, back);
    // Of norms that add one, the next test; of others the file has a part of the folder's tensors.
    const auto family = load_model_config(folder)->family;
    if (family_info(family).norm_adds_one) continue;
    if (family == Family::kSeedOss || family == Family::kQwen2Moe || family == Family::kArcee ||
        family == Family::kCohere2 || family == Family::kLfm2 || family == Family::kErnie45) {
      expect_tensors_of(back, folder);
    } else {
      expect_same_tensors(folder, back);
    }
  }
}

TEST(GgufFamilies, OfFoldersWithImagesTheLanguageModelIsWritten) {
  for (const char* name : {"mistral3_images", "qwen2_5_images", "qwen3_images"}) {
    SCOPED_TRACE(name);
    const ScratchFolder scratch;
    const std::string folder = folder_to_export(scratch, name), back = scratch.file("back");
    const auto made = export_gguf({.folder = folder, .file = scratch.file("a.gguf")});
    ASSERT_TRUE(made) << made.error().message;
    ASSERT_TRUE(import_gguf({.file = scratch.file("a.gguf"), .folder = back}));
    const TensorFolder before = TensorFolder::open(folder).value();
    const TensorFolder after = TensorFolder::open(back).value();
    size_t compared = 0;
    for (const StoredTensor* tensor : before.tensors()) {
      if (reads_images(tensor->name)) continue;
      const TensorView a = before.view(tensor->name).value();
      const auto b = after.view(name_without_images(tensor->name));
      ASSERT_TRUE(b) << b.error().message;
      ASSERT_EQ(a.dtype, b->dtype);
      EXPECT_EQ(std::memcmp(a.data, b->data, tensor->bytes), 0) << tensor->name;
      ++compared;
    }
    EXPECT_EQ(after.tensors().size(), compared);
  }
}

// Files hold one more than weights of such norms, rounded.
void expect_norms_within_rounding(const std::string& name) {
  const ScratchFolder scratch;
  const std::string folder = usual_folder(scratch, name), back = scratch.file("back");
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
  const GgufTensor* norm = file->header().find("blk.1.attn_norm.weight");
  ASSERT_NE(norm, nullptr);
  float first;
  std::memcpy(&first, file->data(*norm), sizeof first);
  const auto weight = before.view("model.layers.1.input_layernorm.weight");
  EXPECT_EQ(first, 1.0f + weight->as<float>()[0]);
}

TEST(GgufFamilies, NormsThatAddOneComeBackWithinRounding) {
  for (const char* name : {"gemma2", "gemma3", "nemotron"}) expect_norms_within_rounding(name);
}

// What readers look for, by the names and shapes that they have.
TEST(GgufFamilies, FilesHaveTheKeysAndTensorsOfTheirArchitecture) {
  const ScratchFolder scratch;
  const auto written = [&](const char* name) {
    const std::string folder = usual_folder(scratch, name);
    const std::string file = scratch.file(std::string(name) + ".gguf");
    EXPECT_TRUE(export_gguf({.folder = folder, .file = file, .replace = true}));
    return GgufFile::open(file).value();
  };
  const GgufFile gemma = written("gemma2");
  EXPECT_EQ(gemma.metadata().get_text("general.architecture").value(), "gemma2");
  EXPECT_EQ(gemma.metadata().find_number("gemma2.attn_logit_softcapping").value(), 2.5);
  EXPECT_EQ(gemma.metadata().find_number("gemma2.final_logit_softcapping").value(), 6.0);
  EXPECT_EQ(gemma.metadata().get_int("gemma2.attention.sliding_window").value(), 9);
  EXPECT_TRUE(gemma.header().find("blk.2.post_ffw_norm.weight"));

  const GgufFile qwen = written("qwen2_moe");
  EXPECT_EQ(qwen.metadata().get_text("general.architecture").value(), "qwen2moe");
  EXPECT_EQ(qwen.metadata().get_int("qwen2moe.expert_count").value(), 6);
  EXPECT_EQ(qwen.metadata().get_int("qwen2moe.expert_used_count").value(), 2);
  EXPECT_EQ(qwen.metadata().get_int("qwen2moe.expert_feed_forward_length").value(), 20);
  EXPECT_EQ(qwen.metadata().get_int("qwen2moe.expert_shared_feed_forward_length").value(), 28);
  const auto dims = [&](const GgufFile& file, const char* name) {
    const GgufTensor* tensor = file.header().find(name);
    return tensor ? tensor->dims : std::vector<int64_t>();
  };
  using Dims = std::vector<int64_t>;
  EXPECT_EQ(dims(qwen, "blk.0.ffn_gate_inp_shexp.weight"), Dims{32});
  EXPECT_EQ(dims(qwen, "blk.0.ffn_down_shexp.weight"), (Dims{32, 28}));
  EXPECT_EQ(dims(qwen, "blk.0.ffn_gate_exps.weight"), (Dims{6, 20, 32}));
  EXPECT_EQ(qwen.header().find("blk.0.ffn_gate_inp.weight")->type->number, kGgufF32);

  const GgufFile star = written("starcoder2");
  EXPECT_EQ(dims(star, "blk.1.ffn_norm.bias"), Dims{32});
  EXPECT_EQ(dims(star, "blk.1.ffn_up.bias"), Dims{40});
  EXPECT_FALSE(star.header().find("blk.1.ffn_gate.weight"));
  const GgufFile stable = written("stablelm");
  EXPECT_EQ(stable.metadata().get_int("stablelm.rope.dimension_count").value(), 4);
  EXPECT_FALSE(stable.metadata().find_bool("stablelm.use_parallel_residual").value().value());
  const GgufFile seed = written("seed_oss");
  EXPECT_TRUE(seed.header().find("blk.1.post_attention_norm.weight"));
  EXPECT_FALSE(seed.header().find("blk.1.ffn_norm.weight"));

  const GgufFile ministral = written("ministral3");
  const auto real = [&](const char* name) {
    return ministral.metadata().find_number(name).value();
  };
  EXPECT_EQ(ministral.metadata().get_text("mistral3.rope.scaling.type").value(), "yarn");
  EXPECT_EQ(real("mistral3.attention.temperature_scale"), 0.5);
  EXPECT_EQ(real("mistral3.rope.scaling.yarn_log_multiplier"), 1.0);
  EXPECT_EQ(real("mistral3.rope.scaling.yarn_beta_fast"), 32.0);
  EXPECT_EQ(ministral.metadata().get_int("mistral3.rope.scaling.original_context_length").value(),
            8);
  const GgufFile nemotron = written("nemotron");
  EXPECT_EQ(nemotron.metadata().get_int("nemotron.rope.dimension_count").value(), 4);
  EXPECT_EQ(dims(nemotron, "blk.1.ffn_norm.bias"), Dims{32});
  EXPECT_FALSE(nemotron.header().find("blk.1.ffn_gate.weight"));
}

// Writers give both Mistral Small 3 and Ministral 3 this name.
TEST(GgufFamilies, OfMistral3TheScalingSaysWhichFamilyItIs) {
  const auto config_of = [](bool yarn, const char* key, double value) {
    GgufBuilder file = small_gguf_llama();
    file.text("general.architecture", "mistral3")
        .number("mistral3.block_count", 1)
        .number("mistral3.context_length", 64)
        .number("mistral3.embedding_length", 32)
        .number("mistral3.feed_forward_length", 48)
        .number("mistral3.attention.head_count", 4)
        .number("mistral3.attention.head_count_kv", 2)
        .real("mistral3.attention.layer_norm_rms_epsilon", 1e-5f);
    if (yarn) {
      file.text("mistral3.rope.scaling.type", "yarn")
          .real("mistral3.rope.scaling.factor", 4.0f)
          .number("mistral3.rope.scaling.original_context_length", 16);
    }
    const std::string name = std::string("mistral3.") + key;
    if (name.ends_with("_length")) {
      file.number(name, static_cast<uint32_t>(value));
    } else if (*key) {
      file.real(name, static_cast<float>(value));
    }
    const ScratchFolder scratch;
    write_or_fail(scratch.file("a.gguf"), file.bytes());
    return read_gguf_config(GgufFile::open(scratch.file("a.gguf")).value());
  };
  EXPECT_EQ(config_of(false, "", 0)->family, Family::kLlama);
  EXPECT_FAILS_WITH(config_of(false, "attention.temperature_scale", 0.5), Code::kUnsupported,
                    "temperature_scale");
  const auto plain = config_of(true, "", 0);
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(plain->family, Family::kMinistral3);
  EXPECT_EQ(plain->rope.query_growth, 0.0);
  EXPECT_NEAR(plain->rope.attention_factor, 1.1386294, 1e-6);
  EXPECT_EQ(config_of(true, "attention.temperature_scale", 0.25)->rope.query_growth, 0.25);
  EXPECT_EQ(config_of(true, "rope.scaling.yarn_log_multiplier", 1)->rope.attention_factor, 1.0);
  EXPECT_FAILS_WITH(config_of(true, "rope.scaling.yarn_log_multiplier", 0.5), Code::kUnsupported,
                    "yarn_log_multiplier");
  EXPECT_FAILS_WITH(config_of(true, "attention.temperature_length", 8), Code::kUnsupported,
                    "temperature_length");
  EXPECT_TRUE(config_of(true, "attention.temperature_length", 16));
}

TEST(GgufFamilies, PatternsOfLayersAreThoseOfReaders) {
  EXPECT_EQ(gguf_unturned_layers(5), (std::vector<uint8_t>{0, 0, 0, 1, 0}));
  EXPECT_TRUE(gguf_unturned_layers(3).empty());
  EXPECT_EQ(gguf_sliding_layers(7, 6), (std::vector<uint8_t>{1, 1, 1, 1, 1, 0, 1}));
  ModelConfig config;
  config.family = Family::kGemma3;
  config.layer_count = 26;
  config.hidden_size = 5376;
  config.head_count = 32;
  config.head_dim = 128;
  EXPECT_EQ(gguf_gemma_score_dim(config), 128);
  config.layer_count = 62;  // the one of 27 B
  EXPECT_EQ(gguf_gemma_score_dim(config), 168);
  config.family = Family::kGemma2;
  EXPECT_EQ(gguf_gemma_score_dim(config), 128);
  config.layer_count = 46;
  config.hidden_size = 4608;
  EXPECT_EQ(gguf_gemma_score_dim(config), 144);
  EXPECT_EQ(gguf_gemma_period(Family::kGemma2), 2);
  EXPECT_EQ(gguf_gemma_period(Family::kGemma3), 6);
}

// Where no key says which layers have the window, every fourth has none.
TEST(GgufFamilies, Olmo2WithWindowsIsOlmo3) {
  GgufBuilder file = small_gguf_llama();
  file.text("general.architecture", "olmo2")
      .number("olmo2.block_count", 5)
      .number("olmo2.context_length", 64)
      .number("olmo2.embedding_length", 32)
      .number("olmo2.feed_forward_length", 48)
      .number("olmo2.attention.head_count", 4)
      .number("olmo2.attention.sliding_window", 8)
      .text("olmo2.rope.scaling.type", "yarn")
      .real("olmo2.rope.scaling.factor", 8.0f)
      .number("olmo2.rope.scaling.original_context_length", 8)
      .real("olmo2.rope.scaling.yarn_attn_factor", 1.2079441541679836f)
      .real("olmo2.rope.freq_base", 500000.0f)
      .real("olmo2.attention.layer_norm_rms_epsilon", 1e-6f);
  const ScratchFolder scratch;
  write_or_fail(scratch.file("a.gguf"), file.bytes());
  const auto config = read_gguf_config(GgufFile::open(scratch.file("a.gguf")).value());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->family, Family::kOlmo3);
  EXPECT_EQ(config->layer_is_sliding, (std::vector<uint8_t>{1, 1, 1, 0, 1}));
  EXPECT_EQ(config->rope.scaling, RopeScaling::kYarn);
  ASSERT_TRUE(config->sliding_rope);
  EXPECT_EQ(config->sliding_rope->scaling, RopeScaling::kNone);
  EXPECT_EQ(config->sliding_rope->theta, 500000.0);
  // Another factor than the scaling's own is one that readers would not compute.
  file.real("olmo2.rope.scaling.yarn_attn_factor", 1.5f);
  write_or_fail(scratch.file("b.gguf"), file.bytes());
  EXPECT_FAILS_WITH(read_gguf_config(GgufFile::open(scratch.file("b.gguf")).value()),
                    Code::kUnsupported, "yarn_attn_factor");
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
  refused("gemma2", "final_logit_softcapping", 0, Code::kUnsupported, "final_logit_softcapping");
  refused("gemma3", "final_logit_softcapping", 30, Code::kUnsupported, "final_logit_softcapping");
  refused("gemma3", "block_count", 4000000000u, Code::kCorrupt, "block_count");
  refused("smollm3", "block_count", 0, Code::kCorrupt, "block_count");
  refused("smollm3", "attention.sliding_window", 8, Code::kUnsupported, "sliding_window");
  refused("olmo2", "logit_scale", 3, Code::kUnsupported, "logit_scale");
  refused("phi3", "rope.scaling.factor", 4, Code::kUnsupported, "\"phi3.rope.scaling\"");
  refused("chatglm", "block_count", 1, Code::kUnsupported, "sliding_window");
  refused("gptneox", "block_count", 1, Code::kCorrupt, "layer_norm_epsilon");
  refused("falcon-h1", "block_count", 1, Code::kCorrupt, "falcon-h1.ssm.time_step_rank");
  refused("minicpm3", "block_count", 1, Code::kCorrupt, "minicpm3.attention.kv_lora_rank");
}

}  // namespace
}  // namespace jige::formats
