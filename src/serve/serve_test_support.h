// What the tests of this folder share: a loaded fixture model, a tokenizer of its vocabulary, and a
// file that goes with its test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/rng.h"
#include "base/test_path.h"
#include "model/inference.h"
#include "tensor/cpu_device.h"
#include "text/tokenizer.h"

namespace jige::serve::testing {

template <typename T, typename E>
T value_of(tl::expected<T, E> result) {
  if (!result) ADD_FAILURE() << result.error().message;
  return std::move(result.value());
}

class TempFile {
 public:
  TempFile() {
    std::string path = temporary_pattern(test_root() + "jige_events_");
    const int fd = mkstemp(path.data());
    EXPECT_GE(fd, 0);
    close(fd);
    path_ = path;
  }
  ~TempFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }
  std::string text() const { return value_of(read_file(path_)); }
  // Without the care of write_file_atomic, which waits for the disk.
  void write(const std::string& text) const {
    std::ofstream file(path_, std::ios::binary | std::ios::trunc);
    file << text;
    EXPECT_TRUE(file.flush().good());
  }

 private:
  std::string path_;
};

inline std::string fixture(const std::string& name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/" + name;
}

// One token a character: 0 <unk>, 1 `special`, 2 </s>, 3 space, then '!' to '{', and `last`: 96 in
// all.
inline text::Tokenizer make_character_tokenizer(const std::string& last,
                                                const std::string& special) {
  std::string vocab = R"("<unk>":0,")" + special + R"(":1,"</s>":2,"Ġ":3)";
  for (char c = '!'; c <= '|'; ++c) {
    std::string escaped = c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    if (c == '|') escaped = last;
    vocab += ",\"" + escaped + "\":" + std::to_string(c - '!' + 4);
  }
  const std::string json =
      R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[
        {"id":1,"content":")" +
      special + R"(","single_word":false,"lstrip":false,"rstrip":false,
         "normalized":false,"special":true},
        {"id":2,"content":"</s>","single_word":false,"lstrip":false,"rstrip":false,
         "normalized":false,"special":true}],
      "normalizer":null,
      "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,
                       "use_regex":true},
      "post_processor":null,
      "decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},
      "model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,
               "end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,
               "vocab":{)" +
      vocab + R"(},"merges":[]}})";
  return value_of(text::Tokenizer::from_json(json, "test tokenizer"));
}

inline text::Tokenizer character_tokenizer(const std::string& last = "|",
                                           const std::string& special = "<s>") {
  static const text::Tokenizer usual = make_character_tokenizer("|", "<s>");
  return last == "|" && special == "<s>" ? usual : make_character_tokenizer(last, special);
}

// An event log with one line damaged: other numbers, none, another line behind it, another byte.
inline std::string damaged_log(const std::string& log, Rng& rng) {
  std::vector<std::string> lines;
  for (size_t begin = 0, end; (end = log.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(log.substr(begin, end - begin + 1));
  }
  std::string& line = lines[rng.below(lines.size())];
  switch (rng.below(4)) {
    case 0:
      for (char& c : line) {
        if (c >= '0' && c <= '9' && rng.below(4) == 0) c = static_cast<char>('0' + rng.below(10));
      }
      break;
    case 1:
      line.clear();
      break;
    case 2:
      line += lines[rng.below(lines.size())];
      break;
    default:
      line[rng.below(line.size())] = static_cast<char>(rng.below(128));
  }
  std::string all;
  for (const std::string& one : lines) all += one;
  return all;
}

struct Loaded {
  explicit Loaded(const std::string& name, const model::InferenceOptions& options = {},
                  int threads = 1)
      : device({.thread_count = threads}),
        model(value_of(model::InferenceModel::load(fixture(name), device, options))),
        tokenizer(character_tokenizer()) {}
  CpuDevice device;
  std::unique_ptr<model::InferenceModel> model;
  text::Tokenizer tokenizer;
};

inline std::vector<int32_t> ids_of(const text::Tokenizer& tokenizer, const std::string& text) {
  return value_of(tokenizer.encode(text, {}));
}

}  // namespace jige::serve::testing
