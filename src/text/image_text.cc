#include "text/image_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace jige::text {

void put_image_text(const ImageText& image, std::string& text, std::vector<size_t>& guards) {
  if (image.token.empty()) return;
  std::string result;
  std::vector<size_t> moved;
  auto guard = guards.begin();
  size_t from = 0;
  const auto copy_until = [&](size_t end) {
    for (; guard != guards.end() && *guard <= end; ++guard) {
      moved.push_back(*guard - from + result.size());
    }
    result.append(text, from, end - from);
    from = end;
  };
  for (size_t at = text.find(image.token); at != text.npos; at = text.find(image.token, from)) {
    copy_until(at);
    const size_t end = at + image.token.size();
    if (guard != guards.end() && *guard < end) {
      copy_until(at + 1);
      continue;
    }
    result += image.text;
    from = end;
  }
  copy_until(text.size());
  text = std::move(result);
  guards = std::move(moved);
}

}  // namespace jige::text
