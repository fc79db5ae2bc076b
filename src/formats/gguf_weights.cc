#include "formats/gguf_weights.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <memory>
#include <unordered_set>
#include <utility>

#include "formats/gguf_config.h"
#include "formats/gguf_params.h"

namespace jige::formats {
namespace {

constexpr int64_t kChunkElements = int64_t{1} << 18;
// Relative, of an f32 that an exponential was stored as.
constexpr double kExpRounding = 1.0 / (1 << 22);
// Made of the same blocks as the codes before them.
constexpr std::string_view kScalesEnd = "_scales";

// The number of the folder that the file holds changed.
float unchanged(float stored, GgufChange change) {
  if (change == GgufChange::kAddsOne) return stored - 1.0f;
  if (change == GgufChange::kNone) return stored;
  // Of -exp(x) the logarithm; where x was a bf16, that one.
  const double exact = std::log(-static_cast<double>(stored));
  const float near = to_float(to_bfloat16(static_cast<float>(exact)));
  const double difference = std::exp(static_cast<double>(near)) + static_cast<double>(stored);
  return std::abs(difference) <= kExpRounding * std::abs(static_cast<double>(stored))
             ? near
             : static_cast<float>(exact);
}

// One tensor on its way from the file to the folder.
class GgufConversion : public GgufRows {
 public:
  GgufConversion(const GgufFile& file, std::vector<const GgufTensor*> tensors, GgufParam param,
                 const GgufWeightOptions& options)
      : file_(file),
        tensors_(std::move(tensors)),
        param_(std::move(param)),
        on_read_(options.on_read) {}

  void set_dtype(DType dtype) { dtype_ = dtype; }

  Status produce(const RowSink& sink) const {
    if (param_.made) return produce_made(sink, *param_.made);
    if (!param_.stored_dims.empty()) return produce_reshaped(sink);
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
        read(0, param_.stored_row(begin + i), 1, &values[static_cast<size_t>(i * columns)]);
      JIGE_DO(hand_over(sink, values.data(), Shape{count, columns}));
      JIGE_DO(report(static_cast<uint64_t>(count) * tensors_[0]->row_bytes()));
    }
    return {};
  }

  void read(size_t source, int64_t first, int64_t count, float* out) const override {
    const GgufTensor& tensor = *tensors_[source];
    tensor.type->decode(blocks(source, first),
                        count * (tensor.columns() / tensor.type->block_elements), out);
  }

  const std::byte* blocks(size_t source, int64_t row) const override {
    const GgufTensor& tensor = *tensors_[source];
    return file_.data(tensor) + static_cast<uint64_t>(row) * tensor.row_bytes();
  }

 private:
  Status produce_vector(const RowSink& sink) const {
    const int64_t count = param_.shape[0];
    std::vector<float> stored(static_cast<size_t>(tensors_[0]->columns()));
    std::vector<float> values(static_cast<size_t>(count));
    read(0, 0, 1, stored.data());
    for (int64_t i = 0; i < count; ++i) {
      values[static_cast<size_t>(i)] = stored[static_cast<size_t>(param_.stored_row(i))];
    }
    JIGE_DO(hand_over(sink, values.data(), Shape{count}));
    return report(tensors_[0]->bytes);
  }

  Status produce_reshaped(const RowSink& sink) const {
    std::vector<float> values(static_cast<size_t>(param_.shape.count()));
    read(0, 0, tensors_[0]->rows(), values.data());
    JIGE_DO(hand_over(sink, values.data(), param_.shape));
    return report(tensors_[0]->bytes);
  }

  Status produce_transposed(const RowSink& sink) const {
    const int64_t rows = param_.shape[0];
    const int64_t columns = param_.shape[1];
    std::vector<float> stored(static_cast<size_t>(rows));  // a row of the file is a column here
    std::vector<float> values(static_cast<size_t>(rows * columns));
    for (int64_t column = 0; column < columns; ++column) {
      read(0, column, 1, stored.data());
      for (int64_t row = 0; row < rows; ++row) {
        values[static_cast<size_t>(row * columns + column)] = stored[static_cast<size_t>(row)];
      }
    }
    JIGE_DO(hand_over(sink, values.data(), param_.shape));
    return report(tensors_[0]->bytes);
  }

