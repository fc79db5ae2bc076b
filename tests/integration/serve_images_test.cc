// Images in requests to `jige serve`: the answers that `generate` gives, and what is said of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/base64.h"
#include "base/file.h"
#include "integration/image_folder.h"
#include "integration/serving.h"

namespace jige::integration {
namespace {

using api::testing::TestResponse;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kPicture = "kept_table.gif";  // 64 tokens, of a context of 128

std::string picture_url(const std::string& name) {
  const Result<std::string> bytes = read_file(picture_file(name));
  EXPECT_TRUE(bytes);
  return "data:image/gif;base64," + (bytes ? base64_text(*bytes) : "");
}

Json user_turn(const std::string& picture, const std::string& text) {
  return {{"role", "user"},
          {"content",
           {{{"type", "image_url"}, {"image_url", {{"url", picture_url(picture)}}}},
            {{"type", "text"}, {"text", text}}}}};
}

Json greedy_chat(Json messages) {
  return {{"messages", std::move(messages)},
          {"temperature", 0},
          {"max_tokens", 8},
          {"ignore_eos", true}};
}

Json answer_to(const Serving& server, const Json& body) {
  const TestResponse response = server.post("/v1/chat/completions", dump_json(body));
  EXPECT_EQ(response.status, 200) << response.body;
  const Result<Json> answer = parse_json(response.body, "the answer");
  return answer ? *answer : Json();
}

std::string text_of(const Json& answer) { return answer["choices"][0]["message"]["content"]; }

class ServeImages : public ::testing::Test {
 protected:
  explicit ServeImages(void (*write)(const std::string&) = write_image_folder) {
    write(folder_.path());
  }

