// How far a model's logits are from those that transformers gave.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "formats/safetensors.h"
#include "model/inference.h"
#include "model/model_test_support.h"

namespace jige::model::testing {

struct LogitsDistance {
  double mean = 0;
  double largest = 0;
};

// Of the model in a folder, from the tokens and logits that the folder of a fixture has recorded.
inline LogitsDistance distance_from_recorded(const std::string& recorded, const std::string& folder,
                                             DType compute, ops::WeightFormat format) {
  const auto file = value_of(formats::open_safetensors(recorded + "/expected.safetensors"));
  const auto tokens = value_of(file.view("tokens"));
  const auto expected = value_of(file.view("logits"));
  CpuDevice device({.thread_count = 2});
  const auto model = value_of(InferenceModel::load(folder, device,
                                                   {.compute = compute,
                                                    .format = format,
                                                    .context_max = 64,
                                                    .kv_block_count = 4,
                                                    .batch_tokens_max = 64,
                                                    .logit_rows_max = 64}));
  const auto count = static_cast<size_t>(tokens.count());
  const std::vector<int32_t> blocks = {0, 1, 2, 3};
  const ops::SequenceSpan sequence{.row_count = static_cast<int32_t>(count),
                                   .blocks = blocks.data()};
  std::vector<int32_t> rows(count);
  std::iota(rows.begin(), rows.end(), 0);
  const auto logits = value_of(model->forward({.tokens = std::span(tokens.as<int32_t>(), count),
                                               .sequences = std::span(&sequence, 1),
                                               .logit_rows = rows}));
  LogitsDistance distance;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double difference = std::abs(double{logits[i]} - expected.as<float>()[i]);
    distance.mean += difference / static_cast<double>(logits.size());
    distance.largest = std::max(distance.largest, difference);
  }
  return distance;
}

}  // namespace jige::model::testing
