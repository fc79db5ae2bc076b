#include "serve/roofline.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "serve/batch_runner.h"
#include "serve/serve_test_support.h"

namespace jige::serve {
namespace {

using testing::Loaded;

// Width 32, feed-forward 40, 4 heads of 8 with keys and values of their own, 2 layers, 96 tokens.
constexpr double kBody = 2 * (4 * 32 * 32 + 3 * 32 * 40);
constexpr double kHead = 96 * 32;
constexpr double kKvBytesPerToken = 2 * 2 * 32 * 4;  // layers, keys and values, width, f32

RooflineSample sample_of(const RooflineModel& roofline, const ops::SequenceSpan& sequence) {
  RooflineSample sample;
  roofline.add_forward(sample, std::span(&sequence, 1), 0);
  return sample;
}

TEST(Roofline, CountsBytesAndOperationsOfAForward) {
  Loaded loaded("llama2", {.compute = DType::kF32});
  const RooflineModel roofline(loaded.model->architecture(), loaded.model->sizes());
  const std::vector<ops::SequenceSpan> sequences = {{.row_count = 3, .context_count = 0},
                                                    {.row_count = 1, .context_count = 10}};
  RooflineSample sample;
  roofline.add_forward(sample, sequences, 2);
  EXPECT_EQ(sample.tokens, 4);
  EXPECT_EQ(sample.bytes,
            roofline.body_bytes(4) + roofline.head_bytes() + (3 + 11) * kKvBytesPerToken);
  // Row and key pairs: 1 + 2 + 3 and 11; two products of 32 columns in 2 layers for each.
  EXPECT_EQ(sample.flops, 2 * (4 * kBody + 2 * kHead) + 17 * 2 * 2 * 32 * 2);
  const RooflineSample before = sample;
  roofline.add_forward(sample, std::span(sequences).first(1), 0);  // without the head
  EXPECT_EQ(sample.bytes - before.bytes, roofline.body_bytes(3) + 3 * kKvBytesPerToken);
}

TEST(Roofline, WeightsCountAsTheyArePacked) {
  const auto roofline_of = [](const model::InferenceOptions& options) {
    Loaded loaded("llama2", options);
    return RooflineModel(loaded.model->architecture(), loaded.model->sizes());
  };
  const RooflineModel wide = roofline_of({.compute = DType::kF32});
  const RooflineModel narrow = roofline_of({.compute = DType::kBF16});
  const RooflineModel few_bits =
      roofline_of({.compute = DType::kBF16, .format = ops::WeightFormat::kQ4});
  // Columns are filled up to whole panels.
  EXPECT_GE(wide.body_bytes(1), 4 * kBody);
  EXPECT_LE(wide.body_bytes(1), 1.5 * 4 * kBody);
  EXPECT_LE(narrow.body_bytes(1), 0.7 * wide.body_bytes(1));
  EXPECT_LE(few_bits.body_bytes(1), 0.5 * narrow.body_bytes(1));
  EXPECT_LE(few_bits.head_bytes(), 0.8 * narrow.head_bytes());
  const ops::SequenceSpan sequence{.row_count = 1, .context_count = 20};
  EXPECT_EQ(sample_of(few_bits, sequence).flops, sample_of(wide, sequence).flops);
}

// Width 32, 4 heads of 12, of keys 2, 7 experts of 20 of which a row has 3, 2 layers.
TEST(Roofline, ExpertsCountWhereRowsChooseThem) {
  Loaded loaded("qwen3_moe", {.compute = DType::kF32});
  const RooflineModel roofline(loaded.model->architecture(), loaded.model->sizes());
  constexpr double kExperts = 2 * 3 * 32 * 20;
  constexpr double kOthers = 2 * 32 * (48 + 24 + 24 + 48 + 7);
  const RooflineSample sample = sample_of(roofline, {.row_count = 1, .context_count = 0});
  EXPECT_EQ(sample.flops, 2 * (kOthers + 3 * kExperts) + 2 * 4 * 48);
  const double others = roofline.body_bytes(0);
  const double all = roofline.body_bytes(1000) - others;
  EXPECT_GE(all, 4 * 7 * kExperts);
  EXPECT_NEAR(roofline.body_bytes(1) - others, all * 3 / 7, 1e-6 * all);
  // A second row chooses three of seven, too: of those that the first has left, as of the others.
  EXPECT_NEAR(roofline.body_bytes(2) - others, all * (3 + 4.0 * 3 / 7) / 7, 1e-6 * all);
}

// 2 layers with a window of 9 tokens; 2 heads of 12 for keys and as many for values, 4 of queries.
TEST(Roofline, RowsSeeTheirWindow) {
  Loaded loaded("mistral", {.compute = DType::kF32, .kv_dtype = DType::kF32});
  const RooflineModel roofline(loaded.model->architecture(), loaded.model->sizes());
  const RooflineSample far = sample_of(roofline, {.row_count = 1, .context_count = 40});
  const RooflineSample near = sample_of(roofline, {.row_count = 1, .context_count = 3});
  EXPECT_EQ(far.bytes - near.bytes, (9 - 4) * 2 * (2 * 2 * 12 * 4));
  EXPECT_EQ(far.flops - near.flops, (9 - 4) * 2 * (2 * 2 * 4 * 12));
  const RooflineSample two = sample_of(roofline, {.row_count = 2, .context_count = 40});
  EXPECT_EQ(two.bytes - far.bytes,
            roofline.body_bytes(2) - roofline.body_bytes(1) + 1 * 2 * (2 * 2 * 12 * 4));
}

// BERT of width 24 with a feed-forward of 40 and 2 layers.
TEST(Roofline, TokensOfWholeTextsSeeAllOthers) {
  CpuDevice device({.thread_count = 1});
  const std::string folder = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/embedding/bert";
  const auto model = value_of(model::InferenceModel::load(folder, device, {.embeds = true}));
  const RooflineModel roofline(model->architecture(), model->sizes());
  constexpr double kLayers = 2 * (4 * 24 * 24 + 2 * 24 * 40);
  const RooflineSample sample = sample_of(roofline, {.row_count = 6, .context_count = 0});
  EXPECT_EQ(sample.flops, 2 * 6 * kLayers + 6 * 6 * 2 * 2 * 24 * 2);
  EXPECT_EQ(sample.bytes, roofline.body_bytes(6)) << "there is no cache";
}

TEST(Roofline, CountsTheScalesOfACacheIn8Bits) {
  Loaded loaded("llama2", {.compute = DType::kF32, .kv_dtype = DType::kI8});
  const RooflineModel roofline(loaded.model->architecture(), loaded.model->sizes());
  const RooflineSample sample = sample_of(roofline, {.row_count = 1, .context_count = 20});
  // Layers, keys and values, 4 heads of 8 numbers and a scale of 2 bytes.
  EXPECT_EQ(sample.bytes, roofline.body_bytes(1) + 21 * (2 * 2 * 4 * (8 + 2)));
}

TEST(RecentWork, ForgetsWhatLiesBackAndKeepsRates) {
  RecentWork recent;
  EXPECT_EQ(recent.requests_per_s(), 0);
  const RooflineSample slow{.bytes = 100, .flops = 1000, .seconds = 1, .tokens = 10};
  for (int i = 0; i < 100; ++i) recent.add(slow, 2);
  EXPECT_NEAR(recent.sum().bytes_per_s(), 100, 1e-6);
  EXPECT_NEAR(recent.sum().flops_per_s(), 1000, 1e-6);
  EXPECT_NEAR(recent.sum().tokens_per_s(), 10, 0.5);
  EXPECT_NEAR(recent.requests_per_s(), 2, 1e-6);
  EXPECT_NEAR(recent.sum().seconds, 1 / (1 - std::exp(-0.1)), 0.01);
  const RooflineSample fast{.bytes = 400, .flops = 4000, .seconds = 1, .tokens = 40};
  for (int i = 0; i < 10; ++i) recent.add(fast, 6);
  EXPECT_GT(recent.sum().bytes_per_s(), 250);
  EXPECT_LT(recent.sum().bytes_per_s(), 400);
  for (int i = 0; i < 90; ++i) recent.add(fast, 6);
  EXPECT_NEAR(recent.sum().bytes_per_s(), 400, 0.1);
  EXPECT_NEAR(recent.requests_per_s(), 6, 0.01);
}

Status run(BatchRunner& runner, const plan::Batch& batch, const BatchRunner::Readers& readers) {
  JIGE_DO(runner.begin(batch, readers));
  return runner.finish(readers);
}

// A batch larger than the model's limits gives the logits of a model that takes it whole.
TEST(BatchRunner, CutsBatchesWithoutChangingBits) {
  Loaded whole("qwen3", {.kv_block_count = 16, .batch_tokens_max = 64, .logit_rows_max = 8});
  Loaded small("qwen3", {.kv_block_count = 16, .batch_tokens_max = 5, .logit_rows_max = 2});
  plan::Batch batch;
  for (int32_t i = 0; i < 5; ++i) {
    plan::WorkItem item{.request = i, .blocks = {3 * i, 3 * i + 1, 3 * i + 2}, .samples = i != 3};
    for (int32_t token = 0; token < 1 + 4 * i; ++token) item.tokens.push_back(5 + token * i);
    batch.items.push_back(item);
  }
  const auto logits_of = [&](model::InferenceModel& model) {
    std::map<size_t, std::vector<float>> logits;
    BatchRunner runner(model);
    const auto keep = [&](std::span<const size_t> items, const model::LogitRows& rows) {
      ASSERT_FALSE(items.empty());
      for (size_t i = 0; i < items.size(); ++i) {
        EXPECT_TRUE(logits.empty() || logits.rbegin()->first < items[i]);
        const auto row = rows.row(i);
        logits[items[i]].assign(row.begin(), row.end());
      }
    };
    const Status status = run(runner, batch, {.sampled = keep});
    EXPECT_TRUE(status);
    EXPECT_EQ(runner.work().tokens, batch.token_count());
    return logits;
  };
  const auto expected = logits_of(*whole.model);
  EXPECT_EQ(expected.size(), 4u);
  EXPECT_EQ(logits_of(*small.model), expected);

  // Of items that take the likeliest tokens there are these alone, whatever runs beside them.
  BatchRunner runner(*small.model);
  std::map<size_t, int32_t> likeliest;
  const auto keep = [&](std::span<const size_t> items, const model::LogitRows& rows) {
    for (size_t i = 0; i < items.size(); ++i) {
      const int32_t token = rows.token(i);
      EXPECT_EQ(token < 0, items[i] == 0) << "the first item wants its logits";
      if (token >= 0) {
        likeliest[items[i]] = token;
      } else {
        EXPECT_TRUE(std::ranges::equal(rows.row(i), expected.at(items[i])));
      }
    }
  };
  const auto row_draw = [](const plan::WorkItem& item, int32_t) {
    return ops::RowDraw{.kind = item.request == 0 ? ops::RowDraw::kHost : ops::RowDraw::kLikeliest};
  };
  ASSERT_TRUE(run(runner, batch, {.sampled = keep, .row_draw = row_draw}));
  EXPECT_EQ(likeliest.size(), 3u);
  for (const auto& [item, token] : likeliest) {
    const std::vector<float>& row = expected.at(item);
    EXPECT_EQ(token, std::max_element(row.begin(), row.end()) - row.begin());
  }
}

TEST(BatchRunner, CopiesBlocksBeforeItRuns) {
  Loaded loaded("llama2", {.kv_block_count = 4});
  BatchRunner runner(*loaded.model);
  std::vector<float> last;
  const auto keep = [&](std::span<const size_t>, const model::LogitRows& rows) {
    last.assign(rows.logits.begin(), rows.logits.end());
  };
  plan::Batch prompt;
  prompt.items.push_back({.tokens = {5, 6, 7, 8}, .blocks = {0}, .samples = true});
  ASSERT_TRUE(run(runner, prompt, {.sampled = keep}));
  plan::Batch next;
  next.items.push_back({.context_count = 4, .tokens = {9}, .blocks = {0}, .samples = true});
  ASSERT_TRUE(run(runner, next, {.sampled = keep}));
  const std::vector<float> expected = last;
  next.items[0].blocks = {2};
  next.copies = {{0, 2}};
  ASSERT_TRUE(run(runner, next, {.sampled = keep}));
  EXPECT_EQ(last, expected);
}

TEST(BatchRunner, ReportsWhatTheModelRefuses) {
  Loaded loaded("llama2", {.kv_block_count = 4});
  BatchRunner runner(*loaded.model);
  plan::Batch batch;
  batch.items.push_back({.tokens = {5, 960}, .blocks = {0}, .samples = true});
  int rows = 0;
  const auto count = [&](std::span<const size_t> items, const model::LogitRows&) {
    rows += static_cast<int>(items.size());
  };
  EXPECT_FALSE(run(runner, batch, {.sampled = count}));
  batch.items[0].tokens = {5, 6};
  EXPECT_TRUE(run(runner, batch, {.sampled = count}));  // nothing of the refused one is left
  EXPECT_EQ(rows, 1);
}

}  // namespace
}  // namespace jige::serve
