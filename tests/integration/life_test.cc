// The life of a model through the binary: corpus, training, folder, and everything that uses it.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Life, TrainingTellsEveryStepAndLearns) {
  const JsonLines records = TinyRun::get().training().json_lines();
  std::vector<double> losses;
  int evals = 0;
  for (const Json& record : records) {
    if (record["kind"] == "step") losses.push_back(record["loss"].get<double>());
    evals += record["kind"] == "eval";
  }
  ASSERT_EQ(losses.size(), 30u);
  EXPECT_EQ(evals, 3);
  EXPECT_NEAR(losses.front(), std::log(320.0), 0.4);
  EXPECT_LT(losses.back(), losses.front() - 0.8);
  ASSERT_FALSE(records.empty());
  EXPECT_EQ(records.back()["kind"], "end");
  EXPECT_EQ(records.back()["steps"], 30);
}

TEST(Life, TrainingTakesTheMemoryItPredicts) {
  const Json end = TinyRun::get().training().json_lines().back();
  const Json& memory = end["memory"];
  EXPECT_EQ(memory["arena_peak_bytes"], memory["arena_predicted_bytes"]);
}

TEST(Life, TheModelIsAnOrdinaryFolder) {
  const std::vector<std::string> names = list_tree(TinyRun::get().model());
  EXPECT_THAT(names, ::testing::IsSupersetOf({"config.json", "model.safetensors", "tokenizer.json",
                                              "tokenizer_config.json", "generation_config.json"}));
}

TEST(Life, TrainingAgainFindsNothingToDo) {
  std::vector<std::string> arguments = tiny_train_arguments(TinyRun::get().corpus(), 30);
  arguments.insert(arguments.end(), {"--out", TinyRun::get().run()});
  const Outcome again = run_jige(arguments);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("nothing was left to do"));
}

TEST(Life, AnotherRunMayNotContinueUnderOtherOptions) {
  std::vector<std::string> arguments = tiny_train_arguments(TinyRun::get().corpus(), 30);
  arguments.insert(arguments.end(), {"--weight-decay", "0.3", "--out", TinyRun::get().run()});
  const Outcome other = run_jige(arguments);
  EXPECT_EQ(other.exit_code, 2) << other.err;
  EXPECT_THAT(other.err, HasSubstr("weight_decay"));
  EXPECT_THAT(other.err, HasSubstr("the old value of --weight-decay"));
}

TEST(Life, InspectShowsPartsAndSums) {
  const Outcome text = run_jige({"inspect", TinyRun::get().run()});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("llama"));
  EXPECT_THAT(text.out, HasSubstr("AdamW moments"));
  const Json json = run_jige({"inspect", TinyRun::get().model(), "--json", "--tensors"}).json();
  EXPECT_EQ(json["family"], "llama");
  EXPECT_EQ(json["parameters"], json["weights"]["parameters"]);
  EXPECT_EQ(json["tokenizer"]["chat_template"], true);
  int64_t sum = 0;
  for (const auto& [name, bytes] : json["memory"]["train"]["parts"].items()) {
    sum += bytes.get<int64_t>();
  }
  EXPECT_EQ(sum, json["memory"]["train"]["total_bytes"].get<int64_t>());
}

TEST(Life, InspectPredictsWhatTrainingTook) {
  const Json end = TinyRun::get().training().json_lines().back();
  const Json json = run_jige({"inspect", TinyRun::get().model(), "--micro-batch-tokens", "192",
                              "--context", "96", "--threads", "2", "--json"})
                        .json();
  // Which knows of no data.
  EXPECT_EQ(json["memory"]["train"]["total_bytes"].get<int64_t>() +
                end["memory"]["index_bytes"].get<int64_t>(),
            end["memory"]["process_predicted_bytes"].get<int64_t>());
}

