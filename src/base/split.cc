#include "base/split.h"

#include <algorithm>

namespace jige {

std::vector<std::string_view> split_at(std::string_view text, char mark) {
  std::vector<std::string_view> items;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(mark, begin), text.size());
    items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

}  // namespace jige
