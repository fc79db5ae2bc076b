// Base64 (RFC 4648, section 4): three bytes in four characters, padded with "=".
//
// Threads: pure function.
#pragma once

#include <string>
#include <string_view>

namespace jige {

std::string base64_text(std::string_view bytes);

}  // namespace jige
