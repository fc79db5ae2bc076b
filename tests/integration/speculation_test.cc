// --speculate as users meet it: the same answers from every command, and what is told about it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "integration/serving.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

// A text that repeats itself.
const std::string kSong =
    "Mia has a red kite. Tom has a golden bell. Mia has a red kite. Tom has a golden bell. Mia has";

// A model of a fixture, with a token for each of the characters that it has room for.
std::string with_recurrent_layers(const TestFolder& folder) {
  std::string made = folder / "recurrent";
  std::filesystem::copy(JIGE_SOURCE_DIR "/tests/fixtures/model/lfm2", made);
  Json vocab{{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}, {"Ġ", 3}};
  for (char c = '!'; c <= '|'; ++c) vocab[std::string(1, c)] = c - '!' + 4;
  const Json parts{{"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  Json splits = parts, joins = parts;
  splits["type"] = joins["type"] = "ByteLevel";
  write_text(
      made + "/tokenizer.json",
      dump_json(Json{{"version", "1.0"},
                     {"added_tokens", Json::array()},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", splits},
                     {"post_processor", nullptr},
                     {"decoder", joins},
                     {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}}));
  return made;
}

Json generated(const std::string& speculate, const std::vector<std::string>& more) {
  std::vector<std::string> words = {"generate", TinyRun::get().model(), "--prompt",    kSong,
                                    "--json",   "--max-new-tokens",     "40",          "--logprobs",
                                    "2",        "--ignore-eos",         "--speculate", speculate};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome outcome = run_jige(words);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return outcome.json();
}

TEST(Speculation, GenerateTellsTheSameWithAndWithout) {
  int64_t drafted = 0;
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--temperature", "0"},
        {"--temperature", "0.7", "--seed", "5", "--repetition-penalty", "1.1"},
        {"--temperature", "0", "--quantize", "q4", "--stop", "bell"}}) {
    const Json plain = generated("off", more);
    EXPECT_EQ(plain["stats"]["drafted_tokens"], 0);
    for (const char* speculate : {"auto", "1", "4", "64"}) {
      const Json json = generated(speculate, more);
      EXPECT_EQ(json["text"], plain["text"]) << speculate;
      EXPECT_EQ(json["tokens"], plain["tokens"]) << speculate;
      EXPECT_EQ(json["logprobs"], plain["logprobs"]) << speculate;
      EXPECT_EQ(json["finish"], plain["finish"]) << speculate;
      EXPECT_LE(json["stats"]["accepted_tokens"], json["stats"]["drafted_tokens"]);
    }
    drafted += generated("64", more)["stats"]["drafted_tokens"].get<int64_t>();
  }
  EXPECT_GT(drafted, 0);
}

TEST(Speculation, WhatARegexForcesIsGuessed) {
  const std::vector<std::string> more = {
      "--temperature", "0.8",
      "--seed",        "2",
      "--regex",       "(red|blue) is the colour of [a-z]{2,6}, she said"};
  const Json plain = generated("off", more);
  const Json json = generated("6", more);
  EXPECT_EQ(json["tokens"], plain["tokens"]);
  EXPECT_EQ(json["logprobs"], plain["logprobs"]);
  EXPECT_GT(json["stats"]["accepted_tokens"], 4);
}

TEST(Speculation, ServeTellsTheSameAndCountsIt) {
  const Json body = {{"prompt", kSong}, {"max_tokens", 40}, {"temperature", 0.6}, {"seed", 3},
                     {"logprobs", 2},   {"n", 2},           {"ignore_eos", true}};
  Json answers[2];
  int i = 0;
  for (const char* speculate : {"off", "6"}) {
    Serving server({TinyRun::get().model(), "--threads", "1", "--speculate", speculate});
    const auto answer = server.post("/v1/completions", dump_json(body));
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Result<Json> json = parse_json(answer.body, "an answer");
    ASSERT_TRUE(json);
    answers[i++] = (*json)["choices"];
    const bool drafts = (*json)["usage"]["timing"]["drafted_tokens"].get<int64_t>() > 0;
    EXPECT_EQ(drafts, speculate == std::string("6"));
    const std::string metrics = server.get("/metrics").body;
    EXPECT_THAT(metrics, HasSubstr("\njige:spec_decode_num_draft_tokens_total{"));
    EXPECT_THAT(metrics, HasSubstr("\njige:spec_decode_num_accepted_tokens_total{"));
  }
  EXPECT_EQ(answers[0], answers[1]);
}

