// How Gemma 3 reads images, by the files of its folders.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "formats/image_chats_test_support.h"
#include "formats/image_config.h"
#include "formats/test_support.h"
#include "text/tokenizer.h"

namespace jige::formats {
namespace {

using ::testing::Each;

// The files of Gemma 3 4b, as published: switches that are null are off.
struct Gemma3Files {
  Json config = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                 {"boi_token_index", 255999},
                 {"eoi_token_index", 256000},
                 {"eos_token_id", {1, 106}},
                 {"image_token_index", 262144},
                 {"mm_tokens_per_image", 256},
                 {"model_type", "gemma3"},
                 {"text_config",
                  {{"hidden_size", 2560},
                   {"intermediate_size", 10240},
                   {"model_type", "gemma3_text"},
                   {"num_hidden_layers", 34},
                   {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                   {"sliding_window", 1024}}},
                 {"torch_dtype", "bfloat16"},
                 {"vision_config",
                  {{"hidden_size", 1152},
                   {"image_size", 896},
                   {"intermediate_size", 4304},
                   {"model_type", "siglip_vision_model"},
                   {"num_attention_heads", 16},
                   {"num_hidden_layers", 27},
                   {"patch_size", 14},
                   {"vision_use_head", false}}}};
  Json processor = {{"image_seq_length", 256}, {"processor_class", "Gemma3Processor"}};
  Json preprocessor = {{"do_convert_rgb", nullptr},
                       {"do_normalize", true},
                       {"do_pan_and_scan", nullptr},
                       {"do_rescale", true},
                       {"do_resize", true},
                       {"image_mean", {0.5, 0.5, 0.5}},
                       {"image_processor_type", "Gemma3ImageProcessor"},
                       {"image_seq_length", 256},
                       {"image_std", {0.5, 0.5, 0.5}},
                       {"resample", 2},
                       {"rescale_factor", 0.00392156862745098},
                       {"size", {{"height", 896}, {"width", 896}}}};

