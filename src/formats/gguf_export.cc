#include "formats/gguf_export.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "formats/gguf_config_writer.h"
#include "formats/gguf_params.h"
#include "formats/image_model_names.h"
#include "formats/tensor_folder.h"
#include "tensor/dtype.h"

namespace jige::formats {
namespace {

constexpr int64_t kExportChunk = int64_t{1} << 18;  // elements
constexpr uint32_t kQuantizationVersion = 2;

// Numbers of general.file_type: what most tensors are.
uint32_t file_type(uint32_t type) {
  switch (type) {
    case kGgufF32:
      return 0;
    case kGgufF16:
      return 1;
    case kGgufQ4_0:
      return 2;
    case kGgufQ8_0:
      return 7;
    default:
      return 32;  // BF16
  }
}

uint32_t plain_type(DType dtype) {
  return dtype == DType::kF32 ? kGgufF32 : dtype == DType::kF16 ? kGgufF16 : kGgufBF16;
}

float element_at(const TensorView& view, int64_t row, int64_t column) {
  const int64_t at = row * view.row_stride + column;
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

// One tensor on its way from the folder to the file.
class GgufTensorExport {
 public:
  GgufTensorExport(TensorView view, GgufParam param, const GgufTypeInfo& type,
                   const GgufExportOptions& options, std::function<Status(uint64_t)> on_written)
      : view_(view),
        param_(std::move(param)),
        type_(type),
        folder_(options.folder),
        on_written_(std::move(on_written)) {
    const auto encoder = options.encoders.find(type.number);
    if (encoder != options.encoders.end()) encoder_ = encoder->second;
  }

  std::vector<int64_t> dims() const {
    std::vector<int64_t> dims;
    for (int axis = 0; axis < param_.shape.rank(); ++axis) dims.push_back(param_.shape[axis]);
    if (!param_.stored_dims.empty()) return param_.stored_dims;
    if (turned()) std::swap(dims[0], dims[1]);
    if (param_.flat) dims.erase(dims.begin());
    return dims;
  }

  Status produce(const GgufSink& sink) const {
    // A vector is one row of the file.
    const bool vector = param_.shape.rank() == 1;
    const int64_t rows = vector || param_.flat ? 1 : dims()[0];
    const int64_t columns = dims().back();
    const auto row_bytes = static_cast<size_t>(columns) / type_.block_elements * type_.block_bytes;
    const int64_t step = std::clamp<int64_t>(kExportChunk / columns, 1, rows);
    std::vector<float> values(static_cast<size_t>(columns));
    std::vector<std::byte> blocks(static_cast<size_t>(step) * row_bytes);
    for (int64_t begin = 0; begin < rows; begin += step) {
      const int64_t count = std::min(step, rows - begin);
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t column = 0; column < columns; ++column) {
          values[static_cast<size_t>(column)] =
              vector ? vector_value(column) : value(begin + i, column);
        }
        JIGE_DO(encode(values, &blocks[static_cast<size_t>(i) * row_bytes]));
      }
      const size_t bytes = static_cast<size_t>(count) * row_bytes;
      JIGE_DO(sink({blocks.data(), bytes}));
      JIGE_DO(on_written_(bytes));
    }
    return {};
  }

 private:
  bool turned() const { return param_.order == RowOrder::kTransposed; }

  float vector_value(int64_t column) const {
    const float value = element_at(view_, param_.folder_row(column), 0);
    return param_.change == GgufChange::kAddsOne ? value + 1.0f : value;
  }

  float value(int64_t row, int64_t column) const {
    // The same numbers in another shape.
    if (!param_.stored_dims.empty()) {
      return element_at(view_, 0, row * param_.stored_dims.back() + column);
    }
    return turned() ? element_at(view_, column, row)
                    : element_at(view_, param_.folder_row(row), column);
  }

  Status encode(const std::vector<float>& values, std::byte* blocks) const {
    if (encoder_) {
      encoder_(values.data(), static_cast<int64_t>(values.size()), blocks);
      return {};
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (type_.number == kGgufF32) {
        std::memcpy(blocks + 4 * i, &values[i], sizeof values[i]);
        continue;
      }
      uint16_t bits = to_bfloat16(values[i]).bits;
      if (type_.number == kGgufF16) {
        const Float16 half = to_float16(values[i]);
        if (std::isinf(to_float(half)) && !std::isinf(values[i])) {
          return fail(Code::kUnsupported,
                      "{}: tensor \"{}\" holds {}, which f16 cannot hold; use --type bf16 or f32",
                      folder_, param_.name, values[i]);
        }
        bits = half.bits;
      }
      std::memcpy(blocks + 2 * i, &bits, sizeof bits);
    }
    return {};
  }

  TensorView view_;
  GgufParam param_;
  const GgufTypeInfo& type_;
  std::string folder_;
  GgufEncoder encoder_;
  std::function<Status(uint64_t)> on_written_;
};

class GgufExporter {
 public:
  explicit GgufExporter(const GgufExportOptions& options) : options_(options) {}

  Result<GgufExport> run() {
    JIGE_DO(check_target());
    JIGE_TRY(made_.config, load_model_config(options_.folder));
    if (made_.config.quantised) {
      return fail(Code::kUnsupported,
                  "{}: its weights are quantised ({}), which are not written as GGUF; export the "
                  "unquantised model",
                  options_.folder, quantised_text(*made_.config.quantised));
    }
    JIGE_TRY(const TensorFolder tensors, TensorFolder::open(options_.folder));
    GgufKeys keys;
    JIGE_DO(add_gguf_config(made_.config, options_.folder + "/config.json", keys));
    JIGE_DO(add_sources(tensors));
    keys.text("general.type", "model");
    if (!options_.name.empty()) keys.text("general.name", options_.name);
    keys.number("general.file_type", file_type(matrix_type()));
    keys.number("general.quantization_version", kQuantizationVersion);
    JIGE_TRY(made_.tokenizer, add_gguf_tokenizer(options_.folder, made_.config, keys));
    for (const GgufTensorSource& source : sources_) total_ += source.bytes();
    const std::string parent = std::filesystem::path(options_.file).parent_path().string();
    if (!parent.empty()) JIGE_DO(make_folders(parent));
    JIGE_TRY(made_.bytes, write_gguf(options_.file, keys, sources_));
    return std::move(made_);
  }