TEST(Speculation, WrongValuesAreNamed) {
  for (const char* value : {"yes", "0", "65", "-1", "4x"}) {
    for (const char* command : {"generate", "chat", "serve"}) {
      expect_error(run_jige({command, TinyRun::get().model(), "--speculate", value}, "x"), 2,
                   {"--speculate", value, "auto", "off", "1..64"});
    }
  }
}

// What a server says when it is ready.
Json ready_event(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {TinyRun::get().model(), "--json"});
  const JsonLines events = serve_and_stop(arguments).json_lines();
  EXPECT_EQ(events.size(), 3u);
  return events.size() > 1 ? events[1] : Json();
}

TEST(Speculation, DraftsCountInTheMemoryOfAServer) {
  const Json without = ready_event({"--kv-tokens", "960", "--speculate", "off"});
  const Json with = ready_event({"--kv-tokens", "960", "--speculate", "8"});
  EXPECT_EQ(without["drafts_bytes"], 0);
  EXPECT_GT(with["drafts_bytes"], 0);
  const auto bytes = with["memory_bytes"].get<int64_t>();
  EXPECT_EQ(bytes, without["memory_bytes"].get<int64_t>() + with["drafts_bytes"].get<int64_t>());
  const auto limited = [&](int64_t limit) {
    return std::vector<std::string>{
        "--kv-tokens", "960", "--speculate", "8", "--memory-limit", std::to_string(limit)};
  };
  EXPECT_EQ(ready_event(limited(bytes))["memory_bytes"], bytes);
  std::vector<std::string> words = limited(bytes - 1);
  words.insert(words.begin(), {"serve", TinyRun::get().model(), "--port", "0"});
  expect_error(run_jige(words), 6, {"--memory-limit", "--speculate off", "--constraint-memory"});
}

// The limit that is shown is the user's, and what of it is left is not taken for it.
TEST(DraftModel, ALimitThatHoldsTheModelAloneIsNamed) {
  const std::string model = TinyRun::get().model();
  const Json run = run_jige({"inspect", model, "--json"}).json()["memory"]["run"];
  // Half of what the same model takes once more.
  const std::string limit = std::to_string(run["total_bytes"].get<int64_t>() * 3 / 2);
  std::vector<std::string> words = {"generate",         model, "--prompt",       "a",
                                    "--max-new-tokens", "1",   "--memory-limit", limit};
  EXPECT_EQ(run_jige(words).exit_code, 0);
  words.insert(words.end(), {"--draft-model", model});
  expect_error(run_jige(words), 6, {"--draft-model, in what the model leaves of --memory-limit "});
}

// The model itself guesses for itself: a greedy answer is guessed rightly where it repeats nothing.
TEST(DraftModel, EveryCommandTellsTheSameAndAcceptsMore) {
  const std::string model = TinyRun::get().model();
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--temperature", "0"}, {"--temperature", "0.7", "--seed", "5"}}) {
    const Json plain = generated("off", more);
    std::vector<std::string> with = more;
    with.insert(with.end(), {"--draft-model", model});
    for (const char* speculate : {"auto", "3"}) {
      const Json json = generated(speculate, with);
      EXPECT_EQ(json["tokens"], plain["tokens"]) << speculate;
      EXPECT_EQ(json["logprobs"], plain["logprobs"]) << speculate;
    }
    EXPECT_GT(generated("3", with)["stats"]["accepted_tokens"],
              generated("3", more)["stats"]["accepted_tokens"]);
  }
  const Outcome chat = run_jige({"chat", model, "--draft-model", model, "--speculate", "2",
                                 "--temperature", "0", "--max-new-tokens", "8", "--json"},
                                "What is red?\nAnd blue?\n");
  EXPECT_EQ(chat.exit_code, 0) << chat.err;
  ASSERT_EQ(chat.json_lines().size(), 2u);
  const Outcome bench = run_jige({"bench", "speculation", "--model", model, "--draft-model", model,
                                  "--speculate", "2", "--rounds", "1", "--prompt-tokens", "40",
                                  "--new-tokens", "12", "--users", "3", "--json"});
  EXPECT_EQ(bench.exit_code, 0) << bench.err;
  expect_error(run_jige({"bench", "speculation", "--random", "tiny", "--draft-model", model}), 2,
               {"--draft-model", "--model"});
}

