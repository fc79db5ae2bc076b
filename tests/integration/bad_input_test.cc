// Bad input of every kind: a clear error that names file and field, an exit code that is not 0, and
// nothing half-written left behind.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

Json read_json(const std::string& path) { return *parse_json(read_text(path), path); }

// A model folder with one change to its config.json.
class ChangedConfig {
 public:
  explicit ChangedConfig(const std::function<void(Json&)>& change)
      : model_(TinyRun::get().copy_model(folder_)) {
    Json config = read_json(model_ + "/config.json");
    change(config);
    write_text(model_ + "/config.json", dump_json(config));
  }
  const std::string& folder() const { return model_; }
  Outcome generate() const {
    return run_jige({"generate", model_, "--prompt", "x", "--max-new-tokens", "1"});
  }

 private:
  TestFolder folder_;
  std::string model_;
};

Outcome generate(const std::string& model) {
  return run_jige({"generate", model, "--prompt", "x", "--max-new-tokens", "1"});
}

std::vector<std::string> train_on(const std::string& data, const std::string& out) {
  std::vector<std::string> arguments = tiny_train_arguments(data, 5);
  arguments.erase(std::find(arguments.begin(), arguments.end(), "--vocab-size"),
                  std::find(arguments.begin(), arguments.end(), "--context"));
  arguments.insert(arguments.end(), {"--tokenizer", TinyRun::get().model(), "--out", out});
  return arguments;
}

TEST(BadModel, TruncatedWeights) {
  const TestFolder folder;
  const std::string model = TinyRun::get().copy_model(folder);
  const std::string file = model + "/model.safetensors";
  for (const uintmax_t size :
       {uintmax_t{0}, uintmax_t{7}, uintmax_t{100}, fs::file_size(file) - 1}) {
    fs::remove(file);
    fs::copy_file(TinyRun::get().model() + "/model.safetensors", file);
    fs::resize_file(file, size);
    expect_error(generate(model), 4, {"model.safetensors"});
    expect_error(run_jige({"inspect", model}), 4, {"model.safetensors"});
  }
}

TEST(BadModel, LyingWeightsHeader) {
  const TestFolder folder;
  const std::string model = TinyRun::get().copy_model(folder);
  const std::string file = model + "/model.safetensors";
  std::string bytes = read_text(file);
  bytes.replace(0, 8, std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8));
  write_text(file, bytes);
  expect_error(generate(model), 4, {"model.safetensors", "header"});
}

TEST(BadModel, MissingShard) {
  const TestFolder folder;
  const std::string model = TinyRun::get().copy_model(folder);
  fs::remove(model + "/model.safetensors");
  write_text(model + "/model.safetensors.index.json",
             R"({"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}})");
  expect_error(generate(model), 3, {"model-00001-of-00002.safetensors"});
}

TEST(BadModel, NoWeights) {
  const TestFolder folder;
  const std::string model = TinyRun::get().copy_model(folder);
  fs::remove(model + "/model.safetensors");
  expect_error(generate(model), 3, {model, "model.safetensors"});
  EXPECT_EQ(run_jige({"inspect", model}).exit_code, 0);
}

TEST(BadModel, ConfigFieldsAbsent) {
  for (const char* field : {"hidden_size", "num_hidden_layers", "vocab_size"}) {
    const ChangedConfig changed([&](Json& config) { config.erase(field); });
    expect_error(changed.generate(), 3, {"config.json", field});
  }
}

TEST(BadModel, ConfigFieldsContradictory) {
  const ChangedConfig heads([](Json& config) { config["num_key_value_heads"] = 3; });
  EXPECT_NE(heads.generate().exit_code, 0);
  expect_error(heads.generate(), heads.generate().exit_code,
               {"config.json", "num_key_value_heads"});
  const ChangedConfig width([](Json& config) { config["intermediate_size"] = 64; });
  expect_error(width.generate(), 4, {"mlp."});
  const ChangedConfig type([](Json& config) { config["hidden_size"] = "wide"; });
  expect_error(type.generate(), 4, {"config.json", "hidden_size"});
  const ChangedConfig huge([](Json& config) { config["num_hidden_layers"] = 1000000000; });
  EXPECT_NE(huge.generate().exit_code, 0);
}

