// What `inspect` says of the layers of a folder's model.
#include "cli/folder_summary.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/test_path.h"

namespace jige::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string inspected(const std::string& fixture) {
  const auto summary =
      summarise_folder(std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/" + fixture);
  EXPECT_TRUE(summary) << summary.error().message;
  return summary ? summary_text(*summary) : "";
}

TEST(FolderSummary, SaysWhichLayersHaveTheWindowAndTurn) {
  EXPECT_THAT(inspected("cohere2"),
              AllOf(HasSubstr("window 9 in 2 of 3 layers"), HasSubstr("none in 1 of 3 layers")));
  EXPECT_THAT(inspected("mistral"), AllOf(HasSubstr("window 9\n"), Not(HasSubstr("none in"))));
  EXPECT_THAT(inspected("llama3"), Not(HasSubstr("window")));
}

TEST(FolderSummary, SaysHowLayersOfEitherKindTurn) {
  EXPECT_THAT(inspected("mellum"),
              HasSubstr("theta 10000, yarn scaling by 4, theta 100 in sliding layers"));
  EXPECT_THAT(inspected("lfm3"),
              AllOf(HasSubstr("theta 10000, 0.5 of a head, theta 100 in sliding layers"),
                    HasSubstr("over 7 tokens, in 2 of 4 layers")));
  EXPECT_THAT(inspected("lfm3_bare"),
              HasSubstr("linear scaling by 2, in sliding layers theta 1000, 0.4 of a head"));
  EXPECT_THAT(inspected("granite_swa_turned"),
              AllOf(HasSubstr("theta 10000, yarn scaling by 4, in sliding layers theta 100, yarn "
                              "scaling by 4, none in 1 of 4 layers"),
                    HasSubstr("window 9 in 2 of 4 layers")));
}

TEST(FolderSummary, SaysWhereAttentionAndMlpStandSideBySide) {
  for (const auto& [name, parallel] :
       {std::pair{"cohere", true}, std::pair{"gpt_neox", true},
        std::pair{"gpt_neox_sequential", false}, std::pair{"stablelm_parallel", true},
        std::pair{"stablelm", false}, std::pair{"llama3", false}}) {
    EXPECT_EQ(inspected(name).find("beside attention") != std::string::npos, parallel) << name;
  }
}

TEST(FolderSummary, SaysWhatOtherFamiliesHave) {
  EXPECT_THAT(inspected("gemma2"),
              AllOf(HasSubstr("scores within 2.5"), HasSubstr("logits within 6"),
                    HasSubstr("head tied to embeddings")));
  EXPECT_THAT(inspected("qwen2_moe"),
              AllOf(HasSubstr("2 of 6 experts of 20 and one of 28 for all, in 1 of 3 layers 40"),
                    HasSubstr("for a token")));
  EXPECT_THAT(inspected("deepseek_v2"),
              HasSubstr("3 of 8 experts of 16 and one of 32 for all, in 1 of 2 layers 40"));
  EXPECT_THAT(inspected("deepseek_v3"),
              HasSubstr("2 of 8 experts of 16, of 1 of 2 groups, and one of 16 for all"));
  EXPECT_THAT(inspected("glm"), HasSubstr("6 of 12 columns"));
  EXPECT_THAT(inspected("exaone4"), HasSubstr("llama3 scaling by 8"));
}

TEST(FolderSummary, SaysHowImagesAreRead) {
  EXPECT_THAT(inspected("../image_towers/mistral3_silu"),
              AllOf(HasSubstr("up to 33 x 33 pixels, 36 rows of a prompt"),
                    HasSubstr("2 layers, width 16, feed-forward 24, 1 heads of 16"),
                    Not(HasSubstr("reads no images"))));
  EXPECT_THAT(inspected("../image_towers/pixtral"),
              AllOf(HasSubstr("up to 32 x 32 pixels, 64 rows of a prompt"),
                    Not(HasSubstr("cannot run")), Not(HasSubstr("reads no images"))));
  EXPECT_THAT(inspected("../image_towers/smolvlm"),
              AllOf(HasSubstr("up to 5 tiles of 16 x 16 pixels, 20 rows of a prompt"),
                    Not(HasSubstr("cannot run")), Not(HasSubstr("reads no images"))));
  EXPECT_THAT(inspected("mistral"), Not(HasSubstr("images")));
  // What is wrong with them does not keep the model from running on text.
  const std::string folder = test_path("summary_images");
  std::filesystem::copy(std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/image_towers/mistral3_silu",
                        folder);
  const std::string path = folder + "/processor_config.json";
  std::string processor = *read_file(path);
  const size_t at = processor.find("\"resample\": 3");
  ASSERT_NE(at, std::string::npos);
  ASSERT_TRUE(write_file_atomic(path, processor.replace(at, 13, "\"resample\": 5")));
  const auto summary = summarise_folder(folder);
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_THAT(summary_text(*summary), AllOf(HasSubstr("reads no images"), HasSubstr("resample"),
                                            Not(HasSubstr("cannot run"))));
}

}  // namespace
}  // namespace jige::cli
