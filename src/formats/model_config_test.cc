#include "formats/model_config.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "formats/json_file.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json llama_json() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", 96},
          {"hidden_size", 32},
          {"intermediate_size", 48},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 256}};
}

Json gpt2_json() {
  return {{"model_type", "gpt2"}, {"vocab_size", 96}, {"n_embd", 32},
          {"n_layer", 2},         {"n_head", 4},      {"n_positions", 64}};
}

Json qwen_json(const std::string& type) {
  Json json = llama_json();
  json["model_type"] = type;
  json["architectures"] = nullptr;
  return json;
}

Json llama3_scaling() {
  return {{"rope_type", "llama3"},
          {"factor", 8.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0}};
}

Result<ModelConfig> parse_config(const Json& json) {
  return parse_model_config(json, "config.json");
}

// The object with one member replaced.
Json with(Json json, const std::string& field, Json value) {
  json[field] = std::move(value);
  return json;
}

std::vector<int64_t> sliding_layers(const ModelConfig& config) {
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < config.layer_count; ++i) {
    const bool sliding = config.layer_is_sliding.empty()
                             ? config.sliding_window > 0
                             : config.layer_is_sliding[static_cast<size_t>(i)] != 0;
    if (sliding) layers.push_back(i);
  }
  return layers;
}

void expect_facts(const ModelConfig& config, const Json& facts, const std::string& name) {
  EXPECT_EQ(config.hidden_size, facts.at("hidden_size")) << name;
  EXPECT_EQ(config.layer_count, facts.at("layer_count")) << name;
  if (facts.contains("head_count")) {  // else no layer has attention
    EXPECT_EQ(config.head_count, facts.at("head_count")) << name;
    EXPECT_EQ(config.kv_head_count, facts.at("kv_head_count")) << name;
    EXPECT_EQ(config.head_dim, facts.at("head_dim")) << name;
    EXPECT_EQ(config.context_max, facts.at("context_max")) << name;
  }
  EXPECT_EQ(config.tied_embeddings, facts.at("tied")) << name;
  EXPECT_EQ(config.eos_ids, facts.at("eos").get<std::vector<int32_t>>()) << name;
  EXPECT_EQ(sliding_layers(config), facts.at("sliding_layers").get<std::vector<int64_t>>()) << name;
  if (!facts.at("sliding_layers").empty()) {
    EXPECT_EQ(config.sliding_window, facts.at("sliding_window")) << name;
  }
  if (facts.contains("rope")) {
    const Json& rope = facts.at("rope");
    const Json* theta = find_field(rope, "theta");  // null where nothing turns
    EXPECT_TRUE(theta ? *theta == config.rope.theta : !config.layer_is_unturned.empty()) << name;
    const Json* sliding = find_field(rope, "sliding_theta");
    EXPECT_TRUE(!sliding || *sliding == config.sliding_rope.value_or(config.rope).theta) << name;
    EXPECT_EQ(config.rope.factor, rope.at("factor")) << name;
    const std::string type = rope.at("type");
    EXPECT_EQ(config.rope.scaling, type == "llama3"         ? RopeScaling::kLlama3
                                   : type == "linear"       ? RopeScaling::kLinear
                                   : type == "longrope"     ? RopeScaling::kLongRope
                                   : type == "yarn"         ? RopeScaling::kYarn
                                   : type == "proportional" ? RopeScaling::kProportional
                                                            : RopeScaling::kNone)
        << name;
  }
  if (facts.contains("parameters")) {
    EXPECT_EQ(parameter_count(config), facts.at("parameters")) << name;
  }
}

