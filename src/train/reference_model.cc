#include "train/reference_model.h"

#include <numeric>

#include "formats/tensor_folder.h"
#include "model/inference_sizes.h"

namespace jige::train {
namespace {

// One text at a time.
model::InferenceOptions reference_options(const TrainOptions& options) {
  return {.compute = options.compute,
          .format = options.base_format,
          .context_max = options.context,
          .batch_tokens_max = options.context,
          .logit_rows_max = 1,
          .scores = true};
}

}  // namespace

Result<int64_t> ReferenceModel::memory_bytes(const TrainOptions& options) {
  JIGE_TRY(const formats::ModelConfig config, formats::load_model_config(options.init_folder));
  JIGE_TRY(const auto architecture, model::Architecture::create(config));
  JIGE_TRY(const auto files, formats::TensorFolder::open(options.init_folder));
  JIGE_TRY(const DType table_dtype, model::stored_table_dtype(*architecture, files));
  return memory_bytes(options, *architecture, table_dtype);
}

Result<int64_t> ReferenceModel::memory_bytes(const TrainOptions& options,
                                             const model::Architecture& architecture,
                                             DType table_dtype) {
  JIGE_TRY(const model::InferenceSizes sizes,
           model::inference_sizes_with({}, reference_options(options), architecture, table_dtype));
  return model::inference_memory(architecture, sizes).total_bytes();
}

Result<ReferenceModel> ReferenceModel::load(const TrainOptions& options, Device& device) {
  JIGE_TRY(auto model,
           model::InferenceModel::load(options.init_folder, device, reference_options(options)));
  return ReferenceModel(std::move(model));
}

ReferenceModel::ReferenceModel(std::unique_ptr<model::InferenceModel> model)
    : model_(std::move(model)), blocks_(static_cast<size_t>(model_->sizes().kv_block_count)) {
  std::iota(blocks_.begin(), blocks_.end(), 0);
}

Result<std::vector<float>> ReferenceModel::logprobs(std::span<const int32_t> tokens,
                                                    int64_t count) {
  const std::span<const int32_t> inputs = tokens.first(tokens.size() - 1);
  const ops::SequenceSpan span{.row_count = static_cast<int32_t>(inputs.size()),
                               .blocks = blocks_.data()};
  std::vector<model::TargetRow> targets;
  for (size_t row = inputs.size() - static_cast<size_t>(count); row < inputs.size(); ++row) {
    targets.push_back({.row = static_cast<int32_t>(row), .token = tokens[row + 1]});
  }
  JIGE_TRY(const std::span<const float> losses,
           model_->losses({.tokens = inputs, .sequences = std::span(&span, 1), .logit_rows = {}},
                          targets));
  std::vector<float> logprobs;
  for (const float loss : losses) logprobs.push_back(-loss);
  return logprobs;
}

}  // namespace jige::train
