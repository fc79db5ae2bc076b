#include "formats/gguf_tensor_export.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "tensor/dtype.h"

namespace jige::formats {
namespace {

constexpr int64_t kExportChunk = int64_t{1} << 18;  // elements

float folder_number(const TensorView& view, int64_t at) {
  const auto* data = static_cast<const std::byte*>(view.data);
  if (view.dtype == DType::kF32) {
    float value;
    std::memcpy(&value, data + at * 4, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + at * 2, sizeof bits);
  return view.dtype == DType::kF16 ? to_float(Float16{bits}) : to_float(BFloat16{bits});
}

float element_at(const TensorView& view, int64_t row, int64_t column) {
  return folder_number(view, row * view.row_stride + column);
}

float changed_number(float value, GgufChange change) {
  if (change == GgufChange::kNone) return value;
  return change == GgufChange::kAddsOne ? value + 1.0f
                                        : static_cast<float>(-std::exp(static_cast<double>(value)));
}

// A parameter as rows of its last dimension.
class FolderRows : public GgufFolderRows {
 public:
  explicit FolderRows(const TensorView& view)
      : view_(view), columns_(view.shape[view.shape.rank() - 1]) {}

  void read(int64_t row, float* out) const override {
    for (int64_t i = 0; i < columns_; ++i) out[i] = number(row, i);
  }
  float number(int64_t row, int64_t column) const override {
    return folder_number(view_, row * columns_ + column);
  }

 private:
  const TensorView& view_;
  int64_t columns_;
};

// Rows of `columns` numbers that `fill` gives, some at a time.
Status write_rows(int64_t rows, int64_t columns, const GgufRowEncoder& encoder,
                  const GgufOnWritten& on_written, const GgufSink& sink,
                  const std::function<void(int64_t row, float* out)>& fill) {
  const size_t row_bytes = encoder.row_bytes(columns);
  const int64_t step = std::clamp<int64_t>(kExportChunk / columns, 1, rows);
  std::vector<float> values(static_cast<size_t>(columns));
  std::vector<std::byte> blocks(static_cast<size_t>(step) * row_bytes);
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t count = std::min(step, rows - begin);
    for (int64_t i = 0; i < count; ++i) {
      fill(begin + i, values.data());
      JIGE_DO(encoder.encode(values, &blocks[static_cast<size_t>(i) * row_bytes]));
    }
    const size_t bytes = static_cast<size_t>(count) * row_bytes;
    JIGE_DO(sink({blocks.data(), bytes}));
    JIGE_DO(on_written(bytes));
  }
  return {};
}

}  // namespace

GgufRowEncoder::GgufRowEncoder(const GgufTypeInfo& type, const GgufExportOptions& options,
                               std::string name)
    : type_(&type), folder_(options.folder), name_(std::move(name)) {
  const auto encoder = options.encoders.find(type.number);
  if (encoder != options.encoders.end()) encoder_ = encoder->second;
}

size_t GgufRowEncoder::row_bytes(int64_t columns) const {
  return static_cast<size_t>(columns) / type_->block_elements * type_->block_bytes;
}

Status GgufRowEncoder::encode(std::span<const float> values, std::byte* blocks) const {
  if (encoder_) {
    encoder_(values.data(), static_cast<int64_t>(values.size()), blocks);
    return {};
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (type_->number == kGgufF32) {
      std::memcpy(blocks + 4 * i, &values[i], sizeof values[i]);
      continue;
    }
    uint16_t bits = to_bfloat16(values[i]).bits;
    if (type_->number == kGgufF16) {
      const Float16 half = to_float16(values[i]);
      if (std::isinf(to_float(half)) && !std::isinf(values[i])) {
        return fail(Code::kUnsupported,
                    "{}: tensor \"{}\" holds {}, which f16 cannot hold; use --type bf16 or f32",
                    folder_, name_, values[i]);
      }
      bits = half.bits;
    }
    std::memcpy(blocks + 2 * i, &bits, sizeof bits);
  }
  return {};
}

std::vector<int64_t> GgufTensorExport::dims() const {
  std::vector<int64_t> dims;
  for (int axis = 0; axis < param_.shape.rank(); ++axis) dims.push_back(param_.shape[axis]);
  if (!param_.stored_dims.empty()) return param_.stored_dims;
  if (turned()) std::swap(dims[0], dims[1]);
  if (param_.flat) dims.erase(dims.begin());
  return dims;
}

Status GgufTensorExport::produce(const GgufSink& sink) const {
  // A vector is one row of the file.
  const bool vector = param_.shape.rank() == 1 && param_.stored_dims.empty();
  const std::vector<int64_t> stored = dims();
  const int64_t columns = stored.back();
  const int64_t rows = vector || param_.flat ? 1 : param_.shape.count() / columns;
  return write_rows(rows, columns, encoder_, on_written_, sink, [&](int64_t row, float* out) {
    for (int64_t column = 0; column < columns; ++column) {
      out[column] = vector ? vector_value(column) : value(row, column);
    }
  });
}

float GgufTensorExport::vector_value(int64_t column) const {
  return changed(element_at(view_, param_.folder_row(column), 0), column);
}

float GgufTensorExport::value(int64_t row, int64_t column) const {
  // The same numbers in another shape.
  if (!param_.stored_dims.empty()) {
    return changed(folder_number(view_, row * param_.stored_dims.back() + column), row);
  }
  return changed(
      turned() ? element_at(view_, column, row) : element_at(view_, param_.folder_row(row), column),
      row);
}

float GgufTensorExport::changed(float value, int64_t row) const {
  if (param_.written_scale) {
    value = static_cast<float>(static_cast<double>(value) * param_.written_scale(row));
  }
  return changed_number(value, param_.change);
}

Status write_made_gguf(const TensorView& view, const GgufStored& stored, GgufChange change,
                       const GgufRowEncoder& encoder, const GgufOnWritten& on_written,
                       const GgufSink& sink) {
  const FolderRows folder(view);
  const int64_t columns = stored.dims.back();
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < stored.dims.size(); ++i) rows *= stored.dims[i];
  return write_rows(rows, columns, encoder, on_written, sink, [&](int64_t row, float* out) {
    stored.write(folder, row, out);
    for (int64_t i = 0; i < columns; ++i) out[i] = changed_number(out[i], change);
  });
}

