// Loaded models against transformers, and batches that must not matter.
#include "model/inference.h"

#include <map>
#include <numeric>

#include "model/model_test_support.h"
#include "model/weights_save.h"

namespace jige::model {
namespace {

using testing::fixture;
using testing::fixture_config;
using testing::fixture_names;
using testing::succeed;
using testing::TempFolder;
using testing::value_of;

struct Expected {
  std::vector<int32_t> tokens;
  std::vector<float> logits;
};

const Expected& expected_of(const std::string& name) {
  static std::map<std::string, Expected> read;
  Expected& expected = read[name];
  if (!expected.tokens.empty()) return expected;
  const auto file = value_of(formats::open_safetensors(fixture(name) + "/expected.safetensors"));
  const auto tokens = value_of(file.view("tokens"));
  const auto logits = value_of(file.view("logits"));
  expected = {{tokens.as<int32_t>(), tokens.as<int32_t>() + tokens.count()},
              {logits.as<float>(), logits.as<float>() + logits.count()}};
  return expected;
}

// Feeds one sequence in chunks of the given sizes (the last one repeats) and returns all logits.
std::vector<float> logits_in_chunks(InferenceModel& model, std::span<const int32_t> tokens,
                                    const std::vector<size_t>& chunks,
                                    const std::vector<int32_t>& blocks, int32_t state = 0) {
  std::vector<float> all;
  size_t index = 0;
  for (size_t done = 0; done < tokens.size(); ++index) {
    const size_t count = std::min(chunks[std::min(index, chunks.size() - 1)], tokens.size() - done);
    const ops::SequenceSpan sequence{.row_count = static_cast<int32_t>(count),
                                     .context_count = static_cast<int32_t>(done),
                                     .blocks = blocks.data(),
                                     .state = state};
    std::vector<int32_t> rows(count);
    std::iota(rows.begin(), rows.end(), 0);
    const auto logits = value_of(model.forward({.tokens = tokens.subspan(done, count),
                                                .sequences = std::span(&sequence, 1),
                                                .logit_rows = rows}));
    all.insert(all.end(), logits.begin(), logits.end());
    done += count;
  }
  return all;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    worst = std::max(worst, std::abs(double{a[i]} - b[i]));
  }
  return worst;
}

const std::vector<int32_t> kBlocks = {5, 0, 3, 1, 2, 4};

InferenceOptions test_options(DType compute, ops::WeightFormat format = ops::WeightFormat::kCompute,
                              std::optional<DType> kv_dtype = {}) {
  return {.compute = compute,
          .kv_dtype = kv_dtype,
          .format = format,
          .context_max = 64,
          .kv_block_count = 6,
          .state_count = 3,
          .batch_tokens_max = 64,
          .logit_rows_max = 64,
          .scores = true};
}

// Types of products with the formats of weights and the types of caches.
struct Numbers {
  DType compute;
  ops::WeightFormat format = ops::WeightFormat::kCompute;
  std::optional<DType> kv_dtype = {};
};
constexpr Numbers kNumbers[] = {{DType::kF32},
                                {DType::kBF16},
                                {DType::kF32, ops::WeightFormat::kQ8},
                                {DType::kBF16, ops::WeightFormat::kQ8},
                                {DType::kBF16, ops::WeightFormat::kQ4},
                                {DType::kF32, ops::WeightFormat::kCompute, DType::kI8},
                                {DType::kBF16, ops::WeightFormat::kQ4, DType::kI8}};

// f32 for every fixture and one of the others in turn, where those that are alike stand together:
// half of all have been with a fixture when it has been at three turns.
std::vector<Numbers> numbers_in_turn(size_t fixture_index, size_t turn) {
  const size_t others = std::size(kNumbers) - 1;
  return {kNumbers[0], kNumbers[1 + (fixture_index + 2 * turn) % others]};
}

// A fixture in these numbers on two threads. All tests have the same one in f32: a forward sees
// nothing of what others left in its cache.
std::shared_ptr<InferenceModel> model_of(const std::string& name, const Numbers& numbers) {
  static CpuDevice device({.thread_count = 2});
  static std::map<std::string, std::shared_ptr<InferenceModel>> wide;
  const auto load = [&]() -> std::shared_ptr<InferenceModel> {
    return value_of(InferenceModel::load(
        fixture(name), device, test_options(numbers.compute, numbers.format, numbers.kv_dtype)));
  };
  const bool is_wide = numbers.compute == DType::kF32 &&
                       numbers.format == ops::WeightFormat::kCompute && !numbers.kv_dtype;
  if (!is_wide) return load();
  std::shared_ptr<InferenceModel>& model = wide[name];
  if (!model) model = load();
  return model;
}

TEST(Inference, LogitsMatchTransformersForEveryFamily) {
  for (const std::string& name : fixture_names()) {
    const Expected& expected = expected_of(name);
    const auto model = model_of(name, {DType::kF32});
    const auto logits = logits_in_chunks(*model, expected.tokens, {64}, kBlocks);
    EXPECT_LE(largest_difference(logits, expected.logits), 1e-4) << name;
    RecordProperty(name, std::to_string(largest_difference(logits, expected.logits)));
  }
}

bool has_expert_layers(const std::string& name) {
  return formats::has_experts(fixture_config(name).family);
}

bool has_attention_layers(const std::string& name) {
  return formats::attention_layer_count(fixture_config(name)) > 0;
}

// The share of rows of logits no element of which is further from its measure than this.
double share_within(const std::vector<float>& a, const std::vector<float>& b, int64_t width,
                    double limit) {
  const auto rows = static_cast<double>(a.size()) / static_cast<double>(width);
  double close = 0;
  for (size_t row = 0; row < a.size(); row += static_cast<size_t>(width)) {
    const auto begin = static_cast<ptrdiff_t>(row);
    const std::vector<float> x(a.begin() + begin, a.begin() + begin + width);
    const std::vector<float> y(b.begin() + begin, b.begin() + begin + width);
    close += largest_difference(x, y) <= limit;
  }
  return close / rows;
}

// A token that is close to choosing other experts does so in fewer bits, and so do those that see
// it.
TEST(Inference, Bf16LogitsAreCloseToTransformers) {
  CpuDevice device({.thread_count = 1});
  for (const std::string& name : fixture_names()) {
    const Expected& expected = expected_of(name);
    const auto model =
        value_of(InferenceModel::load(fixture(name), device, test_options(DType::kBF16)));
    const auto logits = logits_in_chunks(*model, expected.tokens, {64}, kBlocks);
    const double share = share_within(logits, expected.logits, model->config().vocab_size, 0.5);
    EXPECT_GE(share, has_expert_layers(name) ? 0.7 : 1.0) << name;
  }
}

// How far the logits of a model lie from those of transformers, as a share of their own size. These
// tiny models of large random weights magnify every error.
double relative_error(const Expected& expected, const std::vector<float>& logits) {
  double error = 0;
  double size = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    error += std::pow(double{logits[i]} - expected.logits[i], 2);
    size += std::pow(double{expected.logits[i]}, 2);
  }
  return std::sqrt(error / size);
}

