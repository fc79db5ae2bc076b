// Rows that are given in place of tokens' embeddings: those of the table give the tokens' own bits.
#include <gmock/gmock.h>

#include <numeric>

#include "formats/safetensors.h"
#include "formats/tensor_folder.h"
#include "model/inference.h"
#include "model/layers_beyond.h"
#include "model/model_test_support.h"
#include "model/tensor_convert.h"

namespace jige::model {
namespace {

using testing::fixture;
using testing::fixture_names;
using ::testing::HasSubstr;
using testing::value_of;

const std::vector<int32_t> kGivenBlocks = {2, 0, 3, 1};
constexpr int32_t kGivenTokens = 40;

std::unique_ptr<InferenceModel> load_for_rows(const std::string& name, CpuDevice& device) {
  return value_of(InferenceModel::load(fixture(name), device,
                                       {.compute = DType::kF32,
                                        .context_max = 64,
                                        .kv_block_count = 8,
                                        .state_count = 2,
                                        .batch_tokens_max = 64,
                                        .logit_rows_max = 64}));
}

std::vector<int32_t> tokens_of(const InferenceModel& model) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < kGivenTokens; ++i) {
    tokens.push_back(static_cast<int32_t>((11 * i * i + 5) % model.config().vocab_size));
  }
  return tokens;
}

// The rows of these tokens as the embedding makes them: of a model with a table alone.
std::vector<float> rows_of_table(const std::string& name, const InferenceModel& model,
                                 std::span<const int32_t> tokens) {
  const auto files = value_of(formats::TensorFolder::open(fixture(name)));
  const ParamSpec& table = model.architecture().block(0).params()[Embedding::kTable];
  for (const std::string& stored : Architecture::stored_names(table)) {
    for (const std::string& in_files : Architecture::names_in_files(stored)) {
      const auto found = files.view(in_files);
      if (!found) continue;
      const int64_t width = model.config().hidden_size;
      std::vector<float> rows;
      for (const int32_t token : tokens) {
        const TensorView row = found->row_range(token, token + 1);
        std::vector<float> values(static_cast<size_t>(width));
        widen(values, row.data, row.dtype);
        for (const float value : values) {
          rows.push_back(value * static_cast<float>(model.config().embedding_scale));
        }
      }
      return rows;
    }
  }
  ADD_FAILURE() << name << ": no table";
  return {};
}

bool has_table_alone(const formats::ModelConfig& config) {
  return config.position != formats::PositionKind::kLearned && config.token_types == 0 &&
         !config.embedding_norm;
}

