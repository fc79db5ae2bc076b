// Images in prompts of Gemma 3 as users meet them: answers are those that transformers gives
// (tests/tools/record_image_towers.py), by `generate`, `chat` and `serve`, however small its
// iterations are.
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
using ::testing::Not;

std::string gemma3_folder() {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/image_towers/gemma3_wide";
}

Json gemma3_conversation(size_t index) { return recorded_conversation(gemma3_folder(), index); }

Outcome generate_about(const std::vector<std::string>& more) {
  return run_with(
      {"generate", gemma3_folder(), "--prompt", "What is it?", "--image", picture_file("rgb8.png"),
       "--temperature", "0", "--max-new-tokens", "8", "--ignore-eos", "--json"},
      more);
}

TEST(Gemma3Images, AreAnsweredAsByTransformers) {
  const Json recorded = gemma3_conversation(0);
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{}, {"--threads", "1"}, {"--speculate", "off"}}) {
    std::vector<std::string> flags = {"--chat"};
    flags.insert(flags.end(), more.begin(), more.end());
    const Outcome outcome = generate_about(flags);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["text"], recorded["answer"]);
    EXPECT_EQ(outcome.json()["stats"]["prompt_tokens"], recorded["ids"].size());
  }
  // A text that is no chat names their places itself.
  const Outcome missing = generate_about({});
  expect_error(missing, 2, {"<start_of_image>", "for 0 images and 1 came"});
  const Outcome placed =
      run_jige({"generate", gemma3_folder(), "-p", "<start_of_image>What is it?", "--image",
                picture_file("rgb8.png"), "--max-new-tokens", "2", "--json"});
  ASSERT_EQ(placed.exit_code, 0) << placed.err;
  EXPECT_EQ(placed.json()["stats"]["prompt_tokens"], 9 + 2 + 2 + 11) << "with line feeds around it";
}

TEST(Gemma3Images, AreReadInChats) {
  const Outcome outcome = run_jige(
      {"chat", gemma3_folder(), "--temperature", "0", "--max-new-tokens", "8", "--ignore-eos"},
      "/image " + picture_file("rgb8.png") + "\nWhat is it?\n");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(gemma3_conversation(0)["answer"].get<std::string>()));
}

TEST(Gemma3Images, AreServedWhateverFitsIntoAnIteration) {
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{}, {"--batch-tokens", "16"}, {"--policy", "rounds"}}) {
    std::vector<std::string> arguments = {gemma3_folder()};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Serving server(arguments);
    EXPECT_THAT(server.get("/v1/models").body, HasSubstr("\"reads_images\":true"));
    for (const size_t index : {0, 1, 0, 1}) {  // then from the prefix cache
      expect_answer(server, gemma3_conversation(index));
    }
  }
}

using Gemma3ImagesOnGpu = OnEmulatedGpus;

TEST_F(Gemma3ImagesOnGpu, AreNotReadAndTextIs) {
  {
    const Serving server({gemma3_folder(), "--device", "cuda"});
    EXPECT_THAT(server.out(), Not(HasSubstr(" images; ")));
    EXPECT_THAT(server.get("/v1/models").body, HasSubstr("\"reads_images\":false"));
    const TestResponse refused =
        server.post("/v1/chat/completions", dump_json(request_of(gemma3_conversation(0))));
    EXPECT_EQ(refused.status, 400);
    EXPECT_THAT(refused.body, HasSubstr("no_images"));
    const Json plain = {{"messages", {{{"role", "user"}, {"content", "What is it?"}}}},
                        {"max_tokens", 4}};
    EXPECT_EQ(server.post("/v1/chat/completions", dump_json(plain)).status, 200);
  }
  expect_error(generate_about({"--chat", "--device", "cuda"}), 5,
               {"rows that see one another are not supported on a GPU", "--device cpu"});
}

TEST(Gemma3Images, AreToldByInspect) {
  const Outcome outcome = run_jige({"inspect", gemma3_folder()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("30 x 30 pixels, 9 rows of a prompt"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("reads no images")));
}

}  // namespace
}  // namespace jige::integration
