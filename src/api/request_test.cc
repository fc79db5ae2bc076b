// Requests of both endpoints: what is read, and what is refused with which field's name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/messages_request.h"
#include "api/request_test_support.h"
#include "api/responses_request.h"
#include "base/rng.h"
#include "base/test_fuzz_rounds.h"

namespace jige::api {
namespace {

using testing::chat;
using testing::completion;
using ::testing::ElementsAre;
using testing::expect_refused;
using ::testing::HasSubstr;
using testing::json_of;
using testing::kHi;
using testing::kSeed;
using testing::Refusal;
using testing::test_model;

std::vector<int32_t> ids(const std::string& text) {
  return serve::testing::ids_of(testing::character_tokenizer(), text);
}

TEST(CompletionRequest, HasTheDefaultsOfTheApi) {
  const auto read = completion(R"("prompt":"abc")");
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->engine.size(), 1u);
  const serve::EngineRequest& request = read->engine[0];
  EXPECT_EQ(request.prompt, ids("abc"));
  EXPECT_EQ(request.tokens_max, 16);
  EXPECT_EQ(request.choice_count, 1);
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_EQ(request.sampling.top_p, 1);
  EXPECT_EQ(request.seed, kSeed);
  EXPECT_EQ(request.top_count, 0);
  EXPECT_TRUE(request.continues_text);
  EXPECT_FALSE(read->stream);
  EXPECT_FALSE(read->logprobs);
}

TEST(CompletionRequest, HoldsItsAdapterAsAChatDoes) {
  const ServedModel model = testing::with_leased_adapter(test_model());
  const auto text = prepare_completion(json_of(R"({"model":"poet","prompt":"a"})"), model, {}, 1);
  const auto chat =
      prepare_chat(json_of(R"({"model":"poet",)" + std::string(kHi) + "}"), model, {}, 1);
  for (const auto* read : {&text, &chat}) {
    ASSERT_TRUE(*read) << read->error().message;
    EXPECT_EQ((*read)->engine[0].adapter, 7);
    EXPECT_TRUE((*read)->engine[0].lease);
  }
}

TEST(CompletionRequest, ReadsEveryField) {
  const auto read = completion(R"(
      "model":"tiny","prompt":"abc","max_tokens":7,"temperature":0.5,"top_p":0.9,"top_k":5,
      "min_p":0.1,"presence_penalty":-1,"frequency_penalty":2,"repetition_penalty":1.5,"seed":-1,
      "stop":["x","yz"],"logit_bias":{"5":-100,"95":2.5},"logprobs":3,"stream":true,
      "stream_options":{"include_usage":true},"stop_token_ids":[7,8],"ignore_eos":true,
      "min_tokens":2,"n":3,"priority":4,"include_stop_str_in_output":true,"user":"u",
      "cache_salt":"s","echo":false,"suffix":null,"best_of":3,"unknown":{"a":[1]})");
  ASSERT_TRUE(read) << read.error().message;
  const serve::EngineRequest& request = read->engine[0];
  EXPECT_EQ(request.tokens_max, 7);
  EXPECT_EQ(request.tokens_min, 2);
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_p, 0.9);
  EXPECT_EQ(request.sampling.top_k, 5);
  EXPECT_EQ(request.sampling.min_p, 0.1);
  EXPECT_EQ(request.sampling.presence_penalty, -1);
  EXPECT_EQ(request.sampling.frequency_penalty, 2);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.5);
  ASSERT_EQ(request.sampling.logit_bias.size(), 2u);
  EXPECT_EQ(request.sampling.logit_bias[1].token, 95);
  EXPECT_EQ(request.sampling.logit_bias[1].bias, 2.5f);
  EXPECT_EQ(request.seed, UINT64_MAX);
  EXPECT_THAT(request.stop_strings, ElementsAre("x", "yz"));
  EXPECT_THAT(request.stop_ids, ElementsAre(7, 8));
  EXPECT_TRUE(request.ignore_eos);
  EXPECT_TRUE(request.include_stop_string);
  EXPECT_EQ(request.choice_count, 3);
  EXPECT_EQ(request.priority, -4) << "a lower number goes first";
  EXPECT_NE(request.tenant, 0u);
  EXPECT_NE(request.cache_salt, 0u);
  EXPECT_NE(request.cache_salt, request.tenant);
  EXPECT_EQ(request.top_count, 3);
  EXPECT_TRUE(read->stream);
  EXPECT_TRUE(read->include_usage);
  EXPECT_TRUE(read->logprobs);
}