TEST(Inference, WeightsOfFewerBitsGiveNearbyLogits) {
  CpuDevice device({.thread_count = 1});
  for (const std::string& name : fixture_names()) {
    const Expected& expected = expected_of(name);
    const auto error_of = [&](ops::WeightFormat format) {
      const auto model =
          value_of(InferenceModel::load(fixture(name), device, test_options(DType::kF32, format)));
      return relative_error(expected, logits_in_chunks(*model, expected.tokens, {64}, kBlocks));
    };
    const double q8 = error_of(ops::WeightFormat::kQ8);
    const double q4 = error_of(ops::WeightFormat::kQ4);
    EXPECT_GT(q8, 1e-4) << name;  // so that they are there
    EXPECT_LT(q8, 0.06) << name;
    EXPECT_GT(q4, 2 * q8) << name;
    EXPECT_LT(q4, has_expert_layers(name) ? 0.7 : 0.5) << name;  // some tokens choose others
  }
}

TEST(Inference, ACacheIn8BitsGivesNearbyLogits) {
  CpuDevice device({.thread_count = 1});
  for (const std::string& name : fixture_names()) {
    if (!has_attention_layers(name)) continue;
    const InferenceOptions options =
        test_options(DType::kF32, ops::WeightFormat::kCompute, DType::kI8);
    const auto model = value_of(InferenceModel::load(fixture(name), device, options));
    const Expected& expected = expected_of(name);
    const auto logits = logits_in_chunks(*model, expected.tokens, {64}, kBlocks);
    // 7 bits and a sign: the largest error of a number is 1 part in 254 of the largest of its row,
    // which these tiny models of large random weights magnify. Logits have a
    // root mean square of 2 to 3.
    const double error = relative_error(expected, logits);
    const double worst = largest_difference(logits, expected.logits);
    EXPECT_GT(error, 5e-4) << name;  // so that it is there
    EXPECT_LT(error, 0.03) << name;
    EXPECT_LT(worst, 0.8) << name;
    RecordProperty(name, std::to_string(worst));
  }
}

