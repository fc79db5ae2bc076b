// merge_adapter: base folder + adapter folder -> folder, one tensor in memory at a time.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "formats/model_config.h"
#include "formats/tensor_folder.h"
#include "model/cancellable_source.h"
#include "model/tensor_convert.h"
#include "model/weights_save.h"

namespace jige::model {
namespace {

// The two matrices of an adapted module.
struct Adapter {
  TensorView a;  // [r, in]
  TensorView b;  // [out, r]
};

std::vector<float> widened(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.count()));
  widen(values, view.data, view.dtype);
  return values;
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
std::vector<float> merged_matrix(const TensorView& stored, const Adapter& adapter, float scale,
                                 bool transposed) {
  std::vector<float> rows = widened(stored);
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

Status check_fit(const std::string& where, const std::string& module, const Adapter& adapter,
                 const TensorView& stored, int64_t rank, bool transposed) {
  const auto is_matrix = [](const TensorView& view) { return view.shape.rank() == 2; };
  if (!adapter.a.data || !adapter.b.data) {
    return fail(Code::kCorrupt, "{}: module \"{}\" has only one of lora_A and lora_B", where,
                module);
  }
  if (!is_matrix(adapter.a) || !is_matrix(adapter.b) || !is_matrix(stored)) {
    return fail(Code::kCorrupt, "{}: module \"{}\" is not made of matrices", where, module);
  }
  const int64_t out = stored.shape[transposed ? 1 : 0];
  const int64_t in = stored.shape[transposed ? 0 : 1];
  if (adapter.a.shape == Shape{rank, in} && adapter.b.shape == Shape{out, rank}) return {};
  return fail(
      Code::kCorrupt,
      "{}: module \"{}\" has lora_A {} and lora_B {}, but rank {} on a base of {} outputs and {} "
      "inputs needs [{}, {}] and [{}, {}]",
      where, module, adapter.a.shape.to_string(), adapter.b.shape.to_string(), rank, out, in, rank,
      in, out, rank);
}

bool is_stored_float(const formats::StoredTensor& tensor) {
  return tensor.dtype == DType::kF32 || tensor.dtype == DType::kBF16 || tensor.dtype == DType::kF16;
}

using AdapterMap = std::map<std::string, Adapter, std::less<>>;

Result<AdapterMap> read_adapters(const formats::TensorFolder& files) {
  AdapterMap adapters;
  for (const formats::StoredTensor* tensor : files.tensors()) {
    if (!is_stored_float(*tensor)) {
      return fail(Code::kUnsupported,
                  "{}: tensor \"{}\" is stored as {}; supported are F32, BF16, F16", files.folder(),
                  tensor->name, tensor->dtype_name);
    }
    JIGE_TRY(const auto name, formats::parse_lora_tensor_name(tensor->name, files.folder()));
    JIGE_TRY(const TensorView view, files.view(tensor->name));
    Adapter& adapter = adapters[name.module];
    (name.part == formats::LoraPart::kA ? adapter.a : adapter.b) = view;
  }
  return adapters;
}

formats::TensorSource merged_source(const std::string& name, const TensorView& stored,
                                    const Adapter* adapter, float scale, bool transposed,
                                    DType dtype) {
  return {.name = name,
          .dtype = dtype,
          .shape = stored.shape,
          .produce = [=](const formats::RowSink& sink) -> Status {
            std::vector<float> values =
                adapter ? merged_matrix(stored, *adapter, scale, transposed) : widened(stored);
            std::vector<std::byte> out(static_cast<size_t>(dtype_bytes(dtype, stored.count())));
            narrow(out.data(), dtype, values);
            return sink(TensorView::of(out.data(), dtype, stored.shape));
          }};
}

}  // namespace

Status merge_adapter(const std::string& base_folder, const std::string& adapter_folder,
                     const std::string& folder, const SaveOptions& options) {
  JIGE_TRY(formats::ModelConfig config, formats::load_model_config(base_folder));
  JIGE_TRY(const auto lora, formats::load_lora_config(adapter_folder));
  JIGE_TRY(const auto base, formats::TensorFolder::open(base_folder));
  JIGE_TRY(const auto files, formats::TensorFolder::open(adapter_folder, "adapter_model"));
  JIGE_TRY(AdapterMap adapters, read_adapters(files));
  const bool transposed = config.family == formats::Family::kGpt2;
  const auto scale = static_cast<float>(lora.scale());

  std::vector<formats::TensorSource> sources;
  size_t used = 0;
  for (const formats::StoredTensor* tensor : base.tensors()) {
    if (!is_stored_float(*tensor)) continue;  // masks and the like, which no loader needs
    JIGE_TRY(const TensorView stored, base.view(tensor->name));
    std::string module = tensor->name.substr(0, tensor->name.rfind(".weight"));
    auto found = tensor->name.ends_with(".weight") ? adapters.find(module) : adapters.end();
    if (found == adapters.end() && transposed) found = adapters.find("transformer." + module);
    const Adapter* adapter = found == adapters.end() ? nullptr : &found->second;
    if (adapter) {
      JIGE_DO(check_fit(adapter_folder, module, *adapter, stored, lora.rank, transposed));
      ++used;
    }
    sources.push_back(
        cancellable(merged_source(tensor->name, stored, adapter, scale, transposed, options.dtype),
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
