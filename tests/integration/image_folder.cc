#include "integration/image_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "integration/process.h"

namespace jige::integration {
namespace {

constexpr const char* kTemplate =
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'assistant' %}{{ m.content }}{{ eos_token }}"
    "{% elif m.content is string %}{{ m.content }}"
    "{% else %}{% for part in m.content %}"
    "{% if part.type == 'image' %}[IMG]{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}";

Json special_token(int id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

Json tokenizer_json() {
  Json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}, {"\u0120", 3}};
  for (char c = '!'; c < 'y'; ++c) vocabulary[std::string(1, c)] = c - '!' + 4;
  vocabulary["|"] = 95;
  Json added = {special_token(0, "<unk>"),        special_token(1, "<s>"),
                special_token(2, "</s>"),         special_token(92, "[IMG]"),
                special_token(93, "[IMG_BREAK]"), special_token(94, "[IMG_END]")};
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", std::move(added)},
          {"normalizer", nullptr},
          {"pre_tokenizer", bytes},
          {"post_processor", nullptr},
          {"decoder", bytes},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"vocab", std::move(vocabulary)},
            {"merges", Json::array()}}}};
}

}  // namespace

void write_image_folder(const std::string& folder) {
  const std::string source =
      std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/image_towers/mistral3/";
  for (const char* name :
       {"config.json", "model.safetensors", "preprocessor_config.json", "processor_config.json"}) {
    std::filesystem::copy_file(source + name, folder + "/" + name);
  }
  write_text(folder + "/tokenizer.json", dump_json(tokenizer_json()));
  write_text(
      folder + "/tokenizer_config.json",
      dump_json({{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"chat_template", kTemplate}}));
}

std::string picture_file(const std::string& name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/images/files/" + name;
}

}  // namespace jige::integration