float first_number(const TensorView& view) { return folder_number(view, 0); }

Status write_mxfp4_gguf(const TensorView& codes, const TensorView& scales, size_t source,
                        size_t sources, const GgufOnWritten& on_written, const GgufSink& sink) {
  constexpr int64_t kCodes = 16;  // bytes of a block
  const int64_t blocks = scales.shape[2];
  const auto step = static_cast<int64_t>(sources);
  const int64_t rows = scales.shape[0] * scales.shape[1] / step;
  const auto* code = codes.as<uint8_t>();
  const auto* scale = scales.as<uint8_t>();
  const int64_t height = std::clamp<int64_t>(kExportChunk / (2 * kCodes * blocks), 1, rows);
  std::vector<std::byte> some;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t first = (i * step + static_cast<int64_t>(source)) * blocks;
    for (int64_t block = first; block < first + blocks; ++block) {
      some.push_back(static_cast<std::byte>(scale[block]));
      // In folders neighbours share a byte, in files numbers of the two halves of a block.
      const auto number = [&](int64_t at) {
        return code[block * kCodes + at / 2] >> (at % 2 == 0 ? 0 : 4) & 15;
      };
      for (int64_t at = 0; at < kCodes; ++at) {
        some.push_back(static_cast<std::byte>(number(at) | number(at + kCodes) << 4));
      }
    }
    if ((i + 1) % height != 0 && i + 1 < rows) continue;
    JIGE_DO(sink(some));
    JIGE_DO(on_written(some.size()));
    some.clear();
  }
  return {};
}

}  // namespace jige::formats
