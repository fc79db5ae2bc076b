// GGUF files that llama.cpp's converter made of the fixtures' models
// (tests/tools/record_gguf_converted.py), imported: the tensors and the configuration that they
// were made of.
#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/gguf_config.h"
#include "formats/gguf_import.h"
#include "formats/gguf_test_support.h"
#include "formats/gguf_weights.h"
#include "formats/image_model_names.h"
#include "formats/json_file.h"

namespace jige::formats {
namespace {

std::string converted(const std::string& name) { return gguf_fixture("converted/" + name); }

// How far a number may be off: files hold -exp(A_log), and 1 + the weights of some norms.
float rounding(const std::string& tensor, const ModelConfig& config) {
  if (tensor.ends_with("A_log")) return 1e-6f;
  const bool norm = tensor.find("norm") != std::string::npos;
  return norm && config.norm_adds_one ? 1.2e-7f : 0.0f;
}

// The tensor that the converter was given.
std::string original_name(const std::string& model, std::string tensor) {
  const size_t at = tensor.find(".layers.1.mlp.");
  if (model == "qwen3_next" && at != std::string::npos) tensor.replace(at + 8, 1, "0");
  return tensor;
}

// What is read of a tensor, without a folder.
std::string bytes_of_source(const TensorSource& source) {
  std::string bytes;
  const Status read = source.produce([&](const TensorView& rows) -> Status {
    bytes.append(static_cast<const char*>(rows.data),
                 static_cast<size_t>(dtype_bytes(rows.dtype, rows.count())));
    return {};
  });
  EXPECT_TRUE(read) << read.error().message;
  return bytes;
}

void expect_converted_tensors(const std::string& model, const std::vector<TensorSource>& sources,
                              const TensorFolder& original, const ModelConfig& config) {
  for (const TensorSource& source : sources) {
    SCOPED_TRACE(source.name);
    std::string name = original_name(model, source.name);
    for (const std::string& other : names_beside_images(name)) {
      if (original.find(other)) name = other;
    }
    const auto view = original.view(name);
    ASSERT_TRUE(view) << view.error().message;
    ASSERT_EQ(source.dtype, view->dtype);
    ASSERT_EQ(source.shape, view->shape);
    const std::string made = bytes_of_source(source);
    ASSERT_EQ(made.size(), static_cast<size_t>(dtype_bytes(view->dtype, view->count())));
    const float allowed = rounding(source.name, config);
    if (allowed == 0.0f || source.dtype != DType::kF32) {
      ASSERT_EQ(std::memcmp(made.data(), view->data, made.size()), 0);
      continue;
    }
    for (int64_t i = 0; i < view->count(); ++i) {
      float found;
      std::memcpy(&found, made.data() + static_cast<size_t>(i) * sizeof found, sizeof found);
      const float value = view->as<float>()[i];
      ASSERT_NEAR(found, value, allowed * std::max(1.0f, std::abs(value)));
    }
  }
}

std::string model_folder(const std::string& model) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/" + model;
}

struct Converted {
  const char* name;
  size_t left_out = 0;  // tensors of the fixture that the file does not have
};

constexpr Converted kConverted[] = {{"gpt_oss"},
                                    {"gpt_oss_mxfp4"},
                                    {"qwen3_5", 4},
                                    {"qwen3_5_moe"},
                                    {"qwen3_next"},
                                    {"lfm2", 3},
                                    {"lfm2_moe", 1},
                                    {"granite_hybrid"},
                                    {"granite_hybrid_dense"},
                                    {"granite_moe_shared"},
                                    {"gemma"},
                                    {"gemma4"},
                                    {"gemma4_moe"},
                                    {"gemma4_layer_inputs"},
                                    {"glm4"},
                                    {"glm4_moe"},
                                    {"cohere2", 12},
                                    {"exaone4"},
                                    {"apertus"},
                                    {"hunyuan_v1_dense"},
                                    {"ernie4_5_moe"},
                                    {"nemotron_h", 6},
                                    {"nemotron_h_moe"},
                                    {"deepseek_v2"},
                                    {"deepseek_v2_groups"},
                                    {"deepseek_v3"},
                                    {"minimax_m2"},
                                    {"dots1"},
                                    {"phi"},
                                    {"phi3"},
                                    {"phi4_mini"},
                                    {"glm"},
                                    {"olmo3"},
                                    {"gpt_neox"},
                                    {"cohere"},
                                    {"ernie4_5", 14},
                                    {"falcon_h1"},
                                    {"minicpm3"},
                                    {"bamba"},
                                    {"jais2"},
                                    {"qwen2_5_images", 18},
                                    {"qwen3_images", 27}};

TEST(GgufConverted, FilesOfTheConverterGiveTheModelsThatTheyWereMadeOf) {
  for (const Converted& model : kConverted) {
    SCOPED_TRACE(model.name);
    const std::string name = model.name;
    const auto file = GgufFile::open(converted(name + ".gguf"));
    ASSERT_TRUE(file) << file.error().message;
    const auto config = read_gguf_config(*file);
    EXPECT_TRUE(config) << config.error().message;
    if (!config) continue;
    const Json json = load_json_object(converted(name + ".json")).value();
    ModelConfig wanted = parse_model_config(json, name).value();
    wanted.bos_id = config->bos_id;  // the tokenizer's
    wanted.eos_ids = config->eos_ids;
    wanted.pad_id = config->pad_id;
    wanted.stored_dtype = config->stored_dtype;
    // Of models without positions files name no end of the context.
    if (wanted.mamba2.heads > 0 && wanted.context_max != config->context_max) {
      EXPECT_EQ(config->context_max, int64_t{1} << 20);
      wanted.context_max = config->context_max;
    }
    EXPECT_TRUE(*config == wanted) << dump_json(to_hf_config(*config)) << "\n"
                                   << dump_json(to_hf_config(wanted));
    const auto sources = gguf_sources(*file, *config, {});
    EXPECT_TRUE(sources) << sources.error().message;
    if (!sources) continue;
    const TensorFolder original = TensorFolder::open(model_folder(name)).value();
    expect_converted_tensors(name, *sources, original, *config);
    // The second layer of one has experts where the fixture has none.
    const size_t added = name == "qwen3_next" ? 26 : 0;
    EXPECT_EQ(sources->size() + model.left_out, original.tensors().size() + added);
  }
}

// Those of families that another one computes as well: of Youtu-LLM DeepSeek V2 without experts.
TEST(GgufConverted, FilesUnderTheNameOfAnotherFamilyAreReadAsThat) {
  const std::pair<const char*, Family> renamed[] = {{"youtu", Family::kDeepSeekV2},
                                                    {"glm4_moe_lite", Family::kDeepSeekV3},
                                                    {"solar_open", Family::kGlm4Moe}};
  for (const auto& [name, family] : renamed) {
    SCOPED_TRACE(name);
    const auto file = GgufFile::open(converted(std::string(name) + ".gguf"));
    ASSERT_TRUE(file) << file.error().message;
    const auto config = read_gguf_config(*file);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->family, family);
    const auto sources = gguf_sources(*file, *config, {});
    ASSERT_TRUE(sources) << sources.error().message;
    const TensorFolder original = TensorFolder::open(model_folder(name)).value();
    EXPECT_EQ(sources->size(), original.tensors().size());
    expect_converted_tensors(name, *sources, original, *config);
  }
}