// All logits of a sequence in pieces of so many tokens, in which the rows of [begin, end) are
// given and their tokens are others.
std::vector<float> logits_of_rows(InferenceModel& model, std::span<const int32_t> tokens,
                                  std::span<const float> rows, int32_t begin, int32_t end,
                                  int32_t piece) {
  std::vector<float> all;
  const auto width = static_cast<size_t>(model.config().hidden_size);
  for (int32_t done = 0; done < kGivenTokens; done += piece) {
    const int32_t count = std::min(piece, kGivenTokens - done);
    std::vector<int32_t> batch(tokens.begin() + done, tokens.begin() + done + count);
    std::vector<GivenRow> given;
    for (int32_t i = std::max(begin, done); i < std::min(end, done + count); ++i) {
      batch[static_cast<size_t>(i - done)] = 1;
      given.push_back({i - done, rows.data() + static_cast<size_t>(i) * width});
    }
    const ops::SequenceSpan sequence{
        .row_count = count, .context_count = done, .blocks = kGivenBlocks.data()};
    std::vector<int32_t> wanted(static_cast<size_t>(count));
    std::iota(wanted.begin(), wanted.end(), 0);
    const auto logits = value_of(model.forward({.tokens = batch,
                                                .sequences = std::span(&sequence, 1),
                                                .logit_rows = wanted,
                                                .given = given}));
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

TEST(GivenRows, OfTheTableHaveTheBitsOfTheirTokens) {
  int64_t checked = 0;
  CpuDevice device({.thread_count = 2});
  for (const std::string& name : fixture_names()) {
    const auto model = load_for_rows(name, device);
    if (!model->takes_given_rows() || !has_table_alone(model->config())) continue;
    const std::vector<int32_t> tokens = tokens_of(*model);
    const std::vector<float> rows = rows_of_table(name, *model, tokens);
    const std::vector<float> expected = logits_of_rows(*model, tokens, rows, 0, 0, 64);
    EXPECT_EQ(logits_of_rows(*model, tokens, rows, 7, 31, 64), expected) << name;
    EXPECT_EQ(logits_of_rows(*model, tokens, rows, 0, kGivenTokens, 64), expected) << name;
    EXPECT_EQ(logits_of_rows(*model, tokens, rows, 7, 31, 9), expected) << name << ", in pieces";
    EXPECT_NE(logits_of_rows(*model, tokens, std::vector<float>(rows.size(), 0.01f), 7, 31, 64),
              expected)
        << name << ": rows are read";
    ++checked;
  }
  EXPECT_GE(checked, 20);
}

// Rows of several sequences, some of which lie one behind the other in memory and some do not.
TEST(GivenRows, OfNeighboursAndFromAnywhereInMemoryAreTheirOwn) {
  CpuDevice device({.thread_count = 1});
  const auto model = load_for_rows("llama3", device);
  const std::vector<int32_t> tokens = tokens_of(*model);
  const std::vector<float> rows = rows_of_table("llama3", *model, tokens);
  const std::vector<float> expected = logits_of_rows(*model, tokens, rows, 0, 0, 64);
  const auto width = static_cast<size_t>(model->config().hidden_size);

  const std::vector<int32_t> other_blocks = {5, 6};
  std::vector<int32_t> batch(10, 3);
  batch.insert(batch.end(), tokens.begin(), tokens.end());
  const ops::SequenceSpan sequences[] = {
      {.row_count = 10, .blocks = other_blocks.data(), .state = 1},
      {.row_begin = 10, .row_count = kGivenTokens, .blocks = kGivenBlocks.data()}};
  std::vector<float> backwards(rows.size());  // the last row first
  const auto at = [&](size_t i) { return backwards.data() + (kGivenTokens - 1 - i) * width; };
  for (size_t i = 0; i < kGivenTokens; ++i) std::copy_n(rows.data() + i * width, width, at(i));
  const std::vector<float> noise(4 * width, 0.5f);
  std::vector<GivenRow> given;
  for (int32_t i = 6; i < 10; ++i) given.push_back({i, noise.data()});
  for (int32_t i = 0; i < kGivenTokens; i += i % 3 == 2 ? 2 : 1) {
    const auto place = static_cast<size_t>(i);
    given.push_back({10 + i, i < 20 ? at(place) : rows.data() + place * width});
  }
  std::vector<int32_t> wanted(kGivenTokens);
  std::iota(wanted.begin(), wanted.end(), 10);
  const auto logits = value_of(model->forward(
      {.tokens = batch, .sequences = sequences, .logit_rows = wanted, .given = given}));
  EXPECT_EQ(std::vector<float>(logits.begin(), logits.end()), expected);
}

TEST(GivenRows, AreForgottenAfterTheirForward) {
  CpuDevice device({.thread_count = 1});
  const auto model = load_for_rows("llama3", device);
  const std::vector<int32_t> tokens = tokens_of(*model);
  const std::vector<float> zeros(tokens.size() * static_cast<size_t>(model->config().hidden_size),
                                 0.0f);
  const std::vector<float> before = logits_of_rows(*model, tokens, zeros, 0, 0, 64);
  logits_of_rows(*model, tokens, zeros, 3, 20, 64);
  EXPECT_EQ(logits_of_rows(*model, tokens, zeros, 0, 0, 64), before);
}

std::string rows_refusal(InferenceModel& model, std::span<const GivenRow> given) {
  const std::vector<int32_t> tokens(8, 1);
  const ops::SequenceSpan sequence{.row_count = 8, .blocks = kGivenBlocks.data()};
  const auto logits = model.forward(
      {.tokens = tokens, .sequences = std::span(&sequence, 1), .logit_rows = {}, .given = given});
  return logits ? "" : logits.error().message;
}

TEST(GivenRows, ThatCannotBeAreRefused) {
  CpuDevice device({.thread_count = 1});
  const auto model = load_for_rows("llama3", device);
  const std::vector<float> row(static_cast<size_t>(model->config().hidden_size));
  const float* const values = row.data();
  using Rows = std::vector<GivenRow>;
  EXPECT_THAT(rows_refusal(*model, Rows{{8, values}}), HasSubstr("a given row is 8"));
  EXPECT_THAT(rows_refusal(*model, Rows{{-1, values}}), HasSubstr("a given row is -1"));
  EXPECT_THAT(rows_refusal(*model, Rows{{4, values}, {4, values}}), HasSubstr("a given row is 4"));
  EXPECT_THAT(rows_refusal(*model, Rows{{4, values}, {2, values}}), HasSubstr("a given row is 2"));
  EXPECT_THAT(rows_refusal(*model, Rows{{4, nullptr}}), HasSubstr("no values"));
  EXPECT_EQ(rows_refusal(*model, Rows{{4, values}, {7, values}}), "");
  const auto other = load_for_rows("gemma3n", device);
  ASSERT_FALSE(other->takes_given_rows());
  EXPECT_THAT(rows_refusal(*other, Rows{{4, values}}), HasSubstr("layers of a gemma3n"));
}

}  // namespace
}  // namespace jige::model
