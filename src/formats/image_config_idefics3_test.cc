// How Idefics3 and SmolVLM read images, by the files of their folders.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "formats/image_chats_test_support.h"
#include "formats/image_config.h"
#include "formats/json_file.h"
#include "formats/test_support.h"
#include "text/tokenizer.h"

namespace jige::formats {
namespace {

using ::testing::Each;

// The files of SmolVLM 256M, as published, but for fields that nothing depends on.
struct TileFiles {
  Json config = {{"architectures", {"Idefics3ForConditionalGeneration"}},
                 {"image_token_id", 49190},
                 {"model_type", "idefics3"},
                 {"scale_factor", 4},
                 {"text_config",
                  {{"architectures", {"VLlama3ForCausalLM"}},
                   {"head_dim", 64},
                   {"hidden_size", 576},
                   {"intermediate_size", 1536},
                   {"max_position_embeddings", 8192},
                   {"model_type", "llama"},
                   {"num_attention_heads", 9},
                   {"num_hidden_layers", 30},
                   {"num_key_value_heads", 3},
                   {"rms_norm_eps", 1e-05},
                   {"rope_theta", 100000},
                   {"tie_word_embeddings", false},
                   {"torch_dtype", "bfloat16"},
                   {"vocab_size", 49280}}},
                 {"tie_word_embeddings", false},
                 {"vision_config",
                  {{"hidden_size", 768},
                   {"image_size", 512},
                   {"max_image_size", {{"longest_edge", 512}}},
                   {"model_type", "idefics3"},
                   {"num_attention_heads", 12},
                   {"patch_size", 16},
                   {"size", {{"longest_edge", 2048}}}}},
                 {"vocab_size", 49280}};
  Json processor = {{"image_seq_len", 64}, {"processor_class", "Idefics3Processor"}};
  Json pixels = {{"do_convert_rgb", true},
                 {"do_image_splitting", true},
                 {"do_normalize", true},
                 {"do_pad", true},
                 {"do_rescale", true},
                 {"do_resize", true},
                 {"image_mean", {0.5, 0.5, 0.5}},
                 {"image_processor_type", "Idefics3ImageProcessor"},
                 {"image_std", {0.5, 0.5, 0.5}},
                 {"max_image_size", {{"longest_edge", 512}}},
                 {"resample", 1},
                 {"rescale_factor", 0.00392156862745098},
                 {"size", {{"longest_edge", 2048}}}};