// Blocks of MXFP4 stay what they are, and the folder says so; --dtype decodes them.
TEST(GgufConverted, ExpertsOfGptOssStayInBlocks) {
  const ScratchFolder scratch;
  const std::string file = converted("gpt_oss_mxfp4.gguf");
  const auto made = import_gguf({.file = file, .folder = scratch.file("kept")});
  ASSERT_TRUE(made) << made.error().message;
  expect_same_tensors(model_folder("gpt_oss_mxfp4"), scratch.file("kept"));
  const Json config = load_json_object(scratch.file("kept/config.json")).value();
  EXPECT_EQ(config["quantization_config"]["quant_method"], "mxfp4");
  EXPECT_TRUE(load_model_config(scratch.file("kept")));

  ASSERT_TRUE(
      import_gguf({.file = file, .folder = scratch.file("decoded"), .dtype = DType::kBF16}));
  EXPECT_FALSE(
      load_json_object(scratch.file("decoded/config.json"))->contains("quantization_config"));
  const auto folder = TensorFolder::open(scratch.file("decoded"));
  EXPECT_EQ(folder->view("model.layers.1.mlp.experts.gate_up_proj")->shape, (Shape{5, 32, 128}));
  // Number 1 of expert 0's gate for column 3, by the blocks: the code is the high half of byte 1.
  const auto original = TensorFolder::open(model_folder("gpt_oss_mxfp4"));
  const std::string blocks = "model.layers.1.mlp.experts.gate_up_proj_blocks";
  const auto code = original->view(blocks)->as<uint8_t>()[2 * 16 + 1] >> 4;
  const int power =
      original->view("model.layers.1.mlp.experts.gate_up_proj_scales")->as<uint8_t>()[2];
  constexpr float kMagnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const float value = std::ldexp(kMagnitudes[code % 8] * (code < 8 ? 1 : -1), power - 127);
  const auto decoded = folder->view("model.layers.1.mlp.experts.gate_up_proj");
  EXPECT_EQ(to_float(decoded->as<BFloat16>()[3 * 128 + 2]), value);
}