  // Some pieces at a time, as many as make whole rows of the folder.
  Status produce_made(const RowSink& sink, const GgufMade& made) const {
    const int64_t size = param_.shape.count() / made.pieces;
    const int64_t columns = param_.shape.row_count_elements();
    const int64_t in_row = std::max<int64_t>(columns / size, 1);
    const int64_t some = std::clamp<int64_t>(kChunkElements / size, 1, made.pieces);
    const int64_t step = (some + in_row - 1) / in_row * in_row;
    std::vector<float> values(made.bytes ? 0 : static_cast<size_t>(step * size));
    std::vector<std::byte> bytes(made.bytes ? static_cast<size_t>(step * size) : 0);
    for (int64_t begin = 0; begin < made.pieces; begin += step) {
      const int64_t count = std::min(step, made.pieces - begin);
      for (int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<size_t>(i * size);
        made.bytes ? made.bytes(*this, begin + i, &bytes[at])
                   : made.values(*this, begin + i, &values[at]);
      }
      const Shape shape =
          param_.shape.rank() <= 1 ? param_.shape : Shape{count * size / columns, columns};
      JIGE_DO(made.bytes ? sink(TensorView::of(bytes.data(), DType::kU8, shape))
                         : hand_over(sink, values.data(), shape));
      JIGE_DO(report_made(begin, begin + count));
    }
    return {};
  }

  // The scales of MXFP4 are in the blocks that were counted with the codes.
  Status report_made(int64_t begin, int64_t end) const {
    if (param_.made->bytes && param_.name.ends_with(kScalesEnd)) return {};
    uint64_t all = 0;
    for (const GgufTensor* tensor : tensors_) all += tensor->bytes;
    const auto read_until = [&](int64_t piece) {
      return all / static_cast<uint64_t>(param_.made->pieces) * static_cast<uint64_t>(piece);
    };
    return report(read_until(end) - read_until(begin));
  }

  Status hand_over(const RowSink& sink, float* values, Shape shape) const {
    const auto count = static_cast<size_t>(shape.count());
    if (param_.change != GgufChange::kNone) {
      for (size_t i = 0; i < count; ++i) values[i] = unchanged(values[i], param_.change);
    }
    if (dtype_ == DType::kF32) return sink(TensorView::of(values, dtype_, shape));
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
                    file_.path(), tensors_.empty() ? param_.name : tensors_[0]->name, values[i]);
      }
      narrowed[i] = half.bits;
    }
    return sink(TensorView::of(narrowed.data(), dtype_, shape));
  }

  Status report(uint64_t bytes) const { return on_read_ ? on_read_(bytes) : Status(); }

  const GgufFile& file_;
  std::vector<const GgufTensor*> tensors_;
  GgufParam param_;
  DType dtype_ = DType::kF32;
  std::function<Status(uint64_t)> on_read_;
};

DType kept_dtype(const GgufTypeInfo& type) {
  if (type.number == kGgufF32) return DType::kF32;
  return type.number == kGgufF16 ? DType::kF16 : DType::kBF16;
}

// Whether what is made of tensors of F32 has numbers of this type alone. Reads it all.
bool holds_only(const GgufConversion& conversion, DType dtype) {
  const Status read = conversion.produce([&](const TensorView& rows) -> Status {
    const float* values = rows.as<float>();
    for (int64_t i = 0; i < rows.count(); ++i) {
      const float narrow = dtype == DType::kBF16 ? to_float(to_bfloat16(values[i]))
                                                 : to_float(to_float16(values[i]));
      if (std::bit_cast<uint32_t>(narrow) == std::bit_cast<uint32_t>(values[i])) continue;
      return fail(Code::kUnsupported, "{}", values[i]);
    }
    return {};
  });
  return read.has_value();
}

// The types of tensors where none is asked for. Writers of GGUF files make F32 of vectors, whatever
// the model's type was: they go back to that of the token table where they lose nothing.
class KeptTypes {
 public:
  explicit KeptTypes(const GgufFile& file) : file_(file) {
    const GgufTensor* table = file.header().find("token_embd.weight");
    if (table) of_table_ = kept_dtype(*table->type);
  }

  // Of tensors of several types the one that holds all their numbers, or bf16 where one is
  // quantised.
  DType of(const std::vector<const GgufTensor*>& tensors, GgufParam param) const {
    DType kept = DType::kF32;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const DType other = kept_dtype(*tensors[i]->type);
      if (i == 0 || other == DType::kBF16) kept = other;
      if (i > 0 && other != kept && kept != DType::kBF16) kept = DType::kF32;
    }
    if (kept != DType::kF32 || of_table_ == DType::kF32 || param.wide) return kept;
    const GgufConversion conversion(file_, tensors, std::move(param), {});
    return holds_only(conversion, of_table_) ? of_table_ : kept;
  }

 private:
  const GgufFile& file_;
  DType of_table_ = DType::kF32;
};

