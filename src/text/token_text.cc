#include "text/token_text.h"

#include <charconv>
#include <string_view>

#include "text/byte_level.h"
#include "text/unicode.h"

namespace jige::text {

std::string token_text(const Tokenizer& tokenizer, int32_t id) {
  // Behind another token, since some decoders drop the space at the beginning of a text.
  const int32_t twice[] = {id, id};
  const auto both = tokenizer.decode(twice, {});
  const auto once = tokenizer.decode({twice, 1}, {});
  if (!once) return {};
  if (both && both->starts_with(*once)) return both->substr(once->size());
  return *once;
}

std::string token_bytes(const Tokenizer& tokenizer, int32_t id, const std::string& text) {
  if (text.find(to_utf8(kReplacementCharacter)) == std::string::npos) return text;
  const std::string spelling = tokenizer.id_to_token(id).value_or("");
  if (spelling.size() == 6 && spelling.starts_with("<0x")) {
    unsigned byte = 0;
    std::from_chars(spelling.data() + 3, spelling.data() + 5, byte, 16);
    return std::string(1, static_cast<char>(byte));
  }
  return from_byte_level(spelling).value_or(text);
}

}  // namespace jige::text