TEST(BadModel, WeightsOfAnotherDepth) {
  const ChangedConfig fewer([](Json& config) { config["num_hidden_layers"] = 1; });
  const Outcome outcome = fewer.generate();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("does not use"));
  EXPECT_THAT(outcome.err, HasSubstr("model.layers.1."));
  EXPECT_THAT(generate(TinyRun::get().model()).err, ::testing::Not(HasSubstr("does not use")));
  const ChangedConfig more([](Json& config) { config["num_hidden_layers"] = 3; });
  expect_error(more.generate(), 3, {"model.layers.2."});
  EXPECT_THAT(run_jige({"inspect", more.folder()}).out, HasSubstr("cannot run"));
  EXPECT_THAT(run_jige({"inspect", more.folder(), "--json"}).json()["problem"].get<std::string>(),
              HasSubstr("model.layers.2."));
}

TEST(BadModel, WeightsThatAreNotFinite) {
  const TestFolder folder;
  const std::string model = TinyRun::get().copy_model(folder);
  std::string bytes = read_text(model + "/model.safetensors");
  std::fill(bytes.end() - 1024, bytes.end(), '\xff');
  write_text(model + "/model.safetensors", bytes);
  expect_error(generate(model), 4, {model + ": the model's weights hold NaN"});
  expect_error(run_jige({"chat", model}, "Hello\n"), 4, {model + ": the model's weights hold NaN"});
  expect_error(run_jige({"score", model}, "{\"text\": \"a b c\"}"), 4,
               {"standard input:1: " + model + ": the model's weights hold NaN"});
  expect_error(run_jige({"score", model, "--skip-bad"}, "{\"text\": \"a b c\"}"), 4,
               {model + ": the model's weights hold NaN"});
  expect_error(run_jige({"score", model}, R"({"question": "a", "answer": "b"})"), 4,
               {"standard input:1: " + model + ": the model's weights hold NaN"});
  const std::string run = folder / "run";
  expect_error(run_jige({"train", "--from", model, "--data", TinyRun::get().corpus(), "--steps",
                         "2", "--batch-tokens", "96", "--out", run}),
               4, {model, "NaN"});
  EXPECT_FALSE(exists(run + "/model"));
}

TEST(BadModel, MoreThanTheMemoryLimit) {
  const std::string& model = TinyRun::get().model();
  expect_error(run_jige({"generate", model, "--prompt", "x", "--memory-limit", "64KiB"}), 6,
               {model, "weights", "keys and values of 96 tokens", "limit is 64.0 KiB"});
}

TEST(BadModel, ADeviceThatIsNone) {
  const std::string& model = TinyRun::get().model();
  for (const std::string device : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda0"}) {
    expect_error(run_jige({"generate", model, "--prompt", "x", "--device", device}), 2,
                 {"--device", device, "cpu, cuda or cuda:N"});
  }
  // In a build without CUDA, without a driver and on a machine with fewer GPUs.
  const Outcome missing = run_jige({"generate", model, "--prompt", "x", "--device", "cuda:99"});
  EXPECT_NE(missing.exit_code, 0);
  EXPECT_THAT(missing.err, testing::HasSubstr("--device cuda:99: "));
}

void write_large_config(const TestFolder& folder, int head_dim) {
  write_text(folder / "config.json",
             R"({"model_type": "llama", "vocab_size": 16777216,
      "hidden_size": 262144, "intermediate_size": 1048576, "num_hidden_layers": 4096,
      "num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": )" +
                 std::to_string(head_dim) +
                 R"(, "max_position_embeddings": 67108864, "rms_norm_eps": 1e-5,
      "tie_word_embeddings": false})");
}

TEST(BadModel, HeadsWiderThanAttentionTakes) {
  const TestFolder folder;
  write_large_config(folder, 4096);
  expect_error(run_jige({"inspect", folder.path()}), 5, {"head_dim", "4096", "640"});
}

TEST(BadModel, SizesThatCannotBeCounted) {
  const TestFolder folder;
  write_large_config(folder, 640);
  EXPECT_EQ(run_jige({"inspect", folder.path()}).exit_code, 0);
  expect_error(run_jige({"inspect", folder.path(), "--context", "67108864", "--sequences",
                         "1048576", "--micro-batch-tokens", "16777216"}),
               2, {"--sequences"});
}

TEST(BadModel, UnknownArchitectureNamesTheKnownOnes) {
  const ChangedConfig changed([](Json& config) {
    config["architectures"] = {"RwkvForCausalLM"};
    config["model_type"] = "rwkv";
  });
  expect_error(changed.generate(), 5, {"Rwkv", "Llama", "Qwen3"});
}

