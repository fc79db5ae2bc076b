// Constrained answers as users meet them: the flags of generate, and the same from a server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "integration/serving.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

const std::string kColourSchema =
    R"({"type":"object","properties":{"colour":{"enum":["red","golden"]},"a":{"type":"array",
        "items":{"type":"boolean"},"maxItems":2}},"required":["colour","a"]})";

std::vector<std::string> generate_words(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"generate", TinyRun::get().model(), "--prompt",
                                    "Mia has",  "--max-new-tokens",     "60"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Outcome constrained(const std::vector<std::string>& more) {
  const Outcome outcome = run_jige(generate_words(more));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return outcome;
}

TEST(Constraint, GenerateKeepsToItsFlags) {
  const TestFolder folder;
  write_text(folder / "schema.json", kColourSchema);
  for (const std::string& schema : {kColourSchema, folder / "schema.json"}) {
    const JsonLines samples =
        constrained({"--json-schema", schema, "--json", "-n", "3", "--seed", "4"}).json_lines();
    ASSERT_EQ(samples.size(), 3u);
    for (const Json& sample : samples) {
      const auto answer = parse_json(sample["text"].get<std::string>(), "answer");
      ASSERT_TRUE(answer) << sample;
      EXPECT_TRUE((*answer)["colour"] == "red" || (*answer)["colour"] == "golden") << *answer;
      EXPECT_LE((*answer)["a"].size(), 2u);
      EXPECT_EQ(sample["finish"], "stop");
    }
  }
  const std::string choice = constrained({"--choice", "yes", "--choice", "no"}).out;
  EXPECT_TRUE(choice == "yes\n" || choice == "no\n") << choice;
  EXPECT_EQ(constrained({"--regex", "a{7}"}).out, "aaaaaaa\n");
  EXPECT_EQ(constrained({"--regex", "a{3}b{3}", "--stop", "ab"}).out, "aa\n");
  EXPECT_TRUE(constrained({"--json-object", "--chat"}).out.starts_with("{"));
}

TEST(Constraint, GuessesChangeNothing) {
  const auto sample = [](const std::string& speculate) {
    return constrained({"--regex", "( (red|golden) kite\\.){6}", "--json", "--logprobs", "2",
                        "--speculate", speculate, "--seed", "3"})
        .json();
  };
  const Json plain = sample("off");
  EXPECT_EQ(plain["finish"], "stop");
  EXPECT_FALSE(plain["logprobs"].empty());
  for (const char* speculate : {"auto", "8"}) {
    const Json other = sample(speculate);
    for (const char* part : {"text", "tokens", "logprobs", "finish"}) {
      EXPECT_EQ(other[part], plain[part]) << speculate << " " << part;
    }
  }
  EXPECT_GT(sample("8")["stats"]["drafted_tokens"].get<int64_t>(), 0);
}

TEST(Constraint, GenerateGivesWhatServeGives) {
  const Serving server({TinyRun::get().model(), "--threads", "1"});
  const Json schema = *parse_json(kColourSchema, "schema");
  const struct {
    std::vector<std::string> flags;
    Json fields;
  } cases[] = {{{"--json-schema", kColourSchema}, {{"guided_json", schema}}},
               {{"--regex", "[a-z ]{5,20}\\."}, {{"guided_regex", "[a-z ]{5,20}\\."}}},
               {{"--choice", "x y", "--choice", "z"}, {{"guided_choice", {"x y", "z"}}}},
               {{"--grammar", "root ::= [a-c]{4} root | \"!\""},
                {{"guided_grammar", "root ::= [a-c]{4} root | \"!\""}}},
               {{"--json-object"}, {{"response_format", {{"type", "json_object"}}}}}};
  for (const auto& [flags, fields] : cases) {
    Json body = {
        {"prompt", "Mia has"}, {"max_tokens", 60}, {"seed", 9}, {"temperature", 0.9}, {"top_p", 1}};
    body.update(fields);
    const auto answer = server.post("/v1/completions", dump_json(body));
    ASSERT_EQ(answer.status, 200) << answer.body;
    std::vector<std::string> more = flags;
    for (const char* word : {"--json", "--seed", "9", "--temperature", "0.9", "--top-p", "1"}) {
      more.emplace_back(word);
    }
    const Json choice = (*parse_json(answer.body, "answer"))["choices"][0];
    const Json sample = constrained(more).json();
    EXPECT_EQ(choice["text"], sample["text"]);
    EXPECT_EQ(choice["finish_reason"], sample["finish"]);
  }
}

TEST(Constraint, AForcedCallIsACallInEveryForm) {
  Json body = *parse_json(R"({"messages":[{"role":"user","content":"Mia"}],
      "max_tokens":90,"temperature":1,"tool_choice":"required","parallel_tool_calls":false,
      "tools":[{"type":"function","function":{"name":"paint","parameters":{"type":"object",
        "properties":{"colour":{"enum":["red","golden"]},"coats":{"enum":[1,2,12]}},
        "required":["colour","coats"]}}}]})",
                          "a request");
  for (const char* form : {"hermes", "mistral", "llama"}) {
    SCOPED_TRACE(form);
    const Serving server({TinyRun::get().model(), "--threads", "1", "--tool-calls", form});
    int ended = 0;
    for (const bool named : {false, true}) {
      if (named) {
        body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "paint"}}}};
      } else {
        body["tool_choice"] = "required";
      }
      for (int seed = 0; seed < 3; ++seed) {
        body["seed"] = seed;
        const auto answer = server.post("/v1/chat/completions", dump_json(body));
        ASSERT_EQ(answer.status, 200) << answer.body;
        const Json choice = (*parse_json(answer.body, "answer"))["choices"][0];
        if (choice["finish_reason"] == "length") continue;  // much white space, little context
        ++ended;
        EXPECT_EQ(choice["finish_reason"], named ? "stop" : "tool_calls") << choice;
        ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u) << choice;
        const Json& function = choice["message"]["tool_calls"][0]["function"];
        EXPECT_EQ(function["name"], "paint");
        const auto arguments = parse_json(function["arguments"].get<std::string>(), "arguments");
        ASSERT_TRUE(arguments) << choice;
        EXPECT_TRUE((*arguments)["colour"] == "red" || (*arguments)["colour"] == "golden");
        EXPECT_GE((*arguments)["coats"].get<int>(), 1);
        EXPECT_LE((*arguments)["coats"].get<int>(), 12);
      }
    }
    EXPECT_GT(ended, 0);
  }
}

TEST(Constraint, WrongFlagsAreNamedBeforeTheModelIsLoaded) {
  expect_error(run_jige(generate_words({"--json-object", "--choice", "a"})), 2,
               {"--json-object and --choice", "leave one out"});
  expect_error(run_jige(generate_words({"--json-schema", R"({"items":{"uniqueItems":true}})"})), 5,
               {"--json-schema: #/items/uniqueItems is not supported", "docs/serving.md"});
  expect_error(run_jige(generate_words({"--json-schema", "/nowhere.json"})), 3,
               {"--json-schema", "/nowhere.json"});
  expect_error(run_jige(generate_words({"--regex", "(a"})), 2, {"--regex: "});
}

}  // namespace
}  // namespace jige::integration
