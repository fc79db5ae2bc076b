// The model that a run starts from, beside the one that learns: what it thinks of answers that were
// just drawn. Its weights are held as for inference, once, and nothing of them is trained.
//
// Invariant: with f32 its log-probabilities have the bits of those that the learning model has
// before its first update.
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/inference.h"
#include "train/options.h"

namespace jige::train {

class ReferenceModel {
 public:
  // The bytes that load() takes. Fails as the readers of the folder do.
  static Result<int64_t> memory_bytes(const TrainOptions& options);
  // The same of a folder with such a model, whose embedding tables are stored in `table_dtype`.
  static Result<int64_t> memory_bytes(const TrainOptions& options,
                                      const model::Architecture& architecture, DType table_dtype);
  // Loads the folder that the run starts from. Fails as InferenceModel::load.
  // REQUIRES: options.context.
  static Result<ReferenceModel> load(const TrainOptions& options, Device& device);

  // Of the last `count` tokens of a text, given those before them. Fails as InferenceModel::losses.
  // REQUIRES: count < tokens.size() <= context + 1.
  Result<std::vector<float>> logprobs(std::span<const int32_t> tokens, int64_t count);
  int64_t peak_bytes() const { return model_->peak_bytes(); }

 private:
  explicit ReferenceModel(std::unique_ptr<model::InferenceModel> model);

  std::unique_ptr<model::InferenceModel> model_;
  std::vector<int32_t> blocks_;
};

}  // namespace jige::train
