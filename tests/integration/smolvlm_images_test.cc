// Images in prompts of SmolVLM and Idefics3 as users meet them: answers are those that transformers
// gives (tests/tools/record_idefics3_towers.py), by `generate`, `chat` and `serve`, on a processor
// and beside an emulated GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "integration/emulated_gpus.h"
#include "integration/image_folder.h"
#include "integration/process.h"
#include "integration/recorded_pictures.h"
#include "integration/serving.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using api::testing::TestResponse;
using ::testing::HasSubstr;

constexpr const char* kTiledModels[] = {"smolvlm", "idefics3"};

std::string tiled_folder(const std::string& name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/image_towers/" + name;
}

Outcome generate_tiled(const std::string& name, const std::vector<std::string>& more) {
  return run_with({"generate", tiled_folder(name), "--chat", "--prompt", "What is it?", "--image",
                   picture_file("rgb8.png"), "--temperature", "0", "--max-new-tokens", "8",
                   "--ignore-eos", "--json"},
                  more);
}

TEST(SmolVlmImages, AreAnsweredAsByTransformers) {
  for (const std::string name : kTiledModels) {
    const Json recorded = recorded_conversation(tiled_folder(name), 0);
    for (const std::vector<std::string>& more :
         std::vector<std::vector<std::string>>{{}, {"--threads", "1"}, {"--speculate", "off"}}) {
      const Outcome outcome = generate_tiled(name, more);
      ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
      EXPECT_EQ(outcome.json()["text"], recorded["answer"]);
      EXPECT_EQ(outcome.json()["stats"]["prompt_tokens"], recorded["ids"].size());
    }
    const Outcome chat = run_jige(
        {"chat", tiled_folder(name), "--temperature", "0", "--max-new-tokens", "8", "--ignore-eos"},
        "/image " + picture_file("rgb8.png") + "\nWhat is it?\n");
    ASSERT_EQ(chat.exit_code, 0) << chat.err;
    EXPECT_THAT(chat.out, HasSubstr(recorded["answer"].get<std::string>()));
  }
}

// Its template shows lists of parts alone.
TEST(SmolVlmImages, MayBeMissingInAChat) {
  const Outcome text = run_jige({"generate", tiled_folder("smolvlm"), "--chat", "--prompt",
                                 "What is it?", "--max-new-tokens", "2", "--json"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  const Json recorded = recorded_conversation(tiled_folder("smolvlm"), 0);
  // In place of 38 tokens of four tiles of four rows, and one, a space.
  EXPECT_EQ(text.json()["stats"]["prompt_tokens"], recorded["ids"].size() - 33 + 1);
}

TEST(SmolVlmImages, TakeLessAsTheyAreAskedTo) {
  const Outcome small = generate_tiled("smolvlm", {"--image-pixels", "300"});
  ASSERT_EQ(small.exit_code, 0) << small.err;
  const Json recorded = recorded_conversation(tiled_folder("smolvlm"), 0);
  // One tile in place of five: two tokens and four rows of each of four, and three of lines.
  EXPECT_EQ(small.json()["stats"]["prompt_tokens"], recorded["ids"].size() - 4 * 6 - 2);
  expect_error(generate_tiled("smolvlm", {"--image-pixels", "255"}), 2,
               {"--image-pixels", "a tile of this model is 16 x 16"});
}

TEST(SmolVlmImages, AreServed) {
  for (const std::string name : kTiledModels) {
    const Serving server({tiled_folder(name), "--batch-tokens", "16"});
    EXPECT_THAT(server.get("/v1/models").body, HasSubstr("\"reads_images\":true"));
    for (const size_t index : {0, 1, 0, 1}) {  // then from the prefix cache
      expect_answer(server, recorded_conversation(tiled_folder(name), index));
    }
  }
}

using SmolVlmImagesOnGpu = OnEmulatedGpus;

TEST_F(SmolVlmImagesOnGpu, AreReadByTheHost) {
  const Serving server({tiled_folder("smolvlm"), "--device", "cuda"});
  EXPECT_THAT(server.get("/v1/models").body, HasSubstr("\"reads_images\":true"));
  expect_answer(server, recorded_conversation(tiled_folder("smolvlm"), 1));
}

TEST(SmolVlmImages, AreToldByInspect) {
  const Outcome outcome = run_jige({"inspect", tiled_folder("smolvlm")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("up to 5 tiles of 16 x 16 pixels, 20 rows of a prompt"));
}

}  // namespace
}  // namespace jige::integration