  // What `generate` says to a picture and a text.
  std::string generated(const std::string& picture) const {
    const Outcome outcome =
        run_jige({"generate", folder_.path(), "--chat", "--prompt", "What is it?", "--image",
                  picture_file(picture), "--temperature", "0", "--max-new-tokens", "8",
                  "--ignore-eos", "--json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.json()["text"];
  }

  const TestFolder folder_;
};

TEST_F(ServeImages, AreAnsweredAsByGenerate) {
  const Serving server({folder_.path()});
  EXPECT_THAT(server.out(), HasSubstr(" images of up to 64 rows; "));
  EXPECT_THAT(server.get("/v1/models").body, HasSubstr("\"reads_images\":true"));
  for (const char* picture : {kPicture, "sampled420.jpg"}) {
    const Json answer = answer_to(server, greedy_chat({user_turn(picture, "What is it?")}));
    EXPECT_EQ(text_of(answer), generated(picture));
  }
}

class ServeQwenImages : public ServeImages {
 protected:
  ServeQwenImages() : ServeImages(write_qwen_image_folder) {}
};

TEST_F(ServeQwenImages, AreAnsweredAsByGenerateAndKnownInTheNextTurn) {
  const Serving server({folder_.path()});
  for (const char* picture : {kPicture, "sampled420.jpg"}) {
    Json messages = {user_turn(picture, "What is it?")};
    const Json answer = answer_to(server, greedy_chat(messages));
    EXPECT_EQ(text_of(answer), generated(picture));
    messages.push_back({{"role", "assistant"}, {"content", text_of(answer)}});
    messages.push_back({{"role", "user"}, {"content", "And now?"}});
    const Json second = answer_to(server, greedy_chat(messages));
    EXPECT_GT(second["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  }
}

TEST_F(ServeImages, AreKnownInTheNextTurn) {
  const Serving server({folder_.path()});
  Json messages = {user_turn(kPicture, "What is it?")};
  const Json first = answer_to(server, greedy_chat(messages));
  EXPECT_EQ(first["usage"]["prompt_tokens"], 1 + 64 + 11);
  EXPECT_EQ(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  messages.push_back({{"role", "assistant"}, {"content", text_of(first)}});
  messages.push_back({{"role", "user"}, {"content", "And now?"}});
  const Json second = answer_to(server, greedy_chat(messages));
  EXPECT_EQ(second["usage"]["prompt_tokens_details"]["cached_tokens"], 80);
  // Another picture shares nothing with it.
  const Json other = answer_to(server, greedy_chat({user_turn("whole.gif", "What is it?")}));
  EXPECT_EQ(other["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

TEST_F(ServeImages, GoWithWhatElseAServerMayHave) {
  const std::string expected = generated(kPicture);
  const Json body = greedy_chat({user_turn(kPicture, "What is it?")});
  const std::vector<std::vector<std::string>> flags = {
      {"--batch-tokens", "16"},
      {"--draft-model", folder_.path()},
      {"--speculate", "off", "--no-prefix-cache"},
      {"--memory-limit", "128MiB", "--admission", "optimistic"},
      {"--policy", "orca"}};
  for (const std::vector<std::string>& more : flags) {
    std::vector<std::string> arguments = {folder_.path()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Serving server(arguments);
    EXPECT_EQ(text_of(answer_to(server, body)), expected) << more.front();
  }
  const Serving coarse({folder_.path(), "--quantize", "q8", "--kv-cache", "q8"});
  EXPECT_FALSE(text_of(answer_to(coarse, body)).empty());
}

TEST_F(ServeImages, AreNotReadWhereNobodyWantsThat) {
  const Serving server({folder_.path(), "--no-images"});
  EXPECT_THAT(server.out(), Not(HasSubstr(" images of up to ")));
  const TestResponse refused = server.post(
      "/v1/chat/completions", dump_json(greedy_chat({user_turn(kPicture, "What is it?")})));
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("reads text alone"));
}

TEST_F(ServeImages, AreCounted) {
  const Serving server({folder_.path()});
  const Json body = greedy_chat({user_turn(kPicture, "What is it?")});
  answer_to(server, body);
  answer_to(server, body);
  const std::string metrics = server.get("/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("outcome=\"read\"} 2\n"));
  for (const char* name : {"image_encode_seconds_count", "images_known_total"}) {
    EXPECT_THAT(metrics, ::testing::ContainsRegex(std::string("jige:") + name + "[{][^}]*[}] 1\n"));
  }
}

TEST_F(ServeImages, MayBeSmallerThanTheFolderSays) {
  const Serving server({folder_.path(), "--image-pixels", "1000"});
  EXPECT_THAT(server.out(), HasSubstr(" images of up to 9 rows; "));
  const Json whole = answer_to(Serving({folder_.path()}), greedy_chat({user_turn(kPicture, "?")}));
  const Json answer = answer_to(server, greedy_chat({user_turn(kPicture, "?")}));
  EXPECT_LT(answer["usage"]["prompt_tokens"], whole["usage"]["prompt_tokens"]);
  expect_error(serve_and_stop({folder_.path(), "--image-pixels", "63"}), 2,
               {"--image-pixels", "8 x 8"});
}

TEST_F(ServeImages, TakeTheirPartOfTheMemory) {
  const auto ready = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {folder_.path(), "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Json line = serve_and_stop(arguments).json_lines()[1];
    return std::pair(line["images_bytes"].get<int64_t>(), line["memory_bytes"].get<int64_t>());
  };
  const auto [with, all_with] = ready({"--kv-tokens", "256"});
  const auto [without, all_without] = ready({"--kv-tokens", "256", "--no-images"});
  EXPECT_GT(with, 64 * 64 * 4);
  EXPECT_EQ(without, 0);
  EXPECT_EQ(all_with - all_without, with);
  EXPECT_LT(ready({"--kv-tokens", "256", "--image-pixels", "1000"}).first, with);
  const std::string limit = std::to_string(all_without + with / 2);
  EXPECT_GT(ready({"--memory-limit", limit, "--no-images"}).second, 0);
  const Outcome refused = serve_and_stop({folder_.path(), "--memory-limit", limit});
  expect_error(refused, 6, {"reading images", "--no-images"});
  expect_error(serve_and_stop({folder_.path(), "--image-memory", "1KiB"}), 2,
               {"--image-memory 1.00 KiB"});
}

}  // namespace
}  // namespace jige::integration
