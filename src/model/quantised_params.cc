#include "model/quantised_params.h"

#include <algorithm>
#include <string>
#include <vector>

#include "formats/quantised_codes.h"
#include "model/architecture.h"
#include "model/tensor_convert.h"
#include "ops/linear.h"

namespace jige::model {
namespace {

constexpr std::string_view kWeight = ".weight";

// Numbers in floating point with a scale beside them are not what the model computes with.
Status check_plain(const formats::TensorFolder& files, const std::string& module) {
  for (const char* scale : {".weight_scale", ".weight_scale_inv"}) {
    if (!files.find(module + scale)) continue;
    return fail(
        Code::kUnsupported,
        "{}: tensor \"{}.weight\" is stored as {} with \"{}{}\" beside it: numbers that are "
        "still to be rounded; save the model compressed, or take the unquantised one",
        files.folder(), module, files.find(module + ".weight")->dtype_name, module, scale);
  }
  return {};
}

}  // namespace

Result<std::optional<formats::QuantisedMatrix>> open_quantised(const formats::ModelConfig& config,
                                                               const formats::TensorFolder& files,
                                                               const std::string& module) {
  if (!config.quantised) return std::nullopt;
  JIGE_TRY(const formats::QuantisedWeights* weights, config.quantised->find(module));
  if (!formats::QuantisedMatrix::stored(files, module)) {
    if (files.find(module + std::string(kWeight))) JIGE_DO(check_plain(files, module));
    return std::nullopt;
  }
  if (weights) return formats::QuantisedMatrix::open(files, module, *weights);
  return fail(Code::kCorrupt,
              "{}: the weights of \"{}\" are quantised, but quantization_config in config.json "
              "leaves them out; one of the two is of another model",
              files.folder(), module);
}

namespace {

// What to say where the files hold a matrix in no form: which part of the one that config.json has
// it in was looked for.
Result<std::optional<formats::QuantisedMatrix>> missing_quantised(
    const formats::ModelConfig& config, const formats::TensorFolder& files, const ParamSpec& spec) {
  const std::vector<std::string> names = Architecture::stored_names(spec);
  const auto there = [&](const std::string& name) { return files.find(name) != nullptr; };
  const bool plain = std::any_of(names.begin(), names.end(), there);
  if (!config.quantised || plain || !names.front().ends_with(kWeight)) return std::nullopt;
  const std::string module = names.front().substr(0, names.front().size() - kWeight.size());
  JIGE_TRY(const formats::QuantisedWeights* weights, config.quantised->find(module));
  if (!weights) return std::nullopt;
  return formats::QuantisedMatrix::open(files, module, *weights);
}

}  // namespace

Result<std::optional<formats::QuantisedMatrix>> find_quantised(const formats::ModelConfig& config,
                                                               const formats::TensorFolder& files,
                                                               const ParamSpec& spec) {
  if (!config.quantised || spec.shape.rank() != 2 || spec.adapter) return std::nullopt;
  for (const std::string& name : Architecture::stored_names(spec)) {
    if (!name.ends_with(kWeight)) continue;
    const std::string module = name.substr(0, name.size() - kWeight.size());
    JIGE_TRY(const auto matrix, open_quantised(config, files, module));
    if (!matrix) continue;
    if (matrix->rows() != spec.shape[0] || matrix->columns() != spec.shape[1]) {
      return fail(
          Code::kCorrupt,
          "{}: the quantised weights of \"{}\" are a matrix [{}, {}], but config.json makes "
          "it {}",
          files.folder(), module, matrix->rows(), matrix->columns(), spec.shape.to_string());
    }
    return matrix;
  }
  return missing_quantised(config, files, spec);
}

Result<TensorView> read_quantised(const formats::QuantisedMatrix& matrix, const std::string& folder,
                                  DType dtype, ThreadTeam& team, LoadBuffer& buffer) {
  const int64_t rows = matrix.rows();
  const int64_t columns = matrix.columns();
  JIGE_TRY(const TensorView param, buffer.make(folder, dtype, Shape{rows, columns}));
  auto* const to = static_cast<std::byte*>(param.data);
  team.parallel_for(rows, formats::kQuantisedStripRows, [&](int64_t begin, int64_t end, int) {
    std::vector<float> strip(static_cast<size_t>(formats::kQuantisedStripRows * columns));
    for (int64_t row = begin; row < end; row += formats::kQuantisedStripRows) {
      const int64_t count = std::min(formats::kQuantisedStripRows, end - row);
      const auto numbers = std::span(strip).first(static_cast<size_t>(count * columns));
      matrix.decode(numbers, row, count);
      narrow(to + dtype_bytes(dtype, row * columns), dtype, numbers);
    }
  });
  return param;
}

Result<TensorView> read_block_scales(const formats::QuantisedMatrix& matrix,
                                     const std::string& folder, ThreadTeam& team,
                                     LoadBuffer& buffer) {
  const int64_t rows = matrix.rows();
  const int64_t blocks = (matrix.columns() + ops::kWeightBlock - 1) / ops::kWeightBlock;
  JIGE_TRY(const TensorView scales, buffer.make(folder, DType::kF16, Shape{rows, blocks}));
  team.parallel_for(rows, formats::kQuantisedStripRows, [&](int64_t begin, int64_t end, int) {
    const TensorView part = scales.row_range(begin, end);
    matrix.block_scales(std::span(part.as<Float16>(), static_cast<size_t>(part.count())), begin,
                        end - begin, ops::kWeightBlock);
  });
  return scales;
}

}  // namespace jige::model
