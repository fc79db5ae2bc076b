// GGUF files as Hugging Face folders: tensors to the bit, the shape of the model, what is refused.
#include "formats/gguf_import.h"

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <numbers>

#include "formats/generation_config.h"
#include "formats/gguf_config.h"
#include "formats/gguf_test_support.h"
#include "formats/gguf_weights.h"
#include "formats/json_file.h"

namespace jige::formats {
namespace {

std::string model_fixture(const std::string& name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/" + name;
}

void expect_same_model(const std::string& original, const std::string& imported) {
  expect_same_tensors(original, imported);
  EXPECT_EQ(load_model_config(imported).value(), load_model_config(original).value());
}

TEST(GgufImport, GivesBackTheFoldersThatTheFilesWereMadeOf) {
  for (const char* name : {"llama3", "qwen2", "qwen3", "gpt2", "olmo2", "granite"}) {
    SCOPED_TRACE(name);
    const ScratchFolder scratch;
    const std::string out = scratch.file("deep/er/model/");
    const auto made =
        import_gguf({.file = gguf_fixture(std::string(name) + ".gguf"), .folder = out});
    ASSERT_TRUE(made) << made.error().message;
    expect_same_model(model_fixture(name), scratch.file("deep/er/model"));
    EXPECT_EQ(folder_entries(out), (std::vector<std::string>{
                                       "config.json", "generation_config.json", "model.safetensors",
                                       "tokenizer.json", "tokenizer_config.json"}));
    EXPECT_EQ(folder_entries(scratch.file("deep/er")), std::vector<std::string>{"model"});
    EXPECT_EQ(load_generation_config(out)->eos_ids, std::vector<int32_t>{2});
  }
}

// Rows j and j + d/2 of a head side by side, as llama stores them.
std::string paired_rows(const TensorView& view, int64_t heads) {
  const auto row_bytes = static_cast<size_t>(dtype_bytes(view.dtype, view.columns()));
  const int64_t dim = view.rows() / heads;
  std::string out;
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t j = 0; j < dim / 2; ++j) {
      for (const int64_t half : {0, 1}) {
        const int64_t row = head * dim + half * dim / 2 + j;
        out.append(static_cast<const char*>(view.data) + static_cast<size_t>(row) * row_bytes,
                   row_bytes);
      }
    }
  }
  return out;
}

// A llama file of a folder with a model of that kind.
GgufBuilder gguf_of_folder(const std::string& folder) {
  const ModelConfig config = load_model_config(folder).value();
  GgufBuilder out = small_gguf_llama();
  std::vector<std::string> tokens;
  for (int i = 0; i < 96; ++i) tokens.push_back(fmt::format("t{}", i));
  out.texts("tokenizer.ggml.tokens", tokens)
      .reals("tokenizer.ggml.scores", std::vector<float>(96, 0.0f))
      .ints("tokenizer.ggml.token_type", std::vector<int32_t>(96, 1))
      .number("tokenizer.ggml.bos_token_id", 1)
      .number("tokenizer.ggml.eos_token_id", 2)
      .number("llama.block_count", 2)
      .number("llama.context_length", static_cast<uint32_t>(config.context_max))
      .number("llama.feed_forward_length", static_cast<uint32_t>(config.ffn_size))
      .number("llama.attention.head_count", static_cast<uint32_t>(config.head_count))
      .ints("llama.attention.head_count_kv",
            std::vector<int32_t>(2, static_cast<int32_t>(config.kv_head_count)))
      .number("llama.attention.key_length", static_cast<uint32_t>(config.head_dim))
      .real("llama.attention.layer_norm_rms_epsilon", static_cast<float>(config.norm_eps))
      .number("llama.attention.sliding_window", static_cast<uint32_t>(config.sliding_window));
  if (config.rope.scaling == RopeScaling::kLinear) {
    out.text("llama.rope.scaling.type", "linear").real("llama.rope.scaling.factor", 4.0f);
  }
  for (const char* name : {"attn_norm", "ffn_norm", "attn_q", "attn_k", "attn_v", "attn_output",
                           "ffn_gate", "ffn_up", "ffn_down"}) {
    out.remove_tensor(fmt::format("blk.0.{}.weight", name));
  }
  const auto files = TensorFolder::open(folder);
  static const std::pair<std::string, std::string> kParts[] = {
      {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},
      {"lm_head", "output"},
      {"model.layers.", "blk."},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ffn_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}};
  for (const StoredTensor* tensor : files->tensors()) {
    std::string name = tensor->name;
    for (const auto& [from, to] : kParts) {
      if (const size_t at = name.find(from); at != std::string::npos) {
        name.replace(at, from.size(), to);
      }
    }
    const TensorView view = files->view(tensor->name).value();
    std::string data(static_cast<const char*>(view.data), tensor->bytes);
    if (name.find("attn_q") != std::string::npos) data = paired_rows(view, config.head_count);
    if (name.find("attn_k") != std::string::npos) data = paired_rows(view, config.kv_head_count);
    const uint32_t type = view.dtype == DType::kF32   ? kGgufF32
                          : view.dtype == DType::kF16 ? kGgufF16
                                                      : kGgufBF16;
    out.tensor(name, tensor->dims, type, data);
  }
  return out;
}