TEST(BadModel, NamesInItsFilesCannotCommandTheTerminal) {
  const ChangedConfig changed([](Json& config) {
    config["architectures"] = {"Mamba\x1b[2J\nerror: all is well"};
    config["model_type"] = "mamba";
  });
  const Outcome refused = changed.generate();
  EXPECT_EQ(refused.exit_code, 5);
  EXPECT_THAT(refused.err, HasSubstr("Mamba\\x1b[2J\n  error: all is well"));
  const TestFolder folder;
  const std::string base =
      "base\x1b]0;title\x07\nweights \xC2\x9B"
      "2J";
  write_text(folder.path() + "/adapter_config.json",
             dump_json(Json{{"peft_type", "LORA"},
                            {"r", 4},
                            {"lora_alpha", 8},
                            {"target_modules", {"q_proj"}},
                            {"base_model_name_or_path", base}}));
  const Outcome shown = run_jige({"inspect", folder.path()});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("base\\x1b]0;title\\x07\\nweights \\u009b2J"));
  const Outcome exact = run_jige({"inspect", folder.path(), "--json"});
  EXPECT_EQ(exact.json()["adapter"]["base_model_name_or_path"], base);
}

TEST(BadModel, DamagedTokenizer) {
  const TestFolder folder;
  const std::string model = TinyRun::get().copy_model(folder);
  write_text(model + "/tokenizer.json", read_text(model + "/tokenizer.json").substr(0, 500));
  expect_error(generate(model), 4, {"tokenizer.json"});
}

TEST(BadModel, FileInPlaceOfAFolder) {
  const std::string file = TinyRun::get().model() + "/model.safetensors";
  for (const char* command : {"generate", "chat", "score", "inspect"}) {
    expect_error(run_jige({command, file}), 2, {file, "is a file"});
  }
  expect_error(run_jige({"inspect", "/nowhere/at/all"}), 3, {"/nowhere/at/all"});
  const std::string log = TinyRun::get().run() + "/log.jsonl";
  for (const char* command : {"report", "export"}) {
    expect_error(run_jige({command, log}), 2, {log, "is a file; give the folder it is in"});
    expect_error(run_jige({command, "/nowhere/at/all"}), 3, {"/nowhere/at/all", "folder of a run"});
  }
  const std::string model = TinyRun::get().model();
  expect_error(run_jige({"report", model}), 3, {model, "holds no log.jsonl"});
  expect_error(run_jige({"tokenize", file, "--text", "x"}), 2, {file});
}

TEST(BadModel, FolderInPlaceOfAConfiguration) {
  const TestFolder folder;
  const std::string& model = TinyRun::get().model();
  for (const std::string& path : {model, std::string("/nowhere/config.json")}) {
    const int code = path == model ? 2 : 3;
    const std::string remedy = path == model
                                   ? "is a folder; give the file " + model + "/config.json"
                                   : "no such file; give a Hugging Face config.json";
    expect_error(run_jige({"bench", "train", "--config", path}), code, {"--config", path, remedy});
    expect_error(run_jige({"train", "--data", TinyRun::get().corpus(), "--config", path, "--out",
                           folder / "run"}),
                 code, {"--config", path, remedy});
  }
  EXPECT_FALSE(exists(folder / "run"));
}

TEST(BadText, TokenIdsOutOfRange) {
  expect_error(run_jige({"tokenize", TinyRun::get().model(), "--decode", "--text", "1 999999"}), 2,
               {"999999"});
  expect_error(run_jige({"tokenize", TinyRun::get().model(), "--decode", "--text", "1 two 3\n"}), 2,
               {"\"two\" is not a token id"});
}

TEST(BadText, PromptLongerThanTheContext) {
  std::string prompt;
  for (int i = 0; i < 200; ++i) prompt += "many words ";
  expect_error(run_jige({"generate", TinyRun::get().model()}, prompt), 2, {"96"});
  expect_error(run_jige({"chat", TinyRun::get().model()}, prompt + "\n"), 2, {"96"});
  expect_error(
      run_jige({"score", TinyRun::get().model()}, "\n" + dump_json(Json{{"text", prompt}})), 2,
      {"standard input:2", "96"});
  // Where the folder would allow more, the flag is the remedy, and only there.
  const std::pair<const char*, std::string> asked[] = {
      {"generate", prompt}, {"chat", prompt + "\n"}, {"score", dump_json(Json{{"text", prompt}})}};
  for (const auto& [command, text] : asked) {
    const Outcome whole = run_jige({command, TinyRun::get().model()}, text);
    EXPECT_EQ(whole.err.find("--context"), std::string::npos) << whole.err;
    expect_error(run_jige({command, TinyRun::get().model(), "--context", "32"}, text), 2,
                 {"holds 32", "--context, 96 at most"});
  }
  expect_error(run_jige({"generate", TinyRun::get().model(), "--context", "100000"}, "x"), 2,
               {"100000"});
}

