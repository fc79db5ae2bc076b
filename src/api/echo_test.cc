// Answers that show their prompt: its text, and how likely its tokens are, over sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/service_test_support.h"
#include "api/shown_prompt.h"
#include "serve/scorer.h"

namespace jige::api {
namespace {

using testing::character_tokenizer;
using testing::frames_of;
using testing::json_of;
using testing::TestResponse;
using testing::TestServer;
using testing::value_of;

constexpr const char* kPrompt = "Once upon a time";

// What a Scorer says of the prompt.
std::vector<float> expected_logprobs(const std::string& prompt) {
  serve::testing::Loaded loaded("llama3", {.context_max = testing::kContext, .scores = true});
  serve::Scorer scorer(*loaded.model);
  return value_of(scorer.score(serve::testing::ids_of(loaded.tokenizer, prompt))).logprobs;
}

void expect_prompt(const Json& logprobs, const std::vector<float>& expected) {
  ASSERT_GT(logprobs["tokens"].size(), expected.size());
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(logprobs["token_logprobs"][i + 1].get<float>(), expected[i]);
    EXPECT_EQ(logprobs["tokens"][i + 1], std::string(1, kPrompt[i + 1]));
    EXPECT_EQ(logprobs["text_offset"][i + 1], i + 1);
  }
}

TEST(Echo, RepeatsThePromptAndScoresItAsAScorerDoes) {
  TestServer server;
  const std::vector<float> expected = expected_logprobs(kPrompt);
  const auto letters = serve::testing::ids_of(character_tokenizer(), "abcdef");
  const Json body = {{"prompt", kPrompt},
                     {"echo", true},
                     {"logprobs", 1},
                     {"n", 2},
                     {"max_tokens", 3},
                     {"ignore_eos", true},
                     {"allowed_token_ids", letters}};
  for (int i = 0; i < 2; ++i) {  // the second time its beginning is known
    const TestResponse response = server.post("/v1/completions", body.dump());
    ASSERT_EQ(response.status, 200) << response.body;
    const Json answer = json_of(response.body);
    ASSERT_EQ(answer["choices"].size(), 2u);
    for (const Json& choice : answer["choices"]) {
      EXPECT_EQ(choice["text"].get<std::string>().size(), 19u) << choice["text"];
      EXPECT_THAT(choice["text"].get<std::string>(), ::testing::StartsWith(kPrompt));
      EXPECT_EQ(choice["logprobs"]["tokens"].size(), 19u);
      EXPECT_EQ(choice["logprobs"]["text_offset"][18], 18);
      expect_prompt(choice["logprobs"], expected);
    }
    EXPECT_EQ(answer["usage"]["completion_tokens"], 6);
    EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  }
}

// What lm-evaluation-harness asks for and reads.
TEST(Echo, ScoresTokenIdsOfSeveralPrompts) {
  TestServer server;
  const std::vector<float> expected = expected_logprobs(kPrompt);
  const auto ids = serve::testing::ids_of(character_tokenizer(), kPrompt);
  const Json body = {{"prompt", {ids, std::vector<int32_t>(ids.begin(), ids.begin() + 5)}},
                     {"echo", true},
                     {"logprobs", 1},
                     {"max_tokens", 1},
                     {"temperature", 0},
                     {"ignore_eos", true}};
  const TestResponse response = server.post("/v1/completions", body.dump());
  ASSERT_EQ(response.status, 200) << response.body;
  const Json answer = json_of(response.body);
  expect_prompt(answer["choices"][0]["logprobs"], expected);
  expect_prompt(answer["choices"][1]["logprobs"], {expected.begin(), expected.begin() + 4});
  EXPECT_THAT(answer["choices"][1]["text"].get<std::string>(), ::testing::StartsWith("Once "));
  const Json& logprobs = answer["choices"][0]["logprobs"];
  for (size_t i = 1; i <= expected.size(); ++i) {
    double best = -1e9;
    for (const auto& [name, value] : logprobs["top_logprobs"][i].items()) {
      best = std::max(best, value.get<double>());
    }
    EXPECT_GE(best, logprobs["token_logprobs"][i].get<double>());
  }
}

TEST(Echo, NoTokenIsAPossibleAnswer) {
  TestServer server;
  const Json body = {{"prompt", kPrompt}, {"echo", true}, {"logprobs", 0}, {"max_tokens", 0}};
  const TestResponse response = server.post("/v1/completions", body.dump());
  ASSERT_EQ(response.status, 200) << response.body;
  const Json answer = json_of(response.body);
  EXPECT_EQ(answer["choices"][0]["text"], kPrompt);
  EXPECT_EQ(answer["choices"][0]["logprobs"]["tokens"].size(), 16u);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 0);
  const Json plain = {{"prompt", kPrompt}, {"echo", true}, {"max_tokens", 0}};
  const Json bare = json_of(server.post("/v1/completions", plain.dump()).body);
  EXPECT_EQ(bare["choices"][0]["text"], kPrompt);
  EXPECT_TRUE(bare["choices"][0]["logprobs"].is_null());
}

