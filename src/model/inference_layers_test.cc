// Layers that are held in several places give what one model gives.
#include <cstring>
#include <deque>
#include <functional>
#include <numeric>

#include "model/batch_limits.h"
#include "model/inference.h"
#include "model/model_test_support.h"

namespace jige::model {
namespace {

using testing::fixture;
using testing::fixture_config;
using testing::fixture_names;
using testing::other_type;
using testing::value_of;

InferenceOptions divided_options(DType compute, LayerRange layers, int64_t forwards_max = 1) {
  return {.compute = compute,
          .context_max = 64,
          .kv_block_count = 8,
          .state_count = 3,
          .batch_tokens_max = 64,
          .logit_rows_max = 64,
          .forwards_max = forwards_max,
          .scores = layers.ends,
          .layers = layers};
}

// Layers beyond in this process: models that hold them, one behind the other. They do nothing until
// it is waited for.
class HeldBeyond final : public LayersBeyond {
 public:
  HeldBeyond(std::vector<std::unique_ptr<InferenceModel>> models, int64_t pieces)
      : models_(std::move(models)), pieces_(pieces) {}

  int64_t piece_rows(int64_t rows) const override { return (rows + pieces_ - 1) / pieces_; }
  Status start(std::span<const ops::SequenceSpan> sequences, const TensorView& rows) override {
    std::vector<std::vector<int32_t>> blocks;
    for (const ops::SequenceSpan& one : sequences) {
      const int64_t count = kv_blocks_for(int64_t{one.context_count} + one.row_count);
      blocks.emplace_back(one.blocks, one.blocks + count);
    }
    tasks_.push_back([this, rows, blocks = std::move(blocks),
                      own = std::vector(sequences.begin(), sequences.end())]() mutable -> Status {
      for (size_t i = 0; i < own.size(); ++i) own[i].blocks = blocks[i].data();
      for (const auto& model : models_) {
        JIGE_TRY(const TensorView done, model->run_layers(own, rows));
        std::memcpy(rows.data, done.data, static_cast<size_t>(rows.count()) * 4);
      }
      ++finished_;
      return {};
    });
    return {};
  }
  Status finish(int64_t count) override {
    while (finished_ < count) {
      JIGE_DO(tasks_.front()());
      tasks_.pop_front();
    }
    return {};
  }
  Status copy_block(int32_t src, int32_t dst) override {
    return copy([=](InferenceModel& model) { return model.copy_block(src, dst); });
  }
  Status copy_state(int32_t src, int32_t dst) override {
    return copy([=](InferenceModel& model) { return model.copy_state(src, dst); });
  }
  bool lost() const override { return false; }
  Result<bool> restore() override { return true; }

 private:
  Status copy(std::function<Status(InferenceModel&)> one) {
    tasks_.push_back([this, one = std::move(one)]() -> Status {
      for (const auto& model : models_) JIGE_DO(one(*model));
      return {};
    });
    return {};
  }