TEST(CompletionRequest, TakesEveryKindOfPrompt) {
  const auto two = completion(R"("prompt":["ab","c"],"n":2)");
  ASSERT_TRUE(two) << two.error().message;
  ASSERT_EQ(two->engine.size(), 2u);
  EXPECT_EQ(two->engine[0].prompt, ids("ab"));
  EXPECT_EQ(two->engine[1].prompt, ids("c"));
  EXPECT_NE(two->engine[0].seed, two->engine[1].seed);
  const auto one = completion(R"("prompt":[5,6,7.0])");
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_THAT(one->engine[0].prompt, ElementsAre(5, 6, 7));
  const auto lists = completion(R"("prompt":[[5,6],[7],"a"])");
  ASSERT_TRUE(lists) << lists.error().message;
  ASSERT_EQ(lists->engine.size(), 3u);
  EXPECT_THAT(lists->engine[1].prompt, ElementsAre(7));
}

TEST(CompletionRequest, TakesNullsAsAbsentAndMinusOneAsNoTopK) {
  const auto read = completion(
      R"("prompt":"a","temperature":null,"stop":null,"logit_bias":null,"top_k":-1,"n":null)");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->engine[0].sampling.top_k, 0);
}

TEST(CompletionRequest, RefusesWhatIsWrongAndNamesTheField) {
  const std::string p = R"("prompt":"a",)";
  std::string long_prompt(kSeed * 4, 'a');
  std::string optional_letters;
  for (char letter = 'a'; letter <= 'z'; ++letter) optional_letters += {letter, '?'};
  const std::vector<Refusal> refusals = {
      {"", "prompt", "missing"},
      {R"("prompt":7)", "prompt", "must be a text"},
      {R"("prompt":{})", "prompt", "an object of 0"},
      {R"("prompt":"")", "prompt", "no tokens"},
      {R"("prompt":[])", "prompt", "1 to 64"},
      {R"("prompt":[[]])", "prompt", "must be a text"},
      {R"("prompt":[96])", "prompt", "from 0 to 95, found 96"},
      {R"("prompt":[-1])", "prompt", "from 0 to 95"},
      {R"("prompt":[1.5])", "prompt", "found 1.5"},
      {R"("prompt":[1,"a"])", "prompt", "found \"a\""},
      {R"("prompt":["a",7])", "prompt", "must be a text"},
      {R"("prompt":[1e300])", "prompt", "from 0 to 95"},
      {R"("prompt":")" + long_prompt + "\"", "prompt", "the context holds 128"},
      {p + R"("max_tokens":0)", "max_tokens", "from 1 to 2147483647, found 0"},
      {p + R"("max_tokens":-5)", "max_tokens", "found -5"},
      {p + R"("max_tokens":"5")", "max_tokens", "found \"5\""},
      {p + R"("max_tokens":1.5)", "max_tokens", "found 1.5"},
      {p + R"("max_tokens":99999999999999999999)", "max_tokens", "from 1"},
      {p + R"("max_tokens":1e300)", "max_tokens", "from 1"},
      {p + R"("temperature":2.5)", "temperature", "from 0 to 2, found 2.5"},
      {p + R"("temperature":-0.1)", "temperature", "from 0 to 2"},
      {p + R"("temperature":true)", "temperature", "found true"},
      {p + R"("top_p":0)", "top_p", "above 0 to 1"},
      {p + R"("top_p":1.01)", "top_p", "above 0 to 1"},
      {p + R"("top_k":-2)", "top_k", "from -1"},
      {p + R"("min_p":1)", "min_p", "from 0 to below 1"},
      {p + R"("presence_penalty":3)", "presence_penalty", "from -2 to 2"},
      {p + R"("frequency_penalty":-2.1)", "frequency_penalty", "from -2 to 2"},
      {p + R"("repetition_penalty":0)", "repetition_penalty", "above 0"},
      {p + R"("n":0)", "n", "from 1 to 16"},
      {p + R"("n":17)", "n", "from 1 to 16, found 17"},
      {p + R"("seed":1.5)", "seed", "64 bits"},
      {p + R"("seed":"a")", "seed", "64 bits"},
      {p + R"("stop":7)", "stop", "a text or a list"},
      {p + R"("stop":["a",7])", "stop", "a text or a list"},
      {p + R"("stop":[""])", "stop", "empty text"},
      {p + R"("stop":["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])",
       "stop", "at most 16"},
      {p + R"("stop":")" + std::string(1025, 'x') + "\"", "stop", "1024 bytes"},
      {p + R"("logit_bias":[])", "logit_bias", "must be an object"},
      {p + R"("logit_bias":{"96":1})", "logit_bias", "below 96"},
      {p + R"("logit_bias":{"5":1,"-1":1})", "logit_bias", R"(found "-1": 1)"},
      {p + R"("logit_bias":{"a":1})", "logit_bias", "below 96"},
      {p + R"("logit_bias":{"99999999999":1})", "logit_bias", "below 96"},
      {p + R"("logit_bias":{"5":101})", "logit_bias", "-100 to 100"},
      {p + R"("logit_bias":{"5":"x"})", "logit_bias", "-100 to 100"},
      {p + R"("logprobs":21)", "logprobs", "from 0 to 20"},
      {p + R"("logprobs":true)", "logprobs", "found true"},
      {p + R"("stream":"yes")", "stream", "true or false"},
      {p + R"("stream_options":{})", "stream_options", "only where stream is true"},
      {p + R"("stream":true,"stream_options":3)", "stream_options", "must be an object"},
      {p + R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage",
       "true or false"},
      {p + R"("stop_token_ids":[7,96])", "stop_token_ids",
       "stop_token_ids[1] must be a token id from 0 to 95, found 96"},
      {p + R"("stop_token_ids":5)", "stop_token_ids", "list"},
      {p + R"("ignore_eos":0)", "ignore_eos", "true or false"},
      {p + R"("min_tokens":-1)", "min_tokens", "from 0"},
      {p + R"("min_tokens":17)", "min_tokens", "at most max_tokens, 16"},
      {p + R"("priority":1e7)", "priority", "from -1000000 to 1000000"},
      {p + R"("user":5)", "user", "must be a text"},
      {p + R"("model":5)", "model", "must be a text"},
      {p + R"("suffix":"b")", "suffix", "not supported"},
      {p + R"("best_of":2)", "best_of", "not supported"},
      {p + R"("guided_json":{"type":"object","minProperties":1})", "guided_json",
       "#/minProperties is not supported"},
      {p + R"("guided_json":"{")", "guided_json", "not valid JSON"},
      {p + R"("guided_regex":"(a")", "guided_regex", "missing"},
      {p + R"("guided_choice":[])", "guided_choice", "list of 1"},
      {p + R"("guided_grammar":"root ::= a")", "guided_grammar", "\"a\" is not defined"},
      {p + R"("guided_grammar":5)", "guided_grammar", "must be a text"},
      {p + R"("guided_regex":"()" + optional_letters + R"(){150}")", "guided_regex",
       "can go on in so many ways"},
      {p + R"("guided_regex":"a","guided_choice":["b"])", "guided_choice", "cannot both"},
      {p + R"("guided_regex":"a","response_format":{"type":"json_object"})", "guided_regex",
       "cannot both"},
      {p + R"("structured_outputs":{"regex":5})", "structured_outputs.regex", "must be a text"},
      {p + R"("structured_outputs":{"regex":"a","json_object":true})", "structured_outputs.regex",
       "cannot both"},
      {p + R"("structured_outputs":{"grammar":"a"})", "structured_outputs.grammar", "\"::=\""},
      {p + R"("structured_outputs":{"lark":"a"})", "structured_outputs.lark", "only json"},
      {p + R"("structured_outputs":5)", "structured_outputs", "must be an object"},
      {p + R"("response_format":"json")", "response_format", "found \"json\""},
      {p + R"("response_format":{"type":"xml"})", "response_format", "found \"xml\""},
      {p + R"("use_beam_search":true)", "use_beam_search", "not supported"},
      {p + R"("skip_special_tokens":false)", "skip_special_tokens", "not supported"},
  };
  expect_refused(refusals, completion);
}

