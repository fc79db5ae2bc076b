// merge_adapter: base folder + adapter folder -> folder, one tensor in memory at a time.
#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "formats/image_model_names.h"
#include "formats/model_config.h"
#include "formats/tensor_folder.h"
#include "model/adapter_tensors.h"
#include "model/cancellable_source.h"
#include "model/quantised_params.h"
#include "model/stacked_tensors.h"
#include "model/tensor_convert.h"
#include "model/weights_save.h"

namespace jige::model {
namespace {

std::vector<float> widened(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.count()));
  widen(values, view.data, view.dtype);
  return values;
}

// Each of the matrices [E, K, N] as [N, K].
std::vector<float> turned_back(const TensorView& stored) {
  const std::vector<float> values = widened(stored);
  const auto columns = static_cast<size_t>(stored.shape[2]);
  const size_t inputs = static_cast<size_t>(stored.shape[1]);
  std::vector<float> turned(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t expert = i / (inputs * columns);
    const size_t k = i / columns % inputs;
    turned[(expert * columns + i % columns) * inputs + k] = values[i];
  }
  return turned;
}

// rows [R, C] += scale · left [R, r] · right [r, C], sums over r in ascending order.
void add_product(std::vector<float>& rows, const std::vector<float>& left,
                 const std::vector<float>& right, size_t rank, float scale) {
  const size_t columns = right.size() / rank;
  std::vector<float> delta(columns);
  for (size_t row = 0; row * columns < rows.size(); ++row) {
    std::fill(delta.begin(), delta.end(), 0.0f);
    for (size_t i = 0; i < rank; ++i) {
      const float factor = left[row * rank + i];
      const float* from = right.data() + i * columns;
      for (size_t column = 0; column < columns; ++column) {
        delta[column] = std::fma(factor, from[column], delta[column]);
      }
    }
    for (size_t column = 0; column < columns; ++column) {
      float& element = rows[row * columns + column];
      element = std::fma(scale, delta[column], element);
    }
  }
}

// The stored matrix with its adapter added; stored [out, in], or [in, out] where `transposed`.
std::vector<float> merged_matrix(std::vector<float> rows, const AdapterPair& adapter, float scale,
                                 bool transposed) {
  std::vector<float> a = widened(adapter.a);
  std::vector<float> b = widened(adapter.b);
  const auto rank = static_cast<size_t>(adapter.a.shape[0]);
  if (!transposed) {
    add_product(rows, b, a, rank, scale);
    return rows;
  }
  const auto turn = [](std::vector<float>& values, const Shape& shape) {
    std::vector<float> turned(values.size());
    transpose_into(TensorView::of(turned.data(), DType::kF32, Shape{shape[1], shape[0]}),
                   TensorView::of(values.data(), DType::kF32, shape));
    values = std::move(turned);
  };
  turn(a, adapter.a.shape);
  turn(b, adapter.b.shape);
  add_product(rows, a, b, rank, scale);
  return rows;
}

bool is_stored_float(const formats::StoredTensor& tensor) {
  return tensor.dtype == DType::kF32 || tensor.dtype == DType::kBF16 || tensor.dtype == DType::kF16;
}

// A tensor of the base as it is written, and its numbers when their turn comes.
struct BaseTensor {
  std::string name;
  Shape shape;
  std::function<std::vector<float>()> read;
};

// What an entry of the base's files is, under the name it has in a folder without images; none: a
// part of a tensor that another entry stands for, or something that is not needed, such as masks
// and what reads images.
Result<std::optional<BaseTensor>> base_tensor(const formats::ModelConfig& config,
                                              const formats::TensorFolder& base,
                                              const formats::StoredTensor& tensor) {
  if (formats::reads_images(tensor.name)) return std::nullopt;
  const size_t dot = tensor.name.rfind('.');
  const std::string module = tensor.name.substr(0, dot);
  const std::string part = dot == std::string::npos ? "" : tensor.name.substr(dot + 1);
  JIGE_TRY(const auto quantised, open_quantised(config, base, module));
  if (quantised && part != "bias") {
    if (part != "weight" && part != "weight_packed" && part != "qweight") return std::nullopt;
    const auto read = [matrix = *quantised] {
      std::vector<float> numbers(static_cast<size_t>(matrix.rows() * matrix.columns()));
      matrix.decode(numbers, 0, matrix.rows());
      return numbers;
    };
    return BaseTensor{.name = formats::name_without_images(module + ".weight"),
                      .shape = Shape{quantised->rows(), quantised->columns()},
                      .read = read};
  }
  if (!is_stored_float(tensor)) return std::nullopt;
  JIGE_TRY(const TensorView stored, base.view(tensor.name));
  if (is_turned_stack(config, tensor)) {
    return BaseTensor{.name = formats::name_without_images(tensor.name),
                      .shape = Shape{stored.shape[0], stored.shape[2], stored.shape[1]},
                      .read = [stored] { return turned_back(stored); }};
  }
  return BaseTensor{.name = formats::name_without_images(tensor.name),
                    .shape = stored.shape,
                    .read = [stored] { return widened(stored); }};
}