  std::deque<std::function<Status()>> tasks_;
  std::vector<std::unique_ptr<InferenceModel>> models_;
  int64_t pieces_;
  int64_t finished_ = 0;
};

// A model cut in front of these layers, all parts on one device.
std::unique_ptr<InferenceModel> divided(const std::string& name, CpuDevice& device, DType compute,
                                        const std::vector<int64_t>& cuts, int64_t pieces,
                                        int64_t forwards_max = 1) {
  const int64_t layers = fixture_config(name).layer_count;
  std::vector<std::unique_ptr<InferenceModel>> models;
  for (size_t i = 0; i < cuts.size(); ++i) {
    const int64_t end = i + 1 < cuts.size() ? cuts[i + 1] : layers;
    models.push_back(value_of(InferenceModel::load(
        fixture(name), device,
        divided_options(compute, {.begin = cuts[i], .end = end, .ends = false}))));
  }
  auto first = value_of(InferenceModel::load(
      fixture(name), device,
      divided_options(compute, {.begin = 0, .end = cuts.front()}, forwards_max)));
  first->set_beyond(std::make_unique<HeldBeyond>(std::move(models), pieces));
  return first;
}

// What a few forwards give: a prompt of two sequences, a copied block and state, steps behind, and
// the prompt with given rows.
std::vector<float> answers(InferenceModel& model) {
  const auto vocab = static_cast<int32_t>(model.config().vocab_size);
  const std::vector<int32_t> blocks = {5, 0, 3}, others = {1, 2, 4}, copies = {6, 0, 3};
  std::vector<int32_t> tokens(41);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 7 + 3) % vocab;
  const std::vector<ops::SequenceSpan> prompts = {
      {.row_begin = 0, .row_count = 14, .blocks = blocks.data(), .state = 0},
      {.row_begin = 14, .row_count = 27, .blocks = others.data(), .state = 1}};
  std::vector<int32_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<float> all;
  const auto add = [&](Result<std::span<const float>> logits) {
    const std::span<const float> values = value_of(std::move(logits));
    all.insert(all.end(), values.begin(), values.end());
  };
  add(model.forward({.tokens = tokens, .sequences = prompts, .logit_rows = rows}));
  testing::succeed(model.copy_block(5, 6));
  if (model.sizes().state_count > 0) testing::succeed(model.copy_state(0, 2));
  const std::vector<ops::SequenceSpan> steps = {
      {.row_begin = 0, .row_count = 1, .context_count = 14, .blocks = copies.data(), .state = 2},
      {.row_begin = 1, .row_count = 2, .context_count = 27, .blocks = others.data(), .state = 1}};
  add(model.forward({.tokens = std::span(tokens).first(3),
                     .sequences = steps,
                     .logit_rows = std::span(rows).first(3)}));
  const std::vector<TargetRow> targets = {
      {.row = 2, .token = 1}, {.row = 0, .token = 1}, {.row = 2, .token = 2}};
  const std::vector<ops::SequenceSpan> goes_on = {
      {.row_begin = 0, .row_count = 3, .context_count = 15, .blocks = copies.data(), .state = 2}};
  add(model.losses({.tokens = std::span(tokens).first(3), .sequences = goes_on, .logit_rows = {}},
                   targets));
  if (!model.takes_given_rows()) return all;
  const auto width = static_cast<size_t>(model.config().hidden_size);
  std::vector<float> values(12 * width);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 13) * 0.1f - 0.6f;
  std::vector<GivenRow> given;
  for (int32_t i = 0; i < 12; ++i) {
    given.push_back(
        {9 + 2 * i - (i > 5 ? i - 5 : 0), values.data() + static_cast<size_t>(i) * width});
  }
  add(model.forward({.tokens = tokens, .sequences = prompts, .logit_rows = rows, .given = given}));
  return all;
}

bool may_be_divided(const std::string& name) { return can_divide_layers(fixture_config(name)); }

// Fixtures have f32 and bf16 in turn, and every second one the next cut: those that are alike
// follow each other.
TEST(InferenceLayers, HaveTheBitsOfTheWholeModelWhereverItIsCut) {
  CpuDevice device({.thread_count = 1});
  int64_t tried = 0, turn = 0;
  DType compute = DType::kF32;
  for (const std::string& name : fixture_names()) {
    if (!may_be_divided(name)) continue;
    const auto whole =
        value_of(InferenceModel::load(fixture(name), device, divided_options(compute, {})));
    const std::vector<float> expected = answers(*whole);
    const int64_t cut = turn++ / 2 % fixture_config(name).layer_count;
    const auto parts = divided(name, device, compute, {cut}, 1 + turn % 4 * 2);
    EXPECT_EQ(answers(*parts), expected) << name << " cut at " << cut;
    ++tried;
    compute = other_type(compute);
  }
  EXPECT_GT(tried, 100);
}

TEST(InferenceLayers, MayBeInManyPlacesAndPieces) {
  CpuDevice device({.thread_count = 2});
  const std::string name = "llama3";
  const auto whole =
      value_of(InferenceModel::load(fixture(name), device, divided_options(DType::kF32, {})));
  const std::vector<float> expected = answers(*whole);
  for (const int64_t pieces : {1, 2, 3, 7, 41, 1000}) {
    const auto parts = divided(name, device, DType::kF32, {0, 1}, pieces);
    EXPECT_EQ(answers(*parts), expected) << pieces << " pieces";
  }
}

