// Images in prompts as users meet them: `generate --image` and `/image` of a chat.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "integration/image_folder.h"
#include "integration/process.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

class Images : public ::testing::Test {
 protected:
  explicit Images(void (*write)(const std::string&) = write_image_folder) { write(folder_.path()); }

  Outcome generate(const std::vector<std::string>& more) {
    return run_with({"generate", folder_.path(), "--max-new-tokens", "8", "--ignore-eos"}, more);
  }
  // The answer to a message with these pictures, and how many tokens the prompt has.
  std::pair<std::string, int64_t> answer(const std::vector<std::string>& pictures,
                                         std::vector<std::string> more = {"--chat"}) {
    more.insert(more.end(), {"--prompt", "What is it?", "--temperature", "0", "--json"});
    for (const std::string& picture : pictures) {
      more.insert(more.end(), {"--image", picture_file(picture)});
    }
    const Outcome outcome = generate(more);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const Json json = outcome.json();
    return {json["text"].get<std::string>(), json["stats"]["prompt_tokens"].get<int64_t>()};
  }

  const TestFolder folder_;
};

TEST_F(Images, GenerateAnswersAboutThem) {
  const auto [plain, plain_tokens] = answer({});
  EXPECT_EQ(plain_tokens, 12) << "one token, and one a letter";
  const auto [text, tokens] = answer({"rgb8.png"});
  EXPECT_GT(tokens, plain_tokens + 3);
  EXPECT_NE(text, plain);
  EXPECT_EQ(answer({"rgb8.png"}), std::pair(text, tokens)) << "the same each time";
  EXPECT_NE(answer({"sampled420.jpg"}).first, text);
  const auto [both, both_tokens] = answer({"rgb8.png", "sampled420.jpg"});
  EXPECT_EQ(both_tokens, tokens + answer({"sampled420.jpg"}).second - plain_tokens);
  EXPECT_NE(answer({"sampled420.jpg", "rgb8.png"}).first, both) << "they stand in their order";
  EXPECT_EQ(answer({"rgb8.png"}, {"--chat", "--threads", "1"}).first, text);
}

TEST_F(Images, MayBeSmallerThanTheFolderSays) {
  const int64_t without = answer({}).second;
  const int64_t whole = answer({"rgb8.png"}).second - without;
  const int64_t small = answer({"rgb8.png"}, {"--chat", "--image-pixels", "64"}).second - without;
  EXPECT_EQ(small, 2) << "a row, and the end";
  EXPECT_GT(whole, small);
  const auto read_bytes = [&](const std::vector<std::string>& more) {
    const Json report = run_with({"inspect", folder_.path(), "--json"}, more).json();
    return report["memory"]["images"]["total_bytes"].get<int64_t>();
  };
  EXPECT_LT(read_bytes({"--image-pixels", "1000"}), read_bytes({}));
  expect_error(generate({"--chat", "-p", "What?", "--image", picture_file("rgb8.png"),
                         "--image-pixels", "63"}),
               2, {"--image-pixels", "8 x 8"});
}

TEST_F(Images, ATextThatIsNoChatNamesTheirPlacesItself) {
  const Outcome placed = generate({"-p", "[IMG] is it?", "--image", picture_file("rgb8.png")});
  EXPECT_EQ(placed.exit_code, 0) << placed.err;
  expect_error(generate({"-p", "What is it?", "--image", picture_file("rgb8.png")}), 2,
               {"[IMG]", "for 0 images and 1 came"});
}

TEST_F(Images, ThatCannotBeReadAreRefused) {
  write_text(folder_ / "no.png", "not a picture");
  expect_error(generate({"--chat", "-p", "What?", "--image", folder_ / "no.png"}), 2,
               {folder_ / "no.png"});
  expect_error(generate({"--chat", "-p", "What?", "--image", folder_ / "none.png"}), 3,
               {folder_ / "none.png"});
  const std::string model = TinyRun::get().model();
  expect_error(
      run_jige({"generate", model, "--chat", "-p", "What?", "--image", picture_file("rgb8.png")}),
      5, {model, "reads text, and no images"});
  expect_error(generate({"--chat", "-p", "What is it?", "--context", "16", "--image",
                         picture_file("rgb8.png")}),
               2, {"tokens with its images", "the context holds 16"});
}

