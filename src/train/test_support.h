// For tests of this folder: temporary folders, a byte-level tokenizer with a chat template, a tiny
// model and options that train it in milliseconds.
#pragma once

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/test_path.h"
#include "text/bpe_trainer.h"
#include "text/tokenizer.h"
#include "train/options.h"

namespace jige::train {

// A folder of its own for one test, removed at its end.
class TestFolder {
 public:
  TestFolder() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    // Names of suites with parameters hold slashes; no folder around this one shall stay behind.
    std::string name = std::string(info->test_suite_name()) + "_" + info->name();
    std::replace(name.begin(), name.end(), '/', '-');
    path_ = test_root() + "jige_" + name + "_" + std::to_string(getpid());
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, std::string_view content) const {
    std::ofstream stream(file(name), std::ios::binary | std::ios::trunc);
    stream.write(content.data(), static_cast<std::streamsize>(content.size()));
    EXPECT_TRUE(stream.good()) << name;
    return file(name);
  }

 private:
  std::string path_;
};

inline constexpr const char* kTestChatTemplate =
    "{% for m in messages %}<|{{ m['role'] }}|>{% if m['role'] == 'assistant' %}{% generation %}"
    "{{ m['content'] }}<|eos|>{% endgeneration %}{% else %}{{ m['content'] }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";

// Ids 0 to 255 are bytes (in the order of the byte-level alphabet), then the special tokens below.
inline constexpr int32_t kTestBos = 256;
inline constexpr int32_t kTestEos = 257;
inline constexpr int32_t kTestUser = 258;
inline constexpr int32_t kTestAssistant = 259;
inline constexpr int32_t kTestVocab = 260;

// The files of a folder, by name: what many tests begin with is made once and written for each.
using FolderFiles = std::map<std::string, std::string>;

inline FolderFiles read_folder(const std::string& folder) {
  FolderFiles files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    auto content = read_file(entry.path().string());
    EXPECT_TRUE(content) << entry.path();
    if (content) files[entry.path().filename().string()] = std::move(*content);
  }
  return files;
}

inline void write_folder(const std::string& folder, const FolderFiles& files) {
  std::filesystem::create_directories(folder);
  for (const auto& [name, content] : files) {
    std::ofstream stream(folder + "/" + name, std::ios::binary | std::ios::trunc);
    stream.write(content.data(), static_cast<std::streamsize>(content.size()));
    ASSERT_TRUE(stream.good()) << name;
  }
}

inline FolderFiles make_test_tokenizer(const std::string& folder, bool with_template) {
  const std::vector<std::string> special = {"<|bos|>", "<|eos|>", "<|user|>", "<|assistant|>"};
  text::BpeTrainer trainer({.vocab_size = kTestVocab, .special_tokens = special});
  EXPECT_TRUE(trainer.feed("a"));
  const auto trained = trainer.train();
  EXPECT_TRUE(trained) << trained.error().message;
  std::filesystem::create_directories(folder);
  const Status written = text::write_tokenizer_folder(
      *trained, {.folder = folder,
                 .bos_token = "<|bos|>",
                 .eos_token = "<|eos|>",
                 .chat_template = with_template ? kTestChatTemplate : ""});
  EXPECT_TRUE(written) << written.error().message;
  return read_folder(folder);
}

inline void write_test_tokenizer(const std::string& folder, bool with_template = true) {
  static FolderFiles made[2];
  FolderFiles& files = made[with_template ? 1 : 0];
  if (files.empty()) {
    std::filesystem::remove_all(folder);
    files = make_test_tokenizer(folder, with_template);
  } else {
    write_folder(folder, files);
  }
}

// Makes the test tokenizer put a space before every text.
inline void add_prefix_space(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  std::string json = read_file(path).value_or("");
  constexpr std::string_view kWithout = "\"add_prefix_space\":false";
  const size_t at = json.find(kWithout);
  ASSERT_NE(at, std::string::npos);
  json.replace(at, kWithout.size(), "\"add_prefix_space\":true");
  ASSERT_TRUE(write_file_atomic(path, json));
}

inline text::Tokenizer load_test_tokenizer(const std::string& folder) {
  auto tokenizer = text::Tokenizer::load(folder);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return *tokenizer;
}

inline formats::ModelConfig tiny_config() {
  return {.vocab_size = kTestVocab,
          .hidden_size = 32,
          .layer_count = 2,
          .head_count = 4,
          .kv_head_count = 2,
          .head_dim = 8,
          .ffn_size = 48,
          .context_max = 64};
}

// The same with experts, of which a token has two.
inline formats::ModelConfig tiny_expert_config() {
  formats::ModelConfig config = tiny_config();
  config.family = formats::Family::kMixtral;
  config.experts = {.count = 5, .chosen = 2, .ffn_size = config.ffn_size, .normalised = true};
  return config;
}

// The same as MiniMax M2 has it, with a bias for the choice of experts.
inline formats::ModelConfig tiny_biased_config() {
  formats::ModelConfig config = tiny_expert_config();
  config.family = formats::Family::kMiniMaxM2;
  config.qk_norm_whole = true;
  config.experts.sigmoid_scores = config.experts.choice_bias = true;
  config.experts.sum_offset = 0;
  return config;
}

// Options for a new tiny model; tokenizer and output go below `folder`.
inline TrainOptions tiny_options(const TestFolder& folder, std::vector<std::string> files) {
  write_test_tokenizer(folder.file("tokenizer"));
  TrainOptions options;
  options.config = tiny_config();
  options.tokenizer_folder = folder.file("tokenizer");
  options.out_folder = folder.file("out");
  options.data.files = std::move(files);
  options.data.eval_fraction = 0;
  options.schedule.peak = 3e-3;
  options.context = 32;
  options.micro_batch_tokens = 64;
  options.step_tokens = 128;
  options.steps = 6;
  options.eval_every_steps = 0;
  options.checkpoint_every_seconds = 0;
  options.thread_count = 1;
  return options;
}

// The same for fine-tuning a model, with its own tokenizer.
inline TrainOptions tuning_options(TrainOptions options, std::string init_folder,
                                   std::string out_folder) {
  options.config.reset();
  options.tokenizer_folder.clear();
  options.init_folder = std::move(init_folder);
  options.out_folder = std::move(out_folder);
  return options;
}

// Short documents with something to learn, one JSON line each.
inline std::string small_corpus(int document_count) {
  std::string text;
  for (int i = 0; i < document_count; ++i) {
    const std::string word(1 + static_cast<size_t>(i * 7 % 23), static_cast<char>('a' + i % 26));
    text += dump_json(Json{{"text", "Item " + std::to_string(i) + " is " + word + "."}}) + "\n";
  }
  return text;
}

// Pairs of answers of several lengths, one JSON line each, of at most 20 tokens with the prompt.
inline std::string small_pairs(int pair_count) {
  std::string text;
  for (int i = 0; i < pair_count; ++i) {
    text += dump_json(Json{{"prompt", std::to_string(i) + " is "},
                           {"chosen", std::string(1 + static_cast<size_t>(i) % 5, 'y')},
                           {"rejected", std::string(1 + static_cast<size_t>(i) % 4, 'n')}}) +
            "\n";
  }
  return text;
}

// The weights that a run wrote at its end.
inline std::string model_bytes(const TrainOptions& options) {
  return read_file(options.out_folder + "/model/model.safetensors").value_or("none");
}

}  // namespace jige::train
