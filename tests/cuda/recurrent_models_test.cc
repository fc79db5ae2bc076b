// Models with recurrent layers on a GPU: their states go on, are copied, and have the bits that a
// whole prompt gives.
#include <numeric>

#include "cuda/test_device.h"
#include "model/inference.h"

namespace jige {
namespace {

using model::InferenceModel;

class CudaModelRecurrent : public CudaTest {
 protected:
  std::unique_ptr<InferenceModel> load(const std::string& name, DType compute) {
    model::InferenceOptions options{.compute = compute, .context_max = 32};
    options.kv_block_count = 4;
    options.state_count = 3;
    options.logit_rows_max = 32;
    auto loaded = InferenceModel::load(
        std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/" + name, *gpu_, options);
    EXPECT_TRUE(loaded) << loaded.error().message;
    return std::move(*loaded);
  }
  // Logits of tokens [first, first + count) of one sequence.
  static std::vector<float> logits(InferenceModel& model, int32_t first, int32_t count,
                                   int32_t state) {
    static constexpr int32_t kBlocks[] = {2, 1};
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    for (int32_t i = 0; i < count; ++i) tokens[static_cast<size_t>(i)] = (first + i) * 7 % 31;
    std::vector<int32_t> rows(static_cast<size_t>(count));
    std::iota(rows.begin(), rows.end(), 0);
    const ops::SequenceSpan span = {
        .row_count = count, .context_count = first, .blocks = kBlocks, .state = state};
    const auto got = model.forward({.tokens = tokens, .sequences = {&span, 1}, .logit_rows = rows});
    EXPECT_TRUE(got) << got.error().message;
    return got ? std::vector<float>(got->begin(), got->end()) : std::vector<float>();
  }
};

// Tokens one by one after a prompt, from its state and from a copy; and all of them at once. In f32
// and of up to eight rows attention has one order, so everything has.
TEST_F(CudaModelRecurrent, TokensGiveWhatTheWholeTextGives) {
  for (const std::string name :
       {"qwen3_5", "qwen3_next", "granite_hybrid_dense", "lfm2", "falcon_h1", "olmo_hybrid"}) {
    const auto model = load(name, DType::kF32);
    const std::vector<float> whole = logits(*model, 0, 8, 2);
    std::vector<float> pieces = logits(*model, 0, 5, 0);
    ASSERT_TRUE(model->copy_state(0, 1));
    for (const int32_t token : {5, 6, 7}) {
      const std::vector<float> next = logits(*model, token, 1, 1);
      pieces.insert(pieces.end(), next.begin(), next.end());
    }
    EXPECT_EQ(pieces, whole) << name;
    const std::vector<float> again = logits(*model, 5, 3, 0);
    EXPECT_TRUE(std::equal(again.begin(), again.end(), whole.end() - std::ssize(again))) << name;
  }
}

// Guesses behind two tokens, of which the first alone is right: the spare state goes on behind it.
TEST_F(CudaModelRecurrent, ASpareStateGoesOnFromBeforeTheGuesses) {
  for (const std::string name :
       {"qwen3_5", "qwen3_next", "granite_hybrid_dense", "lfm2", "falcon_h1", "olmo_hybrid"}) {
    const auto model = load(name, DType::kF32);
    const std::vector<float> whole = logits(*model, 0, 8, 2);
    ASSERT_FALSE(logits(*model, 0, 3, 0).empty());
    static constexpr int32_t kBlocks[] = {2, 1};
    const std::vector<int32_t> tokens = {3 * 7 % 31, 4 * 7 % 31, 5 * 7 % 31, 9, 9};
    const std::vector<int32_t> rows = {1, 2};
    const ops::SequenceSpan span = {.row_count = 5,
                                    .context_count = 3,
                                    .blocks = kBlocks,
                                    .state = 0,
                                    .spare = 1,
                                    .spare_rows = 2};
    const auto got =
        model->forward({.tokens = tokens, .sequences = {&span, 1}, .logit_rows = rows});
    ASSERT_TRUE(got) << got.error().message;
    const auto columns = std::ssize(whole) / 8;
    EXPECT_TRUE(std::equal(got->begin(), got->end(), whole.begin() + 4 * columns)) << name;
    const std::vector<float> rest = logits(*model, 5, 3, 1);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), whole.begin() + 5 * columns)) << name;
  }
}

// Longer ones: attention takes its rows otherwise.
TEST_F(CudaModelRecurrent, PromptsInPiecesGiveNearlyWhatTheyGiveWhole) {
  const auto model = load("granite_hybrid", DType::kF32);
  const std::vector<float> whole = logits(*model, 0, 29, 0);
  std::vector<float> pieces = logits(*model, 0, 17, 1);
  const std::vector<float> rest = logits(*model, 17, 12, 1);
  pieces.insert(pieces.end(), rest.begin(), rest.end());
  ASSERT_EQ(pieces.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(pieces[i], whole[i], 1e-4) << i;
}

}  // namespace
}  // namespace jige
