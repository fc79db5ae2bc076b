#include "formats/gguf_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <unordered_set>
#include <utility>

namespace jige::formats {
namespace {

constexpr int64_t kChunkElements = int64_t{1} << 18;

// How rows of the folder come from those of the file.
enum class RowOrder { kSame, kPairedHeads, kTransposed };

struct GgufParam {
  std::string stored;
  std::string name;
  Shape shape;  // in the folder
  RowOrder order = RowOrder::kSame;
  int64_t heads = 1;  // of kPairedHeads
};

// The parameters of a model, in the order of its layers.
class GgufParamList {
 public:
  explicit GgufParamList(const ModelConfig& config) : c_(config) {}

  std::vector<GgufParam> make() {
    c_.family == Family::kGpt2 ? add_gpt2() : add_gated_family();
    return std::move(params_);
  }

 private:
  void add(std::string stored, std::string name, Shape shape, RowOrder order = RowOrder::kSame,
           int64_t heads = 1) {
    params_.push_back({std::move(stored), std::move(name), shape, order, heads});
  }

  void add_head(std::string name) {
    if (!c_.tied_embeddings) add("output.weight", std::move(name), {c_.vocab_size, c_.hidden_size});
  }

  // Weight and, if there is one, bias of a linear.
  void add_linear(const std::string& stored, const std::string& name, int64_t out, int64_t in,
                  bool bias, int64_t paired_heads = 0) {
    const RowOrder order = paired_heads > 0 ? RowOrder::kPairedHeads : RowOrder::kSame;
    add(stored + ".weight", name + ".weight", {out, in}, order, paired_heads);
    if (bias) add(stored + ".bias", name + ".bias", {out}, order, paired_heads);
  }

  void add_gated_family() {
    add("token_embd.weight", "model.embed_tokens.weight", {c_.vocab_size, c_.hidden_size});
    for (int64_t i = 0; i < c_.layer_count; ++i) add_gated_layer(i);
    add("output_norm.weight", "model.norm.weight", {c_.hidden_size});
    add_head("lm_head.weight");
  }

  void add_gated_layer(int64_t layer) {
    const std::string from = fmt::format("blk.{}.", layer);
    const std::string to = fmt::format("model.layers.{}.", layer);
    const bool paired = c_.family == Family::kLlama || c_.family == Family::kMistral;
    const int64_t query = c_.head_count * c_.head_dim;
    const int64_t kv = c_.kv_head_count * c_.head_dim;
    const int64_t width = c_.hidden_size;
    add(from + "attn_norm.weight", to + "input_layernorm.weight", {width});
    add_linear(from + "attn_q", to + "self_attn.q_proj", query, width, c_.qkv_bias,
               paired ? c_.head_count : 0);
    add_linear(from + "attn_k", to + "self_attn.k_proj", kv, width, c_.qkv_bias,
               paired ? c_.kv_head_count : 0);
    add_linear(from + "attn_v", to + "self_attn.v_proj", kv, width, c_.qkv_bias);
    add_linear(from + "attn_output", to + "self_attn.o_proj", width, query, c_.output_bias);
    if (c_.qk_norm) {
      add(from + "attn_q_norm.weight", to + "self_attn.q_norm.weight", {c_.head_dim});
      add(from + "attn_k_norm.weight", to + "self_attn.k_norm.weight", {c_.head_dim});
    }
    add(from + "ffn_norm.weight", to + "post_attention_layernorm.weight", {width});
    add_linear(from + "ffn_gate", to + "mlp.gate_proj", c_.ffn_size, width, c_.mlp_bias);
    add_linear(from + "ffn_up", to + "mlp.up_proj", c_.ffn_size, width, c_.mlp_bias);
    add_linear(from + "ffn_down", to + "mlp.down_proj", width, c_.ffn_size, c_.mlp_bias);
  }

  void add_norm(const std::string& stored, const std::string& name) {
    add(stored + ".weight", name + ".weight", {c_.hidden_size});
    add(stored + ".bias", name + ".bias", {c_.hidden_size});
  }

  void add_turned(const std::string& stored, const std::string& name, int64_t in, int64_t out) {
    add(stored + ".weight", name + ".weight", {in, out}, RowOrder::kTransposed);
    add(stored + ".bias", name + ".bias", {out});
  }