TEST(BadText, RecordsThatCannotBeScoredAreLeftOutWhenAsked) {
  const std::string model = TinyRun::get().model();
  std::string words;
  for (int i = 0; i < 200; ++i) words += "many words ";
  const std::string good = "{\"text\": \"a b c\"}\n";
  const std::string bad = "{oops\n{\"txt\": 1}\n{\"text\": 1}\n[]\n" +
                          dump_json(Json{{"text", words}}) +
                          "\n{\"question\": \"a\", \"answer\": \"b\", \"kind\": 3}\n";
  const Outcome scored =
      run_jige({"score", model, "--skip-bad", "--json"}, good + bad + "\n" + good);
  ASSERT_EQ(scored.exit_code, 0) << scored.err;
  EXPECT_NE(scored.err.find("6 bad lines left out"), std::string::npos) << scored.err;
  const JsonLines lines = scored.json_lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["line"], 1);
  EXPECT_EQ(lines[1]["line"], 9);
  EXPECT_EQ(lines[2]["summary"]["records"], 2);
  EXPECT_EQ(lines[2]["summary"]["skipped_lines"], 6);
  EXPECT_FALSE(lines[2]["summary"].contains("replies")) << "a bad record counts in nothing";
  EXPECT_EQ(
      run_jige({"score", model, "--skip-bad", "--limit", "3"}, good + bad + good).err.find("2 bad"),
      9u);
  expect_error(run_jige({"score", model, "--skip-bad"}, bad), 2,
               {"holds no record that can be scored", "6 bad lines left out"});
}

TEST(BadText, RecordsWithoutWhatIsNeeded) {
  const auto score = [](const std::string& line) {
    return run_jige({"score", TinyRun::get().model()}, line);
  };
  expect_error(
      score("{\"txt\": 1}"), 3,
      {"standard input:1: has none of the fields \"text\", \"completion\"", "; it has \"txt\""});
  expect_error(score("{\"text\": 1}"), 2, {"standard input:1", "text"});
  expect_error(score("{\"text\": \"a b\"}\n{oops"), 4, {"standard input:2"});
  expect_error(score("{\"question\": \"a\", \"choices\": []}"), 2, {"choices"});
  expect_error(score("{\"question\": \"a\", \"choices\": [\"b\", \"\"]}"), 2, {"choices", "empty"});
  expect_error(score("{\"question\": \"a\", \"choices\": [\"b\"], \"answer\": 7}"), 2,
               {"answer", "7"});
  expect_error(score(""), 2, {"no record"});
}

TEST(BadFlag, IsNamedWithItsValueWhereTheModelRefusesIt) {
  const std::string model = TinyRun::get().model();
  for (const char* command : {"generate", "score", "serve", "inspect"}) {
    std::vector<std::string> words = {command, model, "--context", "99999"};
    if (words[0] == "generate") words.insert(words.end(), {"--prompt", "x"});
    expect_error(run_jige(words), 2, {"--context is 99999", "max_position_embeddings 96"});
  }
  expect_error(run_jige({"inspect", model, "--lora-target", "w1"}), 2,
               {"--lora-target: \"w1\"", "known are", "q_proj"});
  expect_error(run_jige({"simulate", "serve", "--traces", "1000000001"}), 2,
               {"--traces", "1000000001", "1000000000"});
}

TEST(BadData, ARefusedRunLeavesNoFolder) {
  const TestFolder folder;
  write_text(folder / "a.txt", "some text");
  expect_error(run_jige({"train", "--data", folder / "a.txt", "--from", TinyRun::get().model(),
                         "--context", "99999", "--out", folder / "runs/refused"}),
               2, {"--context is 99999"});
  EXPECT_FALSE(exists(folder / "runs"));
}

