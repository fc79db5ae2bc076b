#include "text/normalizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/base64.h"
#include "text/bert_normalizer.h"
#include "text/byte_level.h"
#include "text/character_map.h"
#include "text/component.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

using Steps = std::vector<std::shared_ptr<const Normalizer::Step>>;

class FormStep final : public Normalizer::Step {
 public:
  explicit FormStep(NormalForm form) : form_(form) {}
  Result<std::string> apply(std::string_view text, RegexScratch&) const override {
    return normalize(text, form_);
  }
  bool cuts(std::string_view, std::string_view right) const override {
    return begins_normal_form(decode_utf8(right).code_point);
  }

 private:
  NormalForm form_;
};

// Nmt: leaves control characters out and makes spaces of others that stand for one.
std::string clean_for_translation(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const Decoded next = decode_utf8(text.substr(i));
    const char32_t c = next.code_point;
    const bool control = (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F ||
                         c == 0x8F || c == 0x9F;
    const bool space = c == '\t' || c == '\n' || c == 0xC || c == '\r' || c == 0x1680 ||
                       (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xFEFF || c == 0xFFFD;
    if (space) {
      out += ' ';
    } else if (!control) {
      out.append(text.substr(i, next.size));
    }
    i += next.size;
  }
  return out;
}

// A change of every character by itself.
class FunctionStep final : public Normalizer::Step {
 public:
  using Function = std::string (*)(std::string_view);
  explicit FunctionStep(Function function) : function_(function) {}
  Result<std::string> apply(std::string_view text, RegexScratch&) const override {
    return function_(text);
  }
  bool may_drop_first() const override {
    return function_ == strip_marks || function_ == clean_for_translation;
  }
  Result<bool> drops_first(std::string_view text, RegexScratch&) const override {
    if (!may_drop_first() || text.empty()) return false;
    return function_(text.substr(0, utf8_size(text[0]))).empty();
  }
  bool cuts(std::string_view, std::string_view) const override { return true; }

 private:
  Function function_;
};

class StripStep final : public Normalizer::Step {
 public:
  StripStep(bool left, bool right) : left_(left), right_(right) {}
  Result<std::string> apply(std::string_view text, RegexScratch&) const override {
    while (left_ && !text.empty()) {
      const Decoded first = decode_utf8(text);
      if (!is_white_space(first.code_point)) break;
      text.remove_prefix(first.size);
    }
    while (right_ && !text.empty()) {
      const size_t begin = last_character(text);
      if (!is_white_space(decode_utf8(text.substr(begin)).code_point)) break;
      text = text.substr(0, begin);
    }
    return std::string(text);
  }
  bool may_drop_first() const override { return left_; }
  Result<bool> drops_first(std::string_view text, RegexScratch&) const override {
    return left_ && !text.empty() && is_white_space(decode_utf8(text).code_point);
  }
  // The beginning of the whole text is not that of its parts.
  bool cuts(std::string_view left, std::string_view) const override {
    return !left_ && !is_white_space(decode_utf8(left.substr(last_character(left))).code_point);
  }

 private:
  bool left_;
  bool right_;
};

class PrependStep final : public Normalizer::Step {
 public:
  explicit PrependStep(std::string prefix) : prefix_(std::move(prefix)) {}
  Result<std::string> apply(std::string_view text, RegexScratch&) const override {
    if (text.empty()) return std::string();
    return prefix_ + std::string(text);
  }
  bool prepends() const override { return true; }
  bool cuts(std::string_view, std::string_view) const override { return true; }

 private:
  std::string prefix_;
};

class ReplaceStep final : public Normalizer::Step {
 public:
  ReplaceStep(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  Result<std::string> apply(std::string_view text, RegexScratch& scratch) const override {
    return pattern_.replace_all(text, content_, scratch);
  }
  bool may_drop_first() const override { return content_.empty() || !pattern_.is_one_character(); }
  // What stands for several characters stands for the last of them.
  Result<bool> drops_first(std::string_view text, RegexScratch& scratch) const override {
    if (text.empty() || !may_drop_first()) return false;
    JIGE_TRY(const std::optional<size_t> size, pattern_.match_at_start(text, scratch));
    if (!size || *size == 0) return false;
    return content_.empty() || *size > utf8_size(text[0]);
  }
  bool cuts(std::string_view left, std::string_view right) const override {
    return !pattern_.crosses(left, right);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

// The map leaves the first character out as if it stood there: what comes first is the beginning of
// the input (Hugging Face loses count of it).
class CharacterMapStep final : public Normalizer::Step {
 public:
  explicit CharacterMapStep(CharacterMap map) : map_(std::move(map)) {}
  Result<std::string> apply(std::string_view text, RegexScratch&) const override {
    return map_.apply(text);
  }
  bool cuts(std::string_view left, std::string_view right) const override {
    const char32_t before = decode_utf8(left.substr(last_character(left))).code_point;
    return never_one_grapheme(before, decode_utf8(right).code_point);
  }

 private:
  CharacterMap map_;
};

class BertStep final : public Normalizer::Step {
 public:
  explicit BertStep(const BertChanges& changes) : changes_(changes) {}
  Result<std::string> apply(std::string_view text, RegexScratch&) const override {
    return normalize_as_bert(text, changes_);
  }
  bool may_drop_first() const override { return changes_.cleans || changes_.strips_accents; }
  Result<bool> drops_first(std::string_view text, RegexScratch&) const override {
    if (!may_drop_first() || text.empty()) return false;
    return normalize_as_bert(text.substr(0, utf8_size(text[0])), changes_).empty();
  }
  bool cuts(std::string_view, std::string_view right) const override {
    return !changes_.strips_accents || begins_normal_form(decode_utf8(right).code_point);
  }

 private:
  BertChanges changes_;
};

std::string spell_bytes(std::string_view text) {
  std::string out;
  append_byte_level(out, text);
  return out;
}

std::optional<NormalForm> form_of(std::string_view type) {
  if (type == "NFC") return NormalForm::kNfc;
  if (type == "NFD") return NormalForm::kNfd;
  if (type == "NFKC") return NormalForm::kNfkc;
  if (type == "NFKD") return NormalForm::kNfkd;
  return std::nullopt;
}

FunctionStep::Function function_of(std::string_view type) {
  if (type == "Lowercase") return to_lower;
  if (type == "StripAccents") return strip_marks;
  if (type == "ByteLevel") return spell_bytes;
  if (type == "Nmt") return clean_for_translation;
  return nullptr;
}

Status add_normalizers(const Json& component, std::string_view where, Steps& steps) {
  if (steps.size() >= kStepsMax) return fail(Code::kCorrupt, "{}: too many normalizers", where);
  JIGE_TRY(const std::string type, component_type(component, where));
  if (type == "Sequence") {
    JIGE_TRY(const Json* parts, component_list(component, "normalizers", where));
    for (const Json& part : *parts) JIGE_DO(add_normalizers(part, where, steps));
    return {};
  }
  if (const auto form = form_of(type)) {
    steps.push_back(std::make_shared<FormStep>(*form));
  } else if (const auto function = function_of(type)) {
    steps.push_back(std::make_shared<FunctionStep>(function));
  } else if (type == "Precompiled") {
    JIGE_TRY(const std::string text, get_string(component, "precompiled_charsmap", where));
    const auto bytes = base64_bytes(text);
    if (!bytes) return fail(Code::kCorrupt, "{}: the map of Precompiled is not base64", where);
    JIGE_TRY(CharacterMap map, CharacterMap::parse(*bytes, where));
    steps.push_back(std::make_shared<CharacterMapStep>(std::move(map)));
  } else if (type == "Strip") {
    JIGE_TRY(const bool left, get_bool_or(component, "strip_left", true, where));
    JIGE_TRY(const bool right, get_bool_or(component, "strip_right", true, where));
    steps.push_back(std::make_shared<StripStep>(left, right));
  } else if (type == "Prepend") {
    JIGE_TRY(std::string prefix, get_string(component, "prepend", where));
    steps.push_back(std::make_shared<PrependStep>(std::move(prefix)));
  } else if (type == "BertNormalizer") {
    JIGE_TRY(BertChanges changes, bert_changes(component, where));
    steps.push_back(std::make_shared<BertStep>(changes));
  } else if (type == "Replace") {
    JIGE_TRY(Pattern pattern, Pattern::from_json(component, where));
    JIGE_TRY(std::string content, get_string(component, "content", where));
    steps.push_back(std::make_shared<ReplaceStep>(std::move(pattern), std::move(content)));
  } else {
    return unsupported_component("normalizer", type, where);
  }
  return {};
}

}  // namespace

Result<Normalizer> Normalizer::from_json(const Json* component, std::string_view where) {
  Normalizer normalizer;
  if (component) {
    JIGE_DO(add_normalizers(*component, fmt::format("{}: normalizer", where), normalizer.steps_));
  }
  return normalizer;
}

bool Normalizer::prepends() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const auto& step) { return step->prepends(); });
}

