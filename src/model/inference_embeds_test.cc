// Models loaded for embeddings: the rows behind the final norm, without a head.
#include <algorithm>
#include <map>
#include <numeric>

#include "formats/image_model_names.h"
#include "formats/safetensors_writer.h"
#include "formats/tensor_folder.h"
#include "model/inference.h"
#include "model/layer_range.h"
#include "model/model_test_support.h"

namespace jige::model {
namespace {

using testing::fixture;
using testing::fixture_names;
using testing::succeed;
using testing::TempFolder;
using testing::value_of;

constexpr int32_t kTokens = 40;

InferenceOptions embed_options(DType compute = DType::kF32) {
  return {.compute = compute,
          .context_max = 64,
          .kv_block_count = 8,
          .state_count = 2,
          .batch_tokens_max = 64,
          .logit_rows_max = 64,
          .embeds = true};
}

std::vector<int32_t> spread_tokens(int64_t vocab_size) {
  std::vector<int32_t> tokens(kTokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>((7 * i * i + 3) % static_cast<size_t>(vocab_size));
  }
  return tokens;
}

// All normed rows of a sequence that runs in pieces of so many tokens, beside another one.
std::vector<float> rows_in_pieces(InferenceModel& model, size_t piece, bool beside) {
  const std::vector<int32_t> tokens = spread_tokens(model.config().vocab_size);
  const std::vector<int32_t> blocks = {3, 0, 2, 1}, other_blocks = {5};
  std::vector<float> all;
  for (size_t done = 0; done < tokens.size(); done += piece) {
    const size_t count = std::min(piece, tokens.size() - done);
    std::vector<int32_t> batch(beside ? 5 : 0, 2);
    const auto first = static_cast<int32_t>(batch.size());
    batch.insert(batch.end(), tokens.begin() + static_cast<ptrdiff_t>(done),
                 tokens.begin() + static_cast<ptrdiff_t>(done + count));
    std::vector<ops::SequenceSpan> sequences;
    if (beside) {
      sequences.push_back({.row_count = first, .blocks = other_blocks.data(), .state = 1});
    }
    sequences.push_back({.row_begin = first,
                         .row_count = static_cast<int32_t>(count),
                         .context_count = static_cast<int32_t>(done),
                         .blocks = blocks.data()});
    succeed(model.forward({.tokens = batch, .sequences = sequences, .logit_rows = {}})
                .map([](std::span<const float>) {}));
    std::vector<int32_t> rows(count);
    std::iota(rows.begin(), rows.end(), first);
    const auto normed = value_of(model.hidden_of(rows));
    all.insert(all.end(), normed.begin(), normed.end());
  }
  return all;
}

std::string ahead_fixture() {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/embedding/mistral_ahead";
}

TEST(InferenceEmbeds, TextsOfModelsThatLookAheadRunWhole) {
  CpuDevice device({.thread_count = 2});
  InferenceOptions options = embed_options();
  options.batch_tokens_max = 8;
  options.logit_rows_max = 8;
  const auto model = value_of(InferenceModel::load(ahead_fixture(), device, options));
  EXPECT_EQ(model->sizes().batch_tokens_max, 64) << "a forward holds the longest text";
  EXPECT_TRUE(model->sizes().whole_texts);
  EXPECT_EQ(inference_memory(model->architecture(), model->sizes()).kv_bytes, 0);
  const std::vector<int32_t> tokens(10, 5), blocks = {0, 1};
  const auto run = [&](int32_t context) {
    const std::vector<ops::SequenceSpan> sequences = {
        {.row_count = 10, .context_count = context, .blocks = blocks.data()}};
    return model->forward({.tokens = tokens, .sequences = sequences, .logit_rows = {}});
  };
  EXPECT_TRUE(run(0));
  const auto piece = run(3);
  ASSERT_FALSE(piece);
  EXPECT_EQ(piece.error().code, Code::kInvalidArgument);
  EXPECT_NE(piece.error().message.find("must run whole"), std::string::npos);
}

TEST(InferenceEmbeds, ModelsThatLookAheadNeitherAnswerNorRunOnSeveralMachines) {
  CpuDevice device({.thread_count = 1});
  InferenceOptions options = embed_options();
  options.embeds = false;
  options.logit_rows_max = 1;
  const auto answers = InferenceModel::load(ahead_fixture(), device, options);
  ASSERT_FALSE(answers);
  EXPECT_EQ(answers.error().code, Code::kUnsupported);
  EXPECT_NE(answers.error().message.find("jige embed"), std::string::npos);
  const auto config = value_of(formats::load_model_config(ahead_fixture()));
  EXPECT_FALSE(can_divide_layers(config));
}

// Fixtures have f32 and bf16 in turn: those that are alike follow each other.
DType compute_of(const std::string& name) {
  const auto at = std::ranges::find(fixture_names(), name) - fixture_names().begin();
  return at % 2 == 0 ? DType::kF32 : DType::kBF16;
}

// A fixture's rows in one piece, by the first test that asks for them.
const std::vector<float>& whole_rows(const std::string& name, InferenceModel* loaded = nullptr) {
  static std::map<std::string, std::vector<float>> made;
  std::vector<float>& rows = made[name];
  if (!rows.empty()) return rows;
  CpuDevice device({.thread_count = 1});
  const auto own =
      loaded
          ? nullptr
          : value_of(InferenceModel::load(fixture(name), device, embed_options(compute_of(name))));
  rows = rows_in_pieces(loaded ? *loaded : *own, kTokens, false);
  return rows;
}

TEST(InferenceEmbeds, RowsHaveTheSameBitsInEveryBatch) {
  CpuDevice device({.thread_count = 2});
  for (const std::string& name : fixture_names()) {
    const auto model =
        value_of(InferenceModel::load(fixture(name), device, embed_options(compute_of(name))));
    const std::vector<float>& whole = whole_rows(name, model.get());
    EXPECT_EQ(whole.size(), static_cast<size_t>(kTokens * model->config().hidden_size)) << name;
    EXPECT_EQ(rows_in_pieces(*model, 7, false), whole) << name;
    EXPECT_EQ(rows_in_pieces(*model, 11, true), whole) << name;
  }
}

TEST(InferenceEmbeds, MemoryIsAsPlannedAndHasNoHead) {
  CpuDevice device({.thread_count = 1});
  for (const std::string name : {"llama2", "qwen3", "gpt2", "mixtral"}) {
    InferenceOptions options = embed_options();
    const auto model = value_of(InferenceModel::load(fixture(name), device, options));
    const InferenceMemory plan = inference_memory(model->architecture(), model->sizes());
    EXPECT_EQ(model->peak_bytes(), plan.total_bytes()) << name;
    EXPECT_EQ(plan.logits_bytes, arena_bytes(DType::kF32, Shape{64, model->config().hidden_size}));
    rows_in_pieces(*model, 9, true);
    EXPECT_EQ(model->peak_bytes(), plan.total_bytes()) << name;
    options.embeds = false;
    const auto speaking = value_of(InferenceModel::load(fixture(name), device, options));
    const InferenceMemory other = inference_memory(speaking->architecture(), speaking->sizes());
    EXPECT_LT(plan.weights.total_bytes(), other.weights.total_bytes()) << name;
    EXPECT_LT(plan.logits_bytes, other.logits_bytes) << name;
  }
}

// The folder as its base class would be saved: names without their first part, and no head.
void write_base_class(const std::string& from, const std::string& to) {
  std::filesystem::create_directories(to);
  const auto files = value_of(formats::TensorFolder::open(from));
  std::vector<formats::TensorSource> sources;
  for (const formats::StoredTensor* tensor : files.tensors()) {
    const std::string name = formats::name_without_images(tensor->name);
    if (name.starts_with("lm_head") || formats::reads_images(name)) continue;
    sources.push_back(formats::TensorSource::of(Architecture::base_name(name),
                                                value_of(files.view(tensor->name))));
  }
  succeed(formats::write_tensor_folder(to, sources));
  std::filesystem::copy_file(from + "/config.json", to + "/config.json");
}

TEST(InferenceEmbeds, FoldersOfBaseClassesGiveTheSameRows) {
  CpuDevice device({.thread_count = 1});
  std::vector<std::string> names = fixture_names();
  names.push_back("gpt_oss_mxfp4");
  for (const std::string& name : names) {
    const TempFolder temp;
    write_base_class(fixture(name), temp / "base");
    const auto base =
        value_of(InferenceModel::load(temp / "base", device, embed_options(compute_of(name))));
    EXPECT_EQ(rows_in_pieces(*base, kTokens, false), whole_rows(name)) << name;
  }
}

TEST(InferenceEmbeds, ABaseClassWithoutATiedHeadIsNoLanguageModel) {
  CpuDevice device({.thread_count = 1});
  const TempFolder temp;
  write_base_class(fixture("llama2"), temp / "base");
  const auto model = InferenceModel::load(temp / "base", device);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, Code::kNotFound);
  EXPECT_NE(model.error().message.find("\"lm_head.weight\" is missing"), std::string::npos);
  EXPECT_NE(model.error().message.find("jige embed"), std::string::npos);
  write_base_class(fixture("qwen3"), temp / "tied");
  EXPECT_TRUE(InferenceModel::load(temp / "tied", device));
}

TEST(InferenceEmbeds, RowsOutOfRangeAreRefused) {
  CpuDevice device({.thread_count = 1});
  const auto model = value_of(InferenceModel::load(fixture("llama2"), device, embed_options()));
  const std::vector<int32_t> rows = {0};
  EXPECT_FALSE(model->hidden_of(rows)) << "no forward yet";
  rows_in_pieces(*model, 4, false);
  for (const int32_t row : {-1, 4}) {
    const std::vector<int32_t> bad = {row};
    EXPECT_FALSE(model->hidden_of(bad)) << row;
  }
}

}  // namespace
}  // namespace jige::model