 private:
  Status check_target() const {
    std::error_code error;
    if (options_.replace || !std::filesystem::is_regular_file(options_.file, error)) return {};
    return fail(Code::kInvalidArgument,
                "{}: is there already; name another file, or replace it with --replace",
                options_.file);
  }

  // The type of matrices.
  uint32_t matrix_type() const {
    return options_.type.value_or(plain_type(made_.config.stored_dtype));
  }

  uint32_t type_of(const GgufParam& param, DType stored) const {
    const bool learned_positions = param.stored == "position_embd.weight";
    const bool router = param.stored.ends_with(".ffn_gate_inp.weight");
    const bool reshaped = !param.stored_dims.empty();
    if (param.shape.rank() == 1 || param.flat || router || learned_positions || reshaped) {
      return kGgufF32;
    }
    const uint32_t type = options_.type.value_or(plain_type(stored));
    if (!options_.encoders.contains(type)) return type;
    const int64_t columns = param.order == RowOrder::kTransposed ? param.shape[0] : param.shape[1];
    if (columns % find_gguf_type(type)->block_elements != 0) return kGgufF32;
    const bool decides = param.stored == "token_embd.weight" || param.stored == "output.weight";
    return decides ? kGgufQ8_0 : type;
  }

  Result<TensorView> view_of(const TensorFolder& tensors, const GgufParam& param) const {
    // Folders of GPT-2 may leave the prefix out.
    constexpr std::string_view kPrefix = "transformer.";
    std::string_view name = param.name;
    if (!tensors.find(name) && name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    const std::vector<std::string> others = names_beside_images(name);
    for (const std::string& other : others) {
      if (tensors.find(other)) name = other;
    }
    const StoredTensor* stored = tensors.find(name);
    if (!stored) {
      return fail(Code::kCorrupt, "{}: tensor \"{}\" is missing", options_.folder, param.name);
    }
    JIGE_TRY(const TensorView view, tensors.view(name));
    const bool floats =
        view.dtype == DType::kF32 || view.dtype == DType::kF16 || view.dtype == DType::kBF16;
    if (!floats || !(view.shape == param.shape)) {
      return fail(Code::kCorrupt, "{}: tensor \"{}\" is {} {}; it must be f32, f16 or bf16 {}",
                  options_.folder, param.name, dtype_info(view.dtype).name, view.shape.to_string(),
                  param.shape.to_string());
    }
    return view;
  }

  Status add_sources(const TensorFolder& tensors) {
    const GgufLayout layout = *find_gguf_layout(gguf_architecture(made_.config.family));
    const std::vector<GgufParam> params = gguf_params(made_.config, layout);
    for (size_t at = 0; at < params.size();) {
      JIGE_TRY(const size_t count, add_source(tensors, std::span(params).subspan(at)));
      at += count;
    }
    const std::vector<float> factors = gguf_rope_factors(made_.config);
    if (factors.empty()) return {};
    ++made_.types["F32"];
    sources_.push_back({.name = "rope_freqs.weight",
                        .type = find_gguf_type(kGgufF32),
                        .dims = {static_cast<int64_t>(factors.size())},
                        .produce = [factors](const GgufSink& sink) {
                          return sink(std::as_bytes(std::span(factors)));
                        }});
    return {};
  }

  // The tensor of the first parameter, which may hold those behind it, too: the matrices of all
  // experts stand one behind the other. Returns how many.
  Result<size_t> add_source(const TensorFolder& tensors, std::span<const GgufParam> params) {
    const GgufParam& first = params.front();
    const auto count = static_cast<size_t>(std::max<int64_t>(first.stored_matrices, 1));
    std::vector<std::shared_ptr<const GgufTensorExport>> parts;
    const GgufTypeInfo* type = nullptr;
    for (const GgufParam& param : params.first(count)) {
      JIGE_TRY(const TensorView view, view_of(tensors, param));
      if (!type) type = find_gguf_type(type_of(param, view.dtype));
      parts.push_back(std::make_shared<const GgufTensorExport>(
          view, param, *type, options_, [this](uint64_t bytes) { return report(bytes); }));
    }
    ++made_.types[std::string(type->name)];
    std::vector<int64_t> dims = parts.front()->dims();
    if (first.stored_matrices > 0) dims.insert(dims.begin(), first.stored_matrices);
    sources_.push_back({.name = first.stored,
                        .type = type,
                        .dims = std::move(dims),
                        .produce = [parts](const GgufSink& sink) -> Status {
                          for (const auto& part : parts) JIGE_DO(part->produce(sink));
                          return {};
                        }});
    return count;
  }

  Status report(uint64_t bytes) {
    if (options_.cancelled && *options_.cancelled) {
      return fail(Code::kCancelled, "by a signal; {} was not written", options_.file);
    }
    done_ += bytes;
    if (options_.on_progress) options_.on_progress(done_, total_);
    return {};
  }

  const GgufExportOptions& options_;
  GgufExport made_;
  std::vector<GgufTensorSource> sources_;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
};

}  // namespace

Result<GgufExport> export_gguf(const GgufExportOptions& options) {
  return GgufExporter(options).run();
}

}  // namespace jige::formats