TEST(GgufImport, PutsRowsOfQueriesAndKeysBackWithBiasesWindowsAndLinearScaling) {
  for (const char* name : {"llama2", "llama_linear_biases", "mistral"}) {
    SCOPED_TRACE(name);
    const ScratchFolder scratch;
    write_or_fail(scratch.file("a.gguf"), gguf_of_folder(model_fixture(name)).bytes());
    const auto made =
        import_gguf({.file = scratch.file("a.gguf"), .folder = scratch.file("model")});
    ASSERT_TRUE(made) << made.error().message;
    expect_same_model(model_fixture(name), scratch.file("model"));
  }
}

// Values of one block of 32: h 0.5 and numbers that go up.
std::string q8_blocks(int64_t count) {
  std::string out;
  for (int64_t i = 0; i < count; ++i) {
    append_raw<uint16_t>(out, to_float16(0.5f).bits);
    for (int j = 0; j < 32; ++j) append_raw<int8_t>(out, static_cast<int8_t>(3 * j - 40));
  }
  return out;
}

TEST(GgufImport, KeepsFloatsMakesQuantisedTensorsBf16AndObeysDtype) {
  const ScratchFolder scratch;
  GgufBuilder builder = small_gguf_llama();
  builder.tensor("blk.0.attn_v.weight", {16, 32}, 8, q8_blocks(16));
  builder.tensor("blk.0.ffn_up.weight", {48, 32}, kGgufF16, std::string(48 * 32 * 2, '\x11'));
  write_or_fail(scratch.file("a.gguf"), builder.bytes());
  GgufImportOptions options{.file = scratch.file("a.gguf"), .folder = scratch.file("auto")};
  ASSERT_TRUE(import_gguf(options));
  const auto kept = TensorFolder::open(options.folder);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->find("model.layers.0.self_attn.v_proj.weight")->dtype_name, "BF16");
  EXPECT_EQ(kept->find("model.layers.0.mlp.up_proj.weight")->dtype_name, "F16");
  EXPECT_EQ(kept->find("model.layers.0.mlp.gate_proj.weight")->dtype_name, "F32");
  const TensorView rows = kept->view("model.layers.0.self_attn.v_proj.weight").value();
  for (int j = 0; j < 32; ++j) {
    EXPECT_EQ(to_float(rows.as<BFloat16>()[j]), to_float(to_bfloat16(0.5f * (3.0f * j - 40))));
  }
  for (const auto& [dtype, name] : {std::pair{DType::kF32, "F32"}, std::pair{DType::kF16, "F16"},
                                    std::pair{DType::kBF16, "BF16"}}) {
    options.folder = scratch.file(name);
    options.dtype = dtype;
    const auto made = import_gguf(options);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(made->config.stored_dtype, dtype);
    const auto files = TensorFolder::open(options.folder);
    for (const StoredTensor* tensor : files->tensors()) EXPECT_EQ(tensor->dtype_name, name);
  }
  std::string large;
  for (int i = 0; i < 32; ++i) append_raw<float>(large, i == 7 ? 1e5f : 1.0f);
  write_or_fail(options.file, builder.tensor("output_norm.weight", {32}, kGgufF32, large).bytes());
  options.dtype = DType::kF16;
  options.replace = true;
  EXPECT_FAILS_WITH(import_gguf(options), Code::kUnsupported,
                    "tensor \"output_norm.weight\" holds 100000, which f16 cannot hold");
  options.dtype = DType::kBF16;
  EXPECT_TRUE(import_gguf(options));
}

TEST(GgufImport, TiesAHeadThatIsMissingOrRepeatsTheTable) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("a.gguf");
  const auto tied = [&](const GgufBuilder& builder) {
    write_or_fail(path, builder.bytes());
    const auto file = GgufFile::open(path);
    return read_gguf_config(file.value())->tied_embeddings;
  };
  GgufBuilder builder = small_gguf_llama();
  EXPECT_TRUE(tied(builder));
  const auto file = GgufFile::open(path);
  const GgufTensor& table = *file->header().find("token_embd.weight");
  std::string data(reinterpret_cast<const char*>(file->data(table)), table.bytes);
  EXPECT_TRUE(tied(builder.tensor("output.weight", {40, 32}, kGgufF32, data)));
  data[99] ^= 1;
  EXPECT_FALSE(tied(builder.tensor("output.weight", {40, 32}, kGgufF32, data)));
}