TEST(CompletionRequest, CountsPromptsTimesChoices) {
  std::string prompts = R"("prompt":["a")";
  for (int i = 1; i < 20; ++i) prompts += R"(,"a")";
  prompts += "]";
  EXPECT_TRUE(completion(prompts + R"(,"n":3)"));
  EXPECT_FALSE(completion(prompts + R"(,"n":4)"));
}

TEST(CompletionRequest, AnotherModelIsNotFound) {
  const auto read = completion(R"("prompt":"a","model":"gpt-4")");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().status, 404);
  EXPECT_EQ(read.error().code, "model_not_found");
}

TEST(CompletionRequest, HarmlessValuesOfUnservedFieldsPass) {
  EXPECT_TRUE(completion(R"("prompt":"a","echo":false,"suffix":"","prompt_logprobs":null,
      "guided_json":null,"structured_outputs":{"json_object":false,"regex":null},
      "bad_words":[],"skip_special_tokens":true,"best_of":1,
      "response_format":{"type":"text"})"));
}

TEST(CompletionRequest, ReadsWhatTheAnswerIsToBe) {
  const ServedModel model = test_model();
  const auto constraint_of = [&](const std::string& members) {
    const auto read =
        prepare_completion(json_of(R"({"prompt":"a",)" + members + "}"), model, {}, 1);
    if (!read) ADD_FAILURE() << read.error().message;
    return read ? read->engine[0].constraint : nullptr;
  };
  EXPECT_FALSE(constraint_of(R"("response_format":{"type":"text"})"));
  const auto schema = constraint_of(R"("guided_json":{"type":"object"})");
  ASSERT_TRUE(schema);
  EXPECT_EQ(constraint_of(R"("guided_json":"{\"type\": \"object\"}")"), schema) << "its text";
  EXPECT_EQ(constraint_of(R"("structured_outputs":{"json":{"type":"object"}})"), schema);
  EXPECT_EQ(constraint_of(R"("response_format":{"type":"json_schema","json_schema":{
      "name":"n","strict":true,"schema":{"type":"object"}}})"),
            schema);
  const auto regex = constraint_of(R"("guided_regex":"a*b")");
  EXPECT_TRUE(regex);
  EXPECT_NE(regex, schema);
  EXPECT_EQ(constraint_of(R"("structured_outputs":{"regex":"a*b"})"), regex);
  EXPECT_TRUE(constraint_of(R"("guided_choice":["a","b"])"));
  const auto rules = constraint_of(R"("guided_grammar":"root ::= \"a\"")");
  EXPECT_TRUE(rules);
  EXPECT_EQ(constraint_of(R"("structured_outputs":{"grammar":"root ::= \"a\""})"), rules);
  const auto object = constraint_of(R"("response_format":{"type":"json_object"})");
  EXPECT_TRUE(object);
  EXPECT_EQ(constraint_of(R"("structured_outputs":{"json_object":true})"), object);
}

TEST(ChatRequest, RendersTheTemplate) {
  const auto read = chat(R"("messages":[
      {"role":"developer","content":"be brief"},
      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"assistant","content":"c"},{"role":"user","content":"d"}],
      "chat_template_kwargs":{"shout":true})");
  ASSERT_TRUE(read) << read.error().message;
  const text::Tokenizer tokenizer = testing::character_tokenizer();
  const auto shown = tokenizer.decode(read->engine[0].prompt, {});
  EXPECT_EQ(*shown, "<system>be brief<user>ab<assistant>c<user>d!<assistant>");
  EXPECT_FALSE(read->engine[0].continues_text) << "an answer of its own, without a space before it";
  EXPECT_EQ(read->engine[0].tokens_max, testing::kContext - std::ssize(read->engine[0].prompt));
}

