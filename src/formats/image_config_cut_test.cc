// How InternVL and LLaVA read images, by the files of their folders.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "formats/image_config.h"
#include "formats/image_limit.h"
#include "formats/json_file.h"
#include "formats/test_support.h"
#include "text/tokenizer.h"

namespace jige::formats {
namespace {

using ::testing::ElementsAre;

// The files of a folder, as published, but for fields that nothing depends on.
struct CutFiles {
  Json config, processor, pixels;

  Result<std::optional<ImageConfig>> parse() const {
    return parse_image_config(config, processor, pixels, "folder");
  }
  ImageConfig read() const {
    const auto read = parse();
    EXPECT_TRUE(read && *read) << (read ? "no images" : read.error().message);
    return read && *read ? **read : ImageConfig();
  }
};

// InternVL3 1B.
CutFiles internvl_files() {
  return {.config = {{"architectures", {"InternVLForConditionalGeneration"}},
                     {"downsample_ratio", 0.5},
                     {"image_seq_length", 256},
                     {"image_token_id", 151667},
                     {"model_type", "internvl"},
                     {"projector_hidden_act", "gelu"},
                     {"text_config",
                      {{"hidden_size", 896},
                       {"intermediate_size", 4864},
                       {"max_position_embeddings", 32768},
                       {"model_type", "qwen2"},
                       {"num_attention_heads", 14},
                       {"num_hidden_layers", 24},
                       {"num_key_value_heads", 2},
                       {"rms_norm_eps", 1e-06},
                       {"rope_theta", 1000000.0},
                       {"vocab_size", 151674}}},
                     {"vision_config",
                      {{"attention_bias", true},
                       {"hidden_act", "gelu"},
                       {"hidden_size", 1024},
                       {"image_size", {448, 448}},
                       {"intermediate_size", 4096},
                       {"layer_norm_eps", 1e-06},
                       {"model_type", "internvl_vision"},
                       {"norm_type", "layer_norm"},
                       {"num_attention_heads", 16},
                       {"num_hidden_layers", 24},
                       {"patch_size", {14, 14}},
                       {"use_absolute_position_embeddings", true},
                       {"use_mean_pooling", true},
                       {"use_qk_norm", false}}},
                     {"vision_feature_layer", -1},
                     {"vision_feature_select_strategy", "default"}},
          .processor = {{"image_seq_length", 256}, {"processor_class", "InternVLProcessor"}},
          .pixels = {{"crop_to_patches", false},
                     {"image_mean", {0.485, 0.456, 0.406}},
                     {"image_std", {0.229, 0.224, 0.225}},
                     {"max_patches", 12},
                     {"min_patches", 1},
                     {"resample", 3},
                     {"size", {{"height", 448}, {"width", 448}}}}};
}

// LLaVA-NeXT with a Mistral 7B.
CutFiles next_files() {
  return {.config = {{"architectures", {"LlavaNextForConditionalGeneration"}},
                     {"image_grid_pinpoints",
                      {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}}},
                     {"image_token_index", 32000},
                     {"model_type", "llava_next"},
                     {"text_config",
                      {{"intermediate_size", 14336},
                       {"max_position_embeddings", 32768},
                       {"model_type", "mistral"},
                       {"num_key_value_heads", 8},
                       {"rms_norm_eps", 1e-05},
                       {"sliding_window", nullptr},
                       {"vocab_size", 32064}}},
                     {"vision_config",
                      {{"hidden_size", 1024},
                       {"image_size", 336},
                       {"intermediate_size", 4096},
                       {"model_type", "clip_vision_model"},
                       {"num_attention_heads", 16},
                       {"num_hidden_layers", 24},
                       {"patch_size", 14}}},
                     {"vision_feature_layer", -2},
                     {"vision_feature_select_strategy", "default"}},
          .processor = Json(),
          .pixels = {{"crop_size", {{"height", 336}, {"width", 336}}},
                     {"do_center_crop", true},
                     {"image_grid_pinpoints",
                      {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}}},
                     {"size", {{"shortest_edge", 336}}}}};
}

// LLaVA 1.5 7B.
CutFiles plain_files() {
  CutFiles files = next_files();
  files.config["model_type"] = "llava";
  files.config.erase("image_grid_pinpoints");
  files.pixels.erase("image_grid_pinpoints");
  files.config["text_config"] = {{"model_type", "llama"}, {"vocab_size", 32064}};
  return files;
}