TEST(Life, MomentsOfEightBitsTakeWhatInspectPredictsAndGoOnAsTheyBegan) {
  const TestFolder folder;
  const auto train = [&](const std::vector<std::string>& words, const std::string& out) {
    std::vector<std::string> arguments = tiny_train_arguments(TinyRun::get().corpus(), 6);
    arguments.insert(arguments.end(), {"--threads", "2", "--json", "--out", folder / out});
    arguments.insert(arguments.end(), words.begin(), words.end());
    return run_jige(arguments);
  };
  const auto inspected = [](const char* moments) {
    return run_jige({"inspect", TinyRun::get().model(), "--micro-batch-tokens", "192", "--context",
                     "96", "--threads", "2", "--moments", moments, "--json"})
        .json()["memory"]["train"];
  };
  const Outcome run = train({"--moments", "q8"}, "run");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json memory = run.json_lines().back()["memory"];
  EXPECT_EQ(memory["arena_peak_bytes"], memory["arena_predicted_bytes"]);
  const Json narrow = inspected("q8");
  EXPECT_EQ(narrow["total_bytes"].get<int64_t>() + memory["index_bytes"].get<int64_t>(),
            memory["process_predicted_bytes"].get<int64_t>());
  EXPECT_LT(narrow["parts"]["AdamW moments, q8"].get<int64_t>() * 3,
            inspected("f32")["parts"]["AdamW moments"].get<int64_t>());
  const int64_t predicted = memory["process_predicted_bytes"];
  expect_error(
      train({"--moments", "q8", "--memory-limit", std::to_string(predicted - 1)}, "refused"), 6,
      {"training needs", "the limit is"});
  expect_error(train({"--memory-limit", std::to_string(predicted)}, "refused"), 6,
               {"or --moments q8"});
  expect_error(train({}, "run"), 2,
               {"was made with --moments q8, this run has --moments f32; continue with --moments "
                "q8, or start anew"});
  expect_error(
      train({"--moments", "q8", "--devices", "2"}, "refused"), 5,
      {"--moments q8 with a pipeline of devices (--devices, --plan) is not supported yet"});
}

// Every thread has scratch of its own, as much as the products of its share take.
TEST(Life, TrainingTakesThePredictedMemoryOnAnyThreads) {
  if (kSanitized) GTEST_SKIP() << "sanitizers take memory of their own";
  for (const char* dtype : {"f32", "bf16"}) {
    for (const char* threads : {"1", "8"}) {
      const TestFolder folder;
      const Json end =
          run_jige({"train", "--data", TinyRun::get().corpus(), "--size", "tiny", "--vocab-size",
                    "300", "--context", "64", "--steps", "3", "--dtype", dtype, "--threads",
                    threads, "--json", "--out", folder / "run"})
              .json_lines()
              .back();
      ASSERT_EQ(end["kind"], "end");
      const double predicted = end["memory"]["process_predicted_bytes"].get<double>();
      EXPECT_NEAR(end["memory"]["process_private_peak_bytes"].get<double>() / predicted, 1, 0.1)
          << dtype << " on " << threads << " threads";
    }
  }
}

// Matrices of 4 MiB go into checkpoints beside the steps, in small pieces.
TEST(Life, CheckpointsOfLargeMatricesTakeLittleMemory) {
  if (kSanitized) GTEST_SKIP() << "sanitizers take memory of their own";
  const TestFolder folder;
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += fmt::format("{{\"text\": \"{} and {}\"}}\n", i, i * i);
  write_text(folder / "a.jsonl", lines);
  std::vector<std::string> arguments = {"train", "--data", folder / "a.jsonl", "--json"};
  for (const std::string words :
       {"vocab-size 300", "width 512", "heads 4", "ffn 2048", "layers 2", "context 64", "steps 3",
        "batch-tokens 128", "save-every 1", "threads 1"}) {
    const size_t space = words.find(' ');
    arguments.push_back("--" + words.substr(0, space));
    arguments.push_back(words.substr(space + 1));
  }
  arguments.insert(arguments.end(), {"--out", folder / "run"});
  const Json end = run_jige(arguments).json_lines().back();
  ASSERT_EQ(end["kind"], "end");
  EXPECT_LE(end["memory"]["process_private_peak_bytes"].get<int64_t>(),
            end["memory"]["process_predicted_bytes"].get<int64_t>() + (int64_t{3} << 19));
}