// The keys of an architecture of its own for the small llama, and its tensors as that stores them.
GgufBuilder small_gguf_of(const std::string& architecture) {
  GgufBuilder out = small_gguf_llama();
  out.text("general.architecture", architecture)
      .number(architecture + ".block_count", 1)
      .number(architecture + ".context_length", 64)
      .number(architecture + ".embedding_length", 32)
      .number(architecture + ".feed_forward_length", 48)
      .number(architecture + ".attention.head_count", 4)
      .number(architecture + ".attention.head_count_kv", 2)
      .real(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
  return out;
}

std::string import_bytes(const GgufBuilder& builder) {
  const ScratchFolder scratch;
  write_or_fail(scratch.file("a.gguf"), builder.bytes());
  const auto made = import_gguf({.file = scratch.file("a.gguf"), .folder = scratch.file("model")});
  EXPECT_TRUE(made) << made.error().message;
  if (!made) return "";
  EXPECT_EQ(made->config.family, Family::kLlama);
  return read_or_fail(scratch.file("model/model.safetensors"));
}

TEST(GgufImport, ReadsArchitecturesThatComputeWhatLlamaDoes) {
  const std::string paired = import_bytes(small_gguf_llama());
  for (const char* name : {"internlm2", "xverse"}) {
    EXPECT_EQ(import_bytes(small_gguf_of(name)), paired) << name;
  }
  // The plain order is that of a llama whose rows of query and key were put in pairs.
  const std::string plain = import_bytes(small_gguf_of("exaone"));
  EXPECT_NE(plain, paired);
}

std::vector<float> llama3_factors(int count, double theta, double factor, double context) {
  std::vector<float> factors;
  for (int i = 0; i < count; ++i) {
    const double frequency = std::pow(theta, -static_cast<double>(i) / count);
    const double turns = context * frequency / (2.0 * std::numbers::pi);
    const double smooth = std::clamp((turns - 1.0) / 3.0, 0.0, 1.0);
    factors.push_back(static_cast<float>(1.0 / ((1.0 - smooth) / factor + smooth)));
  }
  return factors;
}

TEST(GgufImport, FindsTheScalingOfLlama3ByItsFactors) {
  for (const auto& [count, factor, context] :
       {std::tuple{64, 8.0, 8192}, std::tuple{32, 32.0, 8192}, std::tuple{64, 4.0, 2048}}) {
    const auto found = find_llama3_scaling(llama3_factors(count, 5e5, factor, context), 5e5);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->factor, factor);
    EXPECT_EQ(found->original_context, context);
    EXPECT_EQ(found->theta, 5e5);
  }
  EXPECT_FALSE(find_llama3_scaling(std::vector<float>{1.0f, 2.0f, 1.0f}, 1e4));
  EXPECT_FALSE(find_llama3_scaling(std::vector<float>{1.0f, NAN}, 1e4));
  EXPECT_FALSE(find_llama3_scaling(std::vector<float>{0.5f, -1.0f}, 1e4));
}

struct Refusal {
  std::function<void(GgufBuilder&)> change;
  Code code;
  std::string words;
};