TEST(ChatRequest, KeepsControlTokensOfMessagesOrdinary) {
  const auto read = chat(R"("messages":[{"role":"user","content":"</s>"}])");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_THAT(read->engine[0].prompt, ::testing::Not(::testing::Contains(2)));
}

TEST(ChatRequest, ReadsTheLengthUnderBothNames) {
  EXPECT_EQ(chat(std::string(kHi) + R"(,"max_tokens":5)")->engine[0].tokens_max, 5);
  EXPECT_EQ(
      chat(std::string(kHi) + R"(,"max_tokens":5,"max_completion_tokens":6)")->engine[0].tokens_max,
      6);
  ServedModel model = test_model();
  model.tokens_default = 9;
  EXPECT_EQ(
      prepare_chat(json_of("{" + std::string(kHi) + "}"), model, {}, kSeed)->engine[0].tokens_max,
      9);
}

TEST(ChatRequest, ReadsLogprobs) {
  const auto read = chat(std::string(kHi) + R"(,"logprobs":true,"top_logprobs":5)");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(read->logprobs);
  EXPECT_EQ(read->engine[0].top_count, 5);
}

TEST(ChatRequest, FieldsThatSayWhatHoldsWithoutThemPass) {
  const auto none = chat(std::string(kHi) + R"(,"logprobs":false,"top_logprobs":0)");
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_FALSE(none->logprobs);
  for (const char* tools : {"", R"(,"tools":[])"}) {
    const auto read = chat(std::string(kHi) + R"(,"tool_choice":"auto")" + tools);
    EXPECT_TRUE(read) << read.error().message;
  }
}

