// A prompt with pictures against transformers: tower and language model together
// (tests/tools/record_image_towers.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "formats/safetensors.h"
#include "model/image_tower.h"
#include "model/inference.h"
#include "model/model_test_support.h"

namespace jige::model {
namespace {

using testing::value_of;

std::string image_folder(const std::string& name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/image_towers/" + name;
}

// The rows of the pictures of a prompt, in their order.
class PictureRows {
 public:
  PictureRows(ImageTower& tower, const formats::TensorFile& recorded)
      : width_(tower.width()), levels_(tower.config().levels()) {
    const TensorView pictures = value_of(recorded.view("images"));
    for (int64_t i = 0; i < pictures.count(); ++i) {
      const auto pixels =
          value_of(recorded.view("image." + std::to_string(pictures.as<int32_t>()[i])));
      const auto* bytes = pixels.as<uint8_t>();
      const images::Image image{static_cast<int32_t>(pixels.shape[1]),
                                static_cast<int32_t>(pixels.shape[0]),
                                {bytes, bytes + pixels.count()}};
      values_.push_back(value_of(tower.encode(image)));
    }
  }

  // The next one, for this row of a forward.
  GivenRow next(size_t row) {
    const std::vector<float>& values = values_.at(picture_);
    const int64_t level = std::ssize(values) / levels_;
    GivenRow given{static_cast<int32_t>(row), values.data() + at_};
    if (levels_ > 1) {
      given.deep = given.values + level;
      given.deep_stride = level;
      given.deep_count = static_cast<int32_t>(levels_) - 1;
    }
    at_ += width_;
    if (at_ == level) {
      at_ = 0;
      ++picture_;
    }
    return given;
  }
  void begin() { picture_ = static_cast<size_t>(at_ = 0); }
  bool at_end() const { return picture_ == values_.size(); }

