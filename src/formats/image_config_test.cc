#include "formats/image_config.h"

#include <gmock/gmock.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "base/test_fuzz_rounds.h"
#include "formats/json_file.h"
#include "formats/test_support.h"
#include "text/tokenizer.h"

namespace jige::formats {
namespace {

using ::testing::ElementsAre;

// The files of Mistral Small 3.1, as published.
struct ImageFiles {
  Json config = {{"architectures", {"Mistral3ForConditionalGeneration"}},
                 {"image_token_index", 10},
                 {"model_type", "mistral3"},
                 {"multimodal_projector_bias", false},
                 {"projector_hidden_act", "gelu"},
                 {"spatial_merge_size", 2},
                 {"text_config",
                  {{"head_dim", 128},
                   {"hidden_act", "silu"},
                   {"hidden_size", 5120},
                   {"intermediate_size", 32768},
                   {"max_position_embeddings", 131072},
                   {"model_type", "mistral"},
                   {"num_attention_heads", 32},
                   {"num_hidden_layers", 40},
                   {"num_key_value_heads", 8},
                   {"rms_norm_eps", 1e-05},
                   {"rope_theta", 1e9},
                   {"vocab_size", 131072}}},
                 {"torch_dtype", "bfloat16"},
                 {"vision_config",
                  {{"attention_dropout", 0.0},
                   {"head_dim", 64},
                   {"hidden_act", "silu"},
                   {"hidden_size", 1024},
                   {"image_size", 1540},
                   {"intermediate_size", 4096},
                   {"model_type", "pixtral"},
                   {"num_attention_heads", 16},
                   {"num_channels", 3},
                   {"num_hidden_layers", 24},
                   {"patch_size", 14},
                   {"rope_theta", 10000.0}}},
                 {"vision_feature_layer", -1}};
  Json processor = {{"image_break_token", "[IMG_BREAK]"},
                    {"image_end_token", "[IMG_END]"},
                    {"image_token", "[IMG]"},
                    {"patch_size", 14},
                    {"processor_class", "PixtralProcessor"},
                    {"spatial_merge_size", 2}};
  Json preprocessor = {{"do_convert_rgb", true},
                       {"do_normalize", true},
                       {"do_rescale", true},
                       {"do_resize", true},
                       {"image_mean", {0.48145466, 0.4578275, 0.40821073}},
                       {"image_std", {0.26862954, 0.26130258, 0.27577711}},
                       {"patch_size", {{"height", 14}, {"width", 14}}},
                       {"resample", 3},
                       {"rescale_factor", 0.00392156862745098},
                       {"size", {{"longest_edge", 1540}}}};

