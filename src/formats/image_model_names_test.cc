#include "formats/image_model_names.h"

#include <gmock/gmock.h>

#include "formats/test_support.h"

namespace jige::formats {
namespace {

TEST(ImageModelNames, TellWhatReadsImages) {
  for (const char* name :
       {"vision_tower.encoder.layers.0.mlp.fc1.weight", "visual.merger.norm.bias",
        "model.visual.pos_embed.weight", "multi_modal_projector.norm.weight",
        "model.vision_tower.ln_pre.weight", "model.vision_model.post_layernorm.bias",
        "model.connector.modality_projection.proj.weight", "image_newline"}) {
    EXPECT_TRUE(reads_images(name)) << name;
  }
  for (const char* name : {"model.norm.weight", "language_model.lm_head.weight", "visualise.weight",
                           "model.layers.0.visual.weight", ""}) {
    EXPECT_FALSE(reads_images(name)) << name;
  }
}

TEST(ImageModelNames, GoThereAndBack) {
  EXPECT_THAT(
      names_beside_images("model.norm.weight"),
      ::testing::ElementsAre("language_model.model.norm.weight", "model.language_model.norm.weight",
                             "model.text_model.norm.weight"));
  EXPECT_THAT(names_beside_images("lm_head.weight"),
              ::testing::ElementsAre("language_model.lm_head.weight"));
  EXPECT_TRUE(names_beside_images("transformer.wte.weight").empty());
  for (const char* name : {"model.layers.3.mlp.up_proj.weight", "lm_head.weight"}) {
    for (const std::string& beside : names_beside_images(name)) {
      EXPECT_EQ(name_without_images(beside), name);
    }
    EXPECT_EQ(name_without_images(name), name);
  }
}

TEST(ImageModelNames, FoldersWithImagesAreKnownByTheirConfiguration) {
  const std::string models = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/";
  EXPECT_TRUE(*has_images(models + "gemma3_images"));
  EXPECT_TRUE(*has_images(models + "qwen2_5_images"));
  EXPECT_FALSE(*has_images(models + "gemma3"));
  EXPECT_FALSE(*has_images("not/there"));
}

TEST(ImageModelNames, BeginAsTheClassOfTheFolderHasThem) {
  const std::string fixtures = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/";
  const auto beginning = [&](const std::string& folder) {
    return *beginning_beside_images(fixtures + folder);
  };
  EXPECT_EQ(beginning("model/gemma3_images"), "model.language_model.");
  EXPECT_EQ(beginning("model/llama4"), "");
  EXPECT_EQ(beginning("image_towers/smolvlm"), "model.text_model.");
  EXPECT_EQ(beginning("image_towers/llava"), "model.language_model.");
  EXPECT_EQ(beginning("model/gemma3"), "");
  const ScratchFolder folder;
  write_or_fail(folder.path() + "/config.json", R"({"model_type": "llama4"})");
  EXPECT_EQ(*beginning_beside_images(folder.path()), "language_model.model.");
}

}  // namespace
}  // namespace jige::formats