// A file whose key has another name of the same length, or another number.
std::string renamed(std::string file, const std::string& key) {
  const size_t at = file.find(key + std::string(1, '\4'));
  EXPECT_NE(at, std::string::npos) << key;
  file[at + key.size() - 1] = '!';
  return file;
}

std::string with_number(std::string file, const std::string& key, uint32_t value) {
  const size_t at = file.find(key + std::string(1, '\4'));
  EXPECT_NE(at, std::string::npos) << key;
  std::memcpy(&file[at + key.size() + sizeof(uint32_t)], &value, sizeof value);
  return file;
}

Result<std::vector<TensorSource>> read_all(const ScratchFolder& scratch, const std::string& bytes) {
  write_or_fail(scratch.file("a.gguf"), bytes);
  JIGE_TRY(const GgufFile file, GgufFile::open(scratch.file("a.gguf")));
  JIGE_TRY(const ModelConfig config, read_gguf_config(file));
  return gguf_sources(file, config, {});
}

TEST(GgufConverted, EveryKeyThatMustBeThereIsNamedWhereItIsNot) {
  const ScratchFolder scratch;
  const std::pair<const char*, std::vector<const char*>> required[] = {
      {"gpt_oss",
       {"gpt-oss.block_count", "gpt-oss.embedding_length", "gpt-oss.context_length",
        "gpt-oss.feed_forward_length", "gpt-oss.attention.head_count", "gpt-oss.expert_count",
        "gpt-oss.expert_used_count", "gpt-oss.rope.scaling.original_context_length"}},
      {"qwen3_5_moe",
       {"qwen35moe.ssm.conv_kernel", "qwen35moe.ssm.state_size", "qwen35moe.ssm.group_count",
        "qwen35moe.ssm.time_step_rank", "qwen35moe.ssm.inner_size",
        "qwen35moe.expert_feed_forward_length", "qwen35moe.expert_shared_feed_forward_length"}},
      {"lfm2", {"lfm2.shortconv.l_cache", "lfm2.feed_forward_length"}},
      {"lfm2_moe", {"lfm2moe.expert_used_count", "lfm2moe.expert_feed_forward_length"}},
      {"granite_hybrid", {"granitehybrid.ssm.inner_size", "granitehybrid.ssm.conv_kernel"}},
      {"gemma4",
       {"gemma4.attention.sliding_window", "gemma4.attention.key_length",
        "gemma4.attention.key_length_swa"}},
      {"nemotron_h_moe", {"nemotron_h_moe.ssm.state_size", "nemotron_h_moe.expert_used_count"}},
      {"deepseek_v3",
       {"deepseek2.attention.kv_lora_rank", "deepseek2.attention.value_length_mla",
        "deepseek2.rope.dimension_count", "deepseek2.expert_feed_forward_length"}},
      {"ernie4_5_moe", {"ernie4_5-moe.expert_count", "ernie4_5-moe.expert_used_count"}},
      {"minimax_m2", {"minimax-m2.expert_count"}},
      {"phi4_mini", {"phi3.attention.head_count", "phi3.context_length"}},
      {"falcon_h1", {"falcon-h1.ssm.inner_size", "falcon-h1.ssm.conv_kernel"}},
      {"minicpm3", {"minicpm3.attention.kv_lora_rank", "minicpm3.rope.dimension_count"}}};
  for (const auto& [name, keys] : required) {
    const std::string file = read_or_fail(converted(std::string(name) + ".gguf"));
    for (const char* key : keys) {
      SCOPED_TRACE(key);
      const auto read = read_all(scratch, renamed(file, key));
      EXPECT_FAILS_WITH(read, Code::kCorrupt, fmt::format("key \"{}\" is missing", key));
      EXPECT_NE(read.error().message.find("a.gguf"), std::string::npos);
    }
  }
  // Of Apertus numbers stand in arrays, of one for each layer.
  std::string file = read_or_fail(converted("apertus.gguf"));
  file.replace(file.find("xielu.beta"), 10, "xielu.bet!");
  EXPECT_FAILS_WITH(read_all(scratch, file), Code::kCorrupt, "key \"xielu.beta\" is missing");
}