// LLaVA-OneVision with a Qwen2 0.5B.
CutFiles onevision_files() {
  return {.config = {{"image_token_index", 151646},
                     {"model_type", "llava_onevision"},
                     {"text_config",
                      {{"hidden_size", 896},
                       {"intermediate_size", 4864},
                       {"max_position_embeddings", 32768},
                       {"model_type", "qwen2"},
                       {"num_attention_heads", 14},
                       {"num_hidden_layers", 24},
                       {"num_key_value_heads", 2},
                       {"vocab_size", 152000}}},
                     {"vision_aspect_ratio", "anyres_max_9"},
                     {"vision_config",
                      {{"hidden_size", 1152},
                       {"image_size", 384},
                       {"intermediate_size", 4304},
                       {"model_type", "siglip_vision_model"},
                       {"num_attention_heads", 16},
                       {"num_hidden_layers", 26},
                       {"patch_size", 14}}},
                     {"vision_feature_layer", -1},
                     {"vision_feature_select_strategy", "full"}},
          .processor = {{"num_image_tokens", 729}, {"vision_feature_select_strategy", "full"}},
          .pixels = {{"image_mean", {0.5, 0.5, 0.5}},
                     {"image_std", {0.5, 0.5, 0.5}},
                     {"size", {{"height", 384}, {"width", 384}}}}};
}

TEST(CutImages, AreReadAsPublished) {
  const ImageConfig internvl = internvl_files().read();
  EXPECT_EQ(internvl.family, ImageFamily::kInternVl);
  EXPECT_EQ(internvl.tower.activation, ActivationKind::kGeluErf);
  EXPECT_EQ(internvl.positions_side, 32);
  EXPECT_EQ(internvl.tiles_max(), 13);
  EXPECT_EQ(internvl.rows_max(), 13 * 256);
  EXPECT_TRUE(internvl.tower.qkv_bias && internvl.column_scales);
  const ImageConfig next = next_files().read();
  EXPECT_EQ(next.tower.layer_count, 23);
  EXPECT_EQ(next.tower.activation, ActivationKind::kSilu);
  EXPECT_DOUBLE_EQ(next.tower.mlp_gate_scale * next.activated_scale, 1);
  EXPECT_EQ(next.tower.norm_eps, 1e-5);
  EXPECT_EQ(next.text_width, 4096);
  EXPECT_EQ(next.tiles_max(), 5);
  EXPECT_EQ(next.rows_max(), 5 * 576 + 48);
  const ImageConfig plain = plain_files().read();
  EXPECT_EQ(plain.rows_max(), 576);
  EXPECT_EQ(image_layout(plain, 1000, 500).width, 672);
  EXPECT_EQ(image_layout(plain, 1000, 500).row_count(), 576);
  EXPECT_LE(image_layout(plain, 1, 60000).height, kImageSideMax);
  const ImageConfig onevision = onevision_files().read();
  EXPECT_EQ(onevision.tower.layer_count, 26);
  EXPECT_EQ(onevision.class_rows, 0);
  EXPECT_EQ(onevision.grids.size(), 36u);
  EXPECT_EQ(onevision.packed_tiles_max, 9);
  EXPECT_EQ(onevision.tiles_max(), 37);
}

// Of the largest one, whose tower has other norms.
TEST(CutImages, MayHaveNormsOfWholeRows) {
  CutFiles files = internvl_files();
  Json& vision = files.config["vision_config"];
  vision.update({{"hidden_size", 3200},
                 {"num_attention_heads", 25},
                 {"intermediate_size", 12800},
                 {"norm_type", "rms_norm"},
                 {"use_qk_norm", true},
                 {"attention_bias", false}});
  const ImageConfig config = files.read();
  EXPECT_EQ(config.tower.head_dim, 128);
  EXPECT_EQ(config.tower.norm, NormKind::kRms);
  EXPECT_TRUE(config.tower.qk_norm && config.tower.qk_norm_whole);
  EXPECT_FALSE(config.tower.qkv_bias);
  vision["layer_norm_eps"] = 1e-5;
  EXPECT_FAILS_WITH(files.parse(), Code::kUnsupported, "layer_norm_eps");
}

struct CutField {
  CutFiles (*files)();
  Json CutFiles::*file;
  const char* pointer;
  Json value;
  Code code;
  const char* words;
};