// By schedule, on devices that have less than the model needs, with evaluations and a checkpoint.
TEST(Life, TrainingOnSmallDevicesTakesThePredictedMemory) {
  if (kSanitized) GTEST_SKIP() << "sanitizers take memory of their own";
  const TestFolder folder;
  const Json end = run_jige({"train",
                             "--data",
                             TinyRun::get().corpus(),
                             "--size",
                             "tiny",
                             "--steps",
                             "12",
                             "--eval-every",
                             "5",
                             "--warmup",
                             "2",
                             "--batch-tokens",
                             "2048",
                             "--micro-batch-tokens",
                             "256",
                             "--threads",
                             "2",
                             "--devices",
                             "2",
                             "--device-memory",
                             "12MiB",
                             "--json",
                             "--out",
                             folder / "run"})
                       .json_lines()
                       .back();
  ASSERT_EQ(end["kind"], "end");
  const double predicted = end["memory"]["process_predicted_bytes"].get<double>();
  EXPECT_NEAR(end["memory"]["process_private_peak_bytes"].get<double>() / predicted, 1, 0.1);
}

TEST(Life, GenerateIsTheSameForTheSameSeed) {
  const std::vector<std::string> arguments = {
      "generate", TinyRun::get().model(), "--prompt", "Tell me",     "--seed",
      "3",        "--max-new-tokens",     "20",       "--ignore-eos"};
  const Outcome once = run_jige(arguments);
  EXPECT_EQ(once.exit_code, 0) << once.err;
  EXPECT_GT(once.out.size(), 5u);
  EXPECT_THAT(once.err, HasSubstr("tokens/s"));
  EXPECT_EQ(run_jige(arguments).out, once.out);
}

TEST(Life, GenerateGivesJsonForEverySample) {
  const Outcome outcome = run_jige({"generate", TinyRun::get().model(), "--json", "-n", "3",
                                    "--max-new-tokens", "5", "--seed", "1", "--logprobs", "2"},
                                   "Hello");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const JsonLines samples = outcome.json_lines();
  ASSERT_EQ(samples.size(), 3u);
  for (size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i]["sample"], i);
    EXPECT_EQ(samples[i]["seed"], 1 + i);
    EXPECT_EQ(samples[i]["logprobs"].size(), samples[i]["tokens"].size());
    EXPECT_LE(samples[i]["logprobs"][0]["logprob"].get<double>(), 0);
  }
}

