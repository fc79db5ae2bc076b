#include "base/file_marks.h"

#include <algorithm>
#include <array>

namespace jige {

bool begins_as_packed(std::string_view content) {
  constexpr std::array<std::string_view, 6> kMarks = {"\x1f\x8b",         "PK\x03\x04",
                                                      "\x28\xb5\x2f\xfd", "\xfd\x37zXZ",
                                                      "BZh91AY&SY",       "7z\xbc\xaf\x27\x1c"};
  return std::any_of(kMarks.begin(), kMarks.end(),
                     [&](std::string_view mark) { return content.starts_with(mark); });
}

bool begins_as_utf16(std::string_view content) {
  return content.starts_with("\xff\xfe") || content.starts_with("\xfe\xff");
}

std::string_view encoding_remedy(std::string_view line, bool first) {
  return first && begins_as_utf16(line)
             ? "it looks like UTF-16, which `iconv -f UTF-16 -t UTF-8` converts"
             : "`iconv -f ENCODING -t UTF-8` converts what is text in another encoding, such as "
               "WINDOWS-1252";
}

}  // namespace jige
