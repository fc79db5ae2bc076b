// GGUF files of models with experts, whose matrices are stacked there.
#include <nlohmann/json.hpp>

#include "formats/gguf_config.h"
#include "formats/gguf_import.h"
#include "formats/gguf_test_support.h"

namespace jige::formats {
namespace {

std::string expert_fixture() {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/qwen3_moe";
}

void replace_once(std::string& text, std::string_view from, std::string_view to) {
  if (const size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
}

// The folder as a file of the architecture qwen3moe.
GgufBuilder gguf_of_experts(const std::string& folder) {
  const ModelConfig config = load_model_config(folder).value();
  GgufBuilder out = small_gguf_llama();
  for (const char* name : {"attn_norm", "ffn_norm", "attn_q", "attn_k", "attn_v", "attn_output",
                           "ffn_gate", "ffn_up", "ffn_down"}) {
    out.remove_tensor(fmt::format("blk.0.{}.weight", name));
  }
  std::vector<std::string> tokens;
  for (int i = 0; i < 96; ++i) tokens.push_back(fmt::format("t{}", i));
  const auto size = [](int64_t value) { return static_cast<uint32_t>(value); };
  out.texts("tokenizer.ggml.tokens", tokens)
      .reals("tokenizer.ggml.scores", std::vector<float>(96, 0.0f))
      .ints("tokenizer.ggml.token_type", std::vector<int32_t>(96, 1))
      .number("tokenizer.ggml.bos_token_id", 1)
      .number("tokenizer.ggml.eos_token_id", 2)
      .text("general.architecture", "qwen3moe")
      .number("qwen3moe.block_count", 2)
      .number("qwen3moe.embedding_length", size(config.hidden_size))
      .number("qwen3moe.context_length", size(config.context_max))
      .number("qwen3moe.feed_forward_length", size(config.ffn_size))
      .number("qwen3moe.expert_feed_forward_length", size(config.experts.ffn_size))
      .number("qwen3moe.expert_count", size(config.experts.count))
      .number("qwen3moe.expert_used_count", size(config.experts.chosen))
      .number("qwen3moe.attention.head_count", size(config.head_count))
      .number("qwen3moe.attention.head_count_kv", size(config.kv_head_count))
      .number("qwen3moe.attention.key_length", size(config.head_dim))
      .number("qwen3moe.attention.value_length", size(config.head_dim))
      .real("qwen3moe.attention.layer_norm_rms_epsilon", static_cast<float>(config.norm_eps))
      .real("qwen3moe.rope.freq_base", static_cast<float>(config.rope.theta));
  const auto files = TensorFolder::open(folder);
  const auto data_of = [&](const std::string& name) {
    const TensorView view = files->view(name).value();
    return std::string(static_cast<const char*>(view.data),
                       static_cast<size_t>(dtype_bytes(view.dtype, view.count())));
  };
  for (const StoredTensor* tensor : files->tensors()) {
    std::string name = tensor->name;
    if (name.find(".experts.") != std::string::npos) continue;
    for (const auto& [from, to] : {std::pair{"model.embed_tokens", "token_embd"},
                                   {"model.norm", "output_norm"},
                                   {"lm_head", "output"},
                                   {"model.layers.", "blk."},
                                   {"self_attn.q_proj", "attn_q"},
                                   {"self_attn.k_proj", "attn_k"},
                                   {"self_attn.v_proj", "attn_v"},
                                   {"self_attn.o_proj", "attn_output"},
                                   {"self_attn.q_norm", "attn_q_norm"},
                                   {"self_attn.k_norm", "attn_k_norm"},
                                   {"input_layernorm", "attn_norm"},
                                   {"post_attention_layernorm", "ffn_norm"},
                                   {"mlp.gate", "ffn_gate_inp"}}) {
      replace_once(name, from, to);
    }
    out.tensor(name, tensor->dims, kGgufBF16, data_of(tensor->name));
  }
  for (int layer = 0; layer < 2; ++layer) {
    for (const auto& [part, to] : {std::pair{"gate_proj", "ffn_gate_exps"},
                                   {"up_proj", "ffn_up_exps"},
                                   {"down_proj", "ffn_down_exps"}}) {
      std::string stack;
      std::vector<int64_t> dims;
      for (int64_t expert = 0; expert < config.experts.count; ++expert) {
        const std::string name =
            fmt::format("model.layers.{}.mlp.experts.{}.{}.weight", layer, expert, part);
        stack += data_of(name);
        dims = files->find(name)->dims;
      }
      dims.insert(dims.begin(), config.experts.count);
      out.tensor(fmt::format("blk.{}.{}.weight", layer, to), dims, kGgufBF16, stack);
    }
  }
  return out;
}

Result<GgufImport> import_of(const ScratchFolder& scratch, const GgufBuilder& builder) {
  write_or_fail(scratch.file("a.gguf"), builder.bytes());
  return import_gguf(
      {.file = scratch.file("a.gguf"), .folder = scratch.file("made"), .replace = true});
}

TEST(GgufExperts, GiveBackTheFolderThatTheFileWasMadeOf) {
  const ScratchFolder scratch;
  const auto made = import_of(scratch, gguf_of_experts(expert_fixture()));
  ASSERT_TRUE(made) << made.error().message;
  expect_same_tensors(expert_fixture(), scratch.file("made"));
  EXPECT_EQ(load_model_config(scratch.file("made")).value(),
            load_model_config(expert_fixture()).value());
}

TEST(GgufExperts, RefuseWhatTheKeysDoNotSay) {
  const ScratchFolder scratch;
  const GgufBuilder whole = gguf_of_experts(expert_fixture());
  const auto refusal = [&](const std::function<void(GgufBuilder&)>& change) {
    GgufBuilder other = whole;
    change(other);
    const auto made = import_of(scratch, other);
    return made ? std::string() : made.error().message;
  };
  EXPECT_NE(refusal([](auto& b) {
              b.number("qwen3moe.expert_count", 6);
            }).find("has shape [7, 32], but the keys say [6, 32]"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& b) {
              b.number("qwen3moe.expert_used_count", 8);
            }).find("\"num_experts_per_tok\" is 8"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& b) {
              b.number("qwen3moe.expert_shared_count", 1);
            }).find("expert_shared_count\" is 1, which Jige does not compute"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& b) {
              b.remove_tensor("blk.1.ffn_up_exps.weight");
            }).find("tensor \"blk.1.ffn_up_exps.weight\" is missing"),
            std::string::npos);
}