// Old and new spellings of the same models, saved by three versions of transformers.
TEST(ModelConfig, UnderstandsWhatTransformersSavedAsTransformersDoes) {
  std::map<std::string, ModelConfig> by_name;
  for (const char* folder :
       {"configs/transformers-4", "configs/transformers-4.57", "configs/transformers-5"}) {
    const auto expected = load_json_object(fixture(folder) + "/expected.json");
    ASSERT_TRUE(expected) << expected.error().message;
    ASSERT_GE(expected->at("cases").size(), 10u);
    for (const auto& [name, facts] : expected->at("cases").items()) {
      const std::string path = fixture(folder) + "/" + name + ".json";
      const auto json = load_json_object(path);
      ASSERT_TRUE(json) << json.error().message;
      const auto config = parse_model_config(*json, path);
      ASSERT_TRUE(config) << config.error().message;
      expect_facts(*config, facts, path);
      const auto [it, first] = by_name.emplace(name, *config);
      EXPECT_TRUE(first || it->second == *config) << name << ": the two spellings differ";
    }
  }
}

TEST(ModelConfig, ComesBackFromItsOwnConfigJson) {
  const auto expected = load_json_object(fixture("configs/transformers-5/expected.json"));
  ASSERT_TRUE(expected);
  for (const auto& [name, facts] : expected->at("cases").items()) {
    const auto json = load_json_object(fixture("configs/transformers-5/" + name + ".json"));
    ASSERT_TRUE(json);
    const auto config = parse_config(*json);
    ASSERT_TRUE(config) << config.error().message;
    const auto again = parse_config(to_hf_config(*config));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, *config) << name;
  }
}

TEST(ModelConfig, CountsTheParametersOfPublishedModels) {
  const auto count = [](Json json) {
    const auto config = parse_config(json);
    EXPECT_TRUE(config) << config.error().message;
    return config ? parameter_count(*config) : -1;
  };
  const auto gated = [](const char* type, int64_t vocab, int64_t hidden, int64_t layers,
                        int64_t heads, int64_t kv, int64_t ffn, bool tied) {
    return Json{{"model_type", type},           {"vocab_size", vocab},
                {"hidden_size", hidden},        {"num_hidden_layers", layers},
                {"num_attention_heads", heads}, {"num_key_value_heads", kv},
                {"intermediate_size", ffn},     {"max_position_embeddings", 32768},
                {"tie_word_embeddings", tied}};
  };
  EXPECT_EQ(count(gated("llama", 32000, 4096, 32, 32, 32, 11008, false)), 6738415616);
  EXPECT_EQ(count(gated("llama", 128256, 2048, 16, 32, 8, 8192, true)), 1235814400);
  EXPECT_EQ(count(gated("mistral", 32000, 4096, 32, 32, 8, 14336, false)), 7241732096);
  EXPECT_EQ(count(gated("qwen2", 151936, 896, 24, 14, 2, 4864, true)), 494032768);
  EXPECT_EQ(count(gated("qwen3", 151936, 1024, 28, 16, 8, 3072, true)), 596049920);
  EXPECT_EQ(count({{"model_type", "gpt2"},
                   {"vocab_size", 50257},
                   {"n_embd", 768},
                   {"n_layer", 12},
                   {"n_head", 12},
                   {"n_positions", 1024}}),
            124439808);
}

TEST(ModelConfig, RefusesUnknownArchitecturesByNameWithTheKnownOnes) {
  const auto unknown = parse_config(
      with(with(llama_json(), "model_type", "rwkv"), "architectures", {"RwkvForCausalLM"}));
  EXPECT_FAILS_WITH(unknown, Code::kUnsupported, "RwkvForCausalLM");
  EXPECT_FAILS_WITH(unknown, Code::kUnsupported, "rwkv");
  EXPECT_FAILS_WITH(unknown, Code::kUnsupported,
                    "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, "
                    "GPT2LMHeadModel, GPTBigCodeForCausalLM, OPTForCausalLM, GPTNeoForCausalLM, "
                    "GPTJForCausalLM, FalconForCausalLM, "
                    "Phi3ForCausalLM, Gemma2ForCausalLM, Gemma3ForCausalLM, "
                    "Olmo2ForCausalLM, "
                    "Olmo3ForCausalLM, GraniteForCausalLM, SmolLM3ForCausalLM, "
                    "Starcoder2ForCausalLM, StableLmForCausalLM, SeedOssForCausalLM");
  EXPECT_FAILS_WITH(
      parse_config(with(llama_json(), "architectures", {"LlamaForSequenceClassification"})),
      Code::kUnsupported, "LlamaForSequenceClassification");
  EXPECT_FAILS_WITH(parse_config(with(llama_json(), "model_type", "mistral")), Code::kCorrupt,
                    "contradicts architecture");
  Json nameless = llama_json();
  nameless.erase("model_type");
  ASSERT_TRUE(parse_config(nameless));  // the architecture says enough
  nameless.erase("architectures");
  EXPECT_FAILS_WITH(parse_config(nameless), Code::kNotFound,
                    "\"model_type\" and \"architectures\"");
}