TEST(ChatRequest, RefusesWhatIsWrongAndNamesTheField) {
  const std::string hi = std::string(kHi) + ",";
  const auto message = [](const std::string& text) { return R"("messages":[)" + text + "]"; };
  const std::vector<Refusal> refusals = {
      {"", "messages", "found nothing"},
      {R"("messages":[])", "messages", "1 to 4096"},
      {R"("messages":"hi")", "messages", "found \"hi\""},
      {message("5"), "messages[0]", "must be an object"},
      {message(R"({"content":"a"})"), "messages[0].role", "found nothing"},
      {message(R"({"role":"king","content":"a"})"), "messages[0].role", "\"king\""},
      {message(R"({"role":5,"content":"a"})"), "messages[0].role", "found 5"},
      {message(R"({"role":"tool","content":"a"})"), "messages[0].role", "has no tools"},
      {message(R"({"role":"function","content":"a"})"), "messages[0].role", "not supported"},
      {message(R"({"role":"user"})"), "messages[0].content", "found nothing"},
      {message(R"({"role":"user","content":5})"), "messages[0].content", "found 5"},
      {message(R"({"role":"user","content":null})"), "messages[0].content", "found null"},
      {message(R"({"role":"user","content":["a"]})"), "messages[0].content[0]", "with a type"},
      {message(R"({"role":"user","content":"a"},{"role":"user","content":[{"type":"text"}]})"),
       "messages[1].content[0].text", "must be a text"},
      {message(R"({"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]})"),
       "messages[0].content[0].type", "the model \"tiny\" reads text alone"},
      {message(R"({"role":"assistant","content":"","tool_calls":[{"id":"1"}]})"),
       "messages[0].tool_calls", "has no tools"},
      {message(R"({"role":"user","content":")" + std::string(200, 'a') + "\"}"), "messages",
       "the context holds 128"},
      {hi + R"("tools":[{"type":"function","function":{"name":"f"}}])", "tools", "has no tools"},
      {hi + R"("tool_choice":"required")", "tool_choice", "only where tools are given"},
      {hi + R"("functions":[{}])", "functions", "not supported"},
      {hi + R"("response_format":{"type":"json_schema","json_schema":{}})",
       "response_format.json_schema.schema", "must be a JSON schema"},
      {hi + R"("modalities":["text","audio"])", "modalities", "only"},
      {hi + R"("audio":{"voice":"x"})", "audio", "not supported"},
      {hi + R"("top_logprobs":3)", "top_logprobs", "only where logprobs is true"},
      {hi + R"("logprobs":3)", "logprobs", "true or false"},
      {hi + R"("logprobs":true,"top_logprobs":21)", "top_logprobs", "from 0 to 20"},
      {hi + R"("chat_template_kwargs":5)", "chat_template_kwargs", "must be an object"},
      {hi + R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs", "must not hold"},
      {hi + R"("chat_template":"x")", "chat_template", "not supported"},
      {hi + R"("max_completion_tokens":0)", "max_completion_tokens", "from 1"},
      {hi + R"("min_tokens":200)", "min_tokens", "at most"},
      {hi + R"("temperature":3)", "temperature", "from 0 to 2"},
  };
  expect_refused(refusals, chat);
}

