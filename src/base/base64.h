// Base64 (RFC 4648, section 4): three bytes in four characters, padded with "=".
//
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace jige {

std::string base64_text(std::string_view bytes);

// The bytes that such a text stands for; nothing where base64_text writes no such text.
std::optional<std::string> base64_bytes(std::string_view text);

}  // namespace jige
