// Model folders as GGUF files, and back.
#include "formats/gguf_export.h"

#include <nlohmann/json.hpp>

#include "formats/gguf_import.h"
#include "formats/gguf_test_support.h"
#include "formats/json_file.h"
#include "text/test_fixtures.h"
#include "text/tokenizer.h"

namespace jige::formats {
namespace {

const char* const kExported[] = {"llama2", "llama3", "llama_linear_biases", "mistral", "qwen2",
                                 "qwen3",  "gpt2"};

TEST(GgufExport, IsReadBackToTheBit) {
  for (const char* name : kExported) {
    SCOPED_TRACE(name);
    const ScratchFolder scratch;
    const std::string folder = folder_to_export(scratch, name);
    const auto made = export_gguf({.folder = folder, .file = scratch.file("deep/a.gguf")});
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(folder_entries(scratch.file("deep")), std::vector<std::string>{"a.gguf"});
    EXPECT_EQ(read_or_fail(scratch.file("deep/a.gguf")).size(), made->bytes);
    const std::string back = scratch.file("back");
    const auto read = import_gguf({.file = scratch.file("deep/a.gguf"), .folder = back});
    ASSERT_TRUE(read) << read.error().message;
    expect_same_tensors(folder, back);
    ModelConfig config = load_model_config(folder).value();
    ModelConfig again = load_model_config(back).value();
    config.bos_id = again.bos_id;  // the tokenizer's, of which the fixture knows nothing
    config.eos_ids = again.eos_ids;
    config.pad_id = again.pad_id;
    config.layer_is_sliding = again.layer_is_sliding;
    EXPECT_EQ(again, config);
  }
}

TEST(GgufExport, WritesTheTypeThatIsAskedFor) {
  const ScratchFolder scratch;
  const std::string folder = folder_to_export(scratch, "llama3");
  const auto encode = [](int size) {
    return [size](const float* values, int64_t count, std::byte* blocks) {
      for (int64_t i = 0; i < count / 32 * size; ++i) blocks[i] = std::byte(values[0] > 0 ? 1 : 2);
    };
  };
  for (const auto& [type, name] : {std::pair{kGgufF32, "F32"},
                                   {kGgufF16, "F16"},
                                   {kGgufBF16, "BF16"},
                                   {kGgufQ8_0, "Q8_0"},
                                   {kGgufQ4_0, "Q4_0"}}) {
    SCOPED_TRACE(name);
    const std::string path = scratch.file(std::string(name) + ".gguf");
    const auto made = export_gguf({.folder = folder,
                                   .file = path,
                                   .type = type,
                                   .encoders = {{kGgufQ8_0, encode(34)}, {kGgufQ4_0, encode(18)}},
                                   .name = "small"});
    ASSERT_TRUE(made) << made.error().message;
    const auto file = GgufFile::open(path);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->metadata().get_text("general.name").value(), "small");
    EXPECT_STREQ(std::string(file->header().find("blk.0.attn_q.weight")->type->name).c_str(), name);
    EXPECT_EQ(file->header().find("blk.1.attn_norm.weight")->type->name, "F32");
    EXPECT_EQ(file->header().find("rope_freqs.weight")->type->name, "F32");
    EXPECT_EQ(file->header().find("token_embd.weight")->type->name,
              name == std::string("Q4_0") ? "Q8_0" : name);
  }
}

void expect_same_ids_again(const std::string& folder, const std::string& cases) {
  const auto tokenizer = text::Tokenizer::load(folder);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  ModelConfig config;
  config.vocab_size = tokenizer->vocab_size() + 7;
  GgufKeys keys;
  keys.text("general.architecture", "llama");
  const auto summary = add_gguf_tokenizer(folder, config, keys);
  ASSERT_TRUE(summary) << summary.error().message;
  ASSERT_TRUE(write_gguf(folder + "/a.gguf", keys, {}));
  const auto file = GgufFile::open(folder + "/a.gguf");
  ASSERT_TRUE(file) << file.error().message;
  const auto read = read_gguf_tokenizer(file->metadata(), {.vocab_size = config.vocab_size});
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->kind, summary->kind);
  const auto again = text::Tokenizer::from_json(read->tokenizer_json, folder);
  ASSERT_TRUE(again) << again.error().message;
  int count = 0;
  for (const Json& row : text::fixture_rows(cases)) {
    if (!row.contains("ids")) continue;
    ++count;
    EXPECT_EQ(*again->encode(text::row_input(row), {}),
              *tokenizer->encode(text::row_input(row), {}))
        << row.dump();
  }
  EXPECT_GE(count, 50);
}