  void add_gpt2() {
    const int64_t width = c_.hidden_size;
    add("token_embd.weight", "transformer.wte.weight", {c_.vocab_size, width});
    add("position_embd.weight", "transformer.wpe.weight", {c_.context_max, width});
    for (int64_t i = 0; i < c_.layer_count; ++i) {
      const std::string from = fmt::format("blk.{}.", i);
      const std::string to = fmt::format("transformer.h.{}.", i);
      add_norm(from + "attn_norm", to + "ln_1");
      add_turned(from + "attn_qkv", to + "attn.c_attn", width, 3 * width);
      add_turned(from + "attn_output", to + "attn.c_proj", width, width);
      add_norm(from + "ffn_norm", to + "ln_2");
      add_turned(from + "ffn_up", to + "mlp.c_fc", width, c_.ffn_size);
      add_turned(from + "ffn_down", to + "mlp.c_proj", c_.ffn_size, width);
    }
    add_norm("output_norm", "transformer.ln_f");
    add_head("lm_head.weight");
  }

  const ModelConfig& c_;
  std::vector<GgufParam> params_;
};

// One tensor on its way from the file to the folder.
class GgufConversion {
 public:
  GgufConversion(const GgufFile& file, const GgufTensor& tensor, GgufParam param, DType dtype,
                 const GgufWeightOptions& options)
      : file_(file),
        tensor_(tensor),
        param_(std::move(param)),
        dtype_(dtype),
        on_read_(options.on_read) {}

  Status produce(const RowSink& sink) const {
    if (param_.order == RowOrder::kTransposed) return produce_transposed(sink);
    const int64_t columns = param_.shape.row_count_elements();
    const int64_t rows = param_.shape[0];
    // A vector is one row of blocks in the file and rows of one number in the folder.
    if (param_.shape.rank() == 1) return produce_vector(sink);
    const int64_t step = std::max<int64_t>(1, kChunkElements / columns);
    std::vector<float> values(static_cast<size_t>(std::min(step, rows) * columns));
    for (int64_t begin = 0; begin < rows; begin += step) {
      const int64_t count = std::min(step, rows - begin);
      for (int64_t i = 0; i < count; ++i)
        decode_row(stored_row(begin + i), &values[static_cast<size_t>(i * columns)]);
      JIGE_DO(hand_over(sink, values.data(), Shape{count, columns}));
      JIGE_DO(report(static_cast<uint64_t>(count) * tensor_.row_bytes()));
    }
    return {};
  }

 private:
  // The row of the file that is row `row` of the folder.
  int64_t stored_row(int64_t row) const {
    if (param_.order != RowOrder::kPairedHeads) return row;
    const int64_t dim = param_.shape[0] / param_.heads;
    const int64_t in_head = row % dim;
    return row - in_head + in_head % (dim / 2) * 2 + in_head / (dim / 2);
  }

  void decode_row(int64_t row, float* out) const {
    const std::byte* blocks =
        file_.data(tensor_) + static_cast<uint64_t>(row) * tensor_.row_bytes();
    tensor_.type->decode(blocks, tensor_.columns() / tensor_.type->block_elements, out);
  }

  Status produce_vector(const RowSink& sink) const {
    const int64_t count = param_.shape[0];
    std::vector<float> stored(static_cast<size_t>(count));
    std::vector<float> values(stored.size());
    decode_row(0, stored.data());
    for (int64_t i = 0; i < count; ++i) {
      values[static_cast<size_t>(i)] = stored[static_cast<size_t>(stored_row(i))];
    }
    JIGE_DO(hand_over(sink, values.data(), Shape{count}));
    return report(tensor_.bytes);
  }

  Status produce_transposed(const RowSink& sink) const {
    const int64_t rows = param_.shape[0];
    const int64_t columns = param_.shape[1];
    std::vector<float> stored(static_cast<size_t>(rows));  // a row of the file is a column here
    std::vector<float> values(static_cast<size_t>(rows * columns));
    for (int64_t column = 0; column < columns; ++column) {
      decode_row(column, stored.data());
      for (int64_t row = 0; row < rows; ++row) {
        values[static_cast<size_t>(row * columns + column)] = stored[static_cast<size_t>(row)];
      }
    }
    JIGE_DO(hand_over(sink, values.data(), param_.shape));
    return report(tensor_.bytes);
  }