TEST(Inference, PromptsMayBeCutAnywhere) {
  for (size_t i = 0; i < fixture_names().size(); ++i) {
    const std::string& name = fixture_names()[i];
    const std::vector<int32_t>& tokens = expected_of(name).tokens;
    for (const Numbers& numbers : numbers_in_turn(i, 0)) {
      const auto model = model_of(name, numbers);
      const auto whole = logits_in_chunks(*model, tokens, {64}, kBlocks);
      for (const std::vector<size_t>& chunks : {std::vector<size_t>{3, 5, 1, 17, 11, 9}, {16}}) {
        EXPECT_EQ(whole, logits_in_chunks(*model, tokens, chunks, kBlocks)) << name;
      }
      // Token by token over the end of a block.
      const auto begin = logits_in_chunks(*model, std::span(tokens).first(18), {1}, kBlocks);
      EXPECT_TRUE(std::equal(begin.begin(), begin.end(), whole.begin())) << name;
    }
  }
}

void expect_neighbours_change_nothing(const std::string& name, const Numbers& numbers) {
  const std::vector<int32_t>& tokens = expected_of(name).tokens;
  const auto model = model_of(name, numbers);
  const std::vector<int32_t> own = {4, 2};
  const std::span<const int32_t> prompt = std::span(tokens).first(20);
  const auto alone = logits_in_chunks(*model, prompt, {19, 1}, own);

  // The same sequence decodes its last token between a neighbour's prompt and another's decode.
  const std::vector<int32_t> left = {0, 1};
  const std::vector<int32_t> right = {3};
  logits_in_chunks(*model, std::span(tokens).first(19), {19}, own);
  logits_in_chunks(*model, std::span(tokens).subspan(30, 9), {9}, right, 1);
  std::vector<int32_t> rows_of_all(tokens.begin() + 21, tokens.begin() + 21 + 18);
  rows_of_all.push_back(prompt.back());
  rows_of_all.push_back(tokens[40]);
  const std::vector<ops::SequenceSpan> sequences = {
      {.row_begin = 0, .row_count = 18, .context_count = 0, .blocks = left.data(), .state = 2},
      {.row_begin = 18, .row_count = 1, .context_count = 19, .blocks = own.data(), .state = 0},
      {.row_begin = 19, .row_count = 1, .context_count = 9, .blocks = right.data(), .state = 1}};
  const std::vector<int32_t> wanted = {18};
  const auto logits = value_of(
      model->forward({.tokens = rows_of_all, .sequences = sequences, .logit_rows = wanted}));
  EXPECT_EQ(
      std::vector<float>(logits.begin(), logits.end()),
      std::vector<float>(alone.end() - static_cast<std::ptrdiff_t>(logits.size()), alone.end()))
      << name;
}

TEST(Inference, NeighboursDoNotChangeASequence) {
  for (size_t i = 0; i < fixture_names().size(); ++i) {
    const std::string& name = fixture_names()[i];
    for (const Numbers& numbers : numbers_in_turn(i, 1)) {
      expect_neighbours_change_nothing(name, numbers);
    }
  }
}