TEST(GgufExport, TokenizersGiveTheSameIdsWhenTheyComeBack) {
  for (const std::string name : {"gpt2", "llama3", "qwen2", "tekken", "deepseek"}) {
    SCOPED_TRACE(name);
    const ScratchFolder scratch;
    Json tokenizer =
        Json::parse(read_or_fail(text::fixture_path("tokenizers/" + name + "/tokenizer.json")));
    for (Json& token : tokenizer["added_tokens"]) token["single_word"] = false;
    write_or_fail(scratch.file("tokenizer.json"), dump_json(tokenizer));
    const char* begin = name == "llama3" ? "<|begin_of_text|>" : name == "tekken" ? "<s>" : "none";
    write_or_fail(scratch.file("tokenizer_config.json"),
                  fmt::format(R"({{"bos_token": "{}"}})", begin));
    expect_same_ids_again(scratch.path(), "tokenizers/" + name + "/cases.jsonl");
  }
  const auto file = GgufFile::open(gguf_fixture("tokenizer-spm.gguf"));
  const auto pieces = read_gguf_tokenizer(file->metadata(), {.vocab_size = 10'000});
  ASSERT_TRUE(pieces) << pieces.error().message;
  const ScratchFolder scratch;
  write_or_fail(scratch.file("tokenizer.json"), pieces->tokenizer_json);
  write_or_fail(scratch.file("tokenizer_config.json"), pieces->tokenizer_config_json);
  expect_same_ids_again(scratch.path(), "sentencepiece/bpe/cases.jsonl");
}

TEST(GgufExport, RefusesWhatGgufFilesCannotSay) {
  struct Case {
    const char* model;
    const char* field;
    Json value;
    const char* words;
  };
  for (const auto& [model, field, value, words] :
       {Case{"gpt2", "activation_function", "relu", "\"activation_function\""},
        Case{"gpt2", "scale_attn_weights", false, "\"scale_attn_weights\""},
        Case{"gpt2", "scale_attn_by_inverse_layer_idx", true, "by_inverse_layer_idx"},
        Case{"qwen3", "attention_bias", true, "\"attention_bias\""},
        Case{"llama3", "rope_parameters/high_freq_factor", 64.0, "\"rope_scaling\""},
        Case{"qwen2_5", "use_cache", true, "\"sliding_window\""},
        Case{"cwm", "use_cache", true, "family cwm"},
        Case{"mellum", "use_cache", true, "family mellum"},
        Case{"hyperclovax", "use_cache", true, "family hyperclovax"},
        Case{"opt", "use_cache", true, "family opt"},
        Case{"minicpm", "use_cache", true, "family minicpm"},
        Case{"falcon", "use_cache", true, "family falcon"},
        Case{"granite_swa", "use_cache", true, "family granite_swa"},
        Case{"granitemoe_swa", "use_cache", true, "family granitemoe_swa"},
        Case{"mistral4", "use_cache", true, "family mistral4"},
        Case{"lfm3", "use_cache", true, "family lfm3"},
        Case{"qwen3_moe", "norm_topk_prob", false, "\"norm_topk_prob\" is false, which readers"},
        Case{"qwen2_moe", "use_cache", true, "\"mlp_only_layers\""},
        Case{"olmoe", "norm_topk_prob", true, "\"norm_topk_prob\""},
        Case{"gemma2", "use_cache", true, "\"query_pre_attn_scalar\""},
        Case{"stablelm_parallel", "use_cache", true, "\"use_parallel_residual\""},
        Case{"stablelm", "qk_layernorm", true, "\"qk_layernorm\""},
        Case{"gpt_neox", "hidden_act", "gelu_new", "\"hidden_act\""},
        Case{"gpt_neox_sequential", "hidden_act", "gelu", "\"attention_bias\""},
        Case{"phi", "hidden_act", "gelu", "\"hidden_act\""},
        Case{"glm", "use_cache", true, "\"head_dim\" is 12"},
        Case{"olmo3", "rope_parameters/full_attention/truncate", false, "\"rope_scaling\""},
        Case{"cohere", "attention_bias", true, "\"attention_bias\""},
        Case{"cohere", "tie_word_embeddings", false, "\"tie_word_embeddings\""},
        Case{"cohere_qk_norm", "tie_word_embeddings", true, "\"use_qk_norm\""},
        Case{"ernie4_5", "use_bias", true, "\"use_bias\""},
        Case{"jais2", "mlp_bias", false, "\"mlp_bias\""},
        Case{"falcon_h1", "mamba_conv_bias", false, "\"mamba_conv_bias\""},
        Case{"falcon_h1", "mamba_proj_bias", true, "\"mamba_proj_bias\""},
        Case{"falcon_h1", "mamba_rms_norm", true, "\"mamba_norm_before_gate\""},
        Case{"falcon_h1", "attention_bias", true, "\"attention_bias\""},
        Case{"minicpm3", "use_cache", true, "\"scale_emb\""},
        Case{"minicpm3", "scale_emb", 12, "\"scale_depth\""},
        Case{"starcoder2", "use_bias", false, "\"use_bias\""},
        Case{"seed_oss", "use_cache", true, "\"mlp_bias\""},
        Case{"seed_oss", "attention_out_bias", true, "\"attention_out_bias\""},
        Case{"gpt_oss", "use_cache", true, "\"swiglu_limit\""},
        Case{"qwen3_5", "use_cache", true, "\"linear_value_head_dim\""},
        Case{"nemotron_h", "use_cache", true, "\"use_bias\" is true"},
        Case{"nemotron_h_moe", "use_cache", true, "\"hybrid_override_pattern\""},
        Case{"granite_hybrid", "mamba_conv_bias", false, "\"mamba_conv_bias\""},
        Case{"granite_moe_shared", "attention_bias", true, "\"attention_bias\""},
        Case{"deepseek_v2", "use_cache", true, "\"q_lora_rank\""},
        Case{"deepseek_v2_groups", "use_cache", true, "\"topk_method\""},
        Case{"deepseek_v3", "use_cache", true, "\"rope_scaling\""},
        Case{"exaone4", "use_cache", true, "\"sliding_window\""},
        Case{"dots1", "use_cache", true, "\"num_key_value_heads\" is 2"},
        Case{"dots1", "num_key_value_heads", 4, "\"sliding_window\""},
        Case{"ernie4_5_moe", "use_cache", true, "\"moe_layer_interval\""},
        Case{"bamba", "use_cache", true, "family bamba"},
        Case{"gemma4", "attention_bias", true, "\"attention_bias\""},
        Case{"cohere2", "attention_bias", false, "\"layer_types\""},
        Case{"lfm2", "use_cache", true, "\"conv_bias\""},
        Case{"lfm2_moe", "use_cache", true, "\"routed_scaling_factor\""},
        Case{"minimax_m2", "tie_word_embeddings", true, "\"tie_word_embeddings\""},
        Case{"gemma3", "use_cache", true, "\"query_pre_attn_scalar\""},
        Case{"gemma3", "query_pre_attn_scalar", 12, "\"layer_types\""},
        Case{"smollm3", "use_cache", true, "\"no_rope_layers\""},
        Case{"arcee", "attention_bias", false, "\"mlp_bias\""},
        Case{"nemotron", "hidden_act", "relu", "\"hidden_act\""},
        Case{"nemotron", "tie_word_embeddings", true, "\"tie_word_embeddings\""},
        Case{"nemotron", "head_dim", 12, "\"head_dim\""},
        Case{"ministral3", "rope_parameters/beta_fast", 16.0, "\"rope_parameters\""},
        Case{"granite", "attention_bias", true, "\"attention_bias\""},
        Case{"granite", "mlp_bias", true, "\"mlp_bias\""}}) {
    SCOPED_TRACE(field);
    const ScratchFolder scratch;
    const std::string folder = folder_to_export(scratch, model);
    Json config = load_json_object(folder + "/config.json").value();
    config[Json::json_pointer(std::string("/") + field)] = value;
    write_or_fail(folder + "/config.json", dump_json(config));
    EXPECT_FAILS_WITH(export_gguf({.folder = folder, .file = scratch.file("a.gguf")}),
                      Code::kUnsupported, words);
    EXPECT_FALSE(std::filesystem::exists(scratch.file("a.gguf")));
  }
}

TEST(GgufExport, YarnComesBackWhereReadersTakeTheRestOfItForGranted) {
  const ScratchFolder scratch;
  const std::string folder = folder_to_export(scratch, "llama2");
  Json config = load_json_object(folder + "/config.json").value();
  config.erase("rope_parameters");
  config["rope_theta"] = 10000.0;
  config["rope_scaling"] = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
  write_or_fail(folder + "/config.json", dump_json(config));
  ASSERT_TRUE(export_gguf({.folder = folder, .file = scratch.file("a.gguf")}));
  ASSERT_TRUE(import_gguf({.file = scratch.file("a.gguf"), .folder = scratch.file("back")}));
  EXPECT_EQ(load_model_config(scratch.file("back"))->rope, load_model_config(folder)->rope);
  EXPECT_EQ(load_model_config(folder)->rope.scaling, RopeScaling::kYarn);

  config["rope_scaling"]["truncate"] = false;
  write_or_fail(folder + "/config.json", dump_json(config));
  EXPECT_FAILS_WITH(export_gguf({.folder = folder, .file = scratch.file("b.gguf")}),
                    Code::kUnsupported, "\"rope_scaling\"");
}

TEST(GgufExport, RefusesTokenizersThatGgufFilesHaveNoNameFor) {
  const ScratchFolder scratch;
  const std::string folder = folder_to_export(scratch, "qwen2");
  const std::string file = read_or_fail(folder + "/tokenizer.json");
  const auto with = [&](const std::function<void(Json&)>& change) {
    Json tokenizer = Json::parse(file);
    change(tokenizer);
    write_or_fail(folder + "/tokenizer.json", dump_json(tokenizer));
    return export_gguf({.folder = folder, .file = scratch.file("a.gguf"), .replace = true});
  };
  EXPECT_TRUE(with([](Json&) {}));
  EXPECT_FAILS_WITH(with([](Json& t) { t["pre_tokenizer"]["add_prefix_space"] = true; }),
                    Code::kUnsupported, "\"pre_tokenizer\" cuts text");
  EXPECT_FAILS_WITH(with([](Json& t) {
                      t["normalizer"] = {{"type", "Lowercase"}};
                    }),
                    Code::kUnsupported, "it knows llama-bpe");
  EXPECT_FAILS_WITH(with([](Json& t) { t["model"]["byte_fallback"] = true; }), Code::kUnsupported,
                    "cuts text in a way");
  EXPECT_FAILS_WITH(with([](Json& t) {
                      t["model"]["byte_fallback"] = true;
                      t["pre_tokenizer"] = nullptr;
                      t["normalizer"] = {{"type", "Replace"},
                                         {"pattern", {{"String", " "}}},
                                         {"content", "\u2581"}};
                      t["model"]["merges"] = {"a b", "ab c", "b c", "a bc"};
                      for (const char* piece : {"ab", "bc", "abc"}) {
                        t["model"]["vocab"][piece] = t["model"]["vocab"].size() - 3;
                      }
                    }),
                    Code::kUnsupported, "merges do not follow");
  EXPECT_FAILS_WITH(with([](Json& t) {
                      t["post_processor"] = {{"type", "BertProcessing"},
                                             {"sep", {"<|eos|>", 2}},
                                             {"cls", {"<|pad|>", 0}}};
                    }),
                    Code::kUnsupported, "\"post_processor\"");
  EXPECT_FAILS_WITH(with([](Json& t) { t["model"]["vocab"]["more"] = 96; }), Code::kCorrupt,
                    "tokens up to number 96, but the model has 96 rows");
}

TEST(GgufExport, LeavesAFileThatIsThereAlone) {
  const ScratchFolder scratch;
  const std::string folder = folder_to_export(scratch, "qwen2"), file = scratch.file("a.gguf");
  write_or_fail(file, "mine");
  EXPECT_FAILS_WITH(export_gguf({.folder = folder, .file = file}), Code::kInvalidArgument,
                    "--replace");
  EXPECT_EQ(read_or_fail(file), "mine");
  const std::atomic<bool> cancelled = true;
  EXPECT_FAILS_WITH(
      export_gguf({.folder = folder, .file = file, .replace = true, .cancelled = &cancelled}),
      Code::kCancelled, "was not written");
  EXPECT_EQ(read_or_fail(file), "mine");
  EXPECT_TRUE(export_gguf({.folder = folder, .file = file, .replace = true}));
  EXPECT_TRUE(is_gguf(bytes_of(read_or_fail(file))));
}

}  // namespace
}  // namespace jige::formats