TEST(ModelConfig, NamesTheFieldThatIsMissing) {
  for (const char* field : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                            "num_attention_heads", "max_position_embeddings"}) {
    Json json = llama_json();
    json.erase(field);
    EXPECT_FAILS_WITH(parse_config(json), Code::kNotFound, std::string("\"") + field + "\"");
  }
  for (const char* field : {"vocab_size", "n_embd", "n_layer", "n_head", "n_positions"}) {
    Json json = gpt2_json();
    json.erase(field);
    EXPECT_FAILS_WITH(parse_config(json), Code::kNotFound, std::string("\"") + field + "\"");
  }
}

TEST(ModelConfig, RefusesSizesOutsideTheirRange) {
  for (const char* field :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings"}) {
    for (const Json& value :
         {Json(0), Json(-1), Json(int64_t{1} << 40), Json(INT64_MAX), Json(INT64_MIN)}) {
      const auto config = parse_config(with(llama_json(), field, value));
      ASSERT_FALSE(config) << field << " = " << value;
      EXPECT_EQ(config.error().code, Code::kCorrupt) << config.error().message;
    }
    for (const Json& value :
         {Json("32"), Json(2.5), Json(1e300), Json(true), Json::array({1}), Json(UINT64_MAX)}) {
      EXPECT_FAILS_WITH(parse_config(with(llama_json(), field, value)), Code::kInvalidArgument,
                        field);
    }
  }
  EXPECT_FAILS_WITH(parse_config(with(llama_json(), "rms_norm_eps", 0.0)), Code::kCorrupt,
                    "rms_norm_eps");
  EXPECT_FAILS_WITH(parse_config(with(llama_json(), "rms_norm_eps", 2.0)), Code::kCorrupt,
                    "rms_norm_eps");
  EXPECT_FAILS_WITH(parse_config(with(gpt2_json(), "n_inner", 0)), Code::kCorrupt, "n_inner");
}

TEST(ModelConfig, RefusesContradictions) {
  EXPECT_FAILS_WITH(parse_config(with(llama_json(), "num_attention_heads", 3)), Code::kCorrupt,
                    "num_attention_heads (3) does not divide hidden_size (32)");
  EXPECT_FAILS_WITH(parse_config(with(llama_json(), "num_key_value_heads", 3)), Code::kCorrupt,
                    "num_key_value_heads (3) does not divide");
  EXPECT_FAILS_WITH(parse_config(with(llama_json(), "head_dim", 7)), Code::kCorrupt, "turn pairs");
  EXPECT_FAILS_WITH(parse_config(with(gpt2_json(), "n_head", 5)), Code::kCorrupt,
                    "n_head (5) does not divide n_embd (32)");
  EXPECT_FAILS_WITH(parse_config(with(gpt2_json(), "hidden_size", 64)), Code::kCorrupt,
                    "n_embd (32) contradicts hidden_size (64)");
  EXPECT_FAILS_WITH(
      parse_config(with(with(llama_json(), "dtype", "float32"), "torch_dtype", "bfloat16")),
      Code::kCorrupt, "contradicts dtype");
  EXPECT_FAILS_WITH(
      parse_config(with(with(llama_json(), "num_attention_heads", 4096), "head_dim", 4096)),
      Code::kCorrupt, "over the limit");
}