TEST(Life, GreedyTextDoesNotDependOnThreads) {
  std::vector<std::string> texts;
  for (const char* threads : {"1", "2"}) {
    texts.push_back(
        run_jige({"generate", TinyRun::get().model(), "--prompt", "Once", "--ignore-eos",
                  "--temperature", "0", "--max-new-tokens", "30", "--threads", threads, "--quiet"})
            .out);
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(Life, WhatTheConfigSaysEndsAnAnswerDoes) {
  const auto answer = [](const std::string& model) {
    return run_jige({"generate", model, "--prompt", "Once", "--temperature", "0", "--seed", "1",
                     "--max-new-tokens", "6", "--json"})
        .json();
  };
  const TestFolder folder;
  const std::string model = TinyRun::get().copy_model(folder);
  const Json before = answer(model);
  ASSERT_EQ(before["tokens"].size(), 6u);
  Json config = *parse_json(read_text(model + "/config.json"), "config");
  config["eos_token_id"] = Json::array({config["eos_token_id"], before["tokens"][3]});
  write_text(model + "/config.json", dump_json(config));
  const Json after = answer(model);
  EXPECT_EQ(after["finish"], "stop");
  EXPECT_LE(after["tokens"].size(), 3u);
}

TEST(Life, ChatAnswersEveryLineOfAPipe) {
  const TestFolder folder;
  const Outcome outcome = run_jige(
      {"chat", TinyRun::get().model(), "--temperature", "0", "--max-new-tokens", "8", "--json"},
      "/save " + (folder / "none.json") +
          "\nWhat is 2 plus 3?\n/system Be brief.\n\nAnd now\\\ntwo lines?\n/save " +
          (folder / "c.json") + "\n/save " + (folder / "c.jsonl") +
          "\n/reset\nLast\n/quit\nnever read\n");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const JsonLines answers = outcome.json_lines();
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[0]["role"], "assistant");
  EXPECT_THAT(outcome.err, HasSubstr("3 answers"));
  EXPECT_FALSE(exists(folder / "none.json")) << "without an answer it is no data";
  const Json saved = *parse_json(read_text(folder / "c.json"), "saved");
  ASSERT_EQ(saved["messages"].size(), 5u);
  EXPECT_EQ(saved["messages"][0]["role"], "system");
  EXPECT_EQ(saved["messages"][3]["content"], "And now\ntwo lines?");
  // What is said of the name is so.
  EXPECT_THAT(outcome.err, HasSubstr("c.json: written; `jige train` reads it under a name that "));
  EXPECT_THAT(outcome.err, HasSubstr("c.jsonl: written\n"));
  const auto train = [&](const std::string& file) {
    return run_jige({"train", "--from", TinyRun::get().model(), "--steps", "1", "--data", file,
                     "--out", folder / "tuned"});
  };
  expect_error(train(folder / "c.json"), 5, {"c.json", "> data.jsonl`"});
  const Outcome tuned = train(folder / "c.jsonl");
  EXPECT_EQ(tuned.exit_code, 0) << tuned.err;
}

TEST(Life, ChatWritesATranscriptWithoutATemplate) {
  const TestFolder folder;
  const std::string model = TinyRun::get().copy_model(folder);
  Json config = *parse_json(read_text(model + "/tokenizer_config.json"), "config");
  config.erase("chat_template");
  write_text(model + "/tokenizer_config.json", dump_json(config));
  std::filesystem::remove(model + "/chat_template.jinja");
  const Outcome outcome = run_jige({"chat", model, "--max-new-tokens", "4"}, "Hello\n");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("no chat template"));
}

TEST(Life, ScoreGivesLogProbabilitiesAndAccuracies) {
  const std::string input =
      "{\"text\": \"Tell me a story.\"}\n\n"
      "{\"prompt\": \"What is 2 plus 3?\", \"completion\": \" It is 5.\"}\n"
      "{\"question\": \"The sky is\", \"choices\": [\"blue\", \"qqqqq\"], \"answer\": \"blue\"}\n"
      "{\"question\": \"What is 1 plus 1?\", \"answer\": \"2\"}\n";
  for (const bool chat : {false, true}) {
    std::vector<std::string> arguments = {"score", TinyRun::get().model(), "--json"};
    if (chat) arguments.push_back("--chat");
    const Outcome outcome = run_jige(arguments, input);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const JsonLines lines = outcome.json_lines();
    ASSERT_EQ(lines.size(), 5u);
    EXPECT_EQ(lines[0]["tokens"].size(), lines[0]["logprobs"].size());
    EXPECT_EQ(lines[1]["line"], 3);
    EXPECT_LT(lines[1]["logprob"].get<double>(), 0);
    EXPECT_EQ(lines[2]["choices"].size(), 2u);
    EXPECT_EQ(lines[2]["answer"], 0);
    EXPECT_TRUE(lines[3].contains("reply"));
    const Json& summary = lines[4]["summary"];
    EXPECT_EQ(summary["records"], 4);
    EXPECT_EQ(summary["questions"], 1);
    EXPECT_EQ(summary["replies"], 1);
    EXPECT_GT(summary["perplexity"].get<double>(), 1);
  }
}