  Result<std::optional<ImageConfig>> parse() const {
    return parse_image_config(config, processor, preprocessor, "folder");
  }
  ImageConfig read() const {
    const auto read = parse();
    EXPECT_TRUE(read && *read) << (read ? "no images" : read.error().message);
    return read && *read ? **read : ImageConfig();
  }
};

TEST(Gemma3Images, AreReadAsPublished) {
  const ImageConfig config = Gemma3Files().read();
  EXPECT_EQ(config.family, ImageFamily::kGemma3);
  EXPECT_EQ(config.tower.hidden_size, 1152);
  EXPECT_EQ(config.tower.layer_count, 27);
  EXPECT_EQ(config.tower.head_count, 16);
  EXPECT_EQ(config.tower.head_dim, 72);
  EXPECT_EQ(config.tower.ffn_size, 4304);
  EXPECT_EQ(config.tower.norm, NormKind::kLayer);
  EXPECT_EQ(config.tower.norm_eps, 1e-6);
  EXPECT_EQ(config.tower.activation, ActivationKind::kGeluTanh);
  EXPECT_EQ(config.tower.position, PositionKind::kNone);
  EXPECT_TRUE(config.tower.qkv_bias && config.tower.output_bias && config.tower.mlp_bias);
  EXPECT_TRUE(config.tower.looks_ahead);
  EXPECT_EQ(config.patch_size, 14);
  EXPECT_EQ(config.merge, 4);
  EXPECT_EQ(config.patches_max(), 64 * 64);
  EXPECT_EQ(config.rows_max(), 256);
  EXPECT_TRUE(config.mutual_rows);
  EXPECT_EQ(config.text_width, 2560);
  EXPECT_EQ(config.resampling, ImageResampling::kBilinear);
  EXPECT_THAT(config.mean, Each(0.5f));
  EXPECT_THAT(config.deviation, Each(0.5f));
  EXPECT_EQ(config.placeholder_id, 262144);
  EXPECT_EQ(config.open_id, 255999);
  EXPECT_EQ(config.end_id, 256000);
}

TEST(Gemma3Images, WhatIsLeftOutIsWhatTransformersTakes) {
  Gemma3Files files;
  for (const char* field :
       {"boi_token_index", "eoi_token_index", "image_token_index", "mm_tokens_per_image"}) {
    files.config.erase(field);
  }
  EXPECT_EQ(files.read(), Gemma3Files().read());
  files.preprocessor = Json::object();
  EXPECT_EQ(files.read(), Gemma3Files().read());
  files.preprocessor = Json();
  EXPECT_EQ(files.read(), Gemma3Files().read());
  Gemma3Files newer;
  newer.processor["image_processor"] = newer.preprocessor;
  newer.preprocessor = {{"size", 5}};
  EXPECT_EQ(newer.read(), Gemma3Files().read());
  files.config["image_token_id"] = 77;
  EXPECT_EQ(files.read().placeholder_id, 77);
  // A tower's usual sizes: of 14 x 14 patches.
  files.config["vision_config"] = {{"model_type", "siglip_vision_model"}};
  files.config["mm_tokens_per_image"] = 49;
  EXPECT_EQ(files.read().tower.hidden_size, 768);
  EXPECT_EQ(files.read().merge, 2);
}

TEST(Gemma3Images, AreNoneWithoutATowerThatIsKnown) {
  Gemma3Files files;
  files.config["vision_config"]["model_type"] = "mobilenet";
  EXPECT_EQ(*files.parse(), std::nullopt);
  files.config.erase("vision_config");
  EXPECT_EQ(*files.parse(), std::nullopt);
}

struct Gemma3Field {
  Json Gemma3Files::*file;
  const char* pointer;
  Json value;
  Code code;
  const char* words;
};

TEST(Gemma3Images, NameTheFieldThatIsWrong) {
  constexpr auto kConfig = &Gemma3Files::config;
  constexpr auto kPixels = &Gemma3Files::preprocessor;
  for (const Gemma3Field& one : {
           Gemma3Field{kConfig, "/mm_tokens_per_image", 255, Code::kCorrupt, "255 rows"},
           Gemma3Field{kConfig, "/mm_tokens_per_image", 9, Code::kCorrupt, "mm_tokens_per_image"},
           Gemma3Field{kConfig, "/mm_tokens_per_image", 4, Code::kCorrupt, "16 x 16 patches"},
           Gemma3Field{kConfig, "/mm_tokens_per_image", 0, Code::kCorrupt, "mm_tokens_per_image"},
           Gemma3Field{kConfig, "/image_token_index", 262208, Code::kCorrupt, "image_token_index"},
           Gemma3Field{kConfig, "/boi_token_index", -1, Code::kCorrupt, "boi_token_index"},
           Gemma3Field{kConfig, "/eoi_token_index", 1 << 20, Code::kCorrupt, "eoi_token_index"},
           Gemma3Field{kConfig, "/vision_config/image_size", 897, Code::kCorrupt, "of 14"},
           Gemma3Field{kConfig, "/vision_config/image_size", 448, Code::kCorrupt, "896 x 896"},
           Gemma3Field{kConfig, "/vision_config/layer_norm_eps", 0, Code::kCorrupt, "norm_eps"},
           Gemma3Field{kConfig, "/vision_config/hidden_act", "mish", Code::kUnsupported, "mish"},
           Gemma3Field{kConfig, "/vision_config/num_attention_heads", 5, Code::kCorrupt, "5 heads"},
           Gemma3Field{kPixels, "/size/height", 448, Code::kCorrupt, "896 x 448"},
           Gemma3Field{kPixels, "/do_pan_and_scan", true, Code::kUnsupported, "do_pan_and_scan"},
           Gemma3Field{kPixels, "/do_resize", false, Code::kUnsupported, "do_resize"},
           Gemma3Field{kPixels, "/image_std", {0.5, 0.0, 0.5}, Code::kCorrupt, "image_std"},
       }) {
    Gemma3Files files;
    (files.*one.file)[Json::json_pointer(one.pointer)] = one.value;
    SCOPED_TRACE(std::string(one.pointer) + " " + one.value.dump());
    EXPECT_FAILS_WITH(files.parse(), one.code, one.words);
  }
}

TEST(Gemma3Images, HaveOneSizeWhateverTheirOwnIs) {
  const ImageConfig config = Gemma3Files().read();
  for (const auto& [width, height] : {std::pair(1, 1), {896, 896}, {4032, 30}, {5, 2147483647}}) {
    EXPECT_EQ(image_layout(config, width, height), (ImageLayout{896, 896, 16, 16}));
  }
  const std::vector<int32_t> tokens = image_tokens(config, image_layout(config, 3, 4));
  EXPECT_EQ(tokens.size(), 256u);
  EXPECT_THAT(tokens, Each(kImageRow));
}

// The ids of conversations with images are those of transformers' processor, also where line feeds
// of the template and of images join.
TEST(Gemma3Images, StandInPromptsAsTheProcessorPutsThem) {
  for (const std::string name : {"gemma3", "gemma3_wide"}) {
    SCOPED_TRACE(name);
    const ImageChats folder = ImageChats::open(name);
    EXPECT_EQ(folder.config.written.text,
              "\n\n<start_of_image><image_soft_token><end_of_image>\n\n");
    expect_recorded_ids(folder, name);
    // What a person spells out is no image.
    const Json spelled = Json::array({{{"role", "user"}, {"content", "<start_of_image>"}}});
    const std::vector<int32_t> ids = folder.ids(spelled, {});
    EXPECT_EQ(std::ranges::count(ids, folder.config.placeholder_id), 0);
    EXPECT_EQ(std::ranges::count(ids, folder.config.open_id), 0);
  }
}

TEST(Gemma3Images, NeedTheTokensOfTheirTokenizer) {
  const std::string folder = image_tower_fixture("gemma3");
  const auto tokenizer = text::Tokenizer::load(folder);
  ASSERT_TRUE(tokenizer);
  const ImageConfig right = **load_image_config(folder);
  ImageConfig config = right;
  config.placeholder_id = 91;
  EXPECT_FAILS_WITH(find_image_tokens(config, *tokenizer), Code::kCorrupt, "<image_soft_token>");
  config = right;
  config.open_id = 95;
  EXPECT_FAILS_WITH(find_image_tokens(config, *tokenizer), Code::kCorrupt, "boi_token_index");
  config = right;
  config.end_id = 95;
  EXPECT_FAILS_WITH(find_image_tokens(config, *tokenizer), Code::kCorrupt, "eoi_token_index");
}

}  // namespace
}  // namespace jige::formats