TEST(CutImages, NameTheFieldThatIsWrong) {
  constexpr auto kConfig = &CutFiles::config;
  constexpr auto kProcessor = &CutFiles::processor;
  constexpr auto kPixels = &CutFiles::pixels;
  constexpr auto kIntern = internvl_files;
  constexpr auto kNext = next_files;
  constexpr auto kOne = onevision_files;
  constexpr Code kCorrupt = Code::kCorrupt, kUnsupported = Code::kUnsupported;
  for (const CutField& one : {
           CutField{kIntern, kConfig, "/vision_config", 5, kCorrupt, "vision_config"},
           CutField{kIntern, kConfig, "/vision_config/norm_type", "x", kUnsupported, "rms_norm"},
           CutField{kIntern, kConfig, "/vision_config/use_qk_norm", true, kUnsupported, "qk_norm"},
           CutField{kIntern, kConfig, "/vision_config/use_mean_pooling", false, kUnsupported,
                    "mean"},
           CutField{kIntern, kConfig, "/vision_config/image_size", {448, 4}, kUnsupported, "448"},
           CutField{kIntern, kConfig, "/downsample_ratio", 0.3, kCorrupt, "downsample_ratio"},
           CutField{kIntern, kConfig, "/downsample_ratio", 0, kCorrupt, "downsample_ratio"},
           CutField{kIntern, kConfig, "/downsample_ratio", -1, kCorrupt, "downsample_ratio"},
           CutField{kIntern, kConfig, "/vision_feature_layer", {1, 2}, kUnsupported, "list of 2"},
           CutField{kIntern, kConfig, "/vision_feature_select_strategy", "full", kUnsupported,
                    "default"},
           CutField{kIntern, kConfig, "/image_token_id", 151674, kCorrupt, "image_token_id"},
           CutField{kIntern, kConfig, "/text_config/model_type", "mamba", kUnsupported, "mamba"},
           CutField{kIntern, kProcessor, "/image_seq_length", 64, kCorrupt, "it is 256"},
           CutField{kIntern, kPixels, "/size/height", 224, kUnsupported, "224"},
           CutField{kIntern, kPixels, "/size", 224, kCorrupt, "448"},
           CutField{kIntern, kPixels, "/max_patches", 0, kCorrupt, "max_patches"},
           CutField{kIntern, kPixels, "/max_patches", 300, kCorrupt, "max_patches"},
           CutField{kNext, kConfig, "/vision_config/patch_size", 400, kCorrupt, "patch_size"},
           CutField{kNext, kConfig, "/vision_feature_select_strategy", "full", kUnsupported,
                    "takes default"},
           CutField{kNext, kConfig, "/image_grid_pinpoints", Json::array(), kCorrupt, "pinpoints"},
           CutField{kNext, kConfig, "/image_grid_pinpoints/0", {336, 400}, kUnsupported, "400"},
           CutField{kNext,
                    kConfig,
                    "/image_grid_pinpoints/0",
                    {336, 336},
                    kCorrupt,
                    "is not that of config.json"},
           CutField{kNext, kPixels, "/image_grid_pinpoints/0", 5, kUnsupported, "5 x 5"},
           CutField{kNext, kPixels, "/size/shortest_edge", 224, kCorrupt, "224"},
           CutField{kNext, kPixels, "/crop_size/height", 224, kUnsupported, "crop_size"},
           CutField{kNext, kPixels, "/do_resize", false, kUnsupported, "do_resize"},
           CutField{kNext, kProcessor, "/patch_size", 16, kCorrupt, "it is 14"},
           CutField{plain_files, kPixels, "/do_pad", true, kUnsupported, "do_pad"},
           CutField{plain_files, kPixels, "/do_center_crop", false, kUnsupported, "center_crop"},
           CutField{plain_files, kPixels, "/size", 336, kUnsupported, "shortest_edge"},
           CutField{kOne, kConfig, "/vision_aspect_ratio", "anyres", kUnsupported, "anyres_max_"},
           CutField{kOne, kConfig, "/vision_aspect_ratio", "anyres_max_x", kUnsupported, "max_x"},
           CutField{kOne, kProcessor, "/vision_aspect_ratio", "anyres_max_4", kCorrupt, "config"},
           CutField{kOne, kProcessor, "/num_image_tokens", 576, kCorrupt, "it is 729"},
           CutField{kOne, kConfig, "/vision_feature_select_strategy", "default", kUnsupported,
                    "takes full"},
           CutField{kOne, kConfig, "/text_config/model_type", "llama", kUnsupported, "llama"},
       }) {
    CutFiles files = one.files();
    (files.*one.file)[Json::json_pointer(one.pointer)] = one.value;
    SCOPED_TRACE(std::string(one.pointer) + " " + one.value.dump());
    EXPECT_FAILS_WITH(files.parse(), one.code, one.words);
  }
}

// By tiles of squares of patches of 14, two of which are one row of InternVL.
ImageConfig config_of_layouts(const Json& record) {
  if (record["family"] == "internvl") {
    CutFiles files = internvl_files();
    const int64_t tile = record["tile"];
    files.config["vision_config"].update(
        {{"image_size", tile}, {"patch_size", tile == 30 ? 15 : 14}});
    files.pixels.update(
        {{"size", tile}, {"min_patches", record["low"]}, {"max_patches", record["high"]}});
    if (tile == 30) files.processor = Json();
    return files.read();
  }
  if (record["family"] == "llava_next") return next_files().read();
  ImageConfig config = onevision_files().read();
  config.packed_tiles_max = record["most"];
  if (config.packed_tiles_max == 4) config.grids.resize(9);
  return config;
}

