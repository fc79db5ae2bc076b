// How Qwen's models with images read them, by their files as published and by mutated ones.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/test_fuzz_rounds.h"
#include "formats/image_config.h"
#include "formats/json_file.h"
#include "formats/test_support.h"
#include "text/tokenizer.h"

namespace jige::formats {
namespace {

using ::testing::ElementsAre;

// The files of Qwen2.5-VL 7B as they were first.
struct QwenFiles {
  Json config = {{"architectures", {"Qwen2_5_VLForConditionalGeneration"}},
                 {"model_type", "qwen2_5_vl"},
                 {"vision_start_token_id", 151652},
                 {"image_token_id", 151655},
                 {"hidden_size", 3584},
                 {"intermediate_size", 18944},
                 {"max_position_embeddings", 128000},
                 {"num_attention_heads", 28},
                 {"num_hidden_layers", 28},
                 {"num_key_value_heads", 4},
                 {"rms_norm_eps", 1e-06},
                 {"rope_theta", 1e6},
                 {"use_sliding_window", false},
                 {"vocab_size", 152064},
                 {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {16, 24, 24}}}},
                 {"vision_config",
                  {{"depth", 32},
                   {"hidden_act", "silu"},
                   {"hidden_size", 1280},
                   {"intermediate_size", 3420},
                   {"num_heads", 16},
                   {"in_chans", 3},
                   {"out_hidden_size", 3584},
                   {"patch_size", 14},
                   {"spatial_merge_size", 2},
                   {"spatial_patch_size", 14},
                   {"window_size", 112},
                   {"fullatt_block_indexes", {7, 15, 23, 31}},
                   {"tokens_per_second", 2},
                   {"temporal_patch_size", 2}}}};
  Json pixels = {{"min_pixels", 3136},
                 {"max_pixels", 12845056},
                 {"patch_size", 14},
                 {"temporal_patch_size", 2},
                 {"merge_size", 2},
                 {"image_mean", {0.48145466, 0.4578275, 0.40821073}},
                 {"image_std", {0.26862954, 0.26130258, 0.27577711}},
                 {"image_processor_type", "Qwen2VLImageProcessor"}};

  Result<std::optional<ImageConfig>> parse() const {
    return parse_image_config(config, nullptr, pixels, "F");
  }
  ImageConfig config_of() const {
    const auto parsed = parse();
    EXPECT_TRUE(parsed) << parsed.error().message;
    return parsed && *parsed ? **parsed : ImageConfig();
  }
  // What is wrong, where one field is another.
  std::string refusal(const std::string& pointer, const Json& value) const {
    QwenFiles changed = *this;
    Json& file = pointer.starts_with("/pixels/") ? changed.pixels : changed.config;
    const size_t skipped = pointer.starts_with("/pixels/") ? 7 : 0;
    file[Json::json_pointer(pointer.substr(skipped))] = value;
    const auto parsed = changed.parse();
    return parsed ? "" : parsed.error().message;
  }
};

TEST(QwenImages, ArePublishedForQwen25Vl) {
  const ImageConfig config = QwenFiles().config_of();
  EXPECT_EQ(config.family, ImageFamily::kQwen25);
  EXPECT_EQ(config.tower.layer_count, 32);
  EXPECT_EQ(config.tower.hidden_size, 1280);
  EXPECT_EQ(config.tower.head_dim, 80);
  EXPECT_EQ(config.tower.ffn_size, 3420);
  EXPECT_EQ(config.tower.activation, ActivationKind::kSwiGlu);
  EXPECT_TRUE(config.tower.qkv_bias && config.tower.output_bias && config.tower.mlp_bias);
  EXPECT_EQ(config.text_width, 3584);
  EXPECT_EQ(config.window, 4);
  EXPECT_EQ(std::ranges::count(config.layer_has_window, 0), 4);
  EXPECT_EQ(config.layer_has_window[7], 0);
  EXPECT_EQ(config.layer_has_window[8], 1);
  EXPECT_EQ(config.frames, 2);
  EXPECT_EQ(config.placeholder_id, 151655);
  EXPECT_EQ(config.image_token, "<|image_pad|>");
  EXPECT_EQ(config.pair_places.size(), 64u);
  EXPECT_EQ(std::ranges::count(config.pair_places, 0), 16);
  EXPECT_EQ(config.pair_places[15], 0);
  EXPECT_EQ(config.pair_places[16], 1);
  EXPECT_EQ(config.pair_places[40], 2);
  EXPECT_EQ(config.patches_max(), 65536);
  EXPECT_EQ(config.rows_max(), 16384);
}

