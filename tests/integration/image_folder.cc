#include "integration/image_folder.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "integration/process.h"

namespace jige::integration {
namespace {

// What a folder is made of: a recorded model, what a template writes for an image, and its tokens.
struct ImageFolder {
  std::string source;
  std::string image;
  std::array<std::string, 3> tokens;  // from 92 on, of which the first stands for an image
};

std::string template_of(const ImageFolder& made) {
  return "{{ bos_token }}{% for m in messages %}"
         "{% if m.role == 'assistant' %}{{ m.content }}{{ eos_token }}"
         "{% elif m.content is string %}{{ m.content }}"
         "{% else %}{% for part in m.content %}"
         "{% if part.type == 'image' %}" +
         made.image +
         "{% else %}{{ part.text }}{% endif %}"
         "{% endfor %}{% endif %}{% endfor %}";
}

Json special_token(int id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

Json tokenizer_json(const ImageFolder& made) {
  Json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}, {"\u0120", 3}};
  for (char c = '!'; c < 'y'; ++c) vocabulary[std::string(1, c)] = c - '!' + 4;
  vocabulary["|"] = 95;
  // Others number added tokens by their order where the vocabulary has them not.
  for (int i = 0; i < 3; ++i) vocabulary[made.tokens[static_cast<size_t>(i)]] = 92 + i;
  Json added = {special_token(0, "<unk>"),         special_token(1, "<s>"),
                special_token(2, "</s>"),          special_token(92, made.tokens[0]),
                special_token(93, made.tokens[1]), special_token(94, made.tokens[2])};
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

void write_folder(const std::string& folder, const ImageFolder& made) {
  const std::string source =
      std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/image_towers/" + made.source + "/";
  for (const char* name :
       {"config.json", "model.safetensors", "preprocessor_config.json", "processor_config.json"}) {
    if (!std::filesystem::exists(source + name)) continue;
    std::filesystem::copy_file(source + name, folder + "/" + name);
  }
  write_text(folder + "/tokenizer.json", dump_json(tokenizer_json(made)));
  write_text(folder + "/tokenizer_config.json", dump_json({{"bos_token", "<s>"},
                                                           {"eos_token", "</s>"},
                                                           {"chat_template", template_of(made)}}));
}

ImageFolder with_tokens(const std::string& source) {
  if (source.starts_with("qwen")) {
    return {.source = source,
            .image = "<|vision_start|><|image_pad|><|vision_end|>",
            .tokens = {"<|image_pad|>", "<|vision_start|>", "<|vision_end|>"}};
  }
  return {.source = source, .image = "[IMG]", .tokens = {"[IMG]", "[IMG_BREAK]", "[IMG_END]"}};
}

}  // namespace

void write_image_folder(const std::string& folder) {
  write_folder(folder, with_tokens("mistral3"));
}

void write_qwen_image_folder(const std::string& folder) {
  write_folder(folder, with_tokens("qwen2_5_vl"));
}

std::string recorded_image_folder(const std::string& name, const std::string& folder) {
  const std::string source = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/image_towers/" + name;
  if (std::filesystem::exists(source + "/tokenizer.json")) return source;
  std::filesystem::create_directories(folder);
  write_folder(folder, with_tokens(name));
  return folder;
}

std::string picture_file(const std::string& name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/images/files/" + name;
}

}  // namespace jige::integration