TEST(ModelConfig, RefusesWhatJigeCannotCompute) {
  for (const char* type : {"dynamic", "longrope", "su", "mrope"}) {
    EXPECT_FAILS_WITH(
        parse_config(with(llama_json(), "rope_scaling", {{"rope_type", type}, {"factor", 2.0}})),
        Code::kUnsupported, fmt::format("rope type \"{}\"", type));
    EXPECT_FAILS_WITH(
        parse_config(with(llama_json(), "rope_scaling", {{"type", type}, {"factor", 2.0}})),
        Code::kUnsupported, fmt::format("rope type \"{}\"", type));
    EXPECT_FAILS_WITH(parse_config(with(llama_json(), "rope_parameters", {{"rope_type", type}})),
                      Code::kUnsupported, fmt::format("rope type \"{}\"", type));
  }
  EXPECT_FAILS_WITH(parse_config(with(llama_json(), "rope_parameters",
                                      {{"full_attention", {{"rope_type", "default"}}}})),
                    Code::kUnsupported, "differ by layer type");
  EXPECT_FAILS_WITH(parse_config(with(llama_json(), "hidden_act", "gelu")), Code::kUnsupported,
                    "gelu");
  EXPECT_FAILS_WITH(parse_config(with(gpt2_json(), "activation_function", "quick_gelu")),
                    Code::kUnsupported, "\"quick_gelu\" is not supported; supported are gelu_new");
  EXPECT_FAILS_WITH(parse_config(with(gpt2_json(), "add_cross_attention", true)),
                    Code::kUnsupported, "add_cross_attention");
  EXPECT_FAILS_WITH(
      parse_config(with(llama_json(), "quantization_config", {{"quant_method", "bitsandbytes"}})),
      Code::kUnsupported, "\"bitsandbytes\"");
  EXPECT_FAILS_WITH(parse_config(with(llama_json(), "dtype", "float8")), Code::kUnsupported,
                    "field \"dtype\" is \"float8\"");
  EXPECT_FAILS_WITH(parse_config(with(llama_json(), "torch_dtype", "float64")), Code::kUnsupported,
                    "float64");
  EXPECT_FAILS_WITH(parse_config(with(qwen_json("qwen2"), "layer_types",
                                      {"full_attention", "chunked_attention", "x", "y"})),
                    Code::kUnsupported, "chunked_attention");
}

TEST(ModelConfig, HasTheFamilysKeyValueHeadsWhereTheyAreLeftOut) {
  for (const auto& [type, count] : {std::pair{"llama", 64}, std::pair{"mistral", 8},
                                    std::pair{"qwen2", 32}, std::pair{"qwen3", 32}}) {
    SCOPED_TRACE(type);
    Json config = with(with(qwen_json(type), "num_attention_heads", 64), "head_dim", 8);
    config["num_key_value_heads"] = nullptr;
    EXPECT_EQ(parse_config(config)->kv_head_count, 64);
    config.erase("num_key_value_heads");
    EXPECT_EQ(parse_config(config)->kv_head_count, count);
  }
}