// The tower of Qwen2-VL 7B, whose "hidden_size" is the language model's.
TEST(QwenImages, ArePublishedForQwen2Vl) {
  QwenFiles files;
  files.config["model_type"] = "qwen2_vl";
  files.config["vision_config"] = {{"depth", 32},
                                   {"embed_dim", 1280},
                                   {"mlp_ratio", 4},
                                   {"num_heads", 16},
                                   {"in_chans", 3},
                                   {"hidden_size", 3584},
                                   {"patch_size", 14},
                                   {"spatial_merge_size", 2},
                                   {"spatial_patch_size", 14},
                                   {"temporal_patch_size", 2}};
  const ImageConfig config = files.config_of();
  EXPECT_EQ(config.family, ImageFamily::kQwen2);
  EXPECT_EQ(config.tower.hidden_size, 1280);
  EXPECT_EQ(config.tower.head_dim, 80);
  EXPECT_EQ(config.tower.ffn_size, 5120);
  EXPECT_EQ(config.tower.norm, NormKind::kLayer);
  // Quick GELU.
  EXPECT_EQ(config.tower.activation, ActivationKind::kSilu);
  EXPECT_DOUBLE_EQ(config.tower.mlp_gate_scale * config.activated_scale, 1);
  EXPECT_EQ(config.text_width, 3584);
  EXPECT_EQ(config.window, 0);
  EXPECT_TRUE(config.layer_has_window.empty());
  EXPECT_EQ(config.pair_places, QwenFiles().config_of().pair_places);
  EXPECT_EQ(config.rows_max(), 16384);
  for (const char* field : {"depth", "embed_dim", "mlp_ratio", "num_heads", "hidden_size"}) {
    files.config["vision_config"].erase(field);
  }
  EXPECT_EQ(files.config_of(), config);
  using ::testing::HasSubstr;
  EXPECT_THAT(files.refusal("/vision_config/hidden_act", "silu"), HasSubstr("quick_gelu"));
  EXPECT_THAT(files.refusal("/vision_config/hidden_size", 1280), HasSubstr("1280 numbers"));
  EXPECT_THAT(files.refusal("/vision_config/mlp_ratio", 0), HasSubstr("mlp_ratio"));
  EXPECT_THAT(files.refusal("/vision_config/embed_dim", -1), HasSubstr("embed_dim"));
}

TEST(QwenImages, MaySayTheSameInNewerFields) {
  const ImageConfig old = QwenFiles().config_of();
  QwenFiles newer;
  Json text = newer.config;
  for (const char* field : {"architectures", "model_type", "vision_config", "image_token_id"}) {
    text.erase(field);
  }
  text["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", 1e6}, {"mrope_section", {16, 24, 24}}};
  for (const char* field : {"rope_scaling", "rope_theta"}) text.erase(field);
  newer.config = {{"model_type", "qwen2_5_vl"},
                  {"image_token_id", 151655},
                  {"text_config", text},
                  {"vision_config", newer.config["vision_config"]}};
  newer.pixels.erase("min_pixels");
  newer.pixels.erase("max_pixels");
  newer.pixels["size"] = {{"shortest_edge", 3136}, {"longest_edge", 12845056}};
  EXPECT_EQ(newer.config_of(), old);
  newer.pixels["size"] = {{"min_pixels", 3136}, {"max_pixels", 12845056}};
  EXPECT_EQ(newer.config_of(), old);
  newer.pixels = nullptr;
  EXPECT_EQ(newer.config_of().pixels_max, 28 * 28 * 1280);
  EXPECT_EQ(newer.config_of().pixels_min, 56 * 56);
}

// The files of Qwen3-VL 4B.
QwenFiles qwen3_files() {
  QwenFiles files;
  files.config = {
      {"model_type", "qwen3_vl"},
      {"image_token_id", 151655},
      {"tie_word_embeddings", true},
      {"text_config",
       {{"model_type", "qwen3_vl_text"},
        {"head_dim", 128},
        {"hidden_size", 2560},
        {"intermediate_size", 9728},
        {"max_position_embeddings", 262144},
        {"num_attention_heads", 32},
        {"num_hidden_layers", 36},
        {"num_key_value_heads", 8},
        {"rope_scaling",
         {{"mrope_interleaved", true}, {"mrope_section", {24, 20, 20}}, {"rope_type", "default"}}},
        {"rope_theta", 5000000},
        {"vocab_size", 151936}}},
      {"vision_config",
       {{"deepstack_visual_indexes", {5, 11, 17}},
        {"depth", 24},
        {"hidden_act", "gelu_pytorch_tanh"},
        {"hidden_size", 1024},
        {"in_channels", 3},
        {"intermediate_size", 4096},
        {"model_type", "qwen3_vl"},
        {"num_heads", 16},
        {"num_position_embeddings", 2304},
        {"out_hidden_size", 2560},
        {"patch_size", 16},
        {"spatial_merge_size", 2},
        {"temporal_patch_size", 2}}}};
  files.pixels = {{"size", {{"longest_edge", 16777216}, {"shortest_edge", 65536}}},
                  {"patch_size", 16},
                  {"temporal_patch_size", 2},
                  {"merge_size", 2},
                  {"image_mean", {0.5, 0.5, 0.5}},
                  {"image_std", {0.5, 0.5, 0.5}}};
  return files;
}