// Ones before the first dimension say nothing.
std::vector<int64_t> without_leading_ones(std::vector<int64_t> dims) {
  while (dims.size() > 1 && dims.front() == 1) dims.erase(dims.begin());
  return dims;
}

std::vector<int64_t> wanted_dims(const GgufParam& param) {
  if (!param.stored_dims.empty()) return param.stored_dims;
  std::vector<int64_t> wanted;
  for (int axis = 0; axis < param.shape.rank(); ++axis) wanted.push_back(param.shape[axis]);
  if (param.stored_rows > 0) wanted[0] = param.stored_rows;
  if (param.flat) wanted.erase(wanted.begin());
  if (param.stored_matrices > 0) wanted.insert(wanted.begin(), param.stored_matrices);
  if (param.order == RowOrder::kTransposed) std::swap(wanted[0], wanted[1]);
  return wanted;
}

Status check_gguf_tensor(const GgufFile& file, const GgufTensor& tensor,
                         const std::vector<int64_t>& wanted) {
  if (without_leading_ones(tensor.dims) != without_leading_ones(wanted)) {
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

// Tensors that say what the configuration says, and those of layers that predict further tokens,
// which stand behind the others.
bool is_described(const GgufFile& file, std::string_view name, const ModelConfig& config) {
  if (name == "rope_freqs.weight" || is_gguf_longrope_tensor(name)) return true;
  if (name == "output.weight") return config.tied_embeddings;
  constexpr std::string_view kLayer = "blk.";
  if (!name.starts_with(kLayer)) return false;
  int64_t layer = -1;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kLayer.size(), end, layer);
  if (error != std::errc() || rest == end || *rest != '.') return false;
  return layer >= config.layer_count && layer < gguf_block_count(file);
}

// The tensors of a parameter, each found and checked.
Result<std::vector<const GgufTensor*>> tensors_of(const GgufFile& file, const GgufParam& param) {
  std::vector<GgufStored> wanted;
  if (param.made) {
    wanted = param.made->from;
  } else {
    wanted = {{param.stored, wanted_dims(param)}};
  }
  std::vector<const GgufTensor*> tensors;
  for (const GgufStored& one : wanted) {
    const GgufTensor* tensor = file.header().find(one.name);
    if (!tensor) {
      return fail(Code::kCorrupt, "{}: tensor \"{}\" is missing", file.path(), one.name);
    }
    JIGE_DO(check_gguf_tensor(file, *tensor, one.dims));
    tensors.push_back(tensor);
  }
  // What is copied as bytes is of one type.
  for (const GgufTensor* tensor : tensors) {
    if (!param.made || !param.made->bytes || tensor->type->number == kGgufMxfp4) continue;
    return fail(Code::kUnsupported,
                "{}: tensor \"{}\" has type {}, and others of its kind MXFP4; Jige reads files "
                "where all experts are MXFP4 or none, or any with --dtype",
                file.path(), tensor->name, tensor->type->name);
  }
  return tensors;
}

}  // namespace

Result<std::vector<TensorSource>> gguf_sources(const GgufFile& file, const ModelConfig& config,
                                               const GgufWeightOptions& options) {
  std::vector<TensorSource> sources;
  std::unordered_set<std::string_view> used;
  const KeptTypes kept(file);
  JIGE_TRY(const std::string_view architecture, file.metadata().get_text("general.architecture"));
  const GgufLayout layout = find_gguf_layout(architecture).value_or(GgufLayout::kPaired);
  for (GgufParam& param : gguf_params(config, layout, &file.header(), !options.dtype)) {
    JIGE_TRY(std::vector<const GgufTensor*> tensors, tensors_of(file, param));
    for (const GgufTensor* tensor : tensors) used.insert(tensor->name);
    const bool bytes = param.made && param.made->bytes;
    const DType dtype = bytes           ? DType::kU8
                        : options.dtype ? *options.dtype
                                        : kept.of(tensors, param);
    TensorSource source{.name = param.name, .dtype = dtype, .shape = param.shape, .produce = {}};
    const auto conversion =
        std::make_shared<GgufConversion>(file, std::move(tensors), std::move(param), options);
    conversion->set_dtype(dtype);
    source.produce = [conversion](const RowSink& sink) { return conversion->produce(sink); };
    sources.push_back(std::move(source));
  }
  for (const GgufTensor& tensor : file.header().tensors) {
    if (used.contains(tensor.name) || is_described(file, tensor.name, config)) continue;
    return fail(Code::kUnsupported, "{}: tensor \"{}\" {} belongs to no {} model that Jige reads",
                file.path(), gguf_shown(tensor.name), tensor.shape_text(),
                family_name(config.family));
  }
  return sources;
}

}  // namespace jige::formats