TEST(GgufExperts, OfTheArchitectureLlamaAreMixtrals) {
  const ScratchFolder scratch;
  GgufBuilder builder = small_gguf_llama();
  for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"}) {
    builder.remove_tensor(fmt::format("blk.0.{}.weight", name));
  }
  builder.number("llama.expert_count", 3).number("llama.expert_used_count", 2);
  const auto add = [&](const char* name, std::vector<int64_t> dims) {
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    std::string data;
    for (int64_t i = 0; i < count; ++i) append_raw<float>(data, static_cast<float>(i));
    builder.tensor(name, std::move(dims), kGgufF32, data);
  };
  add("blk.0.ffn_gate_inp.weight", {3, 32});
  add("blk.0.ffn_gate_exps.weight", {3, 48, 32});
  add("blk.0.ffn_up_exps.weight", {3, 48, 32});
  add("blk.0.ffn_down_exps.weight", {3, 32, 48});
  const auto made = import_of(scratch, builder);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->config.family, Family::kMixtral);
  EXPECT_EQ(made->config.experts,
            (ExpertConfig{.count = 3, .chosen = 2, .ffn_size = 48, .normalised = true}));
  const auto files = TensorFolder::open(scratch.file("made"));
  const auto view = files->view("model.layers.0.block_sparse_moe.experts.2.w2.weight").value();
  EXPECT_EQ(view.shape, (Shape{32, 48}));
  EXPECT_EQ(view.as<float>()[0], 2 * 32 * 48);
}

}  // namespace
}  // namespace jige::formats