TEST(GgufConverted, KeysThatContradictOneAnotherAreRefused) {
  const ScratchFolder scratch;
  const struct {
    const char* name;
    const char* key;
    uint32_t value;
    const char* words;
  } lies[] = {
      {"gpt_oss", "gpt-oss.expert_count", 6, "but the keys say [6, 32]"},
      {"gpt_oss_mxfp4", "gpt-oss.expert_feed_forward_length", 96, "but the keys say [5, 96]"},
      {"qwen3_5", "qwen35.ssm.time_step_rank", 5, "is 44, but \"qwen35.ssm.time_step_rank\" is 5"},
      {"qwen3_5", "qwen35.ssm.group_count", 3, "linear_num_value_heads"},
      {"qwen3_5", "qwen35.rope.dimension_count", 5, "turn in pairs"},
      {"qwen3_5_moe", "qwen35moe.block_count", 3, "truth values for 3 layers"},
      {"lfm2", "lfm2.block_count", 3, "numbers for 3 layers"},
      {"lfm2_moe", "lfm2moe.expert_gating_func", 1, "where it is 2"},
      {"lfm2_moe", "lfm2moe.leading_dense_block_count", 2, "num_dense_layers"},
      {"granite_hybrid", "granitehybrid.ssm.inner_size", 63, "granitehybrid.ssm.inner_size"},
      {"granite_hybrid", "granitehybrid.ssm.group_count", 3, "mamba_n_groups"},
      {"gemma4_layer_inputs", "gemma4.attention.shared_kv_layers", 1, "feed_forward_length"},
      {"gemma4", "gemma4.rope.dimension_count_swa", 6, "rope.dimension_count_swa\" is 6"},
      {"gemma4", "gemma4.attention.key_length", 24, "attention.value_length"},
      {"glm4_moe", "glm4moe.nextn_predict_layers", 3, "nextn_predict_layers"},
      {"glm4_moe", "glm4moe.expert_gating_func", 1, "where it is 2"},
      {"cohere2", "cohere2.attention.value_length", 9, "attention.value_length\" is 9"},
      {"deepseek_v3", "deepseek2.rope.dimension_count", 14, "is 14, but"},
      {"deepseek_v3", "deepseek2.attention.key_length_mla", 16, "but the keys say"},
      {"deepseek_v3", "deepseek2.block_count", 0xffffffffu, "must lie in"},
      {"nemotron_h_moe", "nemotron_h_moe.expert_group_count", 3, "n_group"},
      {"ernie4_5_moe", "ernie4_5-moe.interleave_moe_layer_step", 0, "moe_layer_interval"},
      {"phi4_mini", "phi3.rope.dimension_count", 10, "it must be F32 [5]"},
      {"phi4_mini", "phi3.rope.dimension_count", 18, "is 18, but heads have 16 columns"},
      {"phi4_mini", "phi3.rope.scaling.original_context_length", 1, "it must be 2 or more"},
      {"glm", "chatglm.rope.dimension_count", 5, "turn in pairs"},
      {"olmo3", "olmo2.block_count", 4, "truth values for 4 layers"},
      {"gpt_neox", "gptneox.attention.head_count", 3, "does not divide"},
      {"cohere", "command-r.feed_forward_length", 41, "but the keys say [41, 32]"},
      {"falcon_h1", "falcon-h1.ssm.time_step_rank", 7, "is 48, but"},
      {"minicpm3", "minicpm3.attention.key_length", 6, "is 6, but"},
      {"bamba", "granitehybrid.ssm.inner_size", 60, "granitehybrid.ssm.inner_size"},
  };
  for (const auto& lie : lies) {
    SCOPED_TRACE(lie.key);
    const std::string file = read_or_fail(converted(std::string(lie.name) + ".gguf"));
    const auto read = read_all(scratch, with_number(file, lie.key, lie.value));
    EXPECT_FALSE(read);
    if (read) continue;
    EXPECT_NE(read.error().message.find(lie.words), std::string::npos) << read.error().message;
    EXPECT_NE(read.error().message.find("a.gguf"), std::string::npos);
  }
}

// Whatever a number is, a file is read or refused.
// Two numbers a key, in turn: files have most keys in common.
TEST(GgufConverted, NoNumberOfAKeyIsTrusted) {
  constexpr uint32_t kValues[][2] = {{0u, 0x7fffffffu}, {3u, 0xffffffffu}};
  const ScratchFolder scratch;
  int refused = 0;
  size_t turn = 0;
  for (const Converted& model : kConverted) {
    const std::string file = read_or_fail(converted(std::string(model.name) + ".gguf"));
    const std::string prefix =
        std::string(GgufFile::open(converted(std::string(model.name) + ".gguf"))
                        ->metadata()
                        .get_text("general.architecture")
                        .value()) +
        ".";
    for (size_t at = file.find(prefix); at != std::string::npos; at = file.find(prefix, at + 1)) {
      const size_t end = file.find('\0', at) - 1;  // the type is a number of four bytes
      if (end >= file.size() || file[end] != '\4') continue;
      for (const uint32_t value : kValues[turn++ % std::size(kValues)]) {
        std::string other = file;
        std::memcpy(&other[end + sizeof(uint32_t)], &value, sizeof value);
        refused += !read_all(scratch, other);
      }
    }
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace jige::formats