// Two continuations of one beginning: they share its first block and each has a copy of the second,
// and of the state where layers are recurrent.
TEST(Inference, ACopiedBlockServesAnotherContinuation) {
  for (size_t i = 0; i < fixture_names().size(); ++i) {
    const std::string& name = fixture_names()[i];
    for (const Numbers& numbers : numbers_in_turn(i, 2)) {
      const std::vector<int32_t>& tokens = expected_of(name).tokens;
      const auto model = model_of(name, numbers);
      const std::span<const int32_t> first = std::span(tokens).first(24);
      std::vector<int32_t> second(first.begin(), first.begin() + 20);
      second.insert(second.end(), tokens.begin() + 30, tokens.begin() + 34);
      const auto vocab = model->config().vocab_size;
      const auto fresh = logits_in_chunks(*model, second, {20, 1}, {0, 3});

      const auto run_tail = [&](std::span<const int32_t> all, const std::vector<int32_t>& blocks,
                                int32_t state) {
        std::vector<float> logits;
        for (int32_t position = 20; position < 24; ++position) {
          const int32_t row = 0;
          const ops::SequenceSpan sequence{
              .row_count = 1, .context_count = position, .blocks = blocks.data(), .state = state};
          const auto out =
              value_of(model->forward({.tokens = all.subspan(static_cast<size_t>(position), 1),
                                       .sequences = std::span(&sequence, 1),
                                       .logit_rows = std::span(&row, 1)}));
          logits.insert(logits.end(), out.begin(), out.end());
        }
        return logits;
      };
      logits_in_chunks(*model, first.first(20), {20}, {4, 2});
      const uint64_t before = model->forward_count();
      succeed(model->copy_block(2, 1));
      if (model->sizes().state_count > 0) succeed(model->copy_state(0, 1));
      EXPECT_GT(model->forward_count(), before);
      run_tail(first, {4, 2}, 0);  // writes behind the copied part of block 2 only
      EXPECT_EQ(run_tail(second, {4, 1}, 1),
                std::vector<float>(fresh.end() - 4 * vocab, fresh.end()))
          << name;
    }
  }
}

TEST(Inference, RefusesToCopyBlocksThatAreNotThere) {
  CpuDevice device({.thread_count = 1});
  const auto model =
      value_of(InferenceModel::load(fixture("llama2"), device, test_options(DType::kF32)));
  for (const auto& [src, dst] : {std::pair{-1, 0}, {6, 0}, {0, -1}, {0, 6}}) {
    const Status status = model->copy_block(src, dst);
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, Code::kInvalidArgument);
  }
  succeed(model->copy_block(5, 5));
}

TEST(Inference, RefusesToCopyStatesThatAreNotThere) {
  CpuDevice device({.thread_count = 1});
  const auto model =
      value_of(InferenceModel::load(fixture("llama2"), device, test_options(DType::kF32)));
  EXPECT_EQ(model->sizes().state_count, 0);
  for (const auto& [src, dst] : {std::pair{-1, 0}, {0, 0}, {0, -1}}) {
    const Status status = model->copy_state(src, dst);
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, Code::kInvalidArgument);
  }
}

TEST(Inference, LossesAgreeWithLogitsAndWithTraining) {
  for (const std::string& name : fixture_names()) {
    const Expected& expected = expected_of(name);
    const auto model = model_of(name, {DType::kF32});
    const size_t count = expected.tokens.size() - 1;
    const std::span<const int32_t> next = std::span(expected.tokens).subspan(1);
    // Of all rows but one, backwards, then of some once more and one that follows it in no text.
    std::vector<TargetRow> targets;
    for (size_t row = count; row > 0; --row) {
      if (row != 4) targets.push_back({static_cast<int32_t>(row - 1), next[row - 1]});
    }
    while (targets.size() < 70) targets.push_back(targets[targets.size() - count + 1]);
    targets.push_back({2, next[0]});
    const ops::SequenceSpan sequence{.row_count = static_cast<int32_t>(count),
                                     .blocks = kBlocks.data()};
    const auto losses = value_of(model->losses({.tokens = std::span(expected.tokens).first(count),
                                                .sequences = std::span(&sequence, 1),
                                                .logit_rows = {}},
                                               targets));
    const auto vocab = static_cast<size_t>(model->config().vocab_size);
    ASSERT_EQ(losses.size(), targets.size());

    testing::Trainee trainee(model->config(), {});
    const auto files = value_of(formats::TensorFolder::open(fixture(name)));
    succeed(load_weights(trainee.weights(), trainee.stream(), files));
    const auto trained = trainee.losses({expected.tokens});
    for (size_t i = 0; i < targets.size(); ++i) {
      const auto row = static_cast<size_t>(targets[i].row);
      const float* logits = expected.logits.data() + row * vocab;
      double sum = 0;
      for (size_t k = 0; k < vocab; ++k) sum += std::exp(double{logits[k]});
      const double loss = std::log(sum) - logits[targets[i].token];
      EXPECT_NEAR(losses[i], loss, 1e-4) << name << " row " << row;
      if (targets[i].token != next[row]) continue;
      EXPECT_NEAR(trained[row], loss, 1e-4) << name << " row " << row;
    }
  }
}