TEST(ModelConfig, ReadsEverySpellingOfRotaryParameters) {
  const Json shorter = llama3_scaling();
  const Json llama3 = with(shorter, "original_max_position_embeddings", 64);
  const auto old =
      parse_config(with(with(llama_json(), "rope_scaling", llama3), "rope_theta", 5e5));
  ASSERT_TRUE(old) << old.error().message;
  EXPECT_EQ(old->rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(old->rope.theta, 5e5);
  EXPECT_EQ(old->rope.original_context, 64);
  const auto now =
      parse_config(with(llama_json(), "rope_parameters", with(llama3, "rope_theta", 5e5)));
  ASSERT_TRUE(now) << now.error().message;
  EXPECT_EQ(*now, *old);
  const auto both = parse_config(with(with(llama_json(), "rope_scaling", llama3), "rope_parameters",
                                      with(llama3, "rope_theta", 5e5)));
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_EQ(*both, *old);
  EXPECT_FAILS_WITH(
      parse_config(with(with(llama_json(), "rope_scaling", with(llama3, "factor", 4.0)),
                        "rope_parameters", with(llama3, "rope_theta", 5e5))),
      Code::kCorrupt, "rope_scaling contradicts rope_parameters");
  EXPECT_FAILS_WITH(parse_config(with(with(llama_json(), "rope_theta", 1e4), "rope_parameters",
                                      with(llama3, "rope_theta", 5e5))),
                    Code::kCorrupt, "rope_theta is 10000 at the top");
  // Without a length of its own, the scaled one counts, as in transformers.
  EXPECT_EQ(parse_config(with(llama_json(), "rope_scaling", shorter))->rope.original_context, 256);
  const Json top = with(llama_json(), "original_max_position_embeddings", 32);
  EXPECT_EQ(parse_config(with(top, "rope_scaling", shorter))->rope.original_context, 32);
  EXPECT_FAILS_WITH(parse_config(with(top, "rope_scaling", llama3)), Code::kCorrupt,
                    "original_max_position_embeddings is 32 at the top and 64");
}

TEST(ModelConfig, ChecksRotaryParameters) {
  const Json llama3 = llama3_scaling();
  for (const char* field : {"factor", "low_freq_factor", "high_freq_factor"}) {
    Json lacking = llama3;
    lacking.erase(field);
    EXPECT_FAILS_WITH(parse_config(with(llama_json(), "rope_scaling", lacking)), Code::kNotFound,
                      field);
    EXPECT_FAILS_WITH(parse_config(with(llama_json(), "rope_scaling", with(llama3, field, -1.0))),
                      Code::kCorrupt, field);
    EXPECT_FAILS_WITH(parse_config(with(llama_json(), "rope_scaling", with(llama3, field, "8"))),
                      Code::kInvalidArgument, field);
  }
  EXPECT_FAILS_WITH(
      parse_config(with(llama_json(), "rope_scaling", with(llama3, "low_freq_factor", 4.5))),
      Code::kCorrupt, "must not be below low_freq_factor");
  EXPECT_FAILS_WITH(parse_config(with(llama_json(), "rope_scaling",
                                      with(llama3, "original_max_position_embeddings", 0))),
                    Code::kCorrupt, "original_max_position_embeddings");
  EXPECT_FAILS_WITH(parse_config(with(llama_json(), "rope_scaling", {{"type", "linear"}})),
                    Code::kNotFound, "factor");
  EXPECT_FAILS_WITH(parse_config(with(llama_json(), "rope_scaling", 2.0)), Code::kCorrupt,
                    "rope_scaling");
  EXPECT_FAILS_WITH(parse_config(with(llama_json(), "rope_theta", 0.0)), Code::kCorrupt,
                    "rope_theta");
}

// The classes of transformers for these families turn whole heads: without scaling they never look
// at the factor, and with scaling they fail.
TEST(ModelConfig, TurnsWholeHeadsWhateverThePartialRotaryFactor) {
  const Json linear = {{"rope_type", "linear"}, {"factor", 2.0}};
  for (const Json& config :
       {llama_json(), qwen_json("mistral"), qwen_json("qwen2"), qwen_json("qwen3")}) {
    SCOPED_TRACE(config.dump());
    const auto plain = parse_config(config);
    ASSERT_TRUE(plain) << plain.error().message;
    for (const double factor : {0.0, 0.4, 0.5, 1.0, 1.5}) {
      const Json inner = {{"rope_type", "default"}, {"partial_rotary_factor", factor}};
      for (const Json& partial :
           {with(config, "partial_rotary_factor", factor), with(config, "rope_parameters", inner),
            with(config, "rope_scaling", inner)}) {
        const auto parsed = parse_config(partial);
        ASSERT_TRUE(parsed) << parsed.error().message;
        EXPECT_EQ(*parsed, *plain);
      }
    }
    for (const Json& scaling : {linear, llama3_scaling()}) {
      const Json scaled = with(config, "rope_scaling", scaling);
      EXPECT_EQ(*parse_config(with(scaled, "partial_rotary_factor", 1.0)), *parse_config(scaled));
      EXPECT_FAILS_WITH(parse_config(with(scaled, "partial_rotary_factor", 0.5)),
                        Code::kUnsupported, "partial_rotary_factor");
      EXPECT_FAILS_WITH(parse_config(with(config, "rope_parameters",
                                          with(scaling, "partial_rotary_factor", 0.5))),
                        Code::kUnsupported, "partial_rotary_factor");
    }
  }
}

TEST(ModelConfig, KnowsWhichLayersSlide) {
  Json qwen = qwen_json("qwen2");
  EXPECT_EQ(parse_config(with(qwen, "sliding_window", 16))->sliding_window, 0);  // not in use
  qwen["use_sliding_window"] = true;
  qwen["sliding_window"] = 16;
  qwen["max_window_layers"] = 3;
  EXPECT_EQ(sliding_layers(*parse_config(qwen)), std::vector<int64_t>{3});
  EXPECT_EQ(sliding_layers(*parse_config(with(qwen, "max_window_layers", 0))).size(), 4u);
  EXPECT_TRUE(parse_config(with(qwen, "max_window_layers", 0))->layer_is_sliding.empty());
  EXPECT_EQ(parse_config(with(qwen, "max_window_layers", 99))->sliding_window, 0);
  const Json types = {"sliding_attention", "full_attention", "sliding_attention", "full_attention"};
  EXPECT_EQ(sliding_layers(*parse_config(with(qwen, "layer_types", types))),
            (std::vector<int64_t>{0, 2}));
  const auto again = parse_config(to_hf_config(*parse_config(with(qwen, "layer_types", types))));
  ASSERT_TRUE(again);
  EXPECT_EQ(sliding_layers(*again), (std::vector<int64_t>{0, 2}));
  EXPECT_FAILS_WITH(parse_config(with(qwen, "layer_types", {"full_attention"})), Code::kCorrupt,
                    "list of 4 names");
  EXPECT_FAILS_WITH(
      parse_config(with(with(qwen, "layer_types", types), "use_sliding_window", false)),
      Code::kCorrupt, "no sliding window in use");
  EXPECT_FAILS_WITH(parse_config(with(qwen, "sliding_window", 0)), Code::kCorrupt,
                    "sliding_window");

  const Json mistral = qwen_json("mistral");
  EXPECT_EQ(parse_config(mistral)->sliding_window, 4096);  // left out: the default of the family
  EXPECT_EQ(parse_config(with(mistral, "sliding_window", nullptr))->sliding_window, 0);
  EXPECT_FAILS_WITH(parse_config(with(mistral, "layer_types", types)), Code::kUnsupported,
                    "layer_types");
  EXPECT_FAILS_WITH(parse_config(with(llama_json(), "layer_types", types)), Code::kUnsupported,
                    "layer_types");
}

TEST(ModelConfig, ReadsTokenIdsAndDropsThoseOutsideTheVocabulary) {
  const auto eos = [](Json value) {
    return parse_config(with(llama_json(), "eos_token_id", value));
  };
  EXPECT_EQ(parse_config(llama_json())->eos_ids, std::vector<int32_t>{2});  // left out: the default
  EXPECT_EQ(parse_config(llama_json())->bos_id, 1);
  EXPECT_TRUE(eos(nullptr)->eos_ids.empty());
  EXPECT_EQ(eos(7)->eos_ids, std::vector<int32_t>{7});
  EXPECT_EQ(eos({7, 8})->eos_ids, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(eos({7, 96, 10})->eos_ids, (std::vector<int32_t>{7, 10}));
  EXPECT_TRUE(eos(96)->eos_ids.empty());
  EXPECT_EQ(parse_config(with(llama_json(), "pad_token_id", -1))->pad_id, -1);
  EXPECT_EQ(parse_config(with(llama_json(), "pad_token_id", 96))->pad_id, -1);
  EXPECT_TRUE(
      parse_config(gpt2_json())->eos_ids.empty());  // 50256 is outside this small vocabulary
  EXPECT_FAILS_WITH(eos(-2), Code::kCorrupt, "eos_token_id");
  EXPECT_FAILS_WITH(eos(int64_t{1} << 31), Code::kCorrupt, "eos_token_id");
  EXPECT_FAILS_WITH(eos("2"), Code::kInvalidArgument, "eos_token_id");
  EXPECT_FAILS_WITH(eos({2, "3"}), Code::kInvalidArgument, "eos_token_id");
  EXPECT_FAILS_WITH(eos(Json(std::vector<int>(300, 1))), Code::kCorrupt, "300 entries");
  EXPECT_FAILS_WITH(parse_config(with(llama_json(), "bos_token_id", 0.5)), Code::kInvalidArgument,
                    "bos_token_id");
}

TEST(ModelConfig, FollowsTheDefaultsOfEachFamily) {
  EXPECT_EQ(parse_config(llama_json())->norm_eps, 1e-6);
  EXPECT_FALSE(parse_config(llama_json())->tied_embeddings);
  EXPECT_TRUE(parse_config(gpt2_json())->tied_embeddings);
  EXPECT_EQ(parse_config(gpt2_json())->ffn_size, 128);
  EXPECT_EQ(parse_config(gpt2_json())->activation, ActivationKind::kGeluTanh);
  EXPECT_EQ(parse_config(with(gpt2_json(), "activation_function", "gelu"))->activation,
            ActivationKind::kGeluErf);
  EXPECT_EQ(parse_config(qwen_json("qwen3"))->head_dim, 128);
  EXPECT_TRUE(parse_config(qwen_json("qwen3"))->qk_norm);
  EXPECT_TRUE(parse_config(qwen_json("qwen2"))->qkv_bias);
  EXPECT_FALSE(parse_config(qwen_json("qwen2"))->output_bias);
  Json lone = llama_json();
  lone.erase("num_key_value_heads");
  EXPECT_EQ(parse_config(lone)->kv_head_count, 4);
  EXPECT_EQ(parse_config(with(llama_json(), "torch_dtype", "torch.bfloat16"))->stored_dtype,
            DType::kBF16);
}

TEST(ModelConfig, ChecksConfigurationsBuiltByHand) {
  ModelConfig config = *parse_config(llama_json());
  EXPECT_TRUE(check_model_config(config, "flags"));
  const auto refused = [&](auto change, const char* words) {
    ModelConfig bad = config;
    change(bad);
    EXPECT_FAILS_WITH(check_model_config(bad, "flags"), Code::kInvalidArgument, words);
  };
  refused([](ModelConfig& c) { c.qkv_bias = true; }, "attention_bias");
  refused([](ModelConfig& c) { c.sliding_window = 8; }, "no sliding window");
  refused([](ModelConfig& c) { c.qk_norm = true; }, "no query or key norms");
  refused([](ModelConfig& c) { c.norm = NormKind::kLayer; }, "RMS norms");
  refused([](ModelConfig& c) { c.layer_is_sliding = {1}; }, "layer_types");
  refused([](ModelConfig& c) { c.eos_ids = {96}; }, "eos_token_id");
  refused([](ModelConfig& c) { c.rope.theta = std::numeric_limits<double>::quiet_NaN(); },
          "rope_theta");
  config.family = Family::kGpt2;
  EXPECT_FALSE(check_model_config(config, "flags"));
}

TEST(ModelConfig, KeepsProductsOfTheLargestSizesInsideInt64) {
  ModelConfig config = *parse_config(llama_json());
  config.vocab_size = kVocabMax;
  config.hidden_size = kHiddenMax;
  config.layer_count = kLayersMax;
  config.head_count = config.kv_head_count = kHeadsMax;
  config.head_dim = kAttentionWidthMax / kHeadsMax;
  config.ffn_size = kFfnMax;
  config.context_max = kContextMax;
  ASSERT_TRUE(check_model_config(config, "x")) << check_model_config(config, "x").error().message;
  int64_t bytes = 0;
  EXPECT_FALSE(__builtin_mul_overflow(parameter_count(config), int64_t{16}, &bytes));
  int64_t cache = 2 * config.layer_count * config.kv_head_count * config.head_dim;
  EXPECT_FALSE(__builtin_mul_overflow(cache, config.context_max * 4, &cache));
}

TEST(ModelConfig, SaysThatAFolderIsNoModelFolder) {
  const ScratchFolder scratch;
  EXPECT_FAILS_WITH(load_model_config(scratch.path()), Code::kNotFound, "no Hugging Face model");
  write_or_fail(scratch.file("config.json"), llama_json().dump());
  EXPECT_TRUE(load_model_config(scratch.path()));
  write_or_fail(scratch.file("config.json"), "{");
  EXPECT_FAILS_WITH(load_model_config(scratch.path()), Code::kCorrupt, "config.json");
}

TEST(ModelConfig, ReadsAndWritesFamilyNames) {
  for (const Family family :
       {Family::kLlama, Family::kMistral, Family::kQwen2, Family::kQwen3, Family::kGpt2}) {
    EXPECT_EQ(parse_family(family_name(family)).value(), family);
  }
  EXPECT_FAILS_WITH(parse_family("t5"), Code::kInvalidArgument,
                    "llama, mistral, qwen2, qwen3, gpt2");
}

Json recorded_config(const std::string& family) {
  const std::string path =
      std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/" + family + "/config.json";
  return parse_json(read_or_fail(path), path).value();
}

TEST(ModelConfig, RefusesModelsWhoseTokensSeeThoseBehindThemWhereItDoesNotKnowThem) {
  for (const char* family : {"phi3", "gemma2", "gpt2"}) {
    Json config = recorded_config(family);
    config["is_causal"] = true;
    config["use_bidirectional_attention"] = false;
    ASSERT_TRUE(parse_model_config(config, "x")) << family;
    config["use_bidirectional_attention"] = true;
    EXPECT_FAILS_WITH(parse_model_config(config, "x"), Code::kUnsupported,
                      "use_bidirectional_attention");
    config.erase("use_bidirectional_attention");
    config["is_causal"] = false;
    EXPECT_FAILS_WITH(parse_model_config(config, "x"), Code::kUnsupported, "is_causal");
  }
  Json llama = recorded_config("llama2");
  llama["use_bidirectional_attention"] = true;  // which its classes do not read
  EXPECT_FAILS_WITH(parse_model_config(llama, "x"), Code::kUnsupported,
                    "use_bidirectional_attention");
  llama.erase("use_bidirectional_attention");
  llama["is_causal"] = "no";
  EXPECT_FAILS_WITH(parse_model_config(llama, "x"), Code::kUnsupported, "is_causal");
}

TEST(ModelConfig, CountsWindowsToBothSidesAsTransformersDoes) {
  struct Case {
    const char* family;
    Json fields;
    int64_t window;  // how many tokens of one side, and the token itself
  };
  const Json both = {{"use_bidirectional_attention", true}};
  const Json ahead = {{"is_causal", false}};
  Json all = both;
  all.update(ahead);
  for (const auto& [family, fields, window] : std::vector<Case>{{"gemma3", both, 4},
                                                                {"gemma3", ahead, 8},
                                                                {"gemma3", all, 5},
                                                                {"mistral", ahead, 8},
                                                                {"llama2", ahead, 0},
                                                                {"qwen3", ahead, 0}}) {
    Json config = recorded_config(family);
    EXPECT_FALSE(parse_model_config(config, "x").value().looks_ahead);
    config.update(fields);
    config["sliding_window"] = 7;
    const ModelConfig parsed = parse_model_config(config, "x").value();
    EXPECT_TRUE(parsed.looks_ahead) << family;
    EXPECT_EQ(parsed.sliding_window, window) << family;
    EXPECT_EQ(parse_model_config(to_hf_config(parsed), "x").value(), parsed) << family;
  }
}

}  // namespace
}  // namespace jige::formats