// Empty: there is none.
std::string known_tokens_line(const Serving& server) {
  const std::string metrics = server.get("/metrics").body;
  const size_t known = metrics.find("\njige:draft_model_known_tokens_total{");
  if (known == std::string::npos) return {};
  return metrics.substr(known + 1, metrics.find('\n', known + 1) - known - 1);
}

TEST(DraftModel, ServeTellsTheSameAndCountsItsMemory) {
  const std::string model = TinyRun::get().model();
  const Json body = {{"prompt", "Tom has"}, {"max_tokens", 30}, {"temperature", 0},
                     {"logprobs", 2},       {"n", 2},           {"ignore_eos", true}};
  const Json story = {{"prompt", "Under an old tree Tom met his friend, with seven red apples."},
                      {"max_tokens", 8},
                      {"temperature", 0},
                      {"ignore_eos", true}};
  Json answers[2];
  Json timing[2];
  for (const int with : {0, 1}) {
    std::vector<std::string> words = {model, "--threads", "1", "--speculate", "4"};
    if (with == 1) words.insert(words.end(), {"--draft-model", model});
    Serving server(words);
    const auto answer = server.post("/v1/completions", dump_json(body));
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Result<Json> json = parse_json(answer.body, "an answer");
    ASSERT_TRUE(json);
    answers[with] = (*json)["choices"];
    timing[with] = (*json)["usage"]["timing"];
    // The likeliest answers to a text without repetition, so that the model guesses each time; of
    // the second it knows the beginning. The engine tells of a step behind the answer that it ends.
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(server.post("/v1/completions", dump_json(story)).status, 200);
    }
    std::string line = known_tokens_line(server);
    const StopWatch watch;
    while (with == 1 && line.ends_with("} 0") && watch.seconds() < 10) {
      line = known_tokens_line(server);
    }
    ASSERT_FALSE(line.empty());
    EXPECT_EQ(line.ends_with("} 0"), with == 0) << line;
  }
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_GT(timing[1]["accepted_tokens"], timing[0]["accepted_tokens"]);

  const Json without = ready_event({"--kv-tokens", "960"});
  const Json with = ready_event({"--kv-tokens", "960", "--draft-model", model});
  EXPECT_EQ(without["draft_model_bytes"], 0);
  EXPECT_GT(with["draft_model_bytes"], with["weights_bytes"]);
  const auto bytes = with["memory_bytes"].get<int64_t>();
  EXPECT_EQ(bytes,
            without["memory_bytes"].get<int64_t>() + with["draft_model_bytes"].get<int64_t>());
  // A limit is shared by the caches of both.
  const Json limited =
      ready_event({"--memory-limit", std::to_string(bytes), "--draft-model", model});
  EXPECT_LE(limited["memory_bytes"], bytes);
  EXPECT_GE(limited["kv_tokens"], 960);
}

TEST(DraftModel, WhatCannotGuessIsRefused) {
  const std::string model = TinyRun::get().model();
  const TestFolder folder;
  const std::string other = TinyRun::get().copy_model(folder);
  Json tokenizer = parse_json(read_text(other + "/tokenizer.json"), "a tokenizer").value();
  Json& vocabulary = tokenizer["model"]["vocab"];
  const std::string first = vocabulary.begin().key();
  const std::string last = std::prev(vocabulary.end()).key();
  std::swap(vocabulary[first], vocabulary[last]);
  write_text(other + "/tokenizer.json", dump_json(tokenizer));
  for (const char* command : {"generate", "chat", "serve"}) {
    expect_error(run_jige({command, model, "--draft-model", other}, "x"), 2,
                 {"--draft-model " + other, "vocabularies", "token "});
    expect_error(run_jige({command, model, "--draft-model", model, "--speculate", "off"}, "x"), 2,
                 {"--draft-model", "--speculate off"});
    expect_error(run_jige({command, model, "--draft-model", folder / "none"}, "x"), 3,
                 {folder / "none"});
  }
  expect_error(run_jige({"serve", model, "--embeddings", "--draft-model", model}), 2,
               {"--draft-model", "vectors"});
  const std::string recurrent = with_recurrent_layers(folder);
  std::filesystem::copy_file(model + "/tokenizer.json", recurrent + "/tokenizer.json",
                             std::filesystem::copy_options::overwrite_existing);
  expect_error(run_jige({"generate", model, "--draft-model", recurrent}, "x"), 5,
               {recurrent, "recurrent layers"});
}