TEST_F(Images, AChatTakesThemForItsNextMessage) {
  const std::string picture = picture_file("rgb8.png");
  const auto chat = [&](const std::string& input) {
    return run_jige(
        {"chat", folder_.path(), "--temperature", "0", "--max-new-tokens", "6", "--json"}, input);
  };
  const std::string about = "/image " + picture + "\nWhat is it?\n";
  const std::string kept = folder_ / "kept.jsonl";
  const Outcome outcome = chat(about + "And now?\n/save " + kept + "\n");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(picture));
  EXPECT_THAT(outcome.err, HasSubstr("it goes with the next message"));
  EXPECT_THAT(outcome.err, HasSubstr("an image of 13 x 9 read in "));
  EXPECT_EQ(outcome.err.find("read in"), outcome.err.rfind("read in")) << "once for both answers";
  const JsonLines answers = outcome.json_lines();
  ASSERT_EQ(answers.size(), 2u);
  const Json& first = answers[0]["stats"];
  EXPECT_EQ(first["prompt_tokens"], answer({"rgb8.png"}).second);
  EXPECT_GE(answers[1]["stats"]["reused_tokens"], first["prompt_tokens"])
      << "the picture is still in the cache";
  const JsonLines again = chat("What is it?\n/reset\n" + about).json_lines();
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[1]["content"], answers[0]["content"]);
  EXPECT_NE(again[0]["content"], answers[0]["content"]);

  const Outcome missing = chat("/image none.png\nWhat is it?\n");
  EXPECT_EQ(missing.exit_code, 0);
  EXPECT_THAT(missing.err, HasSubstr("none.png"));
  EXPECT_EQ(missing.json_lines()[0]["content"], again[0]["content"]);

  // What was saved is learned from, wherever the picture is.
  const Outcome plan = run_jige({"train", "--from", folder_.path(), "--data", kept, "--plan-only",
                                 "--eval-share", "0", "--json", "--out", folder_ / "run"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_EQ(plan.json()["images"], 1);
}

class QwenImages : public Images {
 protected:
  QwenImages() : Images(write_qwen_image_folder) {}
};

// Whose rows have places by line and column.
TEST_F(QwenImages, AreAnsweredAboutLikeOthers) {
  const auto [plain, plain_tokens] = answer({});
  const auto [text, tokens] = answer({"rgb8.png"});  // 13 x 9, seen as 24 x 16
  EXPECT_EQ(tokens, plain_tokens + 2 + 3 * 2);
  EXPECT_NE(text, plain);
  const auto both = answer({"rgb8.png", "sampled420.jpg"});
  EXPECT_EQ(both.second, tokens + answer({"sampled420.jpg"}).second - plain_tokens);
  EXPECT_NE(answer({"sampled420.jpg", "rgb8.png"}).first, both.first);
  EXPECT_EQ(answer({"rgb8.png"}, {"--chat", "--threads", "1"}).first, text);
  expect_error(generate({"-p", "What is it?", "--image", picture_file("rgb8.png")}), 2,
               {"<|image_pad|>", "for 0 images and 1 came"});
}

TEST_F(QwenImages, StayInTheCacheOfAChat) {
  const JsonLines answers =
      run_jige({"chat", folder_.path(), "--temperature", "0", "--max-new-tokens", "6", "--json"},
               "/image " + picture_file("rgb8.png") + "\nWhat is it?\nAnd now?\n")
          .json_lines();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0]["stats"]["prompt_tokens"], answer({"rgb8.png"}).second);
  EXPECT_GE(answers[1]["stats"]["reused_tokens"], answers[0]["stats"]["prompt_tokens"]);
}

}  // namespace
}  // namespace jige::integration
