#include "api/answer_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "api/api_test_support.h"
#include "text/token_text.h"

namespace jige::api {
namespace {

using testing::character_tokenizer;
using testing::json_of;

AnswerHead head_of(Endpoint endpoint) {
  return {.endpoint = endpoint, .id = "x-1", .created_s = 7, .model = "tiny", .fingerprint = "f"};
}

// Ids of this vocabulary: '!' is 4, so 'a' is 68.
constexpr int32_t kA = 'a' - '!' + 4;

TEST(AnswerFormat, WritesChatFrames) {
  const AnswerHead head = head_of(Endpoint::kChat);
  const text::Tokenizer tokenizer = character_tokenizer();
  EXPECT_EQ(role_frame(head, 1),
            "data: {\"id\":\"x-1\",\"object\":\"chat.completion.chunk\",\"created\":7,"
            "\"model\":\"tiny\",\"system_fingerprint\":\"f\",\"choices\":[{\"index\":1,"
            "\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
            "\"finish_reason\":null}]}\n\n");
  EXPECT_EQ(
      piece_frame(head, 0, {.token = kA, .text = "a\n\"b"}, 0, tokenizer),
      "data: {\"id\":\"x-1\",\"object\":\"chat.completion.chunk\",\"created\":7,"
      "\"model\":\"tiny\",\"system_fingerprint\":\"f\",\"choices\":[{\"index\":0,"
      "\"delta\":{\"content\":\"a\\n\\\"b\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
  EXPECT_EQ(finish_frame(head, 0, {.finish = "stop", .stop_string = "END"}),
            "data: {\"id\":\"x-1\",\"object\":\"chat.completion.chunk\",\"created\":7,"
            "\"model\":\"tiny\",\"system_fingerprint\":\"f\",\"choices\":[{\"index\":0,"
            "\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":\"END\"}]}"
            "\n\n");
}

TEST(AnswerFormat, WritesCompletionFrames) {
  AnswerHead head = head_of(Endpoint::kCompletions);
  const text::Tokenizer tokenizer = character_tokenizer();
  head.include_usage = true;
  EXPECT_EQ(piece_frame(head, 2, {.token = kA, .text = "a"}, 0, tokenizer),
            "data: {\"id\":\"x-1\",\"object\":\"text_completion\",\"created\":7,"
            "\"model\":\"tiny\",\"system_fingerprint\":\"f\",\"choices\":[{\"index\":2,"
            "\"text\":\"a\",\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n");
  const Json usage =
      json_of(usage_frame(head, {.prompt_tokens = 3, .generated_tokens = 4}).substr(6));
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["total_tokens"], 7);
}

TEST(AnswerFormat, WritesLogprobsInBothShapes) {
  const text::Tokenizer tokenizer = character_tokenizer();
  const TokenEvent event{
      .token = kA, .text = "a", .logprob = -0.5f, .top = {{kA, -0.5f}, {kA + 1, -INFINITY}}};
  AnswerHead chat = head_of(Endpoint::kChat);
  chat.logprobs = true;
  const Json shown = json_of(piece_frame(chat, 0, event, 0, tokenizer).substr(6));
  const Json& entry = shown["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(entry["token"], "a");
  EXPECT_EQ(entry["logprob"], -0.5);
  EXPECT_EQ(entry["bytes"], Json::array({97}));
  EXPECT_EQ(entry["top_logprobs"][1]["token"], "b");
  EXPECT_EQ(entry["top_logprobs"][1]["logprob"], -9999.0) << "JSON has no infinity";

  AnswerHead completions = head_of(Endpoint::kCompletions);
  completions.logprobs = true;
  const std::vector<ChoiceState> choices = {
      {.text = "aéb", .tokens = {event, {.token = -1, .text = "é"}, event}, .finish = "length"}};
  const Json whole = whole_answer(completions, choices, {}, tokenizer);
  const Json& logprobs = whole["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json::array({"a", "a"}));
  EXPECT_EQ(logprobs["token_logprobs"], Json::array({-0.5, -0.5}));
  EXPECT_EQ(logprobs["text_offset"], Json::array({0, 2})) << "in characters";
  EXPECT_EQ(logprobs["top_logprobs"][0]["a"], -0.5);
}

// Byte-level, with the halves of "é" as tokens 0 and 1, and "a".
text::Tokenizer half_tokenizer(std::string_view vocab, std::string_view decoder) {
  return testing::value_of(text::Tokenizer::from_json(
      fmt::format(R"({{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],
        "normalizer":null,"pre_tokenizer":null,"post_processor":null,
        "decoder":{{"type":"{}"}},
        "model":{{"type":"BPE","dropout":null,"unk_token":null,
                  "continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,
                  "byte_fallback":false,"vocab":{},"merges":[]}}}})",
                  decoder, vocab),
      "test tokenizer"));
}

TEST(AnswerFormat, LogprobsShowTheBytesOfHalfCharacters) {
  const TokenEvent event{.token = 0, .text = "", .logprob = -2, .top = {{1, -1}, {0, -2}}};
  for (const auto& [vocab, decoder] :
       {std::pair(R"({"Ã":0,"©":1,"a":2})", "ByteLevel"),
        std::pair(R"({"<0xC3>":0,"<0xA9>":1,"a":2})", "ByteFallback")}) {
    const text::Tokenizer tokenizer = half_tokenizer(vocab, decoder);
    AnswerHead chat = head_of(Endpoint::kChat);
    chat.logprobs = true;
    const Json shown = json_of(piece_frame(chat, 0, event, 0, tokenizer).substr(6));
    const Json& entry = shown["choices"][0]["logprobs"]["content"][0];
    EXPECT_EQ(entry["bytes"], Json::array({0xC3})) << decoder;
    EXPECT_EQ(entry["top_logprobs"][0]["bytes"], Json::array({0xA9})) << decoder;

    AnswerHead completions = head_of(Endpoint::kCompletions);
    completions.logprobs = true;
    const Json whole =
        whole_answer(completions, {{.tokens = {event}, .finish = "length"}}, {}, tokenizer);
    const Json& logprobs = whole["choices"][0]["logprobs"];
    EXPECT_EQ(logprobs["tokens"][0], "bytes:\\xc3") << decoder;
    EXPECT_EQ(logprobs["top_logprobs"][0], Json({{"bytes:\\xc3", -2.0}, {"bytes:\\xa9", -1.0}}))
        << decoder;
  }
}

TEST(AnswerFormat, ATokenKeepsItsLogprobBesideOneOfTheSameText) {
  // Ids beyond the tokenizer's have no text.
  const TokenEvent event{.token = 200, .logprob = -2, .top = {{kA, -1}, {200, -2}, {201, -3}}};
  AnswerHead head = head_of(Endpoint::kCompletions);
  head.logprobs = true;
  const Json whole =
      whole_answer(head, {{.tokens = {event}, .finish = "length"}}, {}, character_tokenizer());
  EXPECT_EQ(whole["choices"][0]["logprobs"]["top_logprobs"][0],
            Json({{"", -2.0}, {"a", -1.0}, {"token_id:201", -3.0}}));
}

TEST(AnswerFormat, WritesWholeAnswersWithUsageAndTiming) {
  const text::Tokenizer tokenizer = character_tokenizer();
  const serve::RequestReport report{.prompt_tokens = 20,
                                    .cached_tokens = 16,
                                    .generated_tokens = 5,
                                    .drafted_tokens = 4,
                                    .accepted_tokens = 3,
                                    .preemptions = 1,
                                    .queue_seconds = 0.0015,
                                    .prefill_seconds = 0.02,
                                    .decode_seconds = 0.3};
  const Json chat =
      whole_answer(head_of(Endpoint::kChat),
                   {{.text = "hi", .finish = "stop"}, {.finish = "length"}}, report, tokenizer);
  EXPECT_EQ(chat["object"], "chat.completion");
  EXPECT_EQ(chat["choices"][0]["message"]["content"], "hi");
  EXPECT_EQ(chat["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(chat["choices"][1]["index"], 1);
  EXPECT_EQ(chat["choices"][1]["finish_reason"], "length");
  EXPECT_EQ(chat["usage"]["prompt_tokens"], 20);
  EXPECT_EQ(chat["usage"]["completion_tokens"], 5);
  EXPECT_EQ(chat["usage"]["prompt_tokens_details"]["cached_tokens"], 16);
  EXPECT_EQ(chat["usage"]["timing"]["queue_ms"], 1.5);
  EXPECT_EQ(chat["usage"]["timing"]["preemptions"], 1);
  EXPECT_EQ(chat["usage"]["timing"]["drafted_tokens"], 4);
  EXPECT_EQ(chat["usage"]["timing"]["accepted_tokens"], 3);
  EXPECT_EQ(timing_header(report),
            "queue_ms=1.500, prefill_ms=20.000, decode_ms=300.000, preemptions=1, "
            "cached_tokens=16, drafted_tokens=4, accepted_tokens=3");
}

TEST(AnswerFormat, AddsUpTokensAndTakesTheLongestTimes) {
  const serve::RequestReport merged = merge_reports(
      {{.prompt_tokens = 1, .generated_tokens = 2, .queue_seconds = 3, .decode_seconds = 1},
       {.prompt_tokens = 10, .generated_tokens = 20, .queue_seconds = 1, .decode_seconds = 2}});
  EXPECT_EQ(merged.prompt_tokens, 11);
  EXPECT_EQ(merged.generated_tokens, 22);
  EXPECT_EQ(merged.queue_seconds, 3);
  EXPECT_EQ(merged.decode_seconds, 2);
}

TEST(AnswerFormat, InvalidTextBecomesReplacementCharacters) {
  const std::string frame =
      piece_frame(head_of(Endpoint::kChat), 0, {.text = "\xff"}, 0, character_tokenizer());
  EXPECT_EQ(json_of(frame.substr(6))["choices"][0]["delta"]["content"], "\xEF\xBF\xBD");
}

TEST(AnswerFormat, TokensReadAsInTheMiddleOfAText) {
  const text::Tokenizer tokenizer = character_tokenizer();
  EXPECT_EQ(text::token_text(tokenizer, 3), " ");
  EXPECT_EQ(text::token_text(tokenizer, kA), "a");
  EXPECT_EQ(text::token_text(tokenizer, 1000), "");
}

}  // namespace
}  // namespace jige::api