// A reader that drops what was generated, one token, must not drop one of the prompt's.
TEST(Echo, TheTokenThatEndsTheAnswerHasALogProbability) {
  TestServer server;
  Json body = {{"prompt", kPrompt}, {"echo", true},           {"logprobs", 2},
               {"max_tokens", 1},   {"stop_token_ids", {40}}, {"allowed_token_ids", {40}}};
  const TestResponse response = server.post("/v1/completions", body.dump());
  ASSERT_EQ(response.status, 200) << response.body;
  const Json choice = json_of(response.body)["choices"][0];
  EXPECT_EQ(choice["text"], kPrompt);
  EXPECT_EQ(choice["finish_reason"], "stop");
  ASSERT_EQ(choice["logprobs"]["tokens"].size(), 17u);
  EXPECT_EQ(choice["logprobs"]["tokens"][16], "E");
  EXPECT_LT(choice["logprobs"]["token_logprobs"][16].get<double>(), 0);
  EXPECT_EQ(choice["logprobs"]["text_offset"][16], 16);
  EXPECT_EQ(json_of(response.body)["usage"]["completion_tokens"], 0);
  body["stream"] = true;
  const std::vector<Json> frames = frames_of(server.post("/v1/completions", body.dump()).body);
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[1]["choices"][0]["logprobs"]["tokens"], Json::array({"E"}));
}

TEST(Echo, StreamsThePromptFirst) {
  TestServer server;
  const auto letters = serve::testing::ids_of(character_tokenizer(), "abcdef");
  const Json body = {{"prompt", kPrompt}, {"echo", true},   {"logprobs", 1},
                     {"max_tokens", 2},   {"stream", true}, {"allowed_token_ids", letters}};
  const TestResponse response = server.post("/v1/completions", body.dump());
  ASSERT_EQ(response.status, 200) << response.body;
  const std::vector<Json> frames = frames_of(response.body);
  ASSERT_GE(frames.size(), 3u);
  EXPECT_EQ(frames[0]["choices"][0]["text"], kPrompt);
  EXPECT_EQ(frames[0]["choices"][0]["logprobs"]["tokens"].size(), 16u);
  EXPECT_EQ(frames[1]["choices"][0]["logprobs"]["text_offset"][0], 16);
  EXPECT_EQ(frames[1]["choices"][0]["logprobs"]["tokens"].size(), 1u);
}

TEST(PromptLogprobs, ComeWithCompletionsAndChats) {
  TestServer server;
  const std::vector<float> expected = expected_logprobs(kPrompt);
  const Json body = {{"prompt", kPrompt}, {"prompt_logprobs", 2}, {"max_tokens", 0}};
  const TestResponse response = server.post("/v1/completions", body.dump());
  ASSERT_EQ(response.status, 200) << response.body;
  const Json choice = json_of(response.body)["choices"][0];
  EXPECT_EQ(choice["text"], "");
  const Json& list = choice["prompt_logprobs"];
  ASSERT_EQ(list.size(), 16u);
  EXPECT_TRUE(list[0].is_null());
  const auto ids = serve::testing::ids_of(character_tokenizer(), kPrompt);
  for (size_t i = 1; i < 16; ++i) {
    const Json& own = list[i][std::to_string(ids[i])];
    EXPECT_EQ(own["logprob"].get<float>(), expected[i - 1]);
    EXPECT_EQ(own["decoded_token"], std::string(1, kPrompt[i]));
    EXPECT_GE(own["rank"].get<int>(), 1);
    EXPECT_EQ(list[i].size(), own["rank"].get<int>() <= 2 ? 2u : 3u);
  }
  const Json chat = {{"messages", {{{"role", "user"}, {"content", "hi"}}}},
                     {"prompt_logprobs", 0},
                     {"max_tokens", 1}};
  const TestResponse talk = server.post("/v1/chat/completions", chat.dump());
  ASSERT_EQ(talk.status, 200) << talk.body;
  const Json answer = json_of(talk.body);
  EXPECT_EQ(answer["prompt_logprobs"].size(), answer["usage"]["prompt_tokens"].get<size_t>());
}

TEST(EchoPrompt, ATextThatItsTokensDoNotMakeUpIsTheLastTokens) {
  const text::Tokenizer tokenizer = character_tokenizer();
  const EchoedPrompt own = echo_prompt({.ids = {1, 38, 39}}, tokenizer);
  EXPECT_EQ(own.text, "CD") << "special tokens are not shown";
  EXPECT_EQ(own.tokens[1].text, "C");
  EXPECT_FALSE(own.tokens[1].scored) << "there are no scores";
  const EchoedPrompt given = echo_prompt({.ids = {1, 38, 39}, .text = "<s>CD"}, tokenizer);
  EXPECT_EQ(given.text, "<s>CD");
  EXPECT_EQ(given.tokens[1].text, "");
  EXPECT_EQ(given.tokens[2].text, "<s>CD");
}

TEST(Service, DrawsWhatIsAllowedAndNoBadWords) {
  TestServer server;
  const auto text = [&](const Json& more) {
    Json body = {{"prompt", "Once"}, {"max_tokens", 60}, {"ignore_eos", true}, {"seed", 3}};
    body.update(more);
    const TestResponse response = server.post("/v1/completions", body.dump());
    EXPECT_EQ(response.status, 200) << response.body;
    return testing::text_of(response);
  };
  const auto ids = serve::testing::ids_of(character_tokenizer(), "ab");
  const std::string some = text({{"allowed_token_ids", ids}});
  EXPECT_EQ(some.find_first_not_of("ab"), std::string::npos) << some;
  EXPECT_NE(some.find("ab"), std::string::npos) << some;
  const std::string apart = text({{"allowed_token_ids", ids}, {"bad_words", {"ab"}}});
  EXPECT_EQ(apart.find("ab"), std::string::npos) << apart;
  const std::string fits =
      text({{"allowed_token_ids", ids}, {"guided_regex", "[abc]{20}"}, {"ignore_eos", false}});
  EXPECT_EQ(fits.size(), 20u);
  EXPECT_EQ(fits.find('c'), std::string::npos) << fits;
}

}  // namespace
}  // namespace jige::api