TEST(QwenImages, ArePublishedForQwen3Vl) {
  const ImageConfig config = qwen3_files().config_of();
  EXPECT_EQ(config.family, ImageFamily::kQwen3);
  EXPECT_EQ(config.tower.layer_count, 24);
  EXPECT_EQ(config.tower.norm, NormKind::kLayer);
  EXPECT_EQ(config.tower.activation, ActivationKind::kGeluTanh);
  EXPECT_EQ(config.positions_side, 48);
  EXPECT_THAT(config.deep_layers, ElementsAre(5, 11, 17));
  EXPECT_EQ(config.levels(), 4);
  EXPECT_EQ(config.window, 0);
  EXPECT_EQ(config.text_width, 2560);
  EXPECT_EQ(config.pixels_min, 65536);
  EXPECT_EQ(config.rows_max(), 16384);
  // Time, line and column in turns, up to the twentieth of each; the last ones by time.
  EXPECT_EQ(config.pair_places.size(), 64u);
  EXPECT_EQ(std::ranges::count(config.pair_places, 0), 24);
  EXPECT_EQ(std::ranges::count(config.pair_places, 1), 20);
  EXPECT_EQ(config.pair_places[0], 0);
  EXPECT_EQ(config.pair_places[1], 1);
  EXPECT_EQ(config.pair_places[59], 2);
  EXPECT_EQ(config.pair_places[61], 0);
}

TEST(QwenImages, OfQwen3VlThatContradictThemselvesAreRefused) {
  const QwenFiles files = qwen3_files();
  using ::testing::HasSubstr;
  const std::string at = "/vision_config/";
  EXPECT_THAT(files.refusal(at + "num_position_embeddings", 2305), HasSubstr("no square"));
  EXPECT_THAT(files.refusal(at + "deepstack_visual_indexes", {5, 24}),
              HasSubstr("deepstack_visual_indexes"));
  EXPECT_THAT(files.refusal(at + "deepstack_visual_indexes", {5, 5}), HasSubstr("ascend"));
  EXPECT_THAT(files.refusal(at + "hidden_act", "silu"), HasSubstr("gelu_pytorch_tanh"));
  EXPECT_THAT(files.refusal("/text_config/rope_scaling/mrope_section", {24, 20, 19}),
              HasSubstr("63 pairs"));
  EXPECT_THAT(files.refusal("/text_config/rope_scaling/mrope_section", std::vector<int>(65, 1)),
              HasSubstr("65 numbers"));
}

TEST(QwenImages, WithoutATowerAreNone) {
  QwenFiles files;
  files.config.erase("vision_config");
  const auto parsed = files.parse();
  ASSERT_TRUE(parsed);
  EXPECT_FALSE(*parsed);
}

TEST(QwenImages, ThatContradictThemselvesAreRefused) {
  const QwenFiles files;
  using ::testing::HasSubstr;
  EXPECT_THAT(files.refusal("/rope_scaling/mrope_section", {16, 24, 23}), HasSubstr("63 pairs"));
  EXPECT_THAT(files.refusal("/rope_scaling/mrope_section", {16, 24, -24}),
              HasSubstr("mrope_section"));
  EXPECT_THAT(files.refusal("/rope_scaling/mrope_section", "16"), HasSubstr("list"));
  EXPECT_THAT(files.refusal("/vision_config/out_hidden_size", 2048), HasSubstr("2048"));
  EXPECT_THAT(files.refusal("/vision_config/window_size", 27), HasSubstr("window_size"));
  EXPECT_THAT(files.refusal("/vision_config/hidden_act", "gelu"), HasSubstr("silu"));
  EXPECT_THAT(files.refusal("/vision_config/in_chans", 1), HasSubstr("num_channels"));
  EXPECT_THAT(files.refusal("/vision_config/num_heads", 7), HasSubstr("7 heads"));
  EXPECT_THAT(files.refusal("/vision_config/fullatt_block_indexes", {-1}),
              HasSubstr("fullatt_block_indexes"));
  EXPECT_THAT(files.refusal("/vision_config/temporal_patch_size", 0),
              HasSubstr("temporal_patch_size"));
  EXPECT_THAT(files.refusal("/image_token_id", 152064), HasSubstr("image_token_id"));
  EXPECT_THAT(files.refusal("/pixels/merge_size", 3), HasSubstr("merge_size"));
  EXPECT_THAT(files.refusal("/pixels/patch_size", 16), HasSubstr("patch_size"));
  EXPECT_THAT(files.refusal("/pixels/temporal_patch_size", 1), HasSubstr("temporal_patch_size"));
  EXPECT_THAT(files.refusal("/pixels/min_pixels", 12845057), HasSubstr("12845057 pixels at least"));
  EXPECT_THAT(files.refusal("/pixels/max_pixels", 1 << 25), HasSubstr("max_pixels"));
  EXPECT_THAT(files.refusal("/pixels/size", 5), HasSubstr("\"size\""));
}