TEST(GgufImport, RefusesByNameWhatItDoesNotReadAndLeavesNothing) {
  const std::string ones(4 * 4, '\0');
  const std::vector<Refusal> refusals = {
      {[](auto& b) { b.text("general.architecture", "mamba"); }, Code::kUnsupported,
       "\"mamba\" is not one that Jige reads from GGUF; it reads llama, qwen2, qwen3, gpt2, "
       "gemma2, gemma3, granite, olmo2, smollm3, starcoder2, stablelm, seed_oss, qwen2moe, "
       "qwen3moe, "
       "olmoe"},
      {[](auto& b) { b.remove("general.architecture"); }, Code::kCorrupt, "is missing"},
      {[](auto& b) { b.text("general.type", "mmproj"); }, Code::kUnsupported, "\"mmproj\""},
      {[](auto& b) { b.number("llama.expert_count", 8); }, Code::kCorrupt,
       "key \"llama.expert_used_count\" is missing"},
      {[](auto& b) { b.number("llama.expert_shared_count", 2); }, Code::kUnsupported,
       "key \"llama.expert_shared_count\" is 2"},
      {[](auto& b) { b.flag("llama.attention.causal", false); }, Code::kUnsupported, "is false"},
      {[](auto& b) { b.text("llama.rope.scaling.type", "longrope"); }, Code::kUnsupported,
       "\"longrope\""},
      {[](auto& b) { b.text("llama.rope.scaling.type", "yarn"); }, Code::kCorrupt,
       "\"llama.rope.scaling.original_context_length\" is missing"},
      {[](auto& b) { b.number("llama.rope.dimension_count", 4); }, Code::kUnsupported,
       "key \"llama.rope.dimension_count\" is 4 and heads have 8"},
      {[](auto& b) { b.number("llama.vocab_size", 39); }, Code::kCorrupt,
       "key \"llama.vocab_size\" is 39, but tensor \"token_embd.weight\" has 40 rows"},
      {[](auto& b) { b.number("llama.attention.head_count", 5); }, Code::kCorrupt,
       "key \"llama.attention.head_count\" is 5, but does not divide"},
      {[](auto& b) { b.number("llama.attention.head_count", 0); }, Code::kCorrupt, "is 0"},
      {[](auto& b) { b.number("llama.attention.head_count_kv", 3); }, Code::kCorrupt,
       "does not divide"},
      {[](auto& b) {
         b.ints("llama.feed_forward_length", {48, 64});
       },
       Code::kUnsupported, "48 for one layer and 64 for another"},
      {[](auto& b) { b.number("llama.block_count", 2); }, Code::kCorrupt,
       "tensor \"blk.1.attn_norm.weight\" is missing"},
      {[](auto& b) { b.number("llama.block_count", UINT32_MAX); }, Code::kCorrupt, "must lie in"},
      {[](auto& b) { b.number("llama.feed_forward_length", 64); }, Code::kCorrupt,
       "tensor \"blk.0.ffn_gate.weight\" has shape [48, 32], but the keys say [64, 32]"},
      {[](auto& b) { b.real("llama.attention.layer_norm_rms_epsilon", NAN); }, Code::kCorrupt,
       "rms_norm_eps"},
      {[&](auto& b) { b.tensor("blk.0.extra", {4}, 0, ones); }, Code::kUnsupported,
       "tensor \"blk.0.extra\" [4] belongs to no llama model"},
      {[&](auto& b) { b.tensor("rope_freqs.weight", {4}, 0, ones); }, Code::kUnsupported,
       "\"rope_freqs.weight\" scales"},
      {[](auto& b) {
         b.tensor("blk.0.attn_v.weight", {16, 32}, 9, std::string(16 * 40, 'x'));
       },
       Code::kUnsupported,
       "tensor \"blk.0.attn_v.weight\" has type Q8_1, which Jige does not read; it reads F32"},
      {[](auto& b) { b.remove_tensor("token_embd.weight"); }, Code::kCorrupt,
       "\"token_embd.weight\" is missing"},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.words);
    const ScratchFolder scratch;
    GgufBuilder builder = small_gguf_llama();
    refusal.change(builder);
    write_or_fail(scratch.file("a.gguf"), builder.bytes());
    const auto made =
        import_gguf({.file = scratch.file("a.gguf"), .folder = scratch.file("model")});
    EXPECT_FAILS_WITH(made, refusal.code, refusal.words);
    EXPECT_NE(made.error().message.find("a.gguf"), std::string::npos);
    EXPECT_EQ(folder_entries(scratch.path()), std::vector<std::string>{"a.gguf"});
  }
}

TEST(GgufImport, LeavesWhatIsThereAloneAndNothingBehindWhenCalledOff) {
  const ScratchFolder scratch;
  write_or_fail(scratch.file("a.gguf"), small_gguf_llama().bytes());
  GgufImportOptions options{.file = scratch.file("a.gguf"), .folder = scratch.file("model")};
  std::atomic<bool> cancelled = false;
  options.cancelled = &cancelled;
  options.on_progress = [&](uint64_t done, uint64_t total) {
    EXPECT_LE(done, total);
    cancelled = true;
  };
  EXPECT_FAILS_WITH(import_gguf(options), Code::kCancelled, "was not written");
  EXPECT_EQ(folder_entries(scratch.path()), std::vector<std::string>{"a.gguf"});
  cancelled = false;
  options.on_progress = nullptr;
  ASSERT_TRUE(import_gguf(options));
  EXPECT_FAILS_WITH(import_gguf(options), Code::kInvalidArgument, "--replace");
  options.replace = true;
  EXPECT_TRUE(import_gguf(options));
  write_or_fail(scratch.file("model/diary.txt"), "");
  EXPECT_FAILS_WITH(import_gguf(options), Code::kInvalidArgument, "diary.txt");
}

}  // namespace
}  // namespace jige::formats