TEST(ConstraintFields, WhatOthersLeaveNoMemoryForMayComeAgain) {
  ServedModel model = test_model();
  const auto one = model.constraints->compile({grammar::ConstraintSource::Kind::kRegex, "a{1000}"});
  ASSERT_TRUE(one);
  const size_t room = model.constraints->memory().bytes_taken() * 3 / 2;
  model.constraints = std::make_shared<grammar::ConstraintCompiler>(model.tokenizer, room);
  const auto wanted = [&](const std::string& regex) {
    return prepare_completion(Json{{"prompt", "a"}, {"guided_regex", regex}}, model, {}, kSeed);
  };
  const auto first = wanted("a{1000}");
  ASSERT_TRUE(first) << first.error().message;
  const auto second = wanted("b{1000}");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().status, 503);
  EXPECT_GE(second.error().retry_after_s, 0);
  EXPECT_THAT(second.error().message, HasSubstr("constraints of other answers"));
  const auto large = wanted("a{9000}");
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().status, 400);
  EXPECT_EQ(large.error().param, "guided_regex");
}

TEST(CompletionRequest, TooLongAPromptHearsOfALongerContextWhereTheModelHasOne) {
  ServedModel model = test_model();
  const Json body = Json{{"prompt", std::string(testing::kContext + 1, 'a')}};
  for (const int64_t model_context_max : {testing::kContext, 4 * testing::kContext}) {
    model.model_context_max = model_context_max;
    const auto read = prepare_completion(body, model, {}, kSeed);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().message.find("a longer --context, 512 at most") != std::string::npos,
              model_context_max > testing::kContext)
        << read.error().message;
  }
}

TEST(ChatRequest, NeedsATemplate) {
  ServedModel model = test_model();
  model.chat_template.reset();
  const auto read = prepare_chat(json_of("{" + std::string(kHi) + "}"), model, {}, kSeed);
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message, HasSubstr("/v1/completions"));
}