 private:
  int64_t width_, levels_;
  std::vector<std::vector<float>> values_;
  size_t picture_ = 0;
  int64_t at_ = 0;
};

// Where the pictures' rows stand in a prompt, of a model that turns by their places.
std::vector<ImageGrid> grids_of_pictures(const formats::ImageConfig& config,
                                         const formats::TensorFile& recorded) {
  const TensorView prompt = value_of(recorded.view("prompt"));
  const TensorView pictures = value_of(recorded.view("images"));
  std::vector<ImageGrid> grids;
  int32_t index = 0;
  for (int64_t i = 0; i < pictures.count(); ++i) {
    const auto pixels =
        value_of(recorded.view("image." + std::to_string(pictures.as<int32_t>()[i])));
    const auto layout = formats::image_layout(config, static_cast<int32_t>(pixels.shape[1]),
                                              static_cast<int32_t>(pixels.shape[0]));
    while (prompt.as<int32_t>()[index] != config.placeholder_id) ++index;
    grids.push_back({index, layout.token_rows, layout.token_columns});
    index = grids.back().end();
  }
  return grids;
}

constexpr const char* kImageModels[] = {
    "mistral3",     "mistral3_silu",   "pixtral",  "gemma3",         "gemma3_wide",   "qwen2_vl",
    "qwen2_5_vl",   "qwen2_5_vl_new",  "qwen3_vl", "qwen3_5",        "qwen3_vl_moe",  "qwen3_5_moe",
    "idefics3",     "smolvlm",         "internvl", "internvl_rms",   "llava",         "llava_next",
    "llava_siglip", "llava_onevision", "gemma4",   "gemma4_clipped", "gemma4_unified"};

TEST(ImagePlaces, AreThoseOfTransformers) {
  int checked = 0;
  for (const std::string name : kImageModels) {
    const std::string folder = image_folder(name);
    const auto recorded = value_of(formats::open_safetensors(folder + "/expected.safetensors"));
    if (!recorded.find("positions")) continue;
    const auto config = value_of(formats::load_image_config(folder));
    const ImagePlaces places(grids_of_pictures(*config, recorded));
    const TensorView positions = value_of(recorded.view("positions"));
    for (int32_t i = 0; i < positions.columns(); ++i) {
      const TokenPlace place = places.at(i);
      for (int64_t by = 0; by < 3; ++by) {
        EXPECT_EQ(place[static_cast<size_t>(by)], positions.row_range(by, by + 1).as<int32_t>()[i])
            << name << " " << i;
      }
    }
    ++checked;
  }
  EXPECT_GE(checked, 2);
}

TEST(ImagePlaces, AreNotThoseOfModelsThatTurnOtherwise) {
  CpuDevice device({.thread_count = 1});
  const auto refusal = [&](const std::string& name, PairPlaces pairs) {
    const auto model = value_of(InferenceModel::load(testing::fixture(name), device, {}));
    const Status status = model->turn_by_places(std::move(pairs));
    EXPECT_EQ(model->turns_by_places(), status.has_value());
    return status ? std::string() : status.error().message;
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(refusal("qwen2_5_images", PairPlaces(4, 2)), "");
  EXPECT_THAT(refusal("qwen2_5_images", PairPlaces(5, 0)), HasSubstr("5 pairs of columns"));
  EXPECT_THAT(refusal("qwen2_5_images", PairPlaces(4, 3)), HasSubstr("4 pairs of columns"));
  EXPECT_THAT(refusal("gemma3", PairPlaces(6, 0)), HasSubstr("several tables of them"));
  EXPECT_THAT(refusal("deepseek_v2", PairPlaces(4, 0)), HasSubstr("several tables of them"));
  EXPECT_THAT(refusal("gpt2", PairPlaces(4, 0)), HasSubstr("several tables of them"));
}

TEST(ImageLogits, AreThoseOfTransformersHoweverThePromptIsCut) {
  for (const std::string name : kImageModels) {
    const std::string folder = image_folder(name);
    CpuDevice device({.thread_count = 2});
    const auto config = value_of(formats::load_image_config(folder));
    ASSERT_TRUE(config);
    const auto tower = value_of(ImageTower::load(folder, *config, device));
    const auto model = value_of(InferenceModel::load(folder, device,
                                                     {.compute = DType::kF32,
                                                      .context_max = 128,
                                                      .batch_tokens_max = 128,
                                                      .logit_rows_max = 128}));
    const auto recorded = value_of(formats::open_safetensors(folder + "/expected.safetensors"));
    PictureRows rows(*tower, recorded);
    std::vector<const ImagePlaces*> of_sequence;
    std::optional<ImagePlaces> places;
    if (!config->pair_places.empty()) {
      ASSERT_TRUE(model->turn_by_places(config->pair_places));
      places.emplace(grids_of_pictures(*config, recorded));
      of_sequence = {&*places};
    }
    const TensorView prompt = value_of(recorded.view("prompt"));
    const TensorView logits = value_of(recorded.view("logits"));
    const std::vector<int32_t> tokens(prompt.as<int32_t>(), prompt.as<int32_t>() + prompt.count());
    std::vector<int32_t> own = tokens;
    std::ranges::replace(own, config->placeholder_id, config->token_of_row());
    const std::vector<int32_t> blocks = {0, 1, 2, 3, 4, 5, 6, 7};
    for (const size_t piece : {size_t{128}, size_t{7}, size_t{1}}) {
      rows.begin();
      double most = 0;
      for (size_t done = 0, count = 0; done < tokens.size(); done += count) {
        count = std::min(piece, tokens.size() - done);
        const auto is_row = [&](size_t i) { return tokens[i] == config->placeholder_id; };
        while (config->mutual_rows && done + count < tokens.size() && is_row(done + count - 1) &&
               is_row(done + count)) {
          ++count;
        }
        std::vector<GivenRow> given;
        std::vector<RowRange> mutual;
        for (size_t i = 0; i < count; ++i) {
          if (!is_row(done + i)) continue;
          const auto row = static_cast<int64_t>(i);
          given.push_back(rows.next(i));
          if (!config->mutual_rows) continue;
          if (mutual.empty() || mutual.back().end != row) mutual.push_back({row, row});
          ++mutual.back().end;
        }
        const ops::SequenceSpan sequence{.row_count = static_cast<int32_t>(count),
                                         .context_count = static_cast<int32_t>(done),
                                         .blocks = blocks.data()};
        std::vector<int32_t> wanted(count);
        std::iota(wanted.begin(), wanted.end(), 0);
        const auto found = value_of(model->forward({.tokens = std::span(own).subspan(done, count),
                                                    .sequences = std::span(&sequence, 1),
                                                    .logit_rows = wanted,
                                                    .given = given,
                                                    .mutual = mutual,
                                                    .places = of_sequence}));
        const float* const expected =
            logits.as<float>() + done * static_cast<size_t>(logits.columns());
        for (size_t i = 0; i < found.size(); ++i) {
          most = std::max(most, std::abs(double{found[i]} - expected[i]));
        }
      }
      EXPECT_TRUE(rows.at_end()) << name << ": each row has its place";
      EXPECT_LE(most, 1e-4) << name;
      RecordProperty(name, std::to_string(most));
    }
  }
}

}  // namespace
}  // namespace jige::model
