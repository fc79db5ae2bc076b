// How Gemma 4 reads images, by the files of its folders.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "formats/image_chats_test_support.h"
#include "formats/image_config.h"
#include "formats/image_limit.h"
#include "formats/test_support.h"
#include "text/tokenizer.h"

namespace jige::formats {
namespace {

using ::testing::Each;

// As transformers writes what it takes for the smaller models; of the language model what is looked
// at.
struct Gemma4Files {
  Json config = {{"architectures", {"Gemma4ForConditionalGeneration"}},
                 {"boi_token_id", 255999},
                 {"eoi_token_id", 258882},
                 {"image_token_id", 258880},
                 {"model_type", "gemma4"},
                 {"text_config",
                  {{"hidden_size", 1536},
                   {"hidden_size_per_layer_input", 256},
                   {"intermediate_size", 6144},
                   {"model_type", "gemma4_text"},
                   {"num_hidden_layers", 30},
                   {"num_attention_heads", 8},
                   {"num_key_value_heads", 1},
                   {"pad_token_id", 3},
                   {"use_bidirectional_attention", nullptr},
                   {"vocab_size", 262144}}},
                 {"vision_config",
                  {{"head_dim", 64},
                   {"hidden_activation", "gelu_pytorch_tanh"},
                   {"hidden_size", 768},
                   {"intermediate_size", 3072},
                   {"model_type", "gemma4_vision"},
                   {"num_attention_heads", 12},
                   {"num_hidden_layers", 16},
                   {"num_key_value_heads", 12},
                   {"patch_size", 16},
                   {"pooling_kernel_size", 3},
                   {"position_embedding_size", 10240},
                   {"rms_norm_eps", 1e-6},
                   {"rope_parameters", {{"rope_theta", 100.0}, {"rope_type", "axial"}}},
                   {"standardize", false},
                   {"use_clipped_linears", true}}}};
  Json processor = {{"image_seq_length", 280}, {"processor_class", "Gemma4Processor"}};
  Json preprocessor = {{"do_convert_rgb", true},
                       {"do_normalize", false},
                       {"do_rescale", true},
                       {"do_resize", true},
                       {"image_mean", {0.0, 0.0, 0.0}},
                       {"image_processor_type", "Gemma4ImageProcessor"},
                       {"image_std", {1.0, 1.0, 1.0}},
                       {"max_soft_tokens", 280},
                       {"patch_size", 16},
                       {"pooling_kernel_size", 3},
                       {"resample", 3},
                       {"rescale_factor", 0.00392156862745098}};