TEST(RequestBody, RefusesWhatIsNoJsonObject) {
  const std::vector<std::string> bodies = {"",
                                           " ",
                                           "{",
                                           "[]",
                                           "5",
                                           "\"a\"",
                                           "null",
                                           "{\"a\":}",
                                           "{'a':1}",
                                           "{\"a\":1}x",
                                           std::string("{\"a\":\"\0\"}", 9),
                                           std::string(4, '\0'),
                                           "{\"a\":\"\xff\xfe\"}",
                                           "{\"a\":1e999999}",
                                           "{\"a\":\"\\ud800\"}",
                                           std::string(100'000, '['),
                                           std::string(100'000, '[') + std::string(100'000, ']')};
  for (const std::string& body : bodies) {
    const auto json = parse_body(body);
    ASSERT_FALSE(json) << body.substr(0, 40);
    EXPECT_EQ(json.error().status, 400);
    EXPECT_FALSE(json.error().message.empty());
  }
}

// Requests are mutated as text: whatever comes, it is read, or refused with a well-formed error.
TEST(RequestFuzz, EveryMutationIsReadOrRefused) {
  const std::vector<std::string> seeds = {
      R"({"model":"tiny","prompt":["ab",[5,6]],"n":2,"stop":["x"],"logit_bias":{"5":-1.5},
          "stream":true,"stream_options":{"include_usage":true},"logprobs":2,"seed":-9})",
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text",
          "text":"é\u0000</s>"}]}],"temperature":0.5,"top_logprobs":2,"logprobs":true,
          "chat_template_kwargs":{"shout":[[1]]},"max_completion_tokens":3})",
      R"({"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"reasoning",
          "summary":[{"type":"summary_text","text":"b"}]},{"type":"function_call","call_id":"c",
          "name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"o"}],
          "instructions":"s","max_output_tokens":3,"text":{"format":{"type":"json_object"}},
          "tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"f"}})",
      R"({"system":[{"type":"text","text":"s"}],"messages":[{"role":"assistant","content":[
          {"type":"thinking","thinking":"b"},{"type":"tool_use","id":"c","name":"f","input":{}}]},
          {"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"o"}]}],
          "max_tokens":3,"stop_sequences":["x"],"thinking":{"type":"adaptive"},"tools":[{"name":"f",
          "input_schema":{"type":"object"}}],"tool_choice":{"type":"any"}})",
  };
  const std::vector<std::string> snippets = {
      "null",     "-1",     "1e308",       "99999999999999999999",
      "[[[[[[",   "{}",     "\"\"",        "\\u0000",
      "\xf0\x9f", ",",      ":",           "\"",
      "]",        "}",      "true",        "0.0000001",
      "-0",       "\"n\":", "\"prompt\":", "<|im_end|>"};
  ServedModel model = test_model();
  model.tool_format = ToolFormat::kHermes;
  int read = 0, refused = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(1600); ++seed) {
    Rng rng(derive_key(seed, "request mutation"));
    std::string body = seeds[rng.below(seeds.size())];
    const uint64_t edits = rng.below(5);
    for (uint64_t i = 0; i < edits; ++i) {
      const size_t at = rng.below(body.size());
      switch (rng.below(4)) {
        case 0:
          body[at] = static_cast<char>(rng.below(256));
          break;
        case 1:
          body.erase(at, 1 + rng.below(6));
          break;
        case 2:
          body.insert(at, snippets[rng.below(snippets.size())]);
          break;
        default:
          body.replace(at, 1 + rng.below(4), snippets[rng.below(snippets.size())]);
      }
      if (body.empty()) body = "x";
    }
    const auto json = parse_body(body);
    if (!json) {
      EXPECT_TRUE(json_of(dump_json(error_json(json.error()))).contains("error"));
      ++refused;
      continue;
    }
    for (const auto prepare :
         {prepare_completion, prepare_chat, prepare_responses, prepare_messages}) {
      const auto prepared = prepare(*json, model, {}, seed);
      if (prepared) {
        ++read;
        ASSERT_FALSE(prepared->engine.empty());
        for (const serve::EngineRequest& request : prepared->engine) {
          EXPECT_FALSE(request.prompt.empty());
          EXPECT_LT(std::ssize(request.prompt), testing::kContext);
          EXPECT_TRUE(ops::validate(request.sampling));
        }
      } else {
        ++refused;
        EXPECT_TRUE(prepared.error().status == 400 || prepared.error().status == 404);
        EXPECT_FALSE(prepared.error().message.empty());
        json_of(dump_json(error_json(prepared.error())));
      }
    }
  }
  EXPECT_GT(read, 200);
  EXPECT_GT(refused, 800);
}

}  // namespace
}  // namespace jige::api