bool Normalizer::may_drop_first() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const auto& step) { return step->may_drop_first(); });
}

Result<Normalizer::Normalized> Normalizer::apply(std::string_view text, RegexScratch& scratch,
                                                 bool continues) const {
  Normalized current{std::string(text)};
  for (const auto& step : steps_) {
    if (continues && step->prepends()) continue;
    JIGE_TRY(const bool drops, step->drops_first(current.text, scratch));
    current.keeps_start = current.keeps_start && !drops;
    JIGE_TRY(current.text, step->apply(current.text, scratch));
    if (current.text.size() > kTextBytesMax) {
      return fail(Code::kExhausted, "the normalized text is longer than {} bytes", kTextBytesMax);
    }
  }
  return current;
}

Result<std::optional<Normalizer::Parts>> Normalizer::cut(std::string_view left,
                                                         std::string_view right, bool continues,
                                                         RegexScratch& scratch) const {
  std::string first(left);
  std::string second(right);
  bool keeps_start = true;
  for (const auto& step : steps_) {
    if (first.empty() || second.empty() || !step->cuts(first, second)) return std::nullopt;
    JIGE_TRY(const bool drops, step->drops_first(first, scratch));
    keeps_start = keeps_start && !drops;
    if (!continues || !step->prepends()) {
      JIGE_TRY(first, step->apply(first, scratch));
    }
    if (!step->prepends()) {
      JIGE_TRY(second, step->apply(second, scratch));
    }
  }
  if (first.empty() || second.empty()) return std::nullopt;
  const size_t place = first.size();
  return Parts{std::move(first) + second, place, keeps_start};
}

}  // namespace jige::text