// Sizes of images as image processors as published make them (record_cut_towers.py).
TEST(CutImages, HaveTheLayoutsOfTransformers) {
  const Json records = Json::parse(read_or_fail(image_tower_fixture("layouts_cut.json")));
  ASSERT_GT(records.size(), 100u);
  for (const Json& record : records) {
    SCOPED_TRACE(record.dump());
    const ImageConfig config = config_of_layouts(record);
    const ImageLayout layout = image_layout(config, record["size"][0], record["size"][1]);
    EXPECT_EQ(layout.width, record["width"]);
    EXPECT_EQ(layout.height, record["height"]);
    const bool cut = record["family"] != "internvl" || layout.tile_rows > 0;
    EXPECT_EQ(cut ? layout.tile_rows : 1, record["down"]);
    EXPECT_EQ(cut ? layout.tile_columns : 1, record["across"]);
    if (record.contains("rows")) {
      EXPECT_EQ(layout.row_count(), record["rows"]);
    }
    EXPECT_LE(layout.row_count(), config.rows_max());
    EXPECT_LE(layout.tile_count(), config.tiles_max());
  }
}

// However long an image is, it has lines, and no more rows than any.
TEST(CutImages, HaveRowsWhateverTheirShape) {
  const std::vector<ImageConfig> configs = {internvl_files().read(), next_files().read(),
                                            plain_files().read(), onevision_files().read()};
  for (const ImageConfig& config : configs) {
    for (const int32_t width : {1, 2, 7, 336, 383, 5000, 65535}) {
      for (const int32_t height : {1, 3, 60, 337, 4100, 65535}) {
        SCOPED_TRACE(fmt::format("{} {} x {}", static_cast<int>(config.family), width, height));
        const ImageLayout layout = image_layout(config, width, height);
        EXPECT_GE(layout.width, 1);
        EXPECT_GE(layout.height, 1);
        EXPECT_LE(layout.row_count(), config.rows_max());
        if (!config.packs_rows()) continue;
        EXPECT_GE(layout.packed_rows, 1);
        EXPECT_GE(layout.packed_columns, 1);
        EXPECT_LE(layout.kept_top + layout.kept_rows, layout.tile_rows * layout.token_rows);
        EXPECT_LE(layout.kept_left + layout.kept_columns,
                  layout.tile_columns * layout.token_columns);
      }
    }
  }
}

TEST(CutImages, MayHaveFewerTiles) {
  ImageConfig internvl = internvl_files().read();
  ASSERT_TRUE(limit_image_pixels(internvl, 4 * 448 * 448));
  EXPECT_EQ(internvl.tiles_max(), 5);
  ASSERT_TRUE(limit_image_pixels(internvl, 448 * 448 + 9));
  EXPECT_EQ(internvl.tiles_max(), 1);
  EXPECT_EQ(image_layout(internvl, 900, 90).row_count(), 256);
  EXPECT_FAILS_WITH(limit_image_pixels(internvl, 448 * 448 - 1), Code::kInvalidArgument, "448");
  ImageConfig next = next_files().read();
  ASSERT_TRUE(limit_image_pixels(next, 2 * 336 * 336));
  EXPECT_THAT(next.grids, ElementsAre(TileGrid{1, 2}, TileGrid{2, 1}));
  EXPECT_FAILS_WITH(limit_image_pixels(next, 336 * 336), Code::kInvalidArgument, "336");
  ImageConfig plain = plain_files().read();
  EXPECT_FAILS_WITH(limit_image_pixels(plain, 10), Code::kUnsupported, "leave it out");
}

TEST(CutImages, StandBetweenTheTokensOfTheirTokenizer) {
  const auto tokenizer = text::Tokenizer::load(image_tower_fixture("internvl"));
  ASSERT_TRUE(tokenizer);
  ImageConfig config = **load_image_config(image_tower_fixture("internvl"));
  ASSERT_TRUE(find_image_tokens(config, *tokenizer));
  const std::vector<int32_t> ids = image_tokens(config, image_layout(config, 16, 16));
  EXPECT_EQ(ids.size(), 2 + 4u);
  EXPECT_EQ(ids.front(), tokenizer->token_to_id("<img>"));
  EXPECT_EQ(ids.back(), tokenizer->token_to_id("</img>"));
  const auto other = text::Tokenizer::load(image_tower_fixture("smolvlm"));
  ASSERT_TRUE(other);
  EXPECT_FAILS_WITH(find_image_tokens(config, *other), Code::kCorrupt, "<IMG_CONTEXT>");
}

}  // namespace
}  // namespace jige::formats
