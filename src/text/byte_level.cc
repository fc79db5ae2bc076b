#include "text/byte_level.h"

#include <array>

#include "text/unicode.h"

namespace jige::text {
namespace {

constexpr char32_t kFirstShifted = 0x100;
constexpr int kShiftedCount = 68;

constexpr bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

struct Tables {
  std::array<char32_t, 256> character{};
  std::array<uint8_t, kShiftedCount> shifted{};
};

constexpr Tables make_tables() {
  Tables tables;
  int shifted = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const auto at = static_cast<size_t>(byte);
    if (stands_for_itself(byte)) {
      tables.character[at] = static_cast<char32_t>(byte);
    } else {
      tables.character[at] = kFirstShifted + static_cast<char32_t>(shifted);
      tables.shifted[static_cast<size_t>(shifted)] = static_cast<uint8_t>(byte);
      ++shifted;
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

char32_t byte_level_character(uint8_t byte) { return kTables.character[byte]; }

int byte_level_byte(char32_t character) {
  if (character < kFirstShifted) {
    const int byte = static_cast<int>(character);
    return stands_for_itself(byte) ? byte : -1;
  }
  const char32_t shifted = character - kFirstShifted;
  return shifted < kShiftedCount ? kTables.shifted[shifted] : -1;
}

void append_byte_level(std::string& out, std::string_view bytes) {
  for (const char byte : bytes) {
    append_utf8(out, byte_level_character(static_cast<uint8_t>(byte)));
  }
}

std::optional<std::string> from_byte_level(std::string_view spelling) {
  std::string bytes;
  bytes.reserve(spelling.size());
  for (size_t i = 0; i < spelling.size();) {
    const Decoded next = decode_utf8(spelling.substr(i));
    const int byte = next.valid ? byte_level_byte(next.code_point) : -1;
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
    i += next.size;
  }
  return bytes;
}

}  // namespace jige::text
