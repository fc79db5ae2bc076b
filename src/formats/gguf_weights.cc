#include "formats/gguf_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <unordered_set>
#include <utility>

#include "formats/gguf_params.h"

namespace jige::formats {
namespace {

constexpr int64_t kChunkElements = int64_t{1} << 18;

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
        decode_row(param_.stored_row(begin + i), &values[static_cast<size_t>(i * columns)]);
      JIGE_DO(hand_over(sink, values.data(), Shape{count, columns}));
      JIGE_DO(report(static_cast<uint64_t>(count) * tensor_.row_bytes()));
    }
    return {};
  }

 private:
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
      const float value = stored[static_cast<size_t>(param_.stored_row(i))];
      values[static_cast<size_t>(i)] = param_.adds_one ? value - 1.0f : value;
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

// Whether a tensor of F32 has numbers of this type alone, as the folder is to hold them.
bool holds_only(const GgufFile& file, const GgufTensor& tensor, DType dtype, bool adds_one) {
  const std::byte* data = file.data(tensor);
  for (uint64_t at = 0; at < tensor.bytes; at += sizeof(float)) {
    float value;
    std::memcpy(&value, data + at, sizeof value);
    if (adds_one) value -= 1.0f;
    const float narrow =
        dtype == DType::kBF16 ? to_float(to_bfloat16(value)) : to_float(to_float16(value));
    if (std::bit_cast<uint32_t>(narrow) != std::bit_cast<uint32_t>(value)) return false;
  }
  return true;
}

// The types of tensors where none is asked for. Writers of GGUF files make F32 of vectors, whatever
// the model's type was: they go back to that of the token table where they lose nothing.
class KeptTypes {
 public:
  explicit KeptTypes(const GgufFile& file) : file_(file) {
    const GgufTensor* table = file.header().find("token_embd.weight");
    if (table) of_table_ = kept_dtype(*table->type);
  }

  DType of(const GgufTensor& tensor, bool adds_one) const {
    const DType kept = kept_dtype(*tensor.type);
    if (kept != DType::kF32 || of_table_ == DType::kF32) return kept;
    return holds_only(file_, tensor, of_table_, adds_one) ? of_table_ : kept;
  }

 private:
  const GgufFile& file_;
  DType of_table_ = DType::kF32;
};

Status check_gguf_tensor(const GgufFile& file, const GgufTensor& tensor, const GgufParam& param) {
  std::vector<int64_t> wanted;
  for (int axis = 0; axis < param.shape.rank(); ++axis) wanted.push_back(param.shape[axis]);
  if (param.stored_rows > 0) wanted[0] = param.stored_rows;
  if (param.flat) wanted.erase(wanted.begin());
  if (param.stored_matrices > 0) wanted.insert(wanted.begin(), param.stored_matrices);
  if (param.order == RowOrder::kTransposed) std::swap(wanted[0], wanted[1]);
  if (tensor.dims != wanted) {
    GgufTensor other;
    other.dims = wanted;
    return fail(Code::kCorrupt, "{}: tensor \"{}\" has shape {}, but the keys say {}", file.path(),
                tensor.name, tensor.shape_text(), other.shape_text());
  }
  if (!tensor.type->decode) {
    return fail(
        Code::kUnsupported,
        "{}: tensor \"{}\" has type {}, which Jige does not read; it reads {}; take a file of "
        "one of them, as most models have, or make one: `llama-quantize --allow-requantize {} "
        "FILE.gguf Q8_0`",
        file.path(), tensor.name, tensor.type->name, readable_gguf_types(), file.path());
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
  const KeptTypes kept(file);
  JIGE_TRY(const std::string_view architecture, file.metadata().get_text("general.architecture"));
  const GgufLayout layout = find_gguf_layout(architecture).value_or(GgufLayout::kPaired);
  for (GgufParam& param : gguf_params(config, layout)) {
    const GgufTensor* tensor = file.header().find(param.stored);
    if (!tensor) {
      return fail(Code::kCorrupt, "{}: tensor \"{}\" is missing", file.path(), param.stored);
    }
    JIGE_DO(check_gguf_tensor(file, *tensor, param));
    used.insert(tensor->name);
    const DType dtype = options.dtype ? *options.dtype : kept.of(*tensor, param.adds_one);
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
