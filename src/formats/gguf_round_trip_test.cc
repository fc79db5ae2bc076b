// Folders of random numbers, written as GGUF files and read back: what a file holds in another
// order, apart or put together must be the folder's again.
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "formats/gguf_config.h"
#include "formats/gguf_config_writer.h"
#include "formats/gguf_export.h"
#include "formats/gguf_import.h"
#include "formats/gguf_params.h"
#include "formats/gguf_test_support.h"
#include "formats/gguf_weights.h"
#include "formats/json_file.h"
#include "formats/tensor_folder.h"

namespace jige::formats {
namespace {

// Numbers that tell their tensor and their place, of either sign, in [-1, 1).
float number_of(size_t tensor, int64_t at) {
  const auto mixed = static_cast<uint32_t>(tensor * 7919 + static_cast<size_t>(at)) * 2654435761u;
  return static_cast<float>(mixed >> 8) / 8388608.0f - 1.0f;
}

// The fixture's folder with changed fields and numbers of its own for every parameter that its
// file has.
std::string random_folder(const ScratchFolder& scratch, const std::string& name,
                          const Json& changes) {
  const std::string folder = folder_to_export(scratch, name);
  Json json = load_json_object(folder + "/config.json").value();
  json.merge_patch(changes);
  json["dtype"] = "float32";
  write_or_fail(folder + "/config.json", dump_json(json));
  std::filesystem::remove(folder + "/model.safetensors");
  const ModelConfig config = load_model_config(folder).value();
  const auto layout = find_gguf_layout(gguf_architecture(config));
  EXPECT_TRUE(layout) << name;
  std::vector<TensorSource> sources;
  std::set<std::string> names;
  for (const GgufParam& param : gguf_params(config, *layout)) {
    if (!names.insert(param.name).second) continue;  // a head that is the table
    const size_t number = sources.size();
    const auto produce = [shape = param.shape, number](const RowSink& sink) {
      std::vector<float> values(static_cast<size_t>(shape.count()));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = number_of(number, static_cast<int64_t>(i));
      }
      return sink(TensorView::of(values.data(), DType::kF32, shape));
    };
    sources.push_back(
        {.name = param.name, .dtype = DType::kF32, .shape = param.shape, .produce = produce});
  }
  EXPECT_TRUE(write_tensor_folder(folder, sources, {}));
  return folder;
}

void expect_numbers_back(const std::string& folder, const std::string& back, bool norms_add_one) {
  const TensorFolder before = TensorFolder::open(folder).value();
  const TensorFolder after = TensorFolder::open(back).value();
  EXPECT_EQ(after.tensors().size(), before.tensors().size());
  for (const StoredTensor* tensor : before.tensors()) {
    SCOPED_TRACE(tensor->name);
    const TensorView a = before.view(tensor->name).value();
    const auto b = after.view(tensor->name);
    ASSERT_TRUE(b) << b.error().message;
    ASSERT_EQ(a.shape, b->shape);
    ASSERT_EQ(a.dtype, b->dtype);
    // Files hold -exp of these, and one more than norms.
    const bool exponent = tensor->name.ends_with("A_log");
    const bool norm = norms_add_one && tensor->name.find("norm") != std::string::npos;
    const float rounding = exponent ? 4e-7f : norm ? 1.2e-7f : 0.0f;
    for (int64_t i = 0; i < a.count(); ++i) {
      ASSERT_NEAR(a.as<float>()[i], b->as<float>()[i], rounding) << i;
    }
  }
}

struct Written {
  const char* fixture;
  Json changes;
  const char* architecture;
};

TEST(GgufRoundTrip, WhatIsWrittenApartOrInAnotherOrderComesBack) {
  const Json full = {"full_attention", "full_attention"};
  Json unscaled = {{"mamba_norm_before_gate", false}};
  for (const char* field : {"embedding_multiplier", "lm_head_multiplier", "attention_in_multiplier",
                            "attention_out_multiplier", "key_multiplier", "ssm_in_multiplier",
                            "ssm_out_multiplier", "mlp_multipliers", "ssm_multipliers"}) {
    unscaled[field] = nullptr;
  }
  const Written written[] = {
      {"glm", {{"head_dim", 8}}, "chatglm"},
      {"gpt_oss", {{"swiglu_limit", 7.0}}, "gpt-oss"},
      {"qwen3_5", {{"linear_value_head_dim", 10}, {"attention_bias", false}}, "qwen35"},
      {"qwen3_5_moe", {{"linear_value_head_dim", 10}}, "qwen35moe"},
      {"qwen3_next",
       {{"linear_value_head_dim", 10}, {"mlp_only_layers", Json::array()}},
       "qwen3next"},
      {"falcon_h1", unscaled, "falcon-h1"},
      {"gemma4", Json::object(), "gemma4"},
      {"gemma4_moe", Json::object(), "gemma4"},
      {"gemma4_layer_inputs", Json::object(), "gemma4"},
      {"granite_moe", Json::object(), "granitemoe"},
      {"granite_moe_shared", {{"attention_bias", false}}, "granitemoe"},
      {"granite_hybrid", Json::object(), "granitehybrid"},
      {"granite_hybrid_dense", {{"mamba_proj_bias", false}}, "granitehybrid"},
      {"nemotron_h_moe",
       {{"layers_block_type", {"linear_attention", "moe", "full_attention", "moe"}},
        {"intermediate_size", 32}},
       "nemotron_h_moe"},
      {"nemotron_h",
       {{"use_bias", false}, {"mamba_proj_bias", false}, {"mlp_bias", false}},
       "nemotron_h"},
      {"deepseek_v3",
       {{"rope_parameters", {{"mscale", 0.8}, {"mscale_all_dim", 0.8}}}},
       "deepseek2"},
      {"deepseek_v2_groups",
       {{"n_group", nullptr}, {"topk_group", nullptr}, {"topk_method", "greedy"}},
       "deepseek2"},
      {"deepseek_v3_dense",
       {{"attention_bias", false}, {"rope_parameters", {{"mscale", 0.8}}}},
       "deepseek2"},
      {"apertus",
       {{"rope_parameters", {{"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}}}},
       "apertus"},
      {"dots1",
       {{"sliding_window", nullptr}, {"layer_types", full}, {"num_key_value_heads", 4}},
       "dots1"},
      {"ernie4_5_moe",
       {{"num_hidden_layers", 2}, {"moe_layer_interval", 1}, {"moe_layer_end_index", 1}},
       "ernie4_5-moe"},
  };
  for (const Written& one : written) {
    SCOPED_TRACE(one.fixture);
    const ScratchFolder scratch;
    const std::string folder = random_folder(scratch, one.fixture, one.changes);
    const std::string file = scratch.file("a.gguf"), back = scratch.file("back");
    const auto made = export_gguf({.folder = folder, .file = file});
    EXPECT_TRUE(made) << made.error().message;
    if (!made) continue;
    EXPECT_EQ(GgufFile::open(file)->metadata().get_text("general.architecture").value(),
              one.architecture);
    const auto read = import_gguf({.file = file, .folder = back});
    EXPECT_TRUE(read) << read.error().message;
    if (!read) continue;
    const ModelConfig config = load_model_config(folder).value();
    ModelConfig again = load_model_config(back).value();
    again.bos_id = config.bos_id;  // the tokenizer's
    again.eos_ids = config.eos_ids;
    again.pad_id = config.pad_id;
    EXPECT_TRUE(again == config) << dump_json(to_hf_config(again)) << "\n"
                                 << dump_json(to_hf_config(config));
    expect_numbers_back(folder, back, config.norm_adds_one);
  }
}

// Families that another one computes as well, and readers know by its name.
TEST(GgufRoundTrip, FamiliesUnderTheNameOfAnotherComeBackAsThat) {
  const std::tuple<const char*, Json, Family> renamed[] = {
      {"glm4_moe_lite", Json::object(), Family::kDeepSeekV3},
      {"youtu", Json::object(), Family::kDeepSeekV3},
      {"solar_open", {{"n_group", 1}}, Family::kGlm4Moe},
      {"iquestcoder", Json::object(), Family::kLlama}};
  for (const auto& [name, changes, family] : renamed) {
    SCOPED_TRACE(name);
    const ScratchFolder scratch;
    const std::string folder = random_folder(scratch, name, changes);
    const auto made = export_gguf({.folder = folder, .file = scratch.file("a.gguf")});
    ASSERT_TRUE(made) << made.error().message;
    const auto read = import_gguf({.file = scratch.file("a.gguf"), .folder = scratch.file("back")});
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->config.family, family);
    expect_numbers_back(folder, scratch.file("back"), false);
  }
}

// Multipliers that files have no keys for are in their matrices.
TEST(GgufRoundTrip, MultipliersOfFalconH1AreInTheMatrices) {
  const ScratchFolder scratch;
  const std::string folder =
      random_folder(scratch, "falcon_h1", {{"mamba_norm_before_gate", false}});
  const std::string file = scratch.file("a.gguf"), back = scratch.file("back");
  ASSERT_TRUE(export_gguf({.folder = folder, .file = file}));
  ASSERT_TRUE(import_gguf({.file = file, .folder = back}));
  const TensorFolder before = TensorFolder::open(folder).value();
  const TensorFolder after = TensorFolder::open(back).value();
  const auto ratio = [&](const std::string& name, int64_t row) {
    const int64_t at = row * 32;  // the width
    return after.view(name)->as<float>()[at] / before.view(name)->as<float>()[at];
  };
  EXPECT_FLOAT_EQ(ratio("model.embed_tokens.weight", 3), 3.0f);
  EXPECT_FLOAT_EQ(ratio("lm_head.weight", 3), 0.4f);
  EXPECT_FLOAT_EQ(ratio("model.layers.1.self_attn.q_proj.weight", 1), 1.3f);
  EXPECT_FLOAT_EQ(ratio("model.layers.1.self_attn.k_proj.weight", 1), 1.3f * 0.7f);
  EXPECT_FLOAT_EQ(ratio("model.layers.1.self_attn.v_proj.weight", 1), 1.3f);
  EXPECT_FLOAT_EQ(ratio("model.layers.1.self_attn.o_proj.weight", 1), 0.8f);
  EXPECT_FLOAT_EQ(ratio("model.layers.1.feed_forward.gate_proj.weight", 1), 0.9f);
  EXPECT_FLOAT_EQ(ratio("model.layers.1.feed_forward.up_proj.weight", 1), 1.0f);
  // Rows of gates, values, B, C and steps: 48, 48, 12, 12 and 8 of them.
  const std::string mixer = "model.layers.1.mamba.in_proj.weight";
  const std::pair<int64_t, float> parts[] = {{0, 0.7f},   {47, 0.7f},  {48, 1.2f},  {95, 1.2f},
                                             {96, 0.8f},  {107, 0.8f}, {108, 1.5f}, {119, 1.5f},
                                             {120, 0.9f}, {127, 0.9f}};
  for (const auto& [row, scale] : parts) EXPECT_FLOAT_EQ(ratio(mixer, row), 1.25f * scale) << row;
  const ModelConfig config = load_model_config(back).value();
  EXPECT_EQ(config.mamba2.in_scale, 1.0);
  EXPECT_EQ(config.embedding_scale, 1.0);
  EXPECT_EQ(config.mlp_out_scale, 1.0);
}

TEST(GgufRoundTrip, BlocksOfMxfp4AreWrittenAsTheyAre) {
  const ScratchFolder scratch;
  const std::string file = gguf_fixture("converted/gpt_oss_mxfp4.gguf");
  ASSERT_TRUE(import_gguf({.file = file, .folder = scratch.file("kept")}));
  const auto made = export_gguf({.folder = scratch.file("kept"), .file = scratch.file("a.gguf")});
  ASSERT_TRUE(made) << made.error().message;
  const GgufFile before = GgufFile::open(file).value();
  const GgufFile after = GgufFile::open(scratch.file("a.gguf")).value();
  for (const GgufTensor& tensor : before.header().tensors) {
    SCOPED_TRACE(tensor.name);
    const GgufTensor* other = after.header().find(tensor.name);
    ASSERT_NE(other, nullptr);
    ASSERT_EQ(other->dims, tensor.dims);
    if (tensor.type->number != kGgufMxfp4) continue;
    ASSERT_EQ(other->type->number, kGgufMxfp4);
    EXPECT_EQ(std::memcmp(after.data(*other), before.data(tensor), tensor.bytes), 0);
  }
  EXPECT_EQ(made->types.at("MXFP4"), 6);
}

// Folders may have the experts of a layer in one tensor.
TEST(GgufRoundTrip, ExpertsInOneTensorAreWrittenAsThoseOneByOne) {
  const ScratchFolder scratch;
  const std::string folder = folder_to_export(scratch, "qwen3_moe_stacked");
  ASSERT_TRUE(export_gguf({.folder = folder, .file = scratch.file("a.gguf")}));
  ASSERT_TRUE(import_gguf({.file = scratch.file("a.gguf"), .folder = scratch.file("back")}));
  const TensorFolder before = TensorFolder::open(folder).value();
  const TensorFolder after = TensorFolder::open(scratch.file("back")).value();
  const auto stacked = before.view("model.layers.1.mlp.experts.gate_up_proj");  // [7, 2 20, 32]
  const auto down = before.view("model.layers.1.mlp.experts.down_proj");
  for (int64_t expert = 0; expert < 7; ++expert) {
    const std::string at = fmt::format("model.layers.1.mlp.experts.{}.", expert);
    const auto part = [&](const char* name) { return after.view(at + name)->data; };
    const size_t bytes = static_cast<size_t>(dtype_bytes(stacked->dtype, 20 * 32));
    const auto* first =
        static_cast<const std::byte*>(stacked->data) + 2 * bytes * static_cast<size_t>(expert);
    EXPECT_EQ(std::memcmp(part("gate_proj.weight"), first, bytes), 0) << expert;
    EXPECT_EQ(std::memcmp(part("up_proj.weight"), first + bytes, bytes), 0) << expert;
    EXPECT_EQ(
        std::memcmp(part("down_proj.weight"),
                    static_cast<const std::byte*>(down->data) + bytes * static_cast<size_t>(expert),
                    bytes),
        0)
        << expert;
  }
}

// Granite 4 without recurrent layers is Granite to readers.
TEST(GgufRoundTrip, GraniteOfAttentionAloneIsWrittenAsGranite) {
  const ScratchFolder scratch;
  const std::string folder = random_folder(scratch, "granite_hybrid_dense",
                                           {{"layer_types", {"full_attention", "full_attention"}}});
  const auto made = export_gguf({.folder = folder, .file = scratch.file("a.gguf")});
  ASSERT_TRUE(made) << made.error().message;
  ASSERT_TRUE(import_gguf({.file = scratch.file("a.gguf"), .folder = scratch.file("back")}));
  const ModelConfig config = load_model_config(scratch.file("back")).value();
  EXPECT_EQ(config.family, Family::kGranite);
  EXPECT_EQ(config.logits_divisor, 1.5);
  const TensorFolder before = TensorFolder::open(folder).value();
  const TensorFolder after = TensorFolder::open(scratch.file("back")).value();
  const auto joined = before.view("model.layers.1.shared_mlp.input_linear.weight");
  const auto gate = after.view("model.layers.1.mlp.gate_proj.weight");
  const auto up = after.view("model.layers.1.mlp.up_proj.weight");
  const auto half = static_cast<size_t>(gate->count());
  ASSERT_EQ(joined->count(), gate->count() + up->count());
  EXPECT_EQ(std::memcmp(joined->data, gate->data, half * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(joined->as<float>() + half, up->data, half * sizeof(float)), 0);
}

// The older code of GLM-4 and of Phi has queries, keys and values in one tensor.
TEST(GgufRoundTrip, QueriesKeysAndValuesInOneTensorAreTakenApart) {
  const ScratchFolder scratch;
  const std::string folder = random_folder(scratch, "glm", {{"head_dim", 8}});
  ASSERT_TRUE(export_gguf({.folder = folder, .file = scratch.file("a.gguf")}));
  const GgufFile apart = GgufFile::open(scratch.file("a.gguf")).value();
  GgufBuilder file;
  file.text("general.architecture", "chatglm")
      .number("chatglm.block_count", 2)
      .number("chatglm.context_length", 128)
      .number("chatglm.embedding_length", 32)
      .number("chatglm.feed_forward_length", 40)
      .number("chatglm.attention.head_count", 4)
      .number("chatglm.attention.head_count_kv", 2)
      .number("chatglm.rope.dimension_count", 4)
      .real("chatglm.attention.layer_norm_rms_epsilon", 1e-5f);
  const auto bytes_of_tensor = [&](const std::string& name) {
    const GgufTensor* tensor = apart.header().find(name);
    EXPECT_NE(tensor, nullptr) << name;
    return std::string(reinterpret_cast<const char*>(apart.data(*tensor)), tensor->bytes);
  };
  for (const GgufTensor& tensor : apart.header().tensors) {
    const bool part = tensor.name.find("attn_q.") != std::string::npos ||
                      tensor.name.find("attn_k.") != std::string::npos ||
                      tensor.name.find("attn_v.") != std::string::npos;
    if (!part)
      file.tensor(tensor.name, tensor.dims, kGgufF32, bytes_of_tensor(std::string(tensor.name)));
  }
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    for (const std::string end : {".weight", ".bias"}) {
      const std::string all = bytes_of_tensor(layer + "attn_q" + end) +
                              bytes_of_tensor(layer + "attn_k" + end) +
                              bytes_of_tensor(layer + "attn_v" + end);
      file.tensor(layer + "attn_qkv" + end,
                  end == ".bias" ? std::vector<int64_t>{64} : std::vector<int64_t>{64, 32},
                  kGgufF32, all);
    }
  }
  write_or_fail(scratch.file("b.gguf"), file.bytes());
  const GgufFile fused = GgufFile::open(scratch.file("b.gguf")).value();
  const ModelConfig config = read_gguf_config(fused).value();
  EXPECT_TRUE(config.qkv_bias);
  const auto sources = gguf_sources(fused, config, {});
  ASSERT_TRUE(sources) << sources.error().message;
  std::filesystem::create_directory(scratch.file("back"));
  ASSERT_TRUE(write_tensor_folder(scratch.file("back"), *sources, {}));
  expect_numbers_back(folder, scratch.file("back"), false);
}

}  // namespace
}  // namespace jige::formats
