// What the JSON library says of a text that is not valid, without its own name and numbers.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace jige {

// "column 5: invalid literal; last read: 'x'", with the line where the text has several. `what` is
// the library's message on `text`; at most kJsonErrorBytesMax of it are kept, for it quotes the
// last token however long.
inline constexpr size_t kJsonErrorBytesMax = 400;
std::string json_error_text(std::string_view what, std::string_view text);

}  // namespace jige