TEST(BadData, EmptyCorpus) {
  const TestFolder folder;
  write_text(folder / "empty.txt", "");
  write_text(folder / "blank.jsonl", "\n\n");
  for (const char* name : {"empty.txt", "blank.jsonl"}) {
    const Outcome outcome = run_jige(train_on(folder / name, folder / "run"));
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_THAT(outcome.err, HasSubstr("error: "));
    EXPECT_FALSE(exists(folder / "run/model"));
    std::vector<std::string> without = tiny_train_arguments(folder / name, 5);
    without.insert(without.end(), {"--out", folder / "run"});
    expect_error(run_jige(without), 2, {name, "no text"});
    expect_error(outcome, 2, {name, "0 tokens"});
  }
}

TEST(BadData, InvalidUtf8NamesTheLine) {
  const TestFolder folder;
  write_text(folder / "bad.txt", "good line\nbad \xff\xfe line\ngood line again\n");
  expect_error(run_jige(train_on(folder / "bad.txt", folder / "run")), 4, {"bad.txt:2", "UTF-8"});
  EXPECT_FALSE(exists(folder / "run/model"));
  write_text(folder / "wide.txt", std::string("\xff\xfeH\0i\0", 6));
  expect_error(run_jige(train_on(folder / "wide.txt", folder / "run")), 4,
               {"wide.txt:1", "looks like UTF-16"});
  write_text(folder / "bad.jsonl", "{\"text\": \"fine\"}\n{\"text\": \"\xc3(\"}\n");
  expect_error(run_jige(train_on(folder / "bad.jsonl", folder / "run")), 4, {"bad.jsonl:2"});
}

TEST(BadData, BadLinesAreLeftOutOfTheTokenizerToo) {
  const TestFolder folder;
  std::string text = read_text(TinyRun::get().corpus());
  text += "{oops\n[1]\n{\"body\": \"no\"}\n{\"text\": \"caf\xe9\"}\n";
  write_text(folder / "mixed.jsonl", text);
  std::vector<std::string> arguments = tiny_train_arguments(folder / "mixed.jsonl", 5);
  arguments.insert(arguments.end(), {"--out", folder / "run"});
  EXPECT_EQ(run_jige(arguments).exit_code, 4);
  arguments.push_back("--skip-bad");
  const Outcome outcome = run_jige(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("4 bad lines left out"));
}

// Tokenizer and training read a content of parts alike.
TEST(BadData, MessagesOfOtherPartsThanTextAreRefusedByName) {
  const TestFolder folder;
  const auto conversation = [](const std::string& type) {
    return R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "how many"}, )"
           R"({"type": ")" +
           type + R"(", "text": " apples are there"}]}, )" +
           R"({"role": "assistant", "content": "four apples"}]})" + "\n";
  };
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += conversation("text");
  write_text(folder / "parts.jsonl", lines);
  std::vector<std::string> arguments = tiny_train_arguments(folder / "parts.jsonl", 5);
  arguments.insert(arguments.end(), {"--out", folder / "run"});
  const Outcome trained = run_jige(arguments);
  EXPECT_EQ(trained.exit_code, 0) << trained.err;

  write_text(folder / "image.jsonl", lines + conversation("image_url"));
  std::vector<std::string> said = {"image.jsonl:41: messages[0].content[1]", "type \"image_url\"",
                                   "leave images out"};
  expect_error(run_jige({"tokenizer", "train", folder / "image.jsonl", "--out", folder / "t"}), 5,
               said);
  said.back() = "a new model reads text alone";
  arguments = tiny_train_arguments(folder / "image.jsonl", 5);
  arguments.insert(arguments.end(),
                   {"--tokenizer", folder / "run/tokenizer", "--out", folder / "other"});
  arguments.erase(std::find(arguments.begin(), arguments.end(), "--vocab-size"),
                  std::find(arguments.begin(), arguments.end(), "--context"));
  expect_error(run_jige(arguments), 5, said);
}

