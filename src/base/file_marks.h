// What files begin with that says what they are, whatever they are called.
//
// Threads: pure functions.
#pragma once

#include <string_view>

namespace jige {

// Some editors put it in front of a text in UTF-8; it is no part of the text.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// As gzip, zip, zstd, xz, bzip2 and 7z files do, and no text.
bool begins_as_packed(std::string_view content);

// By the byte order mark.
bool begins_as_utf16(std::string_view content);

// What to do with a line that is not valid UTF-8; the first one of a file tells UTF-16.
std::string_view encoding_remedy(std::string_view line, bool first);

}  // namespace jige
