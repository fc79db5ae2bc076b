#include "text/bert_normalizer.h"

#include <nlohmann/json.hpp>

#include "text/unicode.h"

namespace jige::text {
namespace {

// Ranges as BERT has them, a gap between extensions D and E included.
bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

std::string clean(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const Decoded next = decode_utf8(text.substr(i));
    const char32_t c = next.code_point;
    if (c == '\t' || c == '\n' || c == '\r') {
      out += ' ';
    } else if (c != 0 && c != kReplacementCharacter && !is_other(c)) {
      out.append(is_white_space(c) ? " " : text.substr(i, next.size));
    }
    i += next.size;
  }
  return out;
}

std::string space_chinese(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const Decoded next = decode_utf8(text.substr(i));
    const bool chinese = is_chinese(next.code_point);
    if (chinese) out += ' ';
    out.append(text.substr(i, next.size));
    if (chinese) out += ' ';
    i += next.size;
  }
  return out;
}

std::string strip_nonspacing(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const Decoded next = decode_utf8(text.substr(i));
    if (!is_nonspacing_mark(next.code_point)) out.append(text.substr(i, next.size));
    i += next.size;
  }
  return out;
}

}  // namespace

Result<BertChanges> bert_changes(const Json& component, std::string_view where) {
  BertChanges changes;
  JIGE_TRY(changes.cleans, get_bool_or(component, "clean_text", true, where));
  JIGE_TRY(changes.spaces_chinese, get_bool_or(component, "handle_chinese_chars", true, where));
  JIGE_TRY(changes.lowers, get_bool_or(component, "lowercase", true, where));
  JIGE_TRY(changes.strips_accents, get_bool_or(component, "strip_accents", changes.lowers, where));
  return changes;
}

std::string normalize_as_bert(std::string_view text, const BertChanges& changes) {
  std::string out(text);
  if (changes.cleans) out = clean(out);
  if (changes.spaces_chinese) out = space_chinese(out);
  if (changes.strips_accents) out = strip_nonspacing(normalize(out, NormalForm::kNfd));
  if (changes.lowers) out = to_lower(out);
  return out;
}

}  // namespace jige::text
