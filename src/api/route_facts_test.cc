#include "api/route_facts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/api_test_support.h"
#include "base/rng.h"
#include "base/test_fuzz_rounds.h"

namespace jige::api {
namespace {

using testing::json_of;

constexpr const char* kChatPath = "/v1/chat/completions";

Json chat_of(std::vector<std::string> texts) {
  Json body{{"model", "tiny"}, {"messages", Json::array()}};
  for (size_t i = 0; i < texts.size(); ++i) {
    body["messages"].push_back(
        {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", texts[i]}});
  }
  return body;
}

size_t common(const RouteFacts& one, const RouteFacts& other) {
  const auto [end, ignored] = std::ranges::mismatch(one.prefix, other.prefix);
  return static_cast<size_t>(end - one.prefix.begin());
}

TEST(RouteFacts, KnowsTheNextTurnOfAConversation) {
  const std::string question(1000, 'q'), answer(700, 'a');
  const RouteFacts first = route_facts(kChatPath, chat_of({question}));
  const RouteFacts second = route_facts(kChatPath, chat_of({question, answer, "and then?"}));
  EXPECT_GE(first.prefix.size(), 1000 / RouteFacts::kBlockBytes);
  EXPECT_EQ(common(first, second), first.prefix.size());
  EXPECT_GT(second.prefix.size(), first.prefix.size() + 4);
  EXPECT_NEAR(static_cast<double>(first.prompt_tokens), 250, 20);
  EXPECT_EQ(first.model, "tiny");
  EXPECT_EQ(first.answer_tokens_max, -1);
}

TEST(RouteFacts, TellsPromptsApartFromWhereTheyDiffer) {
  const std::string long_text(4096, 'x');
  for (const size_t at : {0UL, 500UL, 1234UL, 4095UL}) {
    std::string other = long_text;
    other[at] = 'y';
    const RouteFacts one = route_facts("/v1/completions", {{"prompt", long_text}});
    const RouteFacts two = route_facts("/v1/completions", {{"prompt", other}});
    // One byte stands in front of the text.
    EXPECT_EQ(common(one, two), (at + 1) / RouteFacts::kBlockBytes) << at;
  }
}

TEST(RouteFacts, AnImageIsAsLongAsAnyOtherAndKnownAgain) {
  const auto chat = [](const std::string& image, const std::string& text) {
    const Json part = {{"type", "image_url"}, {"image_url", {{"url", image}}}};
    const Json parts = Json::array({part, {{"type", "text"}, {"text", text}}});
    return route_facts(kChatPath,
                       {{"messages", Json::array({{{"role", "user"}, {"content", parts}}})}});
  };
  const std::string small = "data:image/png;base64,AAAA";
  const std::string large = "data:image/png;base64," + std::string(3'000'000, 'A');
  const RouteFacts one = chat(large, "what is it?");
  EXPECT_EQ(one.prompt_tokens, chat(small, "what is it?").prompt_tokens);
  EXPECT_NEAR(static_cast<double>(one.prompt_tokens), 1024, 40);
  EXPECT_EQ(common(one, chat(large, std::string(1000, 'x'))), one.prefix.size());
  EXPECT_LT(common(one, chat(large + "A", "what is it?")), 3u);
  const auto message = [](const std::string& data) {
    const Json source = {{"type", "base64"}, {"media_type", "image/png"}, {"data", data}};
    const Json parts = Json::array({{{"type", "image"}, {"source", source}}});
    return route_facts("/v1/messages",
                       {{"messages", Json::array({{{"role", "user"}, {"content", parts}}})}});
  };
  EXPECT_NEAR(static_cast<double>(message(large).prompt_tokens), 1024, 40);
  EXPECT_LT(common(message(large), message(small)), 3u);
}

TEST(RouteFacts, SharesNothingAcrossModelsSaltsAndKindsOfPrompt) {
  const Json body = chat_of({std::string(2000, 'x')});
  const RouteFacts plain = route_facts(kChatPath, body);
  ASSERT_FALSE(plain.prefix.empty());
  for (const char* field : {"model", "cache_salt"}) {
    Json other = body;
    other[field] = "other";
    EXPECT_EQ(common(plain, route_facts(kChatPath, other)), 0U) << field;
  }
  const RouteFacts text = route_facts("/v1/completions", {{"prompt", std::string(2000, 'x')}});
  EXPECT_EQ(common(plain, text), 0U);
}

TEST(RouteFacts, PassesOverMarksOfWhatIsToBeCached) {
  const std::string text(500, 't');
  const auto content = [&](bool marked) {
    Json part{{"type", "text"}, {"text", text}};
    if (marked) part["cache_control"] = {{"type", "ephemeral"}};
    return Json::array({{{"role", "user"}, {"content", Json::array({part})}}});
  };
  EXPECT_EQ(route_facts("/v1/messages", {{"messages", content(true)}}).prefix,
            route_facts("/v1/messages", {{"messages", content(false)}}).prefix);
}

TEST(RouteFacts, ReadsLengthsInEveryForm) {
  const auto answer = [](const char* path, const char* body) {
    return route_facts(path, json_of(body)).answer_tokens_max;
  };
  EXPECT_EQ(answer("/v1/completions", R"({"prompt":"x"})"), 16);
  EXPECT_EQ(answer("/v1/completions", R"({"prompt":"x","max_tokens":5,"n":3})"), 15);
  EXPECT_EQ(answer(kChatPath, R"({"max_tokens":5,"max_completion_tokens":7})"), 7);
  EXPECT_EQ(answer("/v1/responses", R"({"max_output_tokens":9})"), 9);
  EXPECT_EQ(answer("/v1/messages", R"({"max_tokens":11})"), 11);
  EXPECT_EQ(answer("/v1/embeddings", R"({"input":["a","b"]})"), 0);
  EXPECT_EQ(answer("/v1/rerank", R"({"query":"q","documents":["a","b"]})"), 0);
  EXPECT_EQ(answer("/tokenize", R"({"prompt":"x"})"), 0);
  EXPECT_EQ(answer(kChatPath, R"({"max_tokens":"many"})"), -1);
  EXPECT_EQ(answer(kChatPath, R"({"max_tokens":1e15,"n":1e15})"), int64_t{1} << 40);
  const RouteFacts ids = route_facts("/v1/completions", {{"prompt", std::vector<int>(320, 7)}});
  EXPECT_EQ(ids.prompt_tokens, 321);
  EXPECT_EQ(ids.prefix.size(), 10U);
}

TEST(RouteFacts, KnowsWhetherAStreamIsWanted) {
  const auto streams = [](const char* path, const char* stream) {
    return route_facts(path, json_of(R"({"prompt":"x","stream":)" + std::string(stream) + "}"))
        .stream;
  };
  for (const char* path :
       {"/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"}) {
    EXPECT_TRUE(streams(path, "true")) << path;
    for (const char* other : {"false", "null", "1", "\"true\""}) {
      EXPECT_FALSE(streams(path, other)) << path << other;
    }
  }
  for (const char* path : {"/v1/embeddings", "/v1/rerank", "/tokenize", "/v1/none"}) {
    EXPECT_FALSE(streams(path, "true")) << path;
  }
}

TEST(RouteFacts, CountsTheAnswersThatAreMadeAtOnce) {
  const auto count = [](const char* path, const char* body) {
    return route_facts(path, json_of(body)).sequences;
  };
  EXPECT_EQ(count(kChatPath, R"({"messages":[{"content":"x"},{"content":"y"}]})"), 1);
  EXPECT_EQ(count(kChatPath, R"({"messages":[],"n":3})"), 3);
  EXPECT_EQ(count("/v1/completions", R"({"prompt":["a","b"],"n":3})"), 6);
  EXPECT_EQ(count("/v1/completions", R"({"prompt":[[1,2],[3]]})"), 2);
  EXPECT_EQ(count("/v1/completions", R"({"prompt":[1,2,3]})"), 1) << "one prompt, by its ids";
  EXPECT_EQ(count("/v1/completions", R"({"prompt":[],"n":-4})"), 1);
  EXPECT_EQ(count("/v1/embeddings", R"({"input":["a","b","c"]})"), 3);
  EXPECT_EQ(count("/v1/rerank", R"({"query":"q","documents":["a","b"]})"), 2);
  EXPECT_EQ(count("/v2/rerank", R"({"query":"q","documents":[{"text":"a"},{"text":"b"}]})"), 2);
  EXPECT_EQ(count("/v1/responses", R"({"input":[{"content":"x"}]})"), 1);
  EXPECT_EQ(count("/tokenize", R"({"prompt":["a","b"]})"), 1);
  EXPECT_EQ(count("/v1/completions", R"({"prompt":"x","n":9000000000000000000})"), 4096);
}

TEST(RouteFacts, IsBoundedForAnyBody) {
  const RouteFacts facts = route_facts(kChatPath, chat_of({std::string(3 << 20, 'x')}));
  EXPECT_EQ(facts.prefix.size(), RouteFacts::kBlocksMax);
  EXPECT_GT(facts.prompt_tokens, 3 << 18);
}

// Values of any type in any place, from a seed.
Json random_value(Rng& rng, int depth) {
  switch (rng.below(depth > 0 ? 8 : 6)) {
    case 0:
      return nullptr;
    case 1:
      return rng.below(2) == 0;
    case 2:
      return static_cast<int64_t>(rng.next_u64());
    case 3:
      return rng.uniform() * 1e30 - 1e29;
    case 4:
      return std::string(rng.below(300), static_cast<char>('a' + rng.below(26)));
    case 5:
      return Json::array();
    case 6: {
      Json list = Json::array();
      for (uint64_t i = rng.below(4); i > 0; --i) list.push_back(random_value(rng, depth - 1));
      return list;
    }
    default: {
      Json object = Json::object();
      const char* names[] = {"role", "content", "text", "cache_control", "x"};
      for (uint64_t i = rng.below(4); i > 0; --i) {
        object[names[rng.below(5)]] = random_value(rng, depth - 1);
      }
      return object;
    }
  }
}

TEST(RouteFacts, TakesAnythingThatIsJson) {
  const char* paths[] = {"/v1/completions", kChatPath,   "/v1/responses", "/v1/messages",
                         "/v1/embeddings",  "/tokenize", "/v1/nothing"};
  const char* fields[] = {
      "model", "prompt",     "messages",          "tools",       "input", "system", "max_tokens",
      "n",     "cache_salt", "max_output_tokens", "instructions"};
  for (uint64_t seed = 0; seed < fuzz_rounds(2000); ++seed) {
    Rng rng(derive_key(seed, "route facts"));
    Json body = Json::object();
    for (uint64_t i = rng.below(6); i > 0; --i) {
      body[fields[rng.below(std::size(fields))]] = random_value(rng, 4);
    }
    const RouteFacts facts = route_facts(paths[rng.below(std::size(paths))], body);
    EXPECT_GE(facts.prompt_tokens, 1);
    EXPECT_GE(facts.answer_tokens_max, -1);
    EXPECT_LE(facts.answer_tokens_max, int64_t{1} << 40);
    EXPECT_GE(facts.sequences, 1);
    EXPECT_LE(facts.sequences, 4096 * 4096);
  }
}

}  // namespace
}  // namespace jige::api