  // With tiles of another folder: their edge, that of images, patches of a side and m.
  static TileFiles of(int64_t tile, int64_t longest, int64_t patch, int64_t merge) {
    TileFiles files;
    files.config["scale_factor"] = merge;
    files.config["vision_config"]["image_size"] = tile;
    files.config["vision_config"]["patch_size"] = patch;
    files.pixels["max_image_size"]["longest_edge"] = tile;
    files.pixels["size"]["longest_edge"] = longest;
    files.processor.erase("image_seq_len");
    return files;
  }
  Result<std::optional<ImageConfig>> parse() const {
    return parse_image_config(config, processor, pixels, "folder");
  }
  ImageConfig read() const {
    const auto read = parse();
    EXPECT_TRUE(read && *read) << (read ? "no images" : read.error().message);
    return read && *read ? **read : ImageConfig();
  }
};

TEST(TiledImages, AreReadAsPublished) {
  const ImageConfig config = TileFiles().read();
  EXPECT_EQ(config.family, ImageFamily::kIdefics3);
  EXPECT_EQ(config.tower.hidden_size, 768);
  EXPECT_EQ(config.tower.layer_count, 12);
  EXPECT_EQ(config.tower.head_dim, 64);
  EXPECT_EQ(config.tower.ffn_size, 3072);
  EXPECT_EQ(config.tower.norm, NormKind::kLayer);
  EXPECT_EQ(config.tower.norm_eps, 1e-6);
  EXPECT_EQ(config.tower.activation, ActivationKind::kGeluTanh);
  EXPECT_EQ(config.tower.position, PositionKind::kNone);
  EXPECT_TRUE(config.tower.looks_ahead && config.tower.qkv_bias);
  EXPECT_EQ(config.patch_size, 16);
  EXPECT_EQ(config.merge, 4);
  EXPECT_EQ(config.positions_side, 32);
  EXPECT_EQ(config.tile_side, 512);
  EXPECT_TRUE(config.cuts);
  EXPECT_EQ(config.tiles_max(), 17);
  EXPECT_EQ(config.tile_patches_max(), 1024);
  EXPECT_EQ(config.rows_max(), 17 * 64);
  EXPECT_FALSE(config.mutual_rows);
  EXPECT_EQ(config.text_width, 576);
  EXPECT_EQ(config.resampling, ImageResampling::kLanczos);
  EXPECT_THAT(config.mean, Each(0.5f));
  EXPECT_EQ(config.placeholder_id, 49190);
  EXPECT_EQ(config.image_token, "<image>");
}

// SmolVLM 2.2B, whose tiles are no multiples of patches, and Idefics3 8B.
TEST(TiledImages, HaveTilesOfTheirFolders) {
  TileFiles smol = TileFiles::of(384, 1536, 14, 3);
  smol.processor["image_seq_len"] = 81;
  EXPECT_EQ(smol.read().positions_side, 27);
  EXPECT_EQ(smol.read().rows_max(), 17 * 81);
  TileFiles idefics = TileFiles::of(364, 1456, 14, 2);
  idefics.processor["image_seq_len"] = 169;
  EXPECT_EQ(idefics.read().rows_max(), 17 * 169);
  // SmolVLM2 has another name for the same.
  idefics.config["model_type"] = "smolvlm";
  EXPECT_EQ(idefics.read().rows_max(), 17 * 169);
}

TEST(TiledImages, WhatIsLeftOutIsWhatTransformersTakes) {
  TileFiles files;
  files.processor = Json();
  EXPECT_EQ(files.read(), TileFiles().read());
  TileFiles newer;
  newer.processor["image_processor"] = newer.pixels;
  newer.pixels = {{"size", 5}};
  EXPECT_EQ(newer.read(), TileFiles().read());
  // Without a file of the processor the tower's own size says the rest.
  newer.processor.erase("image_processor");
  newer.pixels = Json();
  EXPECT_EQ(newer.read(), TileFiles().read());
  files = TileFiles::of(364, 1456, 14, 2);
  files.pixels = Json::object();
  files.config.erase("scale_factor");
  EXPECT_EQ(files.read(), TileFiles::of(364, 1456, 14, 2).read());
  files.config["vision_config"] = {{"image_size", 364}, {"patch_size", 14}};
  EXPECT_EQ(files.read().tower.hidden_size, 1152);
  EXPECT_EQ(files.read().tower.head_count, 16);
}

struct TileField {
  Json TileFiles::*file;
  const char* pointer;
  Json value;
  Code code;
  const char* words;
};

TEST(TiledImages, NameTheFieldThatIsWrong) {
  constexpr auto kConfig = &TileFiles::config;
  constexpr auto kPixels = &TileFiles::pixels;
  const Json square = {{"height", 512}, {"width", 512}};
  for (const TileField& one : {
           TileField{kConfig, "/vision_config", 5, Code::kCorrupt, "vision_config"},
           TileField{kConfig, "/vision_config/patch_size", 24, Code::kCorrupt, "max_image_size"},
           TileField{kConfig, "/vision_config/image_size", 15, Code::kCorrupt, "no patch of 16"},
           TileField{kConfig, "/vision_config/hidden_act", "mish", Code::kUnsupported, "mish"},
           TileField{kConfig, "/vision_config/num_channels", 1, Code::kUnsupported, "channels"},
           TileField{kConfig, "/scale_factor", 3, Code::kCorrupt, "3 x 3"},
           TileField{kConfig, "/scale_factor", 0, Code::kCorrupt, "scale_factor"},
           TileField{kConfig, "/image_token_id", 49280, Code::kCorrupt, "image_token_id"},
           TileField{kConfig, "/text_config/model_type", "mamba", Code::kUnsupported, "mamba"},
           TileField{&TileFiles::processor, "/image_seq_len", 81, Code::kCorrupt, "by the other"},
           TileField{kPixels, "/size", square, Code::kUnsupported, "longest_edge"},
           TileField{kPixels, "/size", 512, Code::kUnsupported, "\"size\" is 512"},
           TileField{kPixels, "/size/longest_edge", 0, Code::kCorrupt, "longest_edge"},
           TileField{kPixels, "/max_image_size", square, Code::kUnsupported, "max_image_size"},
           TileField{kPixels, "/max_image_size/longest_edge", 10, Code::kCorrupt, "10 pixels"},
           TileField{kPixels, "/max_image_size/longest_edge", 64, Code::kCorrupt, "image_seq_len"},
           TileField{kPixels, "/do_image_splitting", "no", Code::kInvalidArgument, "splitting"},
           TileField{kPixels, "/do_resize", false, Code::kUnsupported, "do_resize"},
           TileField{kPixels, "/image_std", {0.5, 0.0, 0.5}, Code::kCorrupt, "image_std"},
       }) {
    TileFiles files;
    (files.*one.file)[Json::json_pointer(one.pointer)] = one.value;
    SCOPED_TRACE(std::string(one.pointer) + " " + one.value.dump());
    EXPECT_FAILS_WITH(files.parse(), one.code, one.words);
  }
  EXPECT_FAILS_WITH(TileFiles::of(16, 2048, 8, 2).parse(), Code::kCorrupt, "128 tiles of 16");
  EXPECT_FAILS_WITH(TileFiles::of(2048, 4096, 4, 4).parse(), Code::kCorrupt, "patches");
}

// Sizes of images as image processors as published make them (record_idefics3_towers.py).
TEST(TiledImages, HaveTheLayoutsOfTransformers) {
  const auto text = read_file(image_tower_fixture("layouts_idefics3.json"));
  ASSERT_TRUE(text);
  const Json records = Json::parse(*text);
  ASSERT_GT(records.size(), 100u);
  for (const Json& record : records) {
    SCOPED_TRACE(record.dump());
    // Patches as large as there may be, all of a tile in one row.
    const int64_t tile = record["tile"];
    const int64_t merge = (tile + kImagePatchSizeMax - 1) / kImagePatchSizeMax;
    TileFiles files = TileFiles::of(tile, record["longest"], tile / merge, merge);
    files.pixels["do_image_splitting"] = record.value("split", true);
    const ImageConfig config = files.read();
    const Json& sizes = record["sizes"];
    const ImageLayout layout = image_layout(config, sizes[0][0], sizes[0][1]);
    EXPECT_EQ(layout, (ImageLayout{.width = sizes[2][0],
                                   .height = sizes[2][1],
                                   .token_rows = 1,
                                   .token_columns = 1,
                                   .tile_rows = record["down"],
                                   .tile_columns = record["across"],
                                   .first_width = sizes[1][0],
                                   .first_height = sizes[1][1]}));
    EXPECT_LE(layout.tile_count(), config.tiles_max());
  }
}

// Of images that are smaller than a tile, wide, tall, one tile, and large, and several of them;
// places of tiles are tokens in one folder and text in the other.
TEST(TiledImages, StandInPromptsAsTheProcessorPutsThem) {
  for (const std::string name : {"idefics3", "smolvlm"}) {
    const ImageChats folder = ImageChats::open(name);
    EXPECT_EQ(folder.config.tiles.places[0].size(), name == "smolvlm" ? 1u : 13u);
    const auto text = read_file(image_tower_fixture(name) + "/sizes.json");
    ASSERT_TRUE(text);
    const Json records = Json::parse(*text);
    ASSERT_EQ(records.size(), 7u);
    for (const Json& record : records) {
      SCOPED_TRACE(name + " " + record["sizes"].dump());
      EXPECT_EQ(folder.ids(record["messages"], record["sizes"]),
                record["ids"].get<std::vector<int32_t>>());
    }
    // What a person spells out is no image.
    const Json spelled =
        Json::array({{{"role", "user"}, {"content", "<image><fake_token_around_image>"}}});
    const std::vector<int32_t> ids = folder.ids(spelled, {});
    EXPECT_EQ(std::ranges::count(ids, folder.config.placeholder_id), 0);
    EXPECT_EQ(std::ranges::count(ids, folder.config.end_id), 0);
    EXPECT_GT(ids.size(), 20u) << "a text is shown, too";
  }
}

TEST(TiledImages, NeedTheTokensOfTheirTokenizer) {
  const auto other = text::Tokenizer::load(image_tower_fixture("gemma3"));
  ASSERT_TRUE(other);
  ImageConfig config = **load_image_config(image_tower_fixture("smolvlm"));
  EXPECT_FAILS_WITH(find_image_tokens(config, *other), Code::kCorrupt, "<image>");
  const ImageChats folder = ImageChats::open("smolvlm");
  config.placeholder_id = 91;
  EXPECT_FAILS_WITH(find_image_tokens(config, folder.tokenizer), Code::kCorrupt, "<image>");
}

}  // namespace
}  // namespace jige::formats