ImageLayout layout_of(const ImageConfig& config, int32_t width, int32_t height) {
  return image_layout(config, width, height);
}

// By smart_resize() of transformers.
TEST(QwenImages, GetTheSizesThatTransformersGivesThem) {
  const ImageConfig config = QwenFiles().config_of();
  const struct {
    int32_t width, height, to_width, to_height;
  } kSizes[] = {{640, 480, 644, 476},  {28, 28, 56, 56},         {1, 1, 56, 56},
                {42, 42, 56, 56},      {70, 70, 56, 56},         {98, 98, 112, 112},
                {14, 14, 56, 56},      {4000, 3000, 4004, 2996}, {8000, 6000, 4116, 3080},
                {10000, 50, 9996, 56}, {3584, 3584, 3584, 3584}, {3585, 3613, 3556, 3584},
                {20, 3000, 28, 2996},  {12000, 61, 12012, 56},   {16000, 15999, 3584, 3556}};
  for (const auto& size : kSizes) {
    const ImageLayout layout = layout_of(config, size.width, size.height);
    EXPECT_EQ(layout.width, size.to_width) << size.width << " x " << size.height;
    EXPECT_EQ(layout.height, size.to_height) << size.width << " x " << size.height;
    EXPECT_EQ(layout.token_rows * 28, layout.height);
    EXPECT_EQ(layout.token_columns * 28, layout.width);
  }
}

TEST(QwenImages, OfAnyShapeHaveNoMorePatchesThanTheMost) {
  for (const auto& [least, most] :
       {std::pair{3136, 12845056}, {1, 1}, {784, 784}, {100000, 100000}, {3136, 100352}}) {
    QwenFiles files;
    files.pixels["min_pixels"] = least;
    files.pixels["max_pixels"] = most;
    const ImageConfig config = files.config_of();
    for (int32_t width = 1; width <= 65535; width = width * 5 / 3 + 1) {
      for (int32_t height = 1; height <= 65535; height = height * 3 / 2 + 1) {
        const ImageLayout layout = layout_of(config, width, height);
        EXPECT_GE(layout.token_rows, 1);
        EXPECT_GE(layout.token_columns, 1);
        EXPECT_LE(layout.row_count(), config.rows_max()) << width << " x " << height;
        EXPECT_LE(std::max(layout.width, layout.height), 65535);
      }
    }
  }
}

TEST(QwenImages, AreRowsAloneInAPrompt) {
  const ImageConfig config = QwenFiles().config_of();
  EXPECT_THAT(image_tokens(config, {.token_rows = 2, .token_columns = 2}),
              ElementsAre(kImageRow, kImageRow, kImageRow, kImageRow));
}

TEST(QwenImages, OfDamagedFilesAreRefusedOrRead) {
  set_log_level(LogLevel::kError);
  QwenFiles older;
  older.config["model_type"] = "qwen2_vl";
  const Json kValues[] = {-1,
                          0,
                          1,
                          3,
                          1e300,
                          "x",
                          nullptr,
                          true,
                          Json::array(),
                          Json::object(),
                          Json::array({1, 2}),
                          9223372036854775807};
  older.config["vision_config"]["embed_dim"] = 1280;
  older.config["vision_config"]["mlp_ratio"] = 4;
  older.config["vision_config"]["hidden_size"] = 3584;
  older.config["vision_config"].erase("hidden_act");
  for (const QwenFiles& files : {QwenFiles(), older, qwen3_files()}) {
    const Json flat = files.config.flatten();
    int read = 0;
    for (const Json& from : {flat, files.pixels.flatten()}) {
      for (const auto& [pointer, old] : from.items()) {
        for (const Json& value : kValues) {
          QwenFiles changed = files;
          Json& file = flat.contains(pointer) ? changed.config : changed.pixels;
          file[Json::json_pointer(pointer)] = value;
          const auto parsed = changed.parse();
          if (!parsed || !*parsed) continue;
          ++read;
          EXPECT_LE((*parsed)->patches_max(), kImagePatchesMax);
          EXPECT_GE(layout_of(**parsed, 100, 300).row_count(), 1);
        }
      }
    }
    EXPECT_GT(read, 10);
  }
  set_log_level(LogLevel::kInfo);
}

}  // namespace
}  // namespace jige::formats
