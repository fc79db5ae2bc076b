#include "model/adapter_columns.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

#include "model/param_loader.h"
#include "model/tensor_convert.h"

namespace jige::model {
namespace {

// A tensor of an adapter as f32, its rows in the order that the model has them.
std::vector<float> own_rows(const TensorView& stored, const ParamSpec& spec) {
  std::vector<float> numbers(static_cast<size_t>(stored.count()));
  widen(numbers, stored.data, stored.dtype);
  if (!spec.stored_rows) return numbers;
  std::vector<float> own(numbers.size());
  rows_from_files(TensorView::of(own.data(), DType::kF32, stored.shape),
                  TensorView::of(numbers.data(), DType::kF32, stored.shape), *spec.stored_rows);
  return own;
}

}  // namespace

BaseNumbers::BaseNumbers(const formats::ModelConfig& config, std::string folder, int thread_count)
    : config_(config), folder_(std::move(folder)), thread_count_(thread_count) {}

Result<std::vector<float>> BaseNumbers::read(const ParamSpec& spec) {
  if (!files_) {
    JIGE_TRY(files_, formats::TensorFolder::open(folder_));
    device_ = std::make_unique<CpuDevice>(
        CpuDeviceOptions{.name = "adapters", .thread_count = thread_count_});
  }
  JIGE_TRY(const auto stream, device_->make_stream());
  JIGE_DO(check_params(config_, std::span(&spec, 1), *files_));
  std::vector<float> numbers(static_cast<size_t>(spec.shape.count()));
  BlockWeights weights;
  weights.params.push_back({.value = TensorView::of(numbers.data(), DType::kF32, spec.shape)});
  ParamLoader loader(config_, *files_, *stream, DType::kF32);
  JIGE_DO(loader.load(
      {.specs = std::span(&spec, 1), .weights = weights, .pack = [](const BlockWeights&) {}}));
  stream->synchronize();
  return numbers;
}

bool has_factors(const AdaptedPart& part) { return bool{part.pair.magnitude}; }

bool has_addends(const AdaptedPart& part) {
  return part.pair.bias_of_b || part.pair.bias || (part.pair.magnitude && part.bias);
}

std::vector<float> row_factors(ThreadTeam& team, const std::vector<float>& weight,
                               const std::vector<float>& a, const std::vector<float>& b,
                               const std::vector<float>& magnitude, float scale) {
  const size_t rows = magnitude.size();
  const size_t columns = weight.size() / rows;
  const size_t rank = b.size() / rows;
  std::vector<float> factors(rows);
  constexpr int64_t kRowsAtOnce = 16;
  team.parallel_for(std::ssize(factors), kRowsAtOnce, [&](int64_t begin, int64_t end, int) {
    std::vector<float> sum(columns);
    for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row) {
      const float* const own = weight.data() + row * columns;
      std::copy(own, own + columns, sum.begin());
      for (size_t i = 0; i < rank; ++i) {
        const float factor = scale * b[row * rank + i];
        const float* const from = a.data() + i * columns;
        for (size_t k = 0; k < columns; ++k) sum[k] += factor * from[k];
      }
      double square = 0;
      for (const float number : sum) square += double{number} * number;
      const double norm = std::sqrt(square);
      factors[row] = norm > 0 ? static_cast<float>(magnitude[row] / norm) : 0.0f;
    }
  });
  return factors;
}

Result<ColumnChange> column_change(BaseNumbers& base, const AdaptedPart& part) {
  const AdapterPair& pair = part.pair;
  const ParamSpec& spec = part.weight;
  ColumnChange change;
  if (has_factors(part)) {
    JIGE_TRY(const std::vector<float> weight, base.read(spec));
    std::vector<float> a(static_cast<size_t>(pair.a.count()));
    widen(a, pair.a.data, pair.a.dtype);
    change.factors = row_factors(base.team(), weight, a, own_rows(pair.b, spec),
                                 own_rows(pair.magnitude, spec), pair.scale);
  }
  if (!has_addends(part)) return change;
  change.addends.resize(static_cast<size_t>(pair.b.rows()));
  const auto add = [&](const std::vector<float>& numbers, const auto& factor_of) {
    for (size_t i = 0; i < numbers.size(); ++i) change.addends[i] += factor_of(i) * numbers[i];
  };
  if (part.bias) {
    JIGE_TRY(const std::vector<float> bias, base.read(*part.bias));
    // In place of the base's bias, which every row has got, stands the adapter's.
    const float kept = pair.bias ? 0.0f : 1.0f;
    add(bias, [&](size_t i) { return kept - (change.factors.empty() ? 1.0f : change.factors[i]); });
  }
  if (pair.bias) add(own_rows(pair.bias, spec), [](size_t) { return 1.0f; });
  if (pair.bias_of_b) {
    add(own_rows(pair.bias_of_b, spec), [&](size_t) { return pair.scale; });
  }
  for (float& addend : change.addends) addend *= part.bias_scale;
  return change;
}

}  // namespace jige::model
