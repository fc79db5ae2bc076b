// Images in prompts of InternVL and LLaVA as users meet them: answers are those that transformers
// gives (tests/tools/record_cut_towers.py), by `generate`, `chat` and `serve`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "integration/image_folder.h"
#include "integration/process.h"
#include "integration/recorded_pictures.h"
#include "integration/serving.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

constexpr const char* kCutModels[] = {"internvl", "internvl_rms", "llava", "llava_next",
                                      "llava_onevision"};

std::string cut_folder(const std::string& name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/image_towers/" + name;
}

Outcome generate_cut(const std::string& folder, const std::vector<std::string>& more) {
  return run_with(
      {"generate", folder, "--chat", "--prompt", "What is it?", "--image", picture_file("rgb8.png"),
       "--temperature", "0", "--max-new-tokens", "8", "--ignore-eos", "--json"},
      more);
}

TEST(CutImages, AreAnsweredAsByTransformers) {
  for (const std::string name : kCutModels) {
    SCOPED_TRACE(name);
    const Json recorded = recorded_conversation(cut_folder(name), 0);
    const Outcome outcome = generate_cut(cut_folder(name), {});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["text"], recorded["answer"]);
    EXPECT_EQ(outcome.json()["stats"]["prompt_tokens"], recorded["ids"].size());
    const Outcome chat = run_jige(
        {"chat", cut_folder(name), "--temperature", "0", "--max-new-tokens", "8", "--ignore-eos"},
        "/image " + picture_file("rgb8.png") + "\nWhat is it?\n");
    ASSERT_EQ(chat.exit_code, 0) << chat.err;
    EXPECT_THAT(chat.out, HasSubstr(recorded["answer"].get<std::string>()));
  }
}

TEST(CutImages, AreServed) {
  for (const std::string name : kCutModels) {
    SCOPED_TRACE(name);
    const Serving server({cut_folder(name), "--batch-tokens", "16"});
    EXPECT_THAT(server.get("/v1/models").body, HasSubstr("\"reads_images\":true"));
    for (const size_t index : {0, 1, 0, 1}) {  // then from the prefix cache
      expect_answer(server, recorded_conversation(cut_folder(name), index));
    }
  }
}

TEST(CutImages, TakeLessAsTheyAreAskedTo) {
  const Json recorded = recorded_conversation(cut_folder("internvl"), 0);
  const Outcome small = generate_cut(cut_folder("internvl"), {"--image-pixels", "300"});
  ASSERT_EQ(small.exit_code, 0) << small.err;
  // The whole one alone.
  EXPECT_LT(small.json()["stats"]["prompt_tokens"], recorded["ids"].size());
  expect_error(generate_cut(cut_folder("internvl"), {"--image-pixels", "255"}), 2,
               {"--image-pixels", "a tile of this model is 16 x 16"});
}

// Of --memory-limit the cache for more texts at once leaves room for what reads images.
TEST(CutImages, AreScoredWithinALimit) {
  const TestFolder folder;
  const Json parts = {{{"type", "image"}, {"image", picture_file("rgb8.png")}},
                      {{"type", "text"}, {"text", "What is it?"}}};
  const Json record = {
      {"messages",
       {{{"role", "user"}, {"content", parts}}, {{"role", "assistant"}, {"content", "A dog."}}}}};
  ASSERT_TRUE(write_file_atomic(folder / "data.jsonl", dump_json(record) + "\n"));
  for (const std::string name : {"smolvlm", "internvl", "llava_next"}) {
    const Outcome outcome =
        run_jige({"score", cut_folder(name), folder / "data.jsonl", "--memory-limit", "1200KiB"});
    ASSERT_EQ(outcome.exit_code, 0) << name << " " << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("\"logprobs\""));
  }
}

}  // namespace
}  // namespace jige::integration