TEST(Life, ScoreAgreesWithGenerate) {
  const Json generated =
      run_jige({"generate", TinyRun::get().model(), "--prompt", "Tell", "--temperature", "0",
                "--max-new-tokens", "1", "--ignore-eos", "--json", "--logprobs", "1"})
          .json();
  const std::string text = "Tell" + generated["text"].get<std::string>();
  const Json scored =
      run_jige({"score", TinyRun::get().model()}, dump_json(Json{{"text", text}}) + "\n").json();
  EXPECT_EQ(scored["tokens"].back(), generated["tokens"][0]);
  EXPECT_NEAR(scored["logprobs"].back().get<double>(),
              generated["logprobs"][0]["logprob"].get<double>(), 1e-4);
}

TEST(Life, TokenizeGoesThereAndBack) {
  const std::string text = "Naïve 漢字 👩‍👩‍👧 \t<|eos|> don't";
  const Json ids =
      run_jige({"tokenize", TinyRun::get().model(), "--literal", "--no-special", "--json"}, text)
          .json();
  EXPECT_EQ(ids["ids"].size(), ids["tokens"].size());
  const Outcome back =
      run_jige({"tokenize", TinyRun::get().run(), "--decode", "--text", dump_json(ids["ids"])});
  EXPECT_EQ(back.out, text + "\n");
}

TEST(Life, TokenizerTrainWritesAFolder) {
  const TestFolder folder;
  write_text(folder / "text.txt", "the cat sat on the mat and the cat sat on the hat\n");
  const Json made = run_jige({"tokenizer", "train", folder / "text.txt", "--vocab-size", "280",
                              "--out", folder / "tok", "--json"})
                        .json();
  EXPECT_LE(made["vocab_size"].get<int>(), 280);
  EXPECT_EQ(made["chat_template"], false);
  std::vector<std::string> words = {"tokenize", folder / "tok", "--text",
                                    "the cat",  "--count",      "--no-special"};
  const Outcome count = run_jige(words);
  EXPECT_LT(std::stoi(count.out), 7);
  words.push_back("--json");
  EXPECT_EQ(run_jige(words).json(), (Json{{"count", std::stoi(count.out)}}));
}

