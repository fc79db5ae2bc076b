#include "formats/gguf_words.h"

#include <utility>

#include "text/tokenizer_json.h"

namespace jige::formats {
namespace {

constexpr const char* kLlama3Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// With marks beside the letters they belong to.
constexpr const char* kQwen35Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekkenWords =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr const char* kGpt4oWords =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kSeedWords =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}|)"
    R"( ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Runs of Korean, marks, Bopomofo, and of Chinese and Japanese stand alone.
constexpr const char* kYoutuRuns =
    "[\uac00-\ud7a3\u3131-\u318e]+|"
    "[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|"
    "[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
// As kGpt4oWords, but for digits.
constexpr const char* kYoutuWords =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Spaces in runs of powers of two.
constexpr const char* kJais2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|)"
    R"(\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";

constexpr const char* kDeepseekWords =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Chinese, Japanese and Korean, as the patterns of DeepSeek spell the ranges.
constexpr const char* kDeepseekKana = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
constexpr const char* kDeepseekCjk = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";

// How a named family cuts words: by each pattern in turn, then digits apart, then by GPT-2's words.
struct WordsFamily {
  std::string_view name;
  const char* patterns[4] = {};
  bool single_digits = false;
  bool gpt2_words = false;
  bool nfc = false;
  bool ignore_merges = false;
  bool adds_bos = false;
};

constexpr WordsFamily kWordsFamilies[] = {
    {.name = "llama-bpe", .patterns = {kLlama3Words}, .ignore_merges = true, .adds_bos = true},
    {.name = "llama3", .patterns = {kLlama3Words}, .ignore_merges = true, .adds_bos = true},
    {.name = "llama-v3", .patterns = {kLlama3Words}, .ignore_merges = true, .adds_bos = true},
    {.name = "falcon3", .patterns = {kLlama3Words}, .ignore_merges = true, .adds_bos = true},
    {.name = "pixtral", .patterns = {kLlama3Words}, .ignore_merges = true, .adds_bos = true},
    {.name = "midm-2.0", .patterns = {kLlama3Words}, .ignore_merges = true, .adds_bos = true},
    {.name = "falcon-h1", .patterns = {kLlama3Words}, .ignore_merges = true, .adds_bos = true},
    {.name = "lfm2", .patterns = {kLlama3Words}, .ignore_merges = true, .adds_bos = true},
    {.name = "glm4", .patterns = {kLlama3Words}, .ignore_merges = true},
    {.name = "smaug-bpe", .patterns = {kLlama3Words}},
    {.name = "dbrx", .patterns = {kLlama3Words}},
    {.name = "chatglm-bpe", .patterns = {kLlama3Words}},
    {.name = "qwen2", .patterns = {text::kQwen2Words}, .nfc = true},
    {.name = "deepseek-r1-qwen", .patterns = {text::kQwen2Words}, .nfc = true},
    {.name = "qwen35", .patterns = {kQwen35Words}, .nfc = true},
    {.name = "stablelm2", .patterns = {text::kQwen2Words}},
    {.name = "hunyuan", .patterns = {text::kQwen2Words}},
    {.name = "solar-open", .patterns = {text::kQwen2Words}},
    {.name = "gpt-2", .gpt2_words = true},
    {.name = "phi-2", .gpt2_words = true},
    {.name = "exaone4", .gpt2_words = true},
    {.name = "granite-docling", .gpt2_words = true},
    {.name = "olmo", .gpt2_words = true, .nfc = true},
    {.name = "smollm", .single_digits = true, .gpt2_words = true},
    {.name = "starcoder", .single_digits = true, .gpt2_words = true},
    {.name = "refact", .single_digits = true, .gpt2_words = true},
    {.name = "exaone", .single_digits = true, .gpt2_words = true},
    {.name = "command-r", .single_digits = true, .gpt2_words = true, .nfc = true},
    {.name = "gpt-4o", .patterns = {kGpt4oWords}},
    {.name = "llama4", .patterns = {kGpt4oWords}},
    {.name = "kanana2", .patterns = {kGpt4oWords}},
    {.name = "minimax-m2", .patterns = {kGpt4oWords}},
    {.name = "seed-coder", .patterns = {kSeedWords}},
    {.name = "jais-2", .patterns = {kJais2Words}},
    {.name = "youtu", .patterns = {kYoutuRuns, kYoutuWords}, .ignore_merges = true},
    {.name = "tekken", .patterns = {kTekkenWords}, .ignore_merges = true, .adds_bos = true},
    {.name = "deepseek-v3", .patterns = {R"(\p{N}{1,3})", kDeepseekKana, kDeepseekWords}},
    {.name = "hunyuan-dense", .patterns = {R"(\p{N}{1,3})", kDeepseekKana, kDeepseekWords}},
    {.name = "deepseek-coder",
     .patterns = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepseekCjk},
     .single_digits = true},
};

Json words_pre_tokenizer(const WordsFamily& family) {
  Json steps = Json::array();
  for (const char* pattern : family.patterns) {
    if (pattern) steps.push_back(text::split_json(pattern));
  }
  if (family.single_digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  steps.push_back(text::byte_level_json(family.gpt2_words));
  if (steps.size() == 1) return steps[0];
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

// The steps of a component without what has no effect on words.
void add_plain_steps(const Json& component, const char* list, Json& steps) {
  if (!component.is_object()) return;
  const Json type = component.value("type", Json());
  if (type == "Sequence") {
    const auto parts = component.find(list);
    if (parts == component.end()) return;
    for (const Json& part : *parts) add_plain_steps(part, list, steps);
    return;
  }
  Json plain = {{"type", type}};
  for (const char* name : {"pattern", "behavior", "invert", "individual_digits"}) {
    if (component.contains(name)) plain[name] = component[name];
  }
  if (type == "ByteLevel") {
    plain["add_prefix_space"] = component.value("add_prefix_space", Json(true));
    plain["use_regex"] = component.value("use_regex", Json(true));
  }
  steps.push_back(std::move(plain));
}

Json plain_steps(const Json& component, const char* list) {
  Json steps = Json::array();
  add_plain_steps(component, list, steps);
  return steps;
}

Json normalizer_of(const WordsFamily& family) {
  return family.nfc ? Json{{"type", "NFC"}} : Json();
}

}  // namespace

std::optional<GgufWords> find_gguf_words(std::string_view name) {
  for (const WordsFamily& family : kWordsFamilies) {
    if (family.name != name) continue;
    return GgufWords{std::string(name), normalizer_of(family), words_pre_tokenizer(family),
                     family.ignore_merges, family.adds_bos};
  }
  return std::nullopt;
}

std::optional<std::string> gguf_words_name(const Json& normalizer, const Json& pre_tokenizer,
                                           bool ignore_merges) {
  for (const WordsFamily& family : kWordsFamilies) {
    if (family.ignore_merges != ignore_merges) continue;
    if (plain_steps(normalizer, "normalizers") !=
        plain_steps(normalizer_of(family), "normalizers")) {
      continue;
    }
    if (plain_steps(pre_tokenizer, "pretokenizers") ==
        plain_steps(words_pre_tokenizer(family), "pretokenizers")) {
      return std::string(family.name);
    }
  }
  return std::nullopt;
}

std::string known_gguf_pres() {
  std::string names;
  for (const WordsFamily& family : kWordsFamilies) {
    names += (names.empty() ? "" : ", ") + std::string(family.name);
  }
  return names;
}

}  // namespace jige::formats