InferenceMemory expect_planned_memory(CpuDevice& device, const std::string& name,
                                      const InferenceOptions& options) {
  const auto model = value_of(InferenceModel::load(fixture(name), device, options));
  const InferenceMemory plan = inference_memory(model->architecture(), model->sizes());
  EXPECT_EQ(model->peak_bytes(), plan.total_bytes()) << name;
  EXPECT_EQ(plan.kv_bytes_per_token * 16 * 6, plan.kv_bytes) << name;
  const int64_t peak = model->peak_bytes();
  logits_in_chunks(*model, expected_of(name).tokens, {64}, kBlocks);
  EXPECT_EQ(model->peak_bytes(), peak) << name;
  return plan;
}

void expect_a_cap_holds(CpuDevice& device, const std::string& name, InferenceOptions options,
                        const InferenceMemory& plan) {
  options.memory_bytes_max = plan.total_bytes() - 1;
  const auto refused = InferenceModel::load(fixture(name), device, options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  options.memory_bytes_max = plan.total_bytes();
  EXPECT_TRUE(InferenceModel::load(fixture(name), device, options)) << name;
}

// Every fixture in one or two of five ways, in turn, under a cap in one of them.
TEST(Inference, TakesExactlyThePlannedMemory) {
  CpuDevice device({.thread_count = 1});
  InferenceOptions silent = test_options(DType::kBF16);
  silent.scores = false;
  const InferenceOptions ways[] = {
      test_options(DType::kBF16), silent, test_options(DType::kF32, ops::WeightFormat::kQ8),
      test_options(DType::kBF16, ops::WeightFormat::kQ4),
      test_options(DType::kBF16, ops::WeightFormat::kCompute, DType::kI8)};
  for (size_t i = 0; i < fixture_names().size(); ++i) {
    const std::string& name = fixture_names()[i];
    const InferenceOptions& way = ways[i % std::size(ways)];
    expect_a_cap_holds(device, name, way, expect_planned_memory(device, name, way));
    if (i % 2 == 0) expect_planned_memory(device, name, ways[(i + 2) % std::size(ways)]);
  }
}

// A folder may say anything of layers that it does not have.
TEST(Inference, NoStatesAreTakenForLayersThatAreNotThere) {
  for (const formats::Family family : {formats::Family::kQwen35, formats::Family::kLfm2}) {
    formats::ModelConfig config = testing::tiny_config(family);
    config.layer_is_recurrent.clear();
    if (family == formats::Family::kLfm2) {
      config.short_conv.kernel = INT64_MAX;
    } else {
      config.delta = {
          .key_heads = 2, .value_heads = -1, .key_dim = 10, .value_dim = 3, .kernel = 4};
    }
    const auto architecture = value_of(Architecture::create(config));
    const InferenceSizes sizes{
        .context_max = 32, .kv_block_count = 2, .batch_tokens_max = 8, .logit_rows_max = 1};
    EXPECT_EQ(inference_memory(*architecture, sizes).states_bytes, 0);
  }
}

TEST(Inference, ChoosesTypesByWhatIsStored) {
  CpuDevice device({.thread_count = 1});
  EXPECT_EQ(value_of(InferenceModel::load(fixture("llama2"), device))->sizes().compute,
            DType::kF32);
  for (const char* name : {"llama3", "mistral"}) {  // bf16 and f16
    const auto model = value_of(InferenceModel::load(fixture(name), device));
    EXPECT_EQ(model->sizes().compute, DType::kBF16);
    EXPECT_EQ(model->sizes().kv_dtype, DType::kBF16);
    EXPECT_EQ(model->context_max(), 128);
    EXPECT_EQ(model->sizes().kv_block_count, 8);
  }
}

Code code_of(const Result<std::span<const float>>& result) {
  EXPECT_FALSE(result) << "accepted";
  return result ? Code::kInternal : result.error().code;
}

TEST(Inference, GivesTheLogitsOfAForwardAFewRowsAtATime) {
  CpuDevice device({.thread_count = 2});
  const Expected& expected = expected_of("llama3");
  const auto tokens = std::span(expected.tokens).first(20);
  const auto model =
      value_of(InferenceModel::load(fixture("llama3"), device, test_options(DType::kBF16)));
  const std::vector<int32_t> some = {0};
  EXPECT_EQ(code_of(model->logits_of(some)), Code::kInvalidArgument) << "before any forward";
  const std::vector<float> whole = logits_in_chunks(*model, tokens, {20}, kBlocks);
  const size_t width = whole.size() / 20;
  const ops::SequenceSpan sequence{.row_count = 20, .blocks = kBlocks.data()};
  ASSERT_TRUE(
      model->forward({.tokens = tokens, .sequences = std::span(&sequence, 1), .logit_rows = {}}));
  for (const std::vector<int32_t>& rows : {std::vector<int32_t>{19}, {3, 4, 5}, {0}}) {
    const auto logits = value_of(model->logits_of(rows));
    ASSERT_EQ(logits.size(), rows.size() * width);
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_TRUE(std::equal(
          logits.begin() + static_cast<std::ptrdiff_t>(i * width),
          logits.begin() + static_cast<std::ptrdiff_t>((i + 1) * width),
          whole.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(rows[i]) * width)))
          << "row " << rows[i];
    }
  }
  for (const std::vector<int32_t>& bad : {std::vector<int32_t>{}, {20}, {-1}}) {
    EXPECT_EQ(code_of(model->logits_of(bad)), Code::kInvalidArgument);
  }
}

