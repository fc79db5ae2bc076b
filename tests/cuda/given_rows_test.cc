// Rows in place of tokens' embeddings on a GPU, beside the same on the CPU.
#include <algorithm>
#include <numeric>

#include "cuda/test_device.h"
#include "model/inference.h"

namespace jige {
namespace {

using model::GivenRow;
using model::InferenceModel;

constexpr int32_t kPromptRows = 24;
constexpr int32_t kGivenRows = 14;

// Logits of forwards whose rows are given, each with values of its own, and of one without.
std::vector<float> logits_of_forwards(InferenceModel& model) {
  const auto width = static_cast<size_t>(model.config().hidden_size);
  const std::vector<int32_t> blocks = {1, 0};
  const ops::SequenceSpan sequence{.row_count = kPromptRows, .blocks = blocks.data()};
  std::vector<int32_t> tokens(kPromptRows), wanted(kPromptRows);
  std::iota(tokens.begin(), tokens.end(), 5);
  std::iota(wanted.begin(), wanted.end(), 0);
  std::vector<float> all;
  for (int forward = 0; forward < 4; ++forward) {
    std::vector<float> values(kGivenRows * width);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>((i * 7 + static_cast<size_t>(forward) * 5) % 19) * 0.1f - 0.9f;
    }
    std::vector<GivenRow> given;
    for (int32_t i = 0; forward < 3 && i < kGivenRows; ++i) {
      // Of the third forward some stand apart, and the graph of the others does not fit.
      const int32_t row = 3 + i + (forward == 2 && i > 6 ? 4 : 0);
      given.push_back({row, values.data() + static_cast<size_t>(i) * width});
    }
    const auto logits = model.forward({.tokens = tokens,
                                       .sequences = std::span(&sequence, 1),
                                       .logit_rows = wanted,
                                       .given = given});
    EXPECT_TRUE(logits) << logits.error().message;
    if (logits) all.insert(all.end(), logits->begin(), logits->end());
  }
  return all;
}

class CudaModelGivenRows : public CudaTest {};

TEST_F(CudaModelGivenRows, GiveTheLogitsOfTheCpu) {
  for (const std::string name : {"llama3", "ministral3", "gemma2", "qwen3_5"}) {
    SCOPED_TRACE(name);
    const std::string folder = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/" + name;
    model::InferenceOptions options{.compute = DType::kF32, .context_max = 32};
    options.kv_block_count = 4;
    options.logit_rows_max = kPromptRows;
    const auto on_cpu = InferenceModel::load(folder, cpu_, options);
    const auto on_gpu = InferenceModel::load(folder, *gpu_, options);
    ASSERT_TRUE(on_cpu && on_gpu);
    const std::vector<float> expected = logits_of_forwards(**on_cpu);
    const std::vector<float> got = logits_of_forwards(**on_gpu);
    ASSERT_EQ(got.size(), expected.size());
    float most = 0, size = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      most = std::max(most, std::abs(got[i] - expected[i]));
      size = std::max(size, std::abs(expected[i]));
    }
    EXPECT_LT(most, 2e-5f * size);
    const auto forward = [&](int i) {
      const auto step = static_cast<ptrdiff_t>(got.size() / 4);
      return std::vector<float>(got.begin() + i * step, got.begin() + (i + 1) * step);
    };
    EXPECT_NE(forward(0), forward(1)) << "the rows are read anew";
    EXPECT_NE(forward(1), forward(3));
  }
}

// A folder's text goes on there.
TEST_F(CudaModelGivenRows, HaveNoPlacesByLineAndColumn) {
  const std::string folder = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/image_towers/qwen3_vl";
  model::InferenceOptions options{.compute = DType::kF32, .context_max = 32};
  options.kv_block_count = 4;
  options.logit_rows_max = kPromptRows;
  const auto on_gpu = InferenceModel::load(folder, *gpu_, options);
  ASSERT_TRUE(on_gpu);
  const Status refused = (*on_gpu)->turn_by_places(model::PairPlaces(8, 0));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_NE(refused.error().message.find("GPUs"), std::string::npos);
  EXPECT_FALSE((*on_gpu)->turns_by_places());
  EXPECT_FALSE(logits_of_forwards(**on_gpu).empty());
}

TEST_F(CudaModelGivenRows, ThatSeeOneAnotherAreRefused) {
  const std::string folder = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/gemma3";
  model::InferenceOptions options{.compute = DType::kF32, .context_max = 32};
  options.logit_rows_max = kPromptRows;
  const auto model = InferenceModel::load(folder, *gpu_, options);
  ASSERT_TRUE(model) << model.error().message;
  const Status refused = (*model)->check_mutual_rows();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_NE(refused.error().message.find("--device cpu"), std::string::npos);
  const std::vector<int32_t> blocks = {1, 0};
  const std::vector<int32_t> tokens(8, 5);
  const ops::SequenceSpan sequence{.row_count = 8, .blocks = blocks.data()};
  const model::RowRange mutual{2, 5};
  const auto logits = (*model)->forward({.tokens = tokens,
                                         .sequences = std::span(&sequence, 1),
                                         .logit_rows = {},
                                         .mutual = std::span(&mutual, 1)});
  ASSERT_FALSE(logits);
  EXPECT_EQ(logits.error().code, Code::kUnsupported);
  EXPECT_TRUE((*model)->forward(
      {.tokens = tokens, .sequences = std::span(&sequence, 1), .logit_rows = {}}));
}

}  // namespace
}  // namespace jige
