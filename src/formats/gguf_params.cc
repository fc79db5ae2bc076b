#include "formats/gguf_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "formats/gguf_param_list.h"

namespace jige::formats {
namespace {

struct GgufArchitecture {
  std::string_view name;
  Family family;
  GgufLayout layout;
};

// Those of the last groups are language models of files with images, and models that compute what
// Llama does, under other names.
constexpr GgufArchitecture kGgufArchitectures[] = {
    {"llama", Family::kLlama, GgufLayout::kPaired},
    {"qwen2", Family::kQwen2, GgufLayout::kPlain},
    {"qwen3", Family::kQwen3, GgufLayout::kPlain},
    {"gpt2", Family::kGpt2, GgufLayout::kPlain},
    {"gemma2", Family::kGemma2, GgufLayout::kPlain},
    {"gemma3", Family::kGemma3, GgufLayout::kPlain},
    {"granite", Family::kGranite, GgufLayout::kPaired},
    {"olmo2", Family::kOlmo2, GgufLayout::kPlain},
    {"smollm3", Family::kSmolLm3, GgufLayout::kPaired},
    {"starcoder2", Family::kStarCoder2, GgufLayout::kPlain},
    {"stablelm", Family::kStableLm, GgufLayout::kPlain},
    {"seed_oss", Family::kSeedOss, GgufLayout::kPlain},
    {"qwen2moe", Family::kQwen2Moe, GgufLayout::kPlain},
    {"qwen3moe", Family::kQwen3Moe, GgufLayout::kPlain},
    {"olmoe", Family::kOlmoe, GgufLayout::kPlain},
    {"mistral3", Family::kMinistral3, GgufLayout::kPaired},
    {"arcee", Family::kArcee, GgufLayout::kPaired},
    {"nemotron", Family::kNemotron, GgufLayout::kPlain},
    {"gpt-oss", Family::kGptOss, GgufLayout::kPlain},
    {"qwen35", Family::kQwen35, GgufLayout::kPlain},
    {"qwen35moe", Family::kQwen35Moe, GgufLayout::kPlain},
    {"qwen3next", Family::kQwen3Next, GgufLayout::kPlain},
    {"lfm2", Family::kLfm2, GgufLayout::kPlain},
    {"lfm2moe", Family::kLfm2Moe, GgufLayout::kPlain},
    {"granitehybrid", Family::kGraniteHybrid, GgufLayout::kPaired},
    {"granitemoe", Family::kGraniteMoe, GgufLayout::kPaired},
    {"gemma", Family::kGemma, GgufLayout::kPlain},
    {"gemma4", Family::kGemma4, GgufLayout::kPlain},
    {"glm4", Family::kGlm4, GgufLayout::kPlain},
    {"glm4moe", Family::kGlm4Moe, GgufLayout::kPlain},
    {"cohere2", Family::kCohere2, GgufLayout::kPlain},
    {"exaone4", Family::kExaone4, GgufLayout::kPlain},
    {"apertus", Family::kApertus, GgufLayout::kPlain},
    {"hunyuan-dense", Family::kHunYuanDense, GgufLayout::kPlain},
    {"hunyuan-moe", Family::kHunYuanMoe, GgufLayout::kPlain},
    {"ernie4_5-moe", Family::kErnie45Moe, GgufLayout::kPlain},
    {"nemotron_h", Family::kNemotronH, GgufLayout::kPaired},
    {"nemotron_h_moe", Family::kNemotronH, GgufLayout::kPaired},
    {"deepseek2", Family::kDeepSeekV3, GgufLayout::kPlain},
    {"minimax-m2", Family::kMiniMaxM2, GgufLayout::kPlain},
    {"dots1", Family::kDots1, GgufLayout::kPlain},
    {"phi2", Family::kPhi, GgufLayout::kPlain},
    {"phi3", Family::kPhi3, GgufLayout::kPlain},
    {"chatglm", Family::kGlm, GgufLayout::kPlain},
    {"gptneox", Family::kGptNeoX, GgufLayout::kPlain},
    {"command-r", Family::kCohere, GgufLayout::kPlain},
    {"ernie4_5", Family::kErnie45, GgufLayout::kPlain},
    {"falcon-h1", Family::kFalconH1, GgufLayout::kPlain},
    {"minicpm3", Family::kMiniCpm3, GgufLayout::kPlain},
    {"jais2", Family::kJais2, GgufLayout::kPlain},

    {"qwen2vl", Family::kQwen2, GgufLayout::kPlain},
    {"qwen3vl", Family::kQwen3, GgufLayout::kPlain},
    {"qwen3vlmoe", Family::kQwen3Moe, GgufLayout::kPlain},

    {"exaone", Family::kLlama, GgufLayout::kPlain},
    {"internlm2", Family::kLlama, GgufLayout::kPaired},
    {"xverse", Family::kLlama, GgufLayout::kPaired},
};

}  // namespace

GgufParamList::GgufParamList(const ModelConfig& config, GgufLayout layout, const GgufHeader* file,
                             bool keep_blocks)
    : c_(config),
      layout_(layout),
      file_(file),
      keep_blocks_(keep_blocks),
      names_(gguf_layer_names(config.family)) {}

std::vector<GgufParam> GgufParamList::make() {
  if (c_.family == Family::kGpt2) {
    add_gpt2();
  } else if (c_.family == Family::kNemotronH) {
    add_nemotron_h();
  } else {
    add_gated_family();
  }
  return std::move(params_);
}

void GgufParamList::add(std::string stored, std::string name, Shape shape, RowOrder order,
                        int64_t heads) {
  params_.push_back({std::move(stored), std::move(name), shape, order, heads});
}

void GgufParamList::add_head(std::string name, std::string_view table) {
  if (!c_.tied_embeddings) {
    add("output.weight", std::move(name), {c_.vocab_size, c_.hidden_size});
  } else if (!table.empty() && !file_) {
    add("output.weight", std::string(table), {c_.vocab_size, c_.hidden_size});
  }
}

void GgufParamList::add_linear(const std::string& stored, const std::string& name, int64_t out,
                               int64_t in, bool bias, int64_t paired_heads) {
  const RowOrder order = paired_heads > 0 ? RowOrder::kPairedHeads : RowOrder::kSame;
  const int64_t heads = std::max<int64_t>(paired_heads, 1);
  add(stored + ".weight", name + ".weight", {out, in}, order, heads);
  if (bias) add(stored + ".bias", name + ".bias", {out}, order, heads);
}

void GgufParamList::add_norm(const std::string& stored, const std::string& name, int64_t columns) {
  add(stored + ".weight", name + ".weight", {columns});
  if (c_.norm_adds_one) params_.back().change = GgufChange::kAddsOne;
  const bool bias = c_.norm == NormKind::kLayer && c_.norm_bias;
  if (bias) add(stored + ".bias", name + ".bias", {columns});
}

void GgufParamList::add_reshaped(const std::string& stored, std::vector<int64_t> dims,
                                 std::string name, Shape shape, GgufChange change) {
  add(stored, std::move(name), shape);
  params_.back().stored_dims = std::move(dims);
  params_.back().change = change;
}

void GgufParamList::add_made(std::string name, Shape shape, GgufMade made) {
  add("", std::move(name), shape);
  params_.back().made = std::move(made);
}

void GgufParamList::add_turned(const std::string& stored, const std::string& name, int64_t in,
                               int64_t out) {
  add(stored + ".weight", name + ".weight", {in, out}, RowOrder::kTransposed);
  add(stored + ".bias", name + ".bias", {out});
}

void GgufParamList::add_gpt2() {
  const int64_t width = c_.hidden_size;
  add("token_embd.weight", "transformer.wte.weight", {c_.vocab_size, width});
  add("position_embd.weight", "transformer.wpe.weight", {c_.context_max, width});
  for (int64_t i = 0; i < c_.layer_count; ++i) {
    const std::string from = fmt::format("blk.{}.", i);
    const std::string to = fmt::format("transformer.h.{}.", i);
    add_norm(from + "attn_norm", to + "ln_1", width);
    add_turned(from + "attn_qkv", to + "attn.c_attn", width, 3 * width);
    add_turned(from + "attn_output", to + "attn.c_proj", width, width);
    add_norm(from + "ffn_norm", to + "ln_2", width);
    add_turned(from + "ffn_up", to + "mlp.c_fc", width, c_.ffn_size);
    add_turned(from + "ffn_down", to + "mlp.c_proj", c_.ffn_size, width);
  }
  add_norm("output_norm", "transformer.ln_f", width);
  add_head("lm_head.weight");
}

std::optional<GgufLayout> find_gguf_layout(std::string_view architecture) {
  for (const GgufArchitecture& one : kGgufArchitectures) {
    if (one.name == architecture) return one.layout;
  }
  return std::nullopt;
}

Family gguf_family(std::string_view architecture, bool experts) {
  if (architecture == "llama" && experts) return Family::kMixtral;
  for (const GgufArchitecture& one : kGgufArchitectures) {
    if (one.name == architecture) return one.family;
  }
  return Family::kLlama;
}

std::string known_gguf_architectures() {
  std::string names;
  for (const GgufArchitecture& one : kGgufArchitectures) {
    names += (names.empty() ? "" : ", ") + std::string(one.name);
  }
  return names;
}

int64_t GgufParam::stored_row(int64_t row) const {
  if (order == RowOrder::kByHead) {
    const int64_t dim = shape[0] / heads / 3;
    return (row / dim % 3 * heads + row / dim / 3) * dim + row % dim;
  }
  if (order != RowOrder::kPairedHeads) return first_row + row;
  const int64_t dim = shape[0] / heads;
  const int64_t in_head = row % dim;
  return row - in_head + in_head % (dim / 2) * 2 + in_head / (dim / 2);
}

int64_t GgufParam::folder_row(int64_t row) const {
  if (order == RowOrder::kByHead) {
    const int64_t dim = shape[0] / heads / 3;
    return (row / dim % heads * 3 + row / dim / heads) * dim + row % dim;
  }
  if (order != RowOrder::kPairedHeads) return row;
  const int64_t dim = shape[0] / heads;
  const int64_t in_head = row % dim;
  return row - in_head + in_head % 2 * (dim / 2) + in_head / 2;
}

std::vector<GgufParam> gguf_params(const ModelConfig& config, GgufLayout layout,
                                   const GgufHeader* file, bool keep_blocks) {
  return GgufParamList(config, layout, file, keep_blocks).make();
}

}  // namespace jige::formats
