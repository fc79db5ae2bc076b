// Lists in one text: what stands between commas in a flag, or between marks in a file.
//
//   split_at("a,,b", ',')  // "a", "", "b"
//   split_at("", ',')      // ""
//
// Nothing is passed over: a mark at the end is followed by an item that is empty, for the reader of
// items to refuse. Threads: pure.
#pragma once

#include <string_view>
#include <vector>

namespace jige {

// The items, which point into the text: one more than there are marks.
std::vector<std::string_view> split_at(std::string_view text, char mark);

}  // namespace jige