TEST(Inference, RefusesBatchesThatDoNotFit) {
  CpuDevice device({.thread_count = 1});
  const auto model =
      value_of(InferenceModel::load(fixture("llama2"), device, test_options(DType::kF32)));
  const std::vector<int32_t> good = {1, 2, 3};
  const auto code = [&](std::vector<int32_t> tokens, ops::SequenceSpan sequence,
                        std::vector<int32_t> rows) {
    return code_of(model->forward(
        {.tokens = tokens, .sequences = std::span(&sequence, 1), .logit_rows = rows}));
  };
  const ops::SequenceSpan fine{.row_count = 3, .blocks = kBlocks.data()};
  const std::vector<int32_t> foreign = {6};
  ops::SequenceSpan late = fine;
  late.context_count = 62;
  ops::SequenceSpan outside = fine;
  outside.blocks = foreign.data();
  ops::SequenceSpan blockless = fine;
  blockless.blocks = nullptr;
  ops::SequenceSpan short_one = fine;
  short_one.row_count = 2;
  EXPECT_EQ(code({1, 2, 96}, fine, {2}), Code::kInvalidArgument);
  EXPECT_EQ(code({1, -1, 3}, fine, {2}), Code::kInvalidArgument);
  EXPECT_EQ(code(good, late, {2}), Code::kInvalidArgument);
  EXPECT_EQ(code(good, outside, {2}), Code::kInvalidArgument);
  EXPECT_EQ(code(good, blockless, {2}), Code::kInvalidArgument);
  EXPECT_EQ(code(good, short_one, {2}), Code::kInvalidArgument);
  EXPECT_EQ(code(good, fine, {3}), Code::kInvalidArgument);
  EXPECT_EQ(code({}, fine, {}), Code::kInvalidArgument);
  EXPECT_EQ(code(std::vector<int32_t>(65, 1), fine, {}), Code::kInvalidArgument);
}

TEST(Inference, RefusesOptionsOutOfRange) {
  CpuDevice device({.thread_count = 1});
  const auto code = [&](const InferenceOptions& options) {
    const auto model = InferenceModel::load(fixture("llama2"), device, options);
    EXPECT_FALSE(model);
    return model ? Code::kInternal : model.error().code;
  };
  EXPECT_EQ(code({.context_max = 129}), Code::kInvalidArgument);
  EXPECT_EQ(code({.batch_tokens_max = -1}), Code::kInvalidArgument);
  EXPECT_EQ(code({.batch_tokens_max = 4, .logit_rows_max = 5}), Code::kInvalidArgument);
  EXPECT_EQ(code({.compute = DType::kI8}), Code::kInvalidArgument);
  EXPECT_EQ(code({.kv_dtype = DType::kF16}), Code::kInvalidArgument);
}

}  // namespace
}  // namespace jige::model