// Four sequences, of which each step runs one: all steps are begun before the first is finished.
TEST(InferenceLayers, ForwardsUnderWayAtOnceHaveTheBitsOfOneAfterTheOther) {
  CpuDevice device({.thread_count = 1});
  for (const char* name : {"llama3", "gemma2", "qwen3_next"}) {
    const auto model = divided(name, device, DType::kF32, {1}, 2, 3);
    const auto vocab = static_cast<int32_t>(model->config().vocab_size);
    struct Step {
      std::vector<int32_t> tokens, blocks, rows;
      ops::SequenceSpan sequence;
      std::vector<ops::RowDraw> draws;
    };
    std::vector<Step> steps(3);
    for (int32_t i = 0; i < 3; ++i) {
      Step& step = steps[static_cast<size_t>(i)];
      for (int32_t token = 0; token < 9 + 5 * i; ++token) {
        step.tokens.push_back((token * 11 + i) % vocab);
      }
      step.blocks = {2 * i, 2 * i + 1};
      step.rows = {0, 8 + 5 * i};
      step.sequence = {.row_count = 9 + 5 * i, .blocks = step.blocks.data(), .state = i};
      step.draws = {{}, {.kind = i == 1 ? ops::RowDraw::kLikeliest : ops::RowDraw::kHost}};
    }
    const auto begin = [&](const Step& step) {
      return model->begin({.tokens = step.tokens,
                           .sequences = std::span(&step.sequence, 1),
                           .logit_rows = step.rows},
                          step.draws);
    };
    const auto kept = [&](const LogitRows& rows) {
      std::vector<float> values;
      for (size_t row = 0; row < 2; ++row) {
        if (rows.token(row) >= 0) {
          values.push_back(static_cast<float>(rows.token(row)));
        } else {
          values.insert(values.end(), rows.row(row).begin(), rows.row(row).end());
        }
      }
      return values;
    };
    std::vector<std::vector<float>> expected;
    for (const Step& step : steps) {
      expected.push_back(kept(value_of(model->finish(value_of(begin(step))))));
    }
    EXPECT_EQ(expected[1].size(), static_cast<size_t>(vocab) + 1) << "one row is drawn from";
    for (const std::vector<size_t>& order : {std::vector<size_t>{0, 1, 2}, {2, 0, 1}, {1, 2, 0}}) {
      std::vector<int32_t> numbers;
      for (const Step& step : steps) numbers.push_back(value_of(begin(step)));
      for (const size_t i : order) {
        EXPECT_EQ(kept(value_of(model->finish(numbers[i]))), expected[i]) << name << " " << i;
      }
    }
  }
}

TEST(InferenceLayers, TakeExactlyThePlannedMemoryAndTogetherTheWeightsOfTheWhole) {
  CpuDevice device({.thread_count = 1});
  const std::string name = "llama3";
  const auto architecture = value_of(Architecture::create(fixture_config(name)));
  int64_t packed = 0, cached = 0;
  for (const LayerRange range : {LayerRange{.begin = 0, .end = 1},
                                 LayerRange{.begin = 1, .end = INT64_MAX, .ends = false}}) {
    const auto model = value_of(InferenceModel::load(
        fixture(name), device, divided_options(DType::kF32, range, range.ends ? 3 : 1)));
    const InferenceMemory memory = inference_memory(*architecture, model->sizes());
    EXPECT_EQ(model->peak_bytes(), memory.total_bytes());
    packed += memory.weights.packed_bytes;
    cached += memory.kv_bytes;
  }
  const auto whole =
      value_of(InferenceModel::load(fixture(name), device, divided_options(DType::kF32, {})));
  const InferenceMemory memory = inference_memory(*architecture, whole->sizes());
  EXPECT_EQ(packed, memory.weights.packed_bytes);
  EXPECT_EQ(cached, memory.kv_bytes);
}

TEST(InferenceLayers, RefuseWhatIsOutOfRange) {
  CpuDevice device({.thread_count = 1});
  const auto model = value_of(
      InferenceModel::load(fixture("llama3"), device,
                           divided_options(DType::kF32, {.begin = 1, .end = 2, .ends = false})));
  const int64_t width = model->architecture().stream_columns();
  std::vector<float> rows(static_cast<size_t>(4 * width));
  const auto view = [&](int64_t count, int64_t columns) {
    return TensorView::of(rows.data(), DType::kF32, Shape{count, columns});
  };
  const std::vector<int32_t> blocks = {7, 8}, good = {0, 1};
  const auto error_of = [&](ops::SequenceSpan sequence, const TensorView& given) {
    const auto result = model->run_layers(std::span(&sequence, 1), given);
    return result ? std::string() : result.error().message;
  };
  EXPECT_EQ(error_of({.row_count = 2, .blocks = good.data()}, view(2, width)), "");
  EXPECT_NE(
      error_of({.row_count = 2, .context_count = 15, .blocks = blocks.data()}, view(2, width)), "");
  EXPECT_NE(error_of({.row_count = 3, .blocks = good.data()}, view(2, width)), "");
  EXPECT_NE(error_of({.row_count = 2, .context_count = 63, .blocks = good.data()}, view(2, width)),
            "");
  EXPECT_NE(error_of({.row_count = 2, .context_count = -1, .blocks = good.data()}, view(2, width)),
            "");
  EXPECT_NE(error_of({.row_count = 2, .blocks = good.data()}, view(2, width - 1)), "");
}

}  // namespace
}  // namespace jige::model