TEST(Speculation, RecurrentLayersAreGuessedFor) {
  const TestFolder folder;
  const std::string model = with_recurrent_layers(folder);
  const auto answer = [&](const std::string& speculate) {
    const Outcome outcome =
        run_jige({"generate", model, "--prompt", kSong, "--json", "--max-new-tokens", "60",
                  "--temperature", "0", "--ignore-eos", "--speculate", speculate});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.json();
  };
  const Json plain = answer("off");
  for (const char* const speculate : {"1", "5"}) {
    const Json guessed = answer(speculate);
    EXPECT_EQ(guessed["tokens"], plain["tokens"]);
    EXPECT_GT(guessed["stats"]["drafted_tokens"], 0);
  }
  const Outcome bench =
      run_jige({"bench", "speculation", "--model", model, "--rounds", "1", "--prompt-tokens", "20",
                "--new-tokens", "12", "--users", "3", "--json"});
  ASSERT_EQ(bench.exit_code, 0) << bench.err;
  const JsonLines lines = bench.json_lines();
  EXPECT_EQ(lines[12]["case"], "repeats");
  EXPECT_LT(lines[12]["steps"], 12);
  // Where other machines hold layers it is said that they are not.
  for (const char* const command : {"generate", "serve"}) {
    expect_error(run_jige({command, model, "--speculate", "3", "--layers-on", "127.0.0.1:1"}, "x"),
                 5, {model, "recurrent layers", "--layers-on", "--speculate 3"});
  }
}

TEST(Speculation, BenchComparesWithAndWithout) {
  const Outcome outcome =
      run_jige({"bench", "speculation", "--random", "tiny", "--rounds", "1", "--prompt-tokens",
                "40", "--new-tokens", "12", "--users", "3", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const JsonLines lines = outcome.json_lines();
  ASSERT_EQ(lines.size(), 1u + 10 + 7 * 2) << "head, counts of rows, cases without and with";
  EXPECT_EQ(lines[11]["way"], "without");
  EXPECT_EQ(lines[11]["steps"], 12);
  EXPECT_EQ(lines[12]["way"], "with");
  EXPECT_EQ(lines[12]["case"], "repeats");
  EXPECT_GT(lines[12]["ratio"]["median"], 0);
  EXPECT_LT(lines[12]["steps"], 12);
  EXPECT_GT(lines[12]["guesses"]["copied"]["right"], 0);
  EXPECT_EQ(lines[12]["guesses"]["model"]["guessed"], 0);
  expect_error(run_jige({"bench", "speculation", "--random", "tiny", "--speculate", "off"}), 2,
               {"--speculate off"});
  expect_error(run_jige({"bench", "speculation", "--random", "tiny", "--texts"}), 2,
               {"--texts", "--model"});
}

TEST(Speculation, BenchFitsIntoTheContextOfAModel) {
  const std::vector<std::string> arguments = {
      "bench", "speculation", "--model", TinyRun::get().model(), "--rounds", "1", "--users", "1"};
  const Outcome outcome = run_jige(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, testing::HasSubstr("holds 96 tokens: prompts have 48, answers 47"));
  const TestFolder folder;
  std::string words;
  for (int i = 0; i < 200; ++i) words += "many words ";
  write_text(folder / "long.txt", words);
  std::vector<std::string> read = arguments;
  read.insert(read.end(), {"--file", folder / "long.txt", "--json"});
  const Outcome refused = run_jige(read);
  expect_error(refused, 2, {folder / "long.txt: has ", "the context of 96"});
  EXPECT_EQ(refused.json_lines().size(), 1u) << "before anything is measured";
  std::vector<std::string> texts = arguments;
  texts.push_back("--texts");
  expect_error(run_jige(texts), 2, {"the prompt has ", "the context holds 96"});
  std::vector<std::string> asked = arguments;
  asked.insert(asked.end(), {"--new-tokens", "70"});
  expect_error(run_jige(asked), 2, {"--prompt-tokens 256 and --new-tokens 70", "holds 96"});
}

}  // namespace
}  // namespace jige::integration
