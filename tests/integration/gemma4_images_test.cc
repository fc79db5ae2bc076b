// Images in prompts of Gemma 4 as users meet them: answers are those that transformers gives
// (tests/tools/record_gemma4_towers.py), by `generate`, `chat` and `serve`.
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

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

// With rows that see one another, with inputs of layers, and without a tower.
constexpr const char* kMutual = "gemma4";
constexpr const char* kWithInputs = "gemma4_clipped";
constexpr const char* kUnified = "gemma4_unified";

std::string gemma4_folder(const std::string& name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/image_towers/" + name;
}

Outcome generate_gemma4(const std::string& name, const std::vector<std::string>& more) {
  return run_with({"generate", gemma4_folder(name), "--chat", "--prompt", "What is it?", "--image",
                   picture_file("rgb8.png"), "--temperature", "0", "--max-new-tokens", "8",
                   "--ignore-eos", "--json"},
                  more);
}

TEST(Gemma4Images, AreAnsweredAsByTransformers) {
  for (const std::string name : {kMutual, kWithInputs, kUnified}) {
    SCOPED_TRACE(name);
    const Json recorded = recorded_conversation(gemma4_folder(name), 0);
    const Outcome outcome = generate_gemma4(name, {});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["text"], recorded["answer"]);
    EXPECT_EQ(outcome.json()["stats"]["prompt_tokens"], recorded["ids"].size());
    const Outcome chat = run_jige({"chat", gemma4_folder(name), "--temperature", "0",
                                   "--max-new-tokens", "8", "--ignore-eos"},
                                  "/image " + picture_file("rgb8.png") + "\nWhat is it?\n");
    ASSERT_EQ(chat.exit_code, 0) << chat.err;
    EXPECT_THAT(chat.out, HasSubstr(recorded["answer"].get<std::string>()));
  }
}

TEST(Gemma4Images, AreServedWhateverFitsIntoAnIteration) {
  for (const std::string name : {kMutual, kWithInputs, kUnified}) {
    SCOPED_TRACE(name);
    const Serving server({gemma4_folder(name), "--batch-tokens", "16"});
    EXPECT_THAT(server.get("/v1/models").body, HasSubstr("\"reads_images\":true"));
    for (const size_t index : {0, 1, 0, 1}) {  // then from the prefix cache
      expect_answer(server, recorded_conversation(gemma4_folder(name), index));
    }
  }
}

TEST(Gemma4Images, TakeLessAsTheyAreAskedTo) {
  const Json recorded = recorded_conversation(gemma4_folder(kMutual), 0);
  const Outcome small = generate_gemma4(kMutual, {"--image-pixels", "700"});  // 8 x 8 in a row
  ASSERT_EQ(small.exit_code, 0) << small.err;
  EXPECT_LT(small.json()["stats"]["prompt_tokens"], recorded["ids"].size());
  expect_error(generate_gemma4(kMutual, {"--image-pixels", "63"}), 2,
               {"--image-pixels", "a row of this model is 8 x 8"});
}

using Gemma4ImagesOnGpu = OnEmulatedGpus;

TEST_F(Gemma4ImagesOnGpu, AreReadWhereRowsDoNotSeeOneAnother) {
  const Json recorded = recorded_conversation(gemma4_folder(kWithInputs), 0);
  const Outcome outcome = generate_gemma4(kWithInputs, {"--device", "cuda"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["text"], recorded["answer"]);
  expect_error(generate_gemma4(kMutual, {"--device", "cuda"}), 5,
               {"rows that see one another are not supported on a GPU", "--device cpu"});
}

}  // namespace
}  // namespace jige::integration
