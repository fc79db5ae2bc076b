#include "base/base64.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace jige {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr auto kValues = [] {
  std::array<int8_t, 256> values{};
  values.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i) {
    values[static_cast<uint8_t>(kDigits[i])] = static_cast<int8_t>(i);
  }
  return values;
}();

}  // namespace

std::string base64_text(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t begin = 0; begin < bytes.size(); begin += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - begin);
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) {
      const auto byte = i < count ? static_cast<unsigned char>(bytes[begin + i]) : 0;
      bits = bits << 8 | byte;
    }
    for (size_t i = 0; i < 4; ++i) {
      text += i <= count ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
    }
  }
  return text;
}

std::optional<std::string> base64_bytes(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (size_t begin = 0; begin < text.size(); begin += 4) {
    std::string_view group = text.substr(begin, 4);
    const bool last = begin + 4 == text.size();
    if (last && group.ends_with("==")) {
      group.remove_suffix(2);
    } else if (last && group.ends_with('=')) {
      group.remove_suffix(1);
    }
    uint32_t bits = 0;
    for (const char digit : group) {
      const int8_t value = kValues[static_cast<uint8_t>(digit)];
      if (value < 0) return std::nullopt;
      bits = bits << 6 | static_cast<uint32_t>(value);
    }
    const size_t spare = group.size() == 4 ? 0 : group.size() == 3 ? 2 : 4;
    if ((bits & ((1u << spare) - 1)) != 0) return std::nullopt;
    bits >>= spare;
    for (size_t i = group.size() - 1; i > 0; --i) {
      bytes += static_cast<char>(bits >> (8 * (i - 1)) & 0xFF);
    }
  }
  return bytes;
}

}  // namespace jige
