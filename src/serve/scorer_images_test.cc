// Texts with images scored against transformers (tests/tools/record_image_towers.py): however
// forwards are cut, whatever else is scored, and with what several texts share run once.
#include <gtest/gtest.h>

#include <cmath>

#include "formats/safetensors.h"
#include "model/image_tower.h"
#include "serve/scorer.h"
#include "serve/serve_test_support.h"

namespace jige::serve {
namespace {

using testing::value_of;

std::string tower_folder(const std::string& name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/image_towers/" + name;
}

// The recorded prompt with its pictures, and how likely each of its tokens is.
class RecordedPrompt {
 public:
  explicit RecordedPrompt(const std::string& name)
      : folder_(tower_folder(name)),
        recorded_(value_of(formats::open_safetensors(folder_ + "/expected.safetensors"))) {
    const TensorView prompt = value_of(recorded_.view("prompt"));
    ids_.assign(prompt.as<int32_t>(), prompt.as<int32_t>() + prompt.count());
    config_ = *value_of(formats::load_image_config(folder_));
    CpuDevice device({.thread_count = 2});
    const auto tower = value_of(model::ImageTower::load(folder_, config_, device));
    const TensorView pictures = value_of(recorded_.view("images"));
    size_t at = 0;
    for (int64_t i = 0; i < pictures.count(); ++i) {
      at = put_picture(*tower, pictures.as<int32_t>()[i], at);
      answers_.push_back(at);
      while (ids_[answers_.back()] < 20 || ids_[answers_.back()] > 25) ++answers_.back();
    }
  }

  std::unique_ptr<model::InferenceModel> load(Device& device, int64_t rows, int64_t blocks) const {
    auto model = value_of(model::InferenceModel::load(folder_, device,
                                                      {.compute = DType::kF32,
                                                       .context_max = 128,
                                                       .kv_block_count = blocks,
                                                       .batch_tokens_max = rows,
                                                       .scores = true}));
    if (!config_.pair_places.empty()) {
      EXPECT_TRUE(model->turn_by_places(config_.pair_places));
    }
    return model;
  }

  // The prompt up to the token behind each of its pictures, which is scored.
  std::vector<ScoredText> texts() const {
    std::vector<ScoredText> made;
    for (const size_t answer : answers_) {
      const auto end = ids_.begin() + static_cast<std::ptrdiff_t>(answer) + 1;
      made.push_back({.tokens = {ids_.begin(), end}, .first = answer, .given = given_});
    }
    return made;
  }
  double expected(size_t text) const {
    const TensorView logits = value_of(recorded_.view("logits"));
    const auto row = static_cast<int64_t>(answers_[text]) - 1;
    const float* values = logits.row_range(row, row + 1).as<float>();
    double sum = 0;
    for (int64_t i = 0; i < logits.columns(); ++i) sum += std::exp(double{values[i]});
    return values[ids_[answers_[text]]] - std::log(sum);
  }

 private:
  // Gives rows of a picture ids in place of its placeholders, from `at` on; where it ends.
  size_t put_picture(model::ImageTower& tower, int32_t number, size_t at) {
    const TensorView pixels = value_of(recorded_.view("image." + std::to_string(number)));
    const auto* bytes = pixels.as<uint8_t>();
    const images::Image image{static_cast<int32_t>(pixels.shape[1]),
                              static_cast<int32_t>(pixels.shape[0]),
                              {bytes, bytes + pixels.count()}};
    const auto layout = formats::image_layout(config_, image.width, image.height);
    const int32_t first = given_.empty() ? 1000 : given_.back()->id_end() + 3;
    given_.push_back(std::make_shared<GivenRows>(
        GivenRows{.first_id = first,
                  .token = config_.token_of_row(),
                  .count = layout.row_count(),
                  .values = value_of(tower.encode(image)),
                  .mutual = config_.mutual_rows,
                  .columns = config_.pair_places.empty() ? 0 : layout.token_columns,
                  .levels = static_cast<int32_t>(config_.levels())}));
    for (int32_t row = 0; row < layout.row_count(); ++at) {
      if (ids_[at] == config_.placeholder_id) ids_[at] = first + row++;
    }
    return at;
  }

  std::string folder_;
  formats::TensorFile recorded_;
  formats::ImageConfig config_;
  std::vector<int32_t> ids_;
  std::vector<GivenRowsRef> given_;
  std::vector<size_t> answers_;  // of each picture the token behind it
};

std::vector<float> scored(model::InferenceModel& model, const std::vector<ScoredText>& texts,
                          ScoreCounts* counts = nullptr) {
  Scorer scorer(model);
  std::vector<float> logprobs(texts.size());
  const auto keep = [&](size_t text, Result<std::vector<float>> found) -> Status {
    JIGE_TRY(const std::vector<float> all, std::move(found));
    EXPECT_EQ(all.size(), 1u);
    logprobs[text] = all.front();
    return {};
  };
  const Status done = scorer.score_all(texts, keep);
  EXPECT_TRUE(done) << done.error().message;
  if (counts) *counts = scorer.counts();
  return logprobs;
}

class ScorerImages : public ::testing::TestWithParam<const char*> {};

TEST_P(ScorerImages, ScoresAreThoseOfTransformers) {
  const RecordedPrompt prompt(GetParam());
  CpuDevice device({.thread_count = 2});
  const auto model = prompt.load(device, 128, 24);
  const std::vector<float> logprobs = scored(*model, prompt.texts());
  ASSERT_EQ(logprobs.size(), 3u);
  for (size_t i = 0; i < logprobs.size(); ++i) {
    EXPECT_NEAR(logprobs[i], prompt.expected(i), 2e-4) << i;
  }
}

TEST_P(ScorerImages, ScoresDoNotDependOnForwardsAndOthers) {
  const RecordedPrompt prompt(GetParam());
  CpuDevice device({.thread_count = 2});
  const auto whole = prompt.load(device, 128, 24);
  ScoreCounts counts;
  const std::vector<float> together = scored(*whole, prompt.texts(), &counts);
  EXPECT_LT(counts.computed_tokens, counts.text_tokens);  // beginnings are run once
  std::vector<float> alone;
  for (const ScoredText& text : prompt.texts()) alone.push_back(scored(*whole, {text}).front());
  EXPECT_EQ(alone, together);
  for (const int64_t rows : {21, 40}) {  // more than the rows that see one another
    const auto cut = prompt.load(device, rows, 9);
    EXPECT_EQ(scored(*cut, prompt.texts()), together) << rows;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ScorerImages,
                         ::testing::Values("gemma3", "mistral3", "qwen2_5_vl_new", "qwen3_vl",
                                           "qwen3_5", "gemma4", "gemma4_clipped"),
                         [](const auto& chosen) { return std::string(chosen.param); });

TEST(ScorerImages, RefusesWhatIsNoTextWithImages) {
  const RecordedPrompt prompt("gemma3");
  CpuDevice device({.thread_count = 1});
  const auto model = prompt.load(device, 128, 24);
  const Scorer scorer(*model);
  ScoredText text = prompt.texts().back();
  EXPECT_TRUE(scorer.check(text));
  text.first = 10;  // rows of an image have no probability
  EXPECT_FALSE(scorer.check(text));
  text.first = text.tokens.size() - 1;
  text.given.pop_back();
  EXPECT_FALSE(scorer.check(text));
  const auto small = prompt.load(device, 12, 24);
  const Status refused = Scorer(*small).check(prompt.texts().back());
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("see one another"), std::string::npos);
}

}  // namespace
}  // namespace jige::serve
