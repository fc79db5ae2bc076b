#include "text/tokenizer_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace jige::text {
namespace {

// The long lists are written by hand: an ordered JSON object costs quadratic time.
std::string bpe_model_text(const BpeModelJson& model) {
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  std::string out = fmt::format(
      R"({{"type":"BPE","dropout":null,"unk_token":{},"continuing_subword_prefix":null,)"
      R"("end_of_word_suffix":null,"fuse_unk":{},"byte_fallback":{},"ignore_merges":{},"vocab":{{)",
      model.unk_token.empty() ? "null" : dump_json(Json(model.unk_token)), flag(model.fuse_unk),
      flag(model.byte_fallback), flag(model.ignore_merges));
  for (size_t i = 0; i < model.vocab.size(); ++i) {
    const auto& [token, id] = model.vocab[i];
    out += fmt::format("{}{}:{}", i ? "," : "", dump_json(Json(token)), id);
  }
  out += "},\"merges\":[";
  for (size_t i = 0; i < model.merges.size(); ++i) {
    const auto& [left, right] = model.merges[i];
    out += (i ? "," : "") + dump_json(Json(left + " " + right));
  }
  return out + "]}";
}

Json special_item(const std::string& text, int type) {
  return {{"SpecialToken", {{"id", text}, {"type_id", type}}}};
}

Json text_item(const char* name, int type) {
  return {{"Sequence", {{"id", name}, {"type_id", type}}}};
}

}  // namespace

Json added_token_json(std::string_view content, bool special) {
  return {{"content", content}, {"single_word", false}, {"lstrip", false},
          {"rstrip", false},    {"normalized", false},  {"special", special}};
}

Json template_json(const SpecialTexts& before, const SpecialTexts& behind) {
  Json single = Json::array();
  Json pair = Json::array();
  Json tokens = Json::object();
  const auto add = [&](const SpecialTexts& list, Json& items, int type) {
    for (const auto& [text, id] : list) {
      items.push_back(special_item(text, type));
      tokens[text] = {{"id", text}, {"ids", Json::array({id})}, {"tokens", Json::array({text})}};
    }
  };
  add(before, single, 0);
  single.push_back(text_item("A", 0));
  add(behind, single, 0);
  for (const int type : {0, 1}) {
    add(before, pair, type);
    pair.push_back(text_item(type ? "B" : "A", type));
    add(behind, pair, type);
  }
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(tokens)}};
}

Json split_json(std::string_view pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

Json byte_level_json(bool gpt2_words) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", gpt2_words}};
}

Json split_then_bytes_json(std::string_view pattern) {
  return {{"type", "Sequence"},
          {"pretokenizers", Json::array({split_json(pattern), byte_level_json(false)})}};
}

Json matches_then_bytes_json(std::string_view pattern) {
  Json both = split_then_bytes_json(pattern);
  Json& split = both["pretokenizers"][0];
  split["behavior"] = "Removed";
  split["invert"] = true;
  return both;
}

Json byte_level_decoder_json() {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", true},
          {"trim_offsets", true},
          {"use_regex", true}};
}

std::string tokenizer_json_text(const Json& root, const BpeModelJson& model) {
  std::string text = dump_json(root);
  text.pop_back();
  return text + ",\"model\":" + bpe_model_text(model) + "}\n";
}

}  // namespace jige::text