  Result<std::optional<ImageConfig>> parse() const {
    return parse_image_config(config, processor, preprocessor, "folder");
  }
  ImageConfig read() const {
    const auto read = parse();
    EXPECT_TRUE(read && *read) << (read ? "no images" : read.error().message);
    return read && *read ? **read : ImageConfig();
  }
};

TEST(ImageConfig, OfMistralSmallIsAsPublished) {
  const ImageConfig config = ImageFiles().read();
  EXPECT_EQ(config.tower.hidden_size, 1024);
  EXPECT_EQ(config.tower.layer_count, 24);
  EXPECT_EQ(config.tower.head_count, 16);
  EXPECT_EQ(config.tower.head_dim, 64);
  EXPECT_EQ(config.tower.ffn_size, 4096);
  EXPECT_EQ(config.tower.activation, ActivationKind::kSwiGlu);
  EXPECT_EQ(config.tower.rope.theta, 10000);
  EXPECT_TRUE(config.tower.looks_ahead);
  EXPECT_EQ(config.patch_size, 14);
  EXPECT_EQ(config.merge, 2);
  EXPECT_EQ(config.text_width, 5120);
  EXPECT_EQ(config.projector_activation, ActivationKind::kGeluErf);
  EXPECT_EQ(config.resampling, ImageResampling::kBicubic);
  EXPECT_EQ(config.width_max, 1540);
  EXPECT_EQ(config.patches_max(), 110 * 110);
  EXPECT_EQ(config.rows_max(), 55 * 55);
  EXPECT_FLOAT_EQ(config.factor, 1.0f / 255);
  EXPECT_EQ(config.placeholder_id, 10);
}

// Those of Pixtral 12B, as published in the form of transformers.
ImageFiles pixtral() {
  ImageFiles files;
  files.config = {{"architectures", {"LlavaForConditionalGeneration"}},
                  {"ignore_index", -100},
                  {"image_seq_length", 1},
                  {"image_token_index", 10},
                  {"model_type", "llava"},
                  {"projector_hidden_act", "gelu"},
                  {"text_config",
                   {{"head_dim", 128},
                    {"hidden_size", 5120},
                    {"intermediate_size", 14336},
                    {"is_composition", true},
                    {"max_position_embeddings", 1024000},
                    {"model_type", "mistral"},
                    {"num_hidden_layers", 40},
                    {"num_key_value_heads", 8},
                    {"rms_norm_eps", 1e-05},
                    {"rope_theta", 1e9},
                    {"sliding_window", nullptr},
                    {"vocab_size", 131072}}},
                  {"torch_dtype", "bfloat16"},
                  {"vision_config",
                   {{"head_dim", 64},
                    {"hidden_act", "silu"},
                    {"image_size", 1024},
                    {"is_composition", true},
                    {"model_type", "pixtral"},
                    {"patch_size", 16},
                    {"rope_theta", 10000.0},
                    {"tie_word_embeddings", false}}},
                  {"vision_feature_layer", -1},
                  {"vision_feature_select_strategy", "full"}};
  files.processor = {{"image_token", "[IMG]"}, {"patch_size", 16}};
  files.preprocessor["patch_size"] = {{"height", 16}, {"width", 16}};
  files.preprocessor["size"] = {{"longest_edge", 1024}};
  return files;
}

TEST(ImageConfig, OfPixtralIsAsPublished) {
  const ImageConfig config = pixtral().read();
  EXPECT_EQ(config.tower.hidden_size, 1024);
  EXPECT_EQ(config.tower.layer_count, 24);
  EXPECT_EQ(config.patch_size, 16);
  EXPECT_EQ(config.merge, 1);
  EXPECT_FALSE(config.merges);
  EXPECT_TRUE(config.projector_bias);
  EXPECT_EQ(config.rows_max(), 64 * 64);
  EXPECT_EQ(config.placeholder_id, 10);
  EXPECT_EQ(image_layout(config, 640, 480), (ImageLayout{640, 480, 30, 40}));
}

TEST(ImageConfig, OfLlavaIsReadWhereItIsAPixtral) {
  ImageFiles files = pixtral();
  files.config.erase("image_token_index");
  EXPECT_EQ(files.read().placeholder_id, 32000);
  files.config.erase("vision_feature_layer");
  EXPECT_EQ(files.read().tower.layer_count, 23);
  files.config.erase("vision_feature_select_strategy");
  EXPECT_FAILS_WITH(files.parse(), Code::kUnsupported, "vision_feature_select_strategy");
  files.config["vision_config"]["model_type"] = "clip_vision_model";
  EXPECT_FAILS_WITH(files.parse(), Code::kUnsupported, "shortest_edge");
  files.config["vision_config"]["model_type"] = "eva_vision_model";  // which is not read
  EXPECT_EQ(files.parse().value(), std::nullopt);
  files.config.erase("vision_config");
  EXPECT_EQ(files.parse().value(), std::nullopt);
}

TEST(ImageConfig, IsNothingWhereImagesAreNotRead) {
  ImageFiles files;
  files.config["vision_config"]["model_type"] = "siglip_vision_model";
  EXPECT_EQ(*files.parse(), std::nullopt);
  EXPECT_EQ(*parse_image_config({{"model_type", "llama"}}, Json(), Json(), "folder"), std::nullopt);
  const ScratchFolder empty;
  EXPECT_EQ(*load_image_config(empty.path()), std::nullopt);
}

TEST(ImageConfig, WhatIsLeftOutIsWhatTransformersTakes) {
  ImageFiles files;
  for (const char* field : {"head_dim", "hidden_size", "intermediate_size", "num_attention_heads",
                            "num_channels", "num_hidden_layers", "rope_theta"}) {
    files.config["vision_config"].erase(field);
  }
  for (const char* field : {"image_token_index", "multimodal_projector_bias",
                            "projector_hidden_act", "spatial_merge_size", "vision_feature_layer"}) {
    files.config.erase(field);
  }
  ImageFiles whole;
  EXPECT_EQ(files.read(), whole.read());
  files.config["vision_config"].erase("hidden_act");
  files.config["vision_config"].erase("patch_size");
  EXPECT_FAILS_WITH(files.parse(), Code::kCorrupt, "those of config.json, 16 and 2");
  files.processor["patch_size"] = 16;
  EXPECT_EQ(files.read().tower.activation, ActivationKind::kGeGluErf);
  EXPECT_EQ(files.read().patch_size, 16);

  // Of the files of the processor.
  whole.processor = Json();
  EXPECT_EQ(whole.read(), ImageFiles().read());
  whole.preprocessor = Json();
  EXPECT_EQ(whole.read(), ImageFiles().read());
  whole.preprocessor = Json::object();
  EXPECT_EQ(whole.read().width_max, 1024);
  // Without a tower in config.json.
  whole.preprocessor = Json();
  whole.config.erase("vision_config");
  EXPECT_EQ(whole.read().patch_size, 14);
  EXPECT_EQ(whole.read().width_max, 1540);
}

TEST(ImageConfig, ReadsTheFilesOfNewerProcessors) {
  ImageFiles files;
  files.processor["image_processor"] = std::exchange(files.preprocessor, Json());
  EXPECT_EQ(files.read(), ImageFiles().read());
  // Which count, where both are there.
  files.preprocessor = {{"size", {{"longest_edge", 560}}}};
  EXPECT_EQ(files.read().width_max, 1540);
  files.processor["image_processor"] = 7;
  EXPECT_FAILS_WITH(files.parse(), Code::kCorrupt, "image_processor");
  // The angles of a tower under either name.
  files = {};
  Json& vision = files.config["vision_config"];
  vision.erase("rope_theta");
  vision["rope_parameters"] = {{"rope_type", "axial"}, {"rope_theta", 500.0}};
  EXPECT_EQ(files.read().tower.rope.theta, 500);
  vision["rope_parameters"]["rope_type"] = "default";
  EXPECT_EQ(files.read().tower.rope.theta, 500);
}

TEST(ImageConfig, RunsTheLayersThatAreRead) {
  ImageFiles files;
  const auto layers = [&](const Json& which) {
    files.config["vision_feature_layer"] = which;
    return files.read().tower.layer_count;
  };
  EXPECT_EQ(layers(-1), 24);
  EXPECT_EQ(layers(24), 24);
  EXPECT_EQ(layers(-2), 23);
  EXPECT_EQ(layers(3), 3);
  EXPECT_EQ(layers(0), 0);
  EXPECT_EQ(layers({-25}), 0);
  files.config["vision_feature_layer"] = {-1, -2};
  EXPECT_FAILS_WITH(files.parse(), Code::kUnsupported, "a list of 2");
  files.config["vision_feature_layer"] = -26;
  EXPECT_FAILS_WITH(files.parse(), Code::kCorrupt, "vision_feature_layer");
}

// A field in one of the files, the value that is wrong, and what the message says of it.
struct BadField {
  Json ImageFiles::*file;
  const char* pointer;
  Json value;
  Code code;
  const char* words;
};

TEST(ImageConfig, NamesTheFieldThatIsWrong) {
  constexpr auto kConfig = &ImageFiles::config;
  constexpr auto kProcessor = &ImageFiles::processor;
  constexpr auto kPixels = &ImageFiles::preprocessor;
  for (const BadField& one : {
           BadField{kConfig, "/vision_config/hidden_size", 0, Code::kCorrupt, "hidden_size"},
           BadField{kConfig, "/vision_config/hidden_size", 1 << 19, Code::kCorrupt, "hidden_size"},
           BadField{kConfig, "/vision_config/num_attention_heads", 3, Code::kCorrupt, "3 heads"},
           BadField{kConfig, "/vision_config/num_attention_heads", 512, Code::kCorrupt, "of 4"},
           BadField{kConfig, "/vision_config/head_dim", 32, Code::kUnsupported, "head_dim"},
           BadField{kConfig, "/vision_config/num_channels", 1, Code::kUnsupported, "num_channels"},
           BadField{kConfig, "/vision_config/hidden_act", "relu", Code::kUnsupported, "hidden_act"},
           BadField{kConfig, "/vision_config/hidden_act", "mish", Code::kUnsupported, "mish"},
           BadField{kConfig, "/vision_config/patch_size", {14, 16}, Code::kUnsupported, "16 x 14"},
           BadField{kConfig, "/vision_config/patch_size", -1, Code::kCorrupt, "patch_size"},
           BadField{kConfig, "/vision_config/rope_theta", 1.0, Code::kCorrupt, "rope_theta"},
           BadField{kConfig,
                    "/vision_config/rope_parameters",
                    {{"rope_type", "yarn"}},
                    Code::kUnsupported,
                    "yarn"},
           BadField{kConfig, "/vision_config/rope_parameters", 1, Code::kCorrupt, "an object"},
           BadField{kConfig, "/spatial_merge_size", 17, Code::kCorrupt, "spatial_merge_size"},
           BadField{kConfig, "/projector_hidden_act", "mish", Code::kUnsupported, "mish"},
           BadField{kConfig, "/image_token_index", 131072, Code::kCorrupt, "image_token_index"},
           BadField{kConfig, "/multimodal_projector_bias", 1, Code::kInvalidArgument, "bias"},
           BadField{kConfig, "/text_config/hidden_size", 0, Code::kCorrupt, "hidden_size"},
           BadField{kProcessor, "/patch_size", 16, Code::kCorrupt, "patch_size 16"},
           BadField{kProcessor, "/spatial_merge_size", 1, Code::kCorrupt, "spatial_merge_size 1"},
           BadField{kProcessor, "/image_token", 3, Code::kInvalidArgument, "image_token"},
           BadField{kPixels, "/size/longest_edge", 0, Code::kCorrupt, "size"},
           BadField{kPixels, "/size/longest_edge", 16385, Code::kCorrupt, "size"},
           BadField{kPixels, "/size/longest_edge", 16384, Code::kCorrupt, "patches"},
           BadField{kPixels, "/size", {{"shortest_edge", 4}}, Code::kNotFound, "height"},
           BadField{kPixels, "/resample", 4, Code::kUnsupported, "resample"},
           BadField{kPixels, "/do_resize", false, Code::kUnsupported, "do_resize"},
           BadField{kPixels, "/do_center_crop", true, Code::kUnsupported, "do_center_crop"},
           BadField{kPixels, "/image_std", {0.5, 0.0, 0.5}, Code::kCorrupt, "image_std"},
           BadField{kPixels, "/image_mean", {0.5, 0.5}, Code::kCorrupt, "image_mean"},
           BadField{kPixels, "/image_mean", {0.5, 1e30, 0.5}, Code::kCorrupt, "image_mean"},
           BadField{kPixels, "/rescale_factor", 0, Code::kCorrupt, "rescale_factor"},
       }) {
    ImageFiles files;
    (files.*one.file)[Json::json_pointer(one.pointer)] = one.value;
    SCOPED_TRACE(std::string(one.pointer) + " " + one.value.dump());
    EXPECT_FAILS_WITH(files.parse(), one.code, one.words);
  }
}

TEST(ImageConfig, OfPixelsMayLeaveStepsOut) {
  ImageFiles files;
  files.preprocessor["do_rescale"] = false;
  EXPECT_EQ(files.read().factor, 1);
  files.preprocessor["do_normalize"] = false;
  EXPECT_THAT(files.read().mean, ElementsAre(0, 0, 0));
  EXPECT_THAT(files.read().deviation, ElementsAre(1, 1, 1));
  files.preprocessor["image_mean"] = 0.5;
  files.preprocessor["do_normalize"] = true;
  EXPECT_THAT(files.read().mean, ElementsAre(0.5f, 0.5f, 0.5f));
  files.preprocessor["size"] = {{"height", 280}, {"width", 560}};
  EXPECT_EQ(files.read().width_max, 560);
  EXPECT_EQ(files.read().height_max, 280);
}

TEST(ImageLayout, ShrinksToTheLongestEdgeAndGrowsToWholeRows) {
  const ImageConfig config = ImageFiles().read();
  struct Case {
    int32_t width, height;
    ImageLayout layout;
  };
  // By get_resize_output_image_size of transformers' image_processing_pixtral.py.
  for (const Case& one :
       {Case{1, 1, {28, 28, 1, 1}}, Case{28, 29, {28, 56, 2, 1}},
        Case{1024, 1024, {1036, 1036, 37, 37}}, Case{1540, 1540, {1540, 1540, 55, 55}},
        Case{4032, 3024, {1540, 1176, 42, 55}}, Case{3024, 4032, {1176, 1540, 55, 42}},
        Case{1541, 100, {1540, 112, 4, 55}}, Case{640, 480, {644, 504, 18, 23}}}) {
    SCOPED_TRACE(fmt::format("{} x {}", one.width, one.height));
    EXPECT_EQ(image_layout(config, one.width, one.height), one.layout);
  }
  // Where a side would vanish a row of pixels stays.
  EXPECT_EQ(image_layout(config, 60000, 3), (ImageLayout{1540, 28, 1, 55}));
  EXPECT_EQ(image_layout(config, 2147483647, 1).row_count(), 55);
}

TEST(ImageTokens, EndEveryRow) {
  ImageConfig config = ImageFiles().read();
  config.break_id = 12;
  config.end_id = 13;
  EXPECT_THAT(
      image_tokens(config, image_layout(config, 56, 84)),
      ElementsAre(kImageRow, kImageRow, 12, kImageRow, kImageRow, 12, kImageRow, kImageRow, 13));
  EXPECT_THAT(image_tokens(config, image_layout(config, 3, 3)), ElementsAre(kImageRow, 13));
}

TEST(ImageTokens, AreThoseOfTheTokenizer) {
  const auto tokenizer =
      text::Tokenizer::load(std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/text/ranks/tekken_v11");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  ImageConfig config = ImageFiles().read();
  ASSERT_TRUE(find_image_tokens(config, *tokenizer));
  EXPECT_EQ(config.break_id, tokenizer->token_to_id("[IMG_BREAK]"));
  EXPECT_EQ(config.end_id, tokenizer->token_to_id("[IMG_END]"));
  config.placeholder_id = 11;
  EXPECT_FAILS_WITH(find_image_tokens(config, *tokenizer), Code::kCorrupt, "image_token_index");
  config.placeholder_id = 10;
  config.break_token = "[NEXT]";
  EXPECT_FAILS_WITH(find_image_tokens(config, *tokenizer), Code::kCorrupt, "[NEXT]");
}

// Damaged files of every folder: what is taken is within the limits, and images of any size have a
// layout in it.
TEST(ImageConfig, HoldsItsLimitsWhateverTheFilesSay) {
  const auto text_of = [](const std::string& folder, const char* name) {
    const auto text = read_file(folder + "/" + name);
    return text ? *text : std::string("null");
  };
  const auto json_of = [](const std::string& text) {
    return text == "null" ? Result<Json>(Json()) : parse_json_object(text, "file");
  };
  set_log_level(LogLevel::kError);
  int taken = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(1750); ++seed) {
    const std::string folder = image_tower_fixture(
        std::array{"mistral3", "mistral3_silu", "pixtral", "gemma3", "gemma3_wide", "idefics3",
                   "smolvlm", "internvl", "internvl_rms", "llava", "llava_next", "llava_onevision",
                   "gemma4", "gemma4_clipped", "gemma4_unified"}[seed % 15]);
    std::string texts[] = {text_of(folder, "config.json"), text_of(folder, "processor_config.json"),
                           text_of(folder, "preprocessor_config.json")};
    std::string& damaged = texts[seed / 15 % 3];
    if (damaged == "null") continue;
    damaged = Mutator(seed).mutate(damaged);
    const auto config = json_of(texts[0]);
    const auto processor = json_of(texts[1]);
    const auto preprocessor = json_of(texts[2]);
    if (!config || !processor || !preprocessor) continue;
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const auto read = parse_image_config(*config, *processor, *preprocessor, "folder");
    if (!read) {
      EXPECT_LT(read.error().message.size(), 10'000u);
      EXPECT_NE(read.error().message.find("folder/"), std::string::npos) << read.error().message;
      continue;
    }
    if (!*read) continue;
    ++taken;
    const ImageConfig& image = **read;
    ASSERT_GE(image.patches_max(), 1);
    ASSERT_LE(image.patches_max(), kImagePatchesMax);
    ASSERT_GE(image.tile_patches_max(), 1);
    for (const auto& [width, height] : {std::pair(1, 1),
                                        {2147483647, 1},
                                        {1, 2147483647},
                                        {2147483647, 2147483647},
                                        {65535, 64}}) {
      const ImageLayout layout = image_layout(image, width, height);
      ASSERT_GE(layout.row_count(), 1);
      ASSERT_LE(layout.row_count(), image.rows_max());
      ASSERT_LE(layout.tile_row_count() * image.merge * image.merge, image.tile_patches_max());
    }
  }
  set_log_level(LogLevel::kInfo);
  EXPECT_GT(taken, 50);
}

}  // namespace
}  // namespace jige::formats
