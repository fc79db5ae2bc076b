#include "base/ascii.h"

namespace jige {

std::string lower_ascii(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = lower_ascii(c);
  return lower;
}

}  // namespace jige