  Result<std::optional<ImageConfig>> parse() const {
    return parse_image_config(config, processor, preprocessor, "folder");
  }
  ImageConfig read() const {
    const auto read = parse();
    EXPECT_TRUE(read && *read) << (read ? "no images" : read.error().message);
    return read && *read ? **read : ImageConfig();
  }
};

TEST(Gemma4Images, AreReadAsTheirFilesSay) {
  const ImageConfig config = Gemma4Files().read();
  EXPECT_EQ(config.family, ImageFamily::kGemma4);
  EXPECT_EQ(config.tower.hidden_size, 768);
  EXPECT_EQ(config.tower.layer_count, 16);
  EXPECT_EQ(config.tower.head_dim, 64);
  EXPECT_EQ(config.tower.ffn_size, 3072);
  EXPECT_EQ(config.tower.norm, NormKind::kRms);
  EXPECT_EQ(config.tower.norm_place, NormPlace::kAround);
  EXPECT_EQ(config.tower.norm_eps, 1e-6);
  EXPECT_EQ(config.tower.activation, ActivationKind::kGeGlu);
  EXPECT_EQ(config.tower.rope.theta, 100);
  EXPECT_EQ(config.tower.score_scale, 1);
  EXPECT_TRUE(config.tower.qk_norm && config.tower.value_norm && config.tower.looks_ahead);
  EXPECT_TRUE(config.halves_apart);
  EXPECT_TRUE(config.bounded_products);
  EXPECT_FALSE(config.standardises);
  EXPECT_FALSE(config.mutual_rows);
  EXPECT_EQ(config.positions_side, 10240);
  EXPECT_EQ(config.patches_max(), 2520);
  EXPECT_EQ(config.rows_max(), 280);
  EXPECT_EQ(config.text_width, 1536);
  EXPECT_EQ(config.resampling, ImageResampling::kBicubic);
  EXPECT_THAT(config.mean, Each(0.5f));
  EXPECT_THAT(config.deviation, Each(0.5f));
  EXPECT_EQ(config.placeholder_id, 258880);
  EXPECT_EQ(config.open_id, 255999);
  EXPECT_EQ(config.end_id, 258882);
  EXPECT_EQ(config.token_of_row(), 3);
}

// In which rows see one another, and layers have no inputs of a token.
TEST(Gemma4Images, OfLargerModelsAreOfOtherForm) {
  Gemma4Files files;
  files.config["text_config"].update(
      {{"hidden_size_per_layer_input", 0}, {"use_bidirectional_attention", "vision"}});
  files.config["vision_config"].update({{"standardize", true}, {"use_clipped_linears", false}});
  const ImageConfig config = files.read();
  EXPECT_TRUE(config.mutual_rows);
  EXPECT_TRUE(config.standardises);
  EXPECT_FALSE(config.bounded_products);
  EXPECT_EQ(config.token_of_row(), 258880);
}

// As transformers writes what it takes for the model without a tower.
Gemma4Files unified_files() {
  Gemma4Files files;
  files.config.update({{"architectures", {"Gemma4UnifiedForConditionalGeneration"}},
                       {"model_type", "gemma4_unified"}});
  files.config["text_config"].update({{"hidden_size", 3840},
                                      {"model_type", "gemma4_unified_text"},
                                      {"use_bidirectional_attention", "vision"}});
  files.config["text_config"].erase("hidden_size_per_layer_input");
  files.config["vision_config"] = {
      {"mm_embed_dim", 3840},     {"mm_posemb_size", 1120}, {"model_type", "gemma4_unified_vision"},
      {"output_proj_dims", 3840}, {"patch_size", 16},       {"pooling_kernel_size", 3},
      {"rms_norm_eps", 1e-6}};
  return files;
}

TEST(Gemma4Images, OfTheUnifiedModelPassNoLayers) {
  const ImageConfig config = unified_files().read();
  EXPECT_EQ(config.family, ImageFamily::kGemma4);
  EXPECT_EQ(config.tower.layer_count, 0);
  EXPECT_EQ(config.tower.hidden_size, 3840);
  EXPECT_EQ(config.tower.norm, NormKind::kLayer);
  EXPECT_EQ(config.tower.norm_eps, 1e-5);
  EXPECT_EQ(config.projector_norm_eps, 1e-6);
  EXPECT_EQ(config.patch_size, 48);
  EXPECT_EQ(config.merge, 1);
  EXPECT_EQ(config.positions_side, 1120);
  EXPECT_EQ(config.patches_max(), 280);
  EXPECT_EQ(config.rows_max(), 280);
  EXPECT_TRUE(config.mutual_rows);
  EXPECT_THAT(config.mean, Each(0.0f));
  EXPECT_THAT(config.deviation, Each(1.0f));
  // Of an image as with a tower.
  const ImageConfig other = Gemma4Files().read();
  EXPECT_EQ(image_layout(config, 1920, 1080), image_layout(other, 1920, 1080));

  Gemma4Files files = unified_files();
  files.config["vision_config"] = {{"model_type", "gemma4_unified_vision"}};
  files.config["text_config"].erase("use_bidirectional_attention");
  files.preprocessor = Json::object();
  EXPECT_EQ(files.read(), config);
  files.config["text_config"]["use_bidirectional_attention"] = nullptr;
  EXPECT_FALSE(files.read().mutual_rows);
  files.config["vision_config"]["model_type"] = "gemma4_vision";
  EXPECT_EQ(*files.parse(), std::nullopt);
}

TEST(Gemma4Images, WhatIsLeftOutIsWhatTransformersTakes) {
  Gemma4Files files;
  for (const char* field : {"boi_token_id", "eoi_token_id", "image_token_id"}) {
    files.config.erase(field);
  }
  files.config["vision_config"] = {{"model_type", "gemma4_vision"}, {"use_clipped_linears", true}};
  EXPECT_EQ(files.read(), Gemma4Files().read());
  for (const Json& nothing : {Json::object(), Json()}) {
    files.preprocessor = nothing;
    EXPECT_EQ(files.read(), Gemma4Files().read());
  }
  Gemma4Files newer;
  newer.processor["image_processor"] = newer.preprocessor;
  newer.preprocessor = {{"max_soft_tokens", 5}};
  EXPECT_EQ(newer.read(), Gemma4Files().read());
  // Pixels that are normalised are, and then once more by the model.
  newer.processor["image_processor"].update(
      {{"do_normalize", true}, {"image_mean", 0.25}, {"image_std", 0.5}});
  EXPECT_THAT(newer.read().mean, Each(0.5f));
  EXPECT_THAT(newer.read().deviation, Each(0.25f));
}

TEST(Gemma4Images, AreNoneWithoutATowerThatIsKnown) {
  Gemma4Files files;
  files.config["vision_config"]["model_type"] = "mobilenet";
  EXPECT_EQ(*files.parse(), std::nullopt);
  files.config["vision_config"] = nullptr;
  EXPECT_EQ(*files.parse(), std::nullopt);
}

struct Gemma4Field {
  Json Gemma4Files::*file;
  const char* pointer;
  Json value;
  Code code;
  const char* words;
};

void expect_named(const Gemma4Files& right, const std::vector<Gemma4Field>& fields) {
  for (const Gemma4Field& one : fields) {
    Gemma4Files files = right;
    (files.*one.file)[Json::json_pointer(one.pointer)] = one.value;
    SCOPED_TRACE(std::string(one.pointer) + " " + one.value.dump());
    EXPECT_FAILS_WITH(files.parse(), one.code, one.words);
  }
}

constexpr auto kConfigFile = &Gemma4Files::config;
constexpr auto kPixelsFile = &Gemma4Files::preprocessor;

TEST(Gemma4Images, NameTheFieldThatIsWrong) {
  expect_named(
      Gemma4Files(),
      {
          Gemma4Field{kConfigFile, "/image_token_id", 262144, Code::kCorrupt, "image_token_id"},
          Gemma4Field{kConfigFile, "/boi_token_id", -1, Code::kCorrupt, "boi_token_id"},
          Gemma4Field{kConfigFile, "/eoi_token_id", 1 << 20, Code::kCorrupt, "eoi_token_id"},
          Gemma4Field{kConfigFile, "/vision_config/rms_norm_eps", 0, Code::kCorrupt,
                      "rms_norm_eps"},
          Gemma4Field{kConfigFile, "/vision_config/hidden_activation", "silu", Code::kUnsupported,
                      "hidden_activation"},
          Gemma4Field{kConfigFile, "/vision_config/num_key_value_heads", 3, Code::kUnsupported,
                      "num_key_value_heads"},
          Gemma4Field{kConfigFile, "/vision_config/head_dim", 32, Code::kUnsupported, "head_dim"},
          Gemma4Field{kConfigFile, "/vision_config/pooling_kernel_size", 0, Code::kCorrupt,
                      "pooling_kernel_size"},
          Gemma4Field{kConfigFile, "/vision_config/position_embedding_size", 839, Code::kCorrupt,
                      "840 patches of 16 pixels"},
          Gemma4Field{kConfigFile, "/vision_config/rope_parameters/rope_type", "yarn",
                      Code::kUnsupported, "yarn"},
          Gemma4Field{kPixelsFile, "/patch_size", 14, Code::kCorrupt, "patch_size"},
          Gemma4Field{kPixelsFile, "/pooling_kernel_size", 2, Code::kCorrupt,
                      "pooling_kernel_size"},
          Gemma4Field{kPixelsFile, "/max_soft_tokens", 0, Code::kCorrupt, "max_soft_tokens"},
          Gemma4Field{kPixelsFile, "/max_soft_tokens", 1400, Code::kCorrupt, "65535 pixels"},
          Gemma4Field{kPixelsFile, "/max_soft_tokens", 1 << 20, Code::kCorrupt, "max_soft_tokens"},
          Gemma4Field{kPixelsFile, "/do_resize", false, Code::kUnsupported, "do_resize"},
      });
}

TEST(Gemma4Images, NameTheFieldOfTheUnifiedModelThatIsWrong) {
  expect_named(
      unified_files(),
      {{kConfigFile, "/vision_config/mm_embed_dim", 0, Code::kCorrupt, "mm_embed_dim"},
       {kConfigFile, "/vision_config/mm_embed_dim", 1 << 20, Code::kCorrupt, "mm_embed_dim"},
       {kConfigFile, "/vision_config/output_proj_dims", 3841, Code::kUnsupported,
        "output_proj_dims"},
       {kConfigFile, "/vision_config/mm_posemb_size", 279, Code::kCorrupt,
        "279 patches (mm_posemb_size"},
       {kConfigFile, "/vision_config/rms_norm_eps", 1, Code::kCorrupt, "rms_norm_eps"},
       {kConfigFile, "/vision_config/patch_size", 128, Code::kCorrupt, "more than 256 pixels"},
       {kConfigFile, "/vision_config/pooling_kernel_size", 17, Code::kCorrupt,
        "pooling_kernel_size"},
       {kPixelsFile, "/patch_size", 48, Code::kCorrupt, "patch_size"},
       {kPixelsFile, "/pooling_kernel_size", 1, Code::kCorrupt, "pooling_kernel_size"}});
}

// Sizes of images as the image processor makes them (record_gemma4_towers.py).
TEST(Gemma4Images, HaveTheLayoutsOfTransformers) {
  const auto text = read_file(image_tower_fixture("layouts_gemma4.json"));
  ASSERT_TRUE(text);
  const Json records = Json::parse(*text);
  ASSERT_GT(records.size(), 40u);
  for (const Json& record : records) {
    SCOPED_TRACE(record.dump());
    Gemma4Files files;
    for (Json* sizes : {&files.config["vision_config"], &files.preprocessor}) {
      sizes->update({{"patch_size", record["patch"]}, {"pooling_kernel_size", record["merge"]}});
    }
    files.preprocessor["max_soft_tokens"] = record["rows"];
    const ImageConfig config = files.read();
    const ImageLayout layout = image_layout(config, record["size"][0], record["size"][1]);
    const int32_t width = record["width"];
    const int32_t height = record["height"];
    const auto step = static_cast<int32_t>(config.step());
    EXPECT_EQ(layout, (ImageLayout{width, height, height / step, width / step}));
    EXPECT_LE(layout.row_count(), config.rows_max());
  }
}

// However long an image is and whatever it is limited to, it has rows, and no more than it may.
TEST(Gemma4Images, KeepWithinTheirLimit) {
  for (const int64_t pixels : {48 * 48, 48 * 48 * 2, 100'000, 280 * 48 * 48, 1 << 28}) {
    ImageConfig config = Gemma4Files().read();
    ASSERT_TRUE(limit_image_pixels(config, pixels));
    EXPECT_EQ(config.rows_max(), std::min<int64_t>(280, pixels / (48 * 48)));
    for (const int32_t width : {1, 2, 48, 337, 65535, 2147483647}) {
      for (const int32_t height : {1, 3, 48, 4100, 2147483647}) {
        SCOPED_TRACE(fmt::format("{} pixels, {} x {}", pixels, width, height));
        const ImageLayout layout = image_layout(config, width, height);
        EXPECT_GE(layout.row_count(), 1);
        EXPECT_LE(layout.row_count(), config.rows_max());
        EXPECT_EQ(layout.width, layout.token_columns * 48);
        EXPECT_EQ(layout.height, layout.token_rows * 48);
      }
    }
  }
  ImageConfig config = Gemma4Files().read();
  EXPECT_FAILS_WITH(limit_image_pixels(config, 48 * 48 - 1), Code::kInvalidArgument, "48 x 48");
}

// The ids of conversations with images are those of transformers' processor.
TEST(Gemma4Images, StandInPromptsAsTheProcessorPutsThem) {
  for (const std::string name : {"gemma4", "gemma4_clipped", "gemma4_unified"}) {
    SCOPED_TRACE(name);
    const ImageChats folder = ImageChats::open(name);
    EXPECT_EQ(folder.config.open_token, "<|image>");
    EXPECT_EQ(folder.config.end_token, "<image|>");
    expect_recorded_ids(folder, name);
  }
}

TEST(Gemma4Images, NeedTheTokensOfTheirTokenizer) {
  const std::string folder = image_tower_fixture("gemma4");
  const auto tokenizer = text::Tokenizer::load(folder);
  ASSERT_TRUE(tokenizer);
  const ImageConfig right = **load_image_config(folder);
  ImageConfig config = right;
  config.placeholder_id = 91;
  EXPECT_FAILS_WITH(find_image_tokens(config, *tokenizer), Code::kCorrupt, "<|image|>");
  config = right;
  config.open_id = 96;
  EXPECT_FAILS_WITH(find_image_tokens(config, *tokenizer), Code::kCorrupt, "boi_token_id");
  config = right;
  config.end_id = 96;
  EXPECT_FAILS_WITH(find_image_tokens(config, *tokenizer), Code::kCorrupt, "eoi_token_id");
}

}  // namespace
}  // namespace jige::formats