formats::TensorSource merged_source(const BaseTensor& tensor, const AdapterPair* adapter,
                                    float scale, bool transposed, DType dtype) {
  return {.name = tensor.name,
          .dtype = dtype,
          .shape = tensor.shape,
          .produce = [=](const formats::RowSink& sink) -> Status {
            std::vector<float> values = tensor.read();
            if (adapter) values = merged_matrix(std::move(values), *adapter, scale, transposed);
            std::vector<std::byte> out(static_cast<size_t>(dtype_bytes(dtype, std::ssize(values))));
            narrow(out.data(), dtype, values);
            return sink(TensorView::of(out.data(), dtype, tensor.shape));
          }};
}

}  // namespace

Status merge_adapter(const std::string& base_folder, const std::string& adapter_folder,
                     const std::string& folder, const SaveOptions& options) {
  JIGE_TRY(formats::ModelConfig config, formats::load_model_config(base_folder));
  JIGE_TRY(const auto lora, formats::load_lora_config(adapter_folder));
  JIGE_TRY(const auto base, formats::TensorFolder::open(base_folder));
  JIGE_TRY(const auto files, formats::TensorFolder::open(adapter_folder, kAdapterStem));
  JIGE_TRY(const AdapterPairs adapters, read_adapter_pairs(files));
  const bool transposed = config.family == formats::Family::kGpt2;
  const auto scale = static_cast<float>(lora.scale());

  std::vector<formats::TensorSource> sources;
  size_t used = 0;
  for (const formats::StoredTensor* tensor : base.tensors()) {
    constexpr std::string_view kBlocks = "_blocks";
    if (tensor->name.ends_with(kBlocks)) {
      const std::string name = tensor->name.substr(0, tensor->name.size() - kBlocks.size());
      JIGE_TRY(formats::TensorSource decoded, decoded_source(base, name, options.dtype));
      sources.push_back(cancellable(std::move(decoded), options.cancelled));
      continue;
    }
    JIGE_TRY(const std::optional<BaseTensor> read, base_tensor(config, base, *tensor));
    if (!read) continue;
    std::string module = read->name.substr(0, read->name.rfind(".weight"));
    const auto found = read->name.ends_with(".weight")
                           ? find_adapter_pair(adapters, module, config.family)
                           : adapters.end();
    const AdapterPair* adapter = found == adapters.end() ? nullptr : &found->second;
    if (adapter) {
      if (read->shape.rank() != 2) {
        return fail(Code::kCorrupt, "{}: module \"{}\" is no matrix in {}", adapter_folder, module,
                    base_folder);
      }
      const AdaptedMatrix matrix{.outputs = read->shape[transposed ? 1 : 0],
                                 .inputs = read->shape[transposed ? 0 : 1]};
      JIGE_DO(check_adapter_pair(adapter_folder, module, *adapter, matrix, lora));
      ++used;
    }
    sources.push_back(cancellable(merged_source(*read, adapter, scale, transposed, options.dtype),
                                  options.cancelled));
  }
  if (used != adapters.size()) {
    return fail(Code::kCorrupt, "{}: adapts {} modules, of which {} has only {}", adapter_folder,
                adapters.size(), base_folder, used);
  }
  JIGE_DO(make_folders(folder));
  JIGE_DO(
      formats::write_tensor_folder(folder, sources, {.shard_bytes_max = options.shard_bytes_max}));
  config.stored_dtype = options.dtype;
  return write_file_atomic(folder + "/config.json",
                           dump_json(formats::to_hf_config(config), 2) + "\n");
}

}  // namespace jige::model