  Status hand_over(const RowSink& sink, float* values, Shape shape) const {
    if (dtype_ == DType::kF32) return sink(TensorView::of(values, dtype_, shape));
    const auto count = static_cast<size_t>(shape.count());
    std::vector<uint16_t> narrowed(count);
    for (size_t i = 0; i < count; ++i) {
      if (dtype_ == DType::kBF16) {
        narrowed[i] = to_bfloat16(values[i]).bits;
        continue;
      }
      const Float16 half = to_float16(values[i]);
      if (std::isinf(to_float(half)) && !std::isinf(values[i])) {
        return fail(Code::kUnsupported,
                    "{}: tensor \"{}\" holds {}, which f16 cannot hold; use --dtype bf16 or f32",
                    file_.path(), tensor_.name, values[i]);
      }
      narrowed[i] = half.bits;
    }
    return sink(TensorView::of(narrowed.data(), dtype_, shape));
  }

  Status report(uint64_t bytes) const { return on_read_ ? on_read_(bytes) : Status(); }

  const GgufFile& file_;
  const GgufTensor& tensor_;
  GgufParam param_;
  DType dtype_;
  std::function<Status(uint64_t)> on_read_;
};

DType kept_dtype(const GgufTypeInfo& type) {
  if (type.number == kGgufF32) return DType::kF32;
  return type.number == kGgufF16 ? DType::kF16 : DType::kBF16;
}

Status check_gguf_tensor(const GgufFile& file, const GgufTensor& tensor, const GgufParam& param) {
  std::vector<int64_t> wanted;
  for (int axis = 0; axis < param.shape.rank(); ++axis) wanted.push_back(param.shape[axis]);
  if (param.order == RowOrder::kTransposed) std::swap(wanted[0], wanted[1]);
  if (tensor.dims != wanted) {
    GgufTensor other;
    other.dims = wanted;
    return fail(Code::kCorrupt, "{}: tensor \"{}\" has shape {}, but the keys say {}", file.path(),
                tensor.name, tensor.shape_text(), other.shape_text());
  }
  if (!tensor.type->decode) {
    return fail(Code::kUnsupported,
                "{}: tensor \"{}\" has type {}, which Jige does not read; it reads {}", file.path(),
                tensor.name, tensor.type->name, readable_gguf_types());
  }
  return {};
}

// Tensors that say what the configuration says.
bool is_described(std::string_view name, const ModelConfig& config) {
  return name == "rope_freqs.weight" || (name == "output.weight" && config.tied_embeddings);
}

}  // namespace

Result<std::vector<TensorSource>> gguf_sources(const GgufFile& file, const ModelConfig& config,
                                               const GgufWeightOptions& options) {
  std::vector<TensorSource> sources;
  std::unordered_set<std::string_view> used;
  for (GgufParam& param : GgufParamList(config).make()) {
    const GgufTensor* tensor = file.header().find(param.stored);
    if (!tensor) {
      return fail(Code::kCorrupt, "{}: tensor \"{}\" is missing", file.path(), param.stored);
    }
    JIGE_DO(check_gguf_tensor(file, *tensor, param));
    used.insert(tensor->name);
    const DType dtype = options.dtype.value_or(kept_dtype(*tensor->type));
    TensorSource source{.name = param.name, .dtype = dtype, .shape = param.shape, .produce = {}};
    source.produce = [conversion = std::make_shared<const GgufConversion>(
                          file, *tensor, std::move(param), dtype, options)](const RowSink& sink) {
      return conversion->produce(sink);
    };
    sources.push_back(std::move(source));
  }
  for (const GgufTensor& tensor : file.header().tensors) {
    if (used.contains(tensor.name) || is_described(tensor.name, config)) continue;
    return fail(Code::kUnsupported, "{}: tensor \"{}\" {} belongs to no {} model that Jige reads",
                file.path(), gguf_shown(tensor.name), tensor.shape_text(),
                family_name(config.family));
  }
  return sources;
}

}  // namespace jige::formats
