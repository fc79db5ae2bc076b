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
         !config.embedding_norm && config.layer_inputs.size == 0;
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
  CpuDevice device({.thread_count = 1});
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

// Of a prompt in pieces that end at these rows: the logits of all.
std::vector<float> logits_of_mutual(InferenceModel& model, std::span<const int32_t> tokens,
                                    std::span<const RowRange> mutual,
                                    std::span<const int32_t> ends) {
  std::vector<float> all;
  int32_t done = 0;
  for (const int32_t end : ends) {
    std::vector<RowRange> here;
    for (const RowRange& run : mutual) {
      if (run.begin >= done && run.end <= end) here.push_back({run.begin - done, run.end - done});
    }
    const ops::SequenceSpan sequence{
        .row_count = end - done, .context_count = done, .blocks = kGivenBlocks.data()};
    std::vector<int32_t> wanted(static_cast<size_t>(end - done));
    std::iota(wanted.begin(), wanted.end(), 0);
    const auto logits =
        value_of(model.forward({.tokens = tokens.subspan(static_cast<size_t>(done), wanted.size()),
                                .sequences = std::span(&sequence, 1),
                                .logit_rows = wanted,
                                .mutual = here}));
    all.insert(all.end(), logits.begin(), logits.end());
    done = end;
  }
  return all;
}

// In front of them nothing changes, they and what follows do; in pieces that do not cut them they
// have the same bits, and beside another sequence with such rows.
TEST(MutualRows, SeeOneAnother) {
  CpuDevice device({.thread_count = 2});
  for (const char* name : {"llama3", "gemma3"}) {
    const auto model = load_for_rows(name, device);
    const std::vector<int32_t> tokens = tokens_of(*model);
    const std::vector<RowRange> mutual = {{7, 20}, {20, 31}};
    const std::vector<float> causal = logits_of_mutual(*model, tokens, {}, {{kGivenTokens}});
    const std::vector<float> seen = logits_of_mutual(*model, tokens, mutual, {{kGivenTokens}});
    const auto columns = static_cast<size_t>(model->config().vocab_size);
    const auto row = [&](const std::vector<float>& of, size_t i) {
      return std::vector<float>(of.begin() + static_cast<ptrdiff_t>(i * columns),
                                of.begin() + static_cast<ptrdiff_t>((i + 1) * columns));
    };
    EXPECT_EQ(row(seen, 6), row(causal, 6)) << name;
    for (const size_t i : {7, 19, 20, 31, 39}) EXPECT_NE(row(seen, i), row(causal, i)) << name << i;
    EXPECT_EQ(logits_of_mutual(*model, tokens, mutual, {{3, 20, 31, 40}}), seen) << name;
    EXPECT_EQ(logits_of_mutual(*model, tokens, mutual, {{7, 31, 33, 40}}), seen) << name;

    const std::vector<int32_t> other_blocks = {5, 6};
    std::vector<int32_t> batch(10, 3);
    batch.insert(batch.end(), tokens.begin(), tokens.end());
    const ops::SequenceSpan sequences[] = {
        {.row_count = 10, .blocks = other_blocks.data()},
        {.row_begin = 10, .row_count = kGivenTokens, .blocks = kGivenBlocks.data()}};
    std::vector<int32_t> wanted(kGivenTokens);
    std::iota(wanted.begin(), wanted.end(), 10);
    const std::vector<RowRange> moved = {{2, 10}, {17, 30}, {30, 41}};
    const auto logits = value_of(model->forward(
        {.tokens = batch, .sequences = sequences, .logit_rows = wanted, .mutual = moved}));
    EXPECT_EQ(std::vector<float>(logits.begin(), logits.end()), seen) << name;
    EXPECT_EQ(logits_of_mutual(*model, tokens, {}, {{kGivenTokens}}), causal) << "forgotten";
  }
}

TEST(MutualRows, ThatCannotBeAreRefused) {
  CpuDevice device({.thread_count = 1});
  const auto refusal = [](InferenceModel& model, const std::vector<RowRange>& mutual) {
    const std::vector<int32_t> tokens(8, 1);
    const int32_t* const blocks = kGivenBlocks.data();
    const ops::SequenceSpan sequences[] = {
        {.row_count = 5, .blocks = blocks, .state = 0},
        {.row_begin = 5, .row_count = 3, .blocks = blocks + 1, .state = 1}};
    const auto logits = model.forward(
        {.tokens = tokens, .sequences = sequences, .logit_rows = {}, .mutual = mutual});
    return logits ? "" : logits.error().message;
  };
  const auto model = load_for_rows("llama3", device);
  EXPECT_EQ(refusal(*model, {{0, 5}, {5, 8}}), "");
  EXPECT_EQ(refusal(*model, {{1, 2}, {6, 7}}), "");
  EXPECT_THAT(refusal(*model, {{3, 6}}), HasSubstr("the end of rows that see one another is 6"));
  EXPECT_THAT(refusal(*model, {{6, 9}}), HasSubstr("the end of rows that see one another is 9"));
  EXPECT_THAT(refusal(*model, {{2, 2}}), HasSubstr("the end of rows that see one another is 2"));
  EXPECT_THAT(refusal(*model, {{1, 4}, {3, 5}}), HasSubstr("the first of rows that see"));
  EXPECT_THAT(refusal(*model, {{8, 9}}), HasSubstr("the first of rows that see"));
  EXPECT_THAT(refusal(*model, {{-1, 3}}), HasSubstr("the first of rows that see"));
  for (const char* name : {"mamba2", "deepseek_v3", "llama4"}) {
    const auto other = load_for_rows(name, device);
    EXPECT_THAT(refusal(*other, {{0, 5}}), HasSubstr("not supported by the attention of a"))
        << name;
  }
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