TEST(Life, PlotLossDrawsTheRun) {
  const TestFolder folder;
  const Json drawn =
      run_jige({"plot-loss", TinyRun::get().run(), "--out", folder / "loss.svg", "--json"}).json();
  EXPECT_EQ(drawn["steps"], 30);
  const std::string svg = read_text(folder / "loss.svg");
  EXPECT_THAT(svg, HasSubstr("held-out"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(Life, ReportIsNamedAfterTheRunHoweverItsFolderIsGiven) {
  const TestFolder folder;
  for (const char* end : {"", "/", "/.", "/model/.."}) {
    const Outcome outcome =
        run_jige({"report", TinyRun::get().run() + end, "--out", folder / "page.html"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(read_text(folder / "page.html"), HasSubstr("<title>run</title>")) << end;
  }
}

TEST(Life, FineTuningStartsFromTheModel) {
  const TestFolder folder;
  const Outcome full =
      run_jige({"train", "--from", TinyRun::get().model(), "--data", TinyRun::get().corpus(),
                "--steps", "3", "--batch-tokens", "384", "--micro-batch-tokens", "192", "--lr",
                "1e-4", "--json", "--out", folder / "full"});
  EXPECT_EQ(full.exit_code, 0) << full.err;
  EXPECT_LT(full.json_lines()[0]["loss"].get<double>(), 5.3);
  const Outcome lora =
      run_jige({"train", "--from", TinyRun::get().model(), "--lora", "--lora-rank", "2", "--data",
                TinyRun::get().corpus(), "--steps", "3", "--batch-tokens", "384",
                "--micro-batch-tokens", "192", "--out", folder / "lora"});
  EXPECT_EQ(lora.exit_code, 0) << lora.err;
  const Json adapter = run_jige({"inspect", folder / "lora/adapter", "--json"}).json();
  EXPECT_EQ(adapter["adapter"]["r"], 2);
  const Outcome merged =
      run_jige({"generate", folder / "lora", "--prompt", "Hi", "--max-new-tokens", "3"});
  EXPECT_EQ(merged.exit_code, 0) << merged.err;
  // The folder of a run stands for its model, an adapter for none.
  const auto again = [&](const std::string& from) {
    return run_jige({"train", "--from", from, "--lora", "--no-merge", "--data",
                     TinyRun::get().corpus(), "--steps", "1", "--batch-tokens", "192", "--out",
                     folder / "again"});
  };
  EXPECT_EQ(again(folder / "lora").exit_code, 0);
  EXPECT_THAT(again(folder / "lora/adapter").err, HasSubstr("is a LoRA adapter"));
  EXPECT_THAT(run_jige({"generate", folder / "again", "--prompt", "Hi"}).err,
              HasSubstr("jige export"));
}

TEST(Life, FineTuningGoesOnFromTheModelItBeganWith) {
  const TestFolder folder;
  const auto tune = [&](const std::string& from) {
    std::vector<std::string> arguments = {
        "train",          "--data", TinyRun::get().corpus(), "--steps", "2",
        "--batch-tokens", "192",    "--micro-batch-tokens",  "192",     "--out",
        folder / "run"};
    if (!from.empty()) arguments.insert(arguments.end(), {"--from", from});
    return run_jige(arguments);
  };
  const std::string model = TinyRun::get().copy_model(folder);
  const Outcome first = tune(model);
  EXPECT_EQ(first.exit_code, 0) << first.err;
  for (const std::string& from : {std::string(), model, TinyRun::get().model()}) {
    const Outcome again = tune(from);
    EXPECT_EQ(again.exit_code, 0) << again.err;
    EXPECT_THAT(again.err, HasSubstr("nothing was left to do")) << from;
  }
  std::filesystem::rename(folder / "run/model", folder / "tuned");
  const Outcome tuned = tune(folder / "tuned");
  EXPECT_EQ(tuned.exit_code, 2) << tuned.err;
  EXPECT_THAT(tuned.err, HasSubstr(model));
  EXPECT_THAT(tuned.err, HasSubstr(folder / "tuned"));
  std::filesystem::remove_all(model);
  const Outcome gone = tune("");
  EXPECT_EQ(gone.exit_code, 3) << gone.err;
  EXPECT_THAT(gone.err, HasSubstr("say with --from where it is now"));
}

TEST(Life, ChoicesAreAsLongAsTheyAreWritten) {
  const Json scored =
      run_jige({"score", TinyRun::get().model()},
               "{\"question\": \"Is it?\", \"choices\": [\"yes\", \"maybe\"], \"answer\": 0}")
          .json();
  const size_t bytes[] = {3, 5};
  for (size_t i = 0; i < 2; ++i) {
    const Json& choice = scored["choices"][i];
    EXPECT_DOUBLE_EQ(choice["per_byte"].get<double>(),
                     choice["logprob"].get<double>() / static_cast<double>(bytes[i]));
  }
}

// A template that puts no space before the answer: a tokenizer that puts one before every text of
// its own makes no difference.
TEST(Life, ChatChoicesGoOnFromTheirPrompt) {
  const TestFolder folder;
  const std::string model = TinyRun::get().copy_model(folder);
  std::filesystem::remove(model + "/chat_template.jinja");
  Json config = *parse_json(*read_file(model + "/tokenizer_config.json"), "config");
  config["chat_template"] =
      "{% for m in messages %} {{ m.role }}:{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %} assistant:{% endif %}";
  write_text(model + "/tokenizer_config.json", dump_json(config));
  Json tokenizer = *parse_json(*read_file(model + "/tokenizer.json"), "tokenizer");
  const auto choices = [&](bool prefix_space) {
    tokenizer["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", prefix_space}};
    write_text(model + "/tokenizer.json", dump_json(tokenizer));
    const std::string record = R"({"question": "1+1?", "choices": ["2", "two", "three"]})";
    return run_jige({"score", model, "--chat"}, record).json()["choices"];
  };
  const Json without = choices(false);
  EXPECT_EQ(without.size(), 3u);
  EXPECT_EQ(choices(true), without);
}

// Process substitution, as in `jige score MODEL <(head -2 records.jsonl)`.
TEST(Life, ScoreReadsAPipeOnce) {
  const TestFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  // Longer than what is read at once, so that it comes in pieces.
  const std::string records =
      std::string(200'000, ' ') + "{\"text\": \"one two\"}\n\n{\"text\": \"three\"}";
  std::thread writer([&] { std::ofstream(folder / "pipe") << records; });
  const Outcome outcome = run_jige({"score", TinyRun::get().model(), folder / "pipe", "--json"});
  writer.join();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const JsonLines lines = outcome.json_lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["line"], 1);
  EXPECT_EQ(lines[1]["line"], 3);
  EXPECT_EQ(lines[2]["summary"]["records"], 2);
}

TEST(Life, ScoreCountsRecordsNotLines) {
  const TestFolder folder;
  write_text(folder / "a.jsonl", "\n\n{\"text\": \"a b\"}\r\n\n{\"text\": \"c d\"}\n");
  const Outcome outcome = run_jige({"score", TinyRun::get().model(), folder / "a.jsonl"});
  EXPECT_EQ(outcome.json_lines().size(), 2u);
  EXPECT_THAT(outcome.err, HasSubstr("50 %  0:00 left  1 record, "));
}

TEST(Life, ScoreReadsNoFurtherThanItsLimit) {
  const TestFolder folder;
  ASSERT_EQ(mkfifo((folder / "in").c_str(), 0600), 0);
  const int writer = open((folder / "in").c_str(), O_RDWR);  // so that it never ends
  ASSERT_GE(writer, 0);
  const std::string records = "{\"text\": \"a b\"}\n{\"text\": \"c d\"}\n{oops\n";
  ASSERT_EQ(write(writer, records.data(), records.size()), std::ssize(records));
  Process process({"score", TinyRun::get().model(), "--limit", "2"}, folder.path());
  const Outcome outcome = process.wait();
  close(writer);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json_lines().size(), 2u);
}

// Whoever stops a script wants to see it in the exit code, also where it waits for input.
TEST(Life, ChatOfAScriptEndsBySignal) {
  const TestFolder folder;
  ASSERT_EQ(mkfifo((folder / "in").c_str(), 0600), 0);
  const int writer = open((folder / "in").c_str(), O_RDWR);
  ASSERT_GE(writer, 0);
  Process process({"chat", TinyRun::get().model(), "--max-new-tokens", "1"}, folder.path());
  ASSERT_EQ(write(writer, "hi\n", 3), 3);
  const auto answered = [&] {
    return exists(folder / "out") && !read_text(folder / "out").empty();
  };
  for (int i = 0; i < 6000 && !answered(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  process.send(SIGTERM);
  EXPECT_EQ(process.wait().exit_code, 130);
  close(writer);
}

TEST(Life, PlanOnlyTellsAndTrainsNothing) {
  const TestFolder folder;
  std::vector<std::string> arguments = tiny_train_arguments(TinyRun::get().corpus(), 30);
  arguments.insert(arguments.end(), {"--plan-only", "--json", "--out", folder / "plan"});
  const Json plan = run_jige(arguments).json();
  EXPECT_EQ(plan["steps"], 30);
  EXPECT_GT(plan["seconds"].get<double>(), 0);
  EXPECT_GT(plan["memory_predicted_bytes"].get<int64_t>(), 1 << 20);
  EXPECT_FALSE(exists(folder / "plan/model"));
}

}  // namespace
}  // namespace jige::integration