TEST(BadData, TokensWithoutAHeaderNeedTheirLayout) {
  const TestFolder folder;
  std::string tokens;
  for (int i = 0; i < 600; ++i) {
    tokens += static_cast<char>(i % 250);
    tokens += '\0';
  }
  write_text(folder / "a.bin", tokens);
  std::vector<std::string> arguments = train_on(folder / "a.bin", folder / "run");
  expect_error(run_jige(arguments), 4, {"a.bin", "raw-u16"});
  arguments.insert(arguments.end(), {"--token-layout", "raw-u16", "--plan-only", "--json"});
  const Outcome outcome = run_jige(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_GT(outcome.json()["epoch_tokens"].get<int64_t>(), 500);
}

TEST(BadData, AModelTooLargeForTheMachineIsRefusedWithWhatItTakes) {
  const TestFolder folder;
  std::vector<std::string> arguments = train_on(TinyRun::get().corpus(), folder / "run");
  for (const char* more : {"--width", "262144", "--layers", "4000", "--heads", "2048"}) {
    arguments.push_back(more);
  }
  expect_error(run_jige(arguments), 6, {"training needs", "moments"});
}

TEST(BadData, APipeIsRefusedForItIsReadMoreThanOnce) {
  const TestFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_error(run_jige(train_on(folder / "pipe", folder / "run")), 2, {"pipe", "more than once"});
  expect_error(run_jige(train_on("-", folder / "run")), 2, {"more than once"});
}

// Waits until the first thread of a process waits for something.
void await_sleep(const Process& process) {
  const std::string path = "/proc/" + std::to_string(process.pid()) + "/stat";
  for (int i = 0; i < 6000 && read_text(path).find(") S ") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// A pipe without a writer keeps whoever opens it waiting, and one whose writer is idle whoever
// reads.
TEST(BadData, WaitingForAPipeIsEndedByASignal) {
  for (const bool written : {false, true}) {
    const TestFolder folder;
    const std::string pipe = folder / "pipe";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    const int writer = written ? open(pipe.c_str(), O_RDWR) : -1;
    Process process({"tokenizer", "train", pipe, "--out", folder / "tokenizer"}, folder.path());
    process.await_handler(SIGINT);
    await_sleep(process);
    process.send(SIGINT);
    const Outcome outcome = process.wait();
    if (written) close(writer);
    EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("stopped: " + pipe + ": waiting to"));
  }
}

TEST(BadData, RecordsOfAnotherShapeNameTheLine) {
  const TestFolder folder;
  write_text(folder / "a.jsonl", "{\"text\": \"fine\"}\n{\"body\": \"no\"}\n");
  const Outcome outcome = run_jige(train_on(folder / "a.jsonl", folder / "run"));
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("a.jsonl:2"));
  expect_error(run_jige(train_on(folder / "missing.txt", folder / "run")), 3, {"missing.txt"});
  expect_error(run_jige(train_on(folder.path(), folder / "run")), 2, {folder.path()});
}

TEST(BadOutput, AFileInTheWay) {
  const TestFolder folder;
  write_text(folder / "file", "x");
  const Outcome outcome = run_jige(train_on(TinyRun::get().corpus(), folder / "file/run"));
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr(folder / "file"));
  EXPECT_EQ(read_text(folder / "file"), "x");
}

TEST(BadOutput, AFullStandardOutputIsNotSuccess) {
  const TestFolder folder;
  fs::create_symlink("/dev/full", folder / "out");
  // The stream of the process is the link's target.
  Process process({"version"}, folder.path());
  const Outcome outcome = process.wait_without_output();
  EXPECT_EQ(outcome.exit_code, 6);
  EXPECT_THAT(outcome.err, HasSubstr("standard output: No space left on device"));
}

// The next file that is opened would take the number of a closed stream.
TEST(BadOutput, AClosedStreamTakesNoMessagesIntoFiles) {
  const TestFolder folder;
  std::string command = shell_quoted(jige_binary()) + " ";
  for (const std::string& word : train_on(TinyRun::get().corpus(), folder / "run")) {
    command += shell_quoted(word) + " ";
  }
  ASSERT_EQ(std::system((command + "<&- >&- 2>&-").c_str()), 0);
  EXPECT_EQ(read_text(folder / "run/.lock"), "");
  const std::string log = read_text(folder / "run/log.jsonl");
  for (size_t begin = 0; begin < log.size(); begin = log.find('\n', begin) + 1) {
    EXPECT_EQ(log[begin], '{');
  }
}

TEST(BadOutput, AFolderIsRefusedBeforeAnythingIsScored) {
  const TestFolder folder;
  const Outcome outcome = run_jige(
      {"score", TinyRun::get().model(), TinyRun::get().questions(), "--out", folder.path()});
  expect_error(outcome, 2, {folder.path(), "is a folder"});
  EXPECT_THAT(outcome.err, ::testing::Not(HasSubstr("records")));
}

}  // namespace
}  // namespace jige::integration
