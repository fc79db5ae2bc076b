#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "text/newer_characters.h"

namespace jige::text {
namespace {

bool is_continuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(older_character(c)));
}

utf8proc_int32_t cluster_point(char32_t c) {
  return static_cast<utf8proc_int32_t>(cluster_character(c));
}

// The second byte of E0, ED, F0 and F4 has a narrower range; this is what rules out overlong forms,
// surrogates and values above U+10FFFF.
bool second_byte_fits(uint8_t lead, uint8_t second) {
  switch (lead) {
    case 0xE0:
      return second >= 0xA0 && second <= 0xBF;
    case 0xED:
      return second >= 0x80 && second <= 0x9F;
    case 0xF0:
      return second >= 0x90 && second <= 0xBF;
    case 0xF4:
      return second >= 0x80 && second <= 0x8F;
    default:
      return is_continuation(second);
  }
}

uint32_t sequence_size(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF5 ? 4 : 0;
}

// Bytes at the start that are plain ASCII, found eight at a time.
size_t ascii_prefix(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t block;
    std::memcpy(&block, text.data() + i, 8);
    if (block & 0x8080808080808080ull) break;
  }
  while (i < text.size() && static_cast<uint8_t>(text[i]) < 0x80) ++i;
  return i;
}

// The position of the first ill-formed part, or the size.
size_t valid_prefix(std::string_view text) {
  size_t i = 0;
  for (;;) {
    i += ascii_prefix(text.substr(i));
    if (i >= text.size()) return text.size();
    const Decoded next = decode_utf8(text.substr(i));
    if (!next.valid) return i;
    i += next.size;
  }
}

template <typename Map>
std::string map_characters(std::string_view text, Map&& map) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Decoded next = decode_utf8(text.substr(i));
    map(next.code_point, out);
    i += next.size;
  }
  return out;
}

// Whether no normal form of this kind changes the character, moves it, or joins it with another. A
// sufficient condition that covers most text.
bool is_inert(char32_t c, NormalForm form) {
  if (c < 0x80 || is_newer_mark(c)) return true;
  if (form != NormalForm::kNfc) return false;
  return c < 0x300 || (c >= 0x2010 && c <= 0x2027) || (c >= 0x3000 && c <= 0x3029) ||
         (c >= 0x3400 && c <= 0x9FFF) || (c >= 0xFF01 && c <= 0xFFEE) ||
         (c >= 0x1F300 && c <= 0x1FAFF);
}

void decompose(std::string_view text, bool compatibility, std::vector<utf8proc_int32_t>& out) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compatibility ? UTF8PROC_COMPAT : 0));
  constexpr int kLongestDecomposition = 32;
  utf8proc_int32_t buffer[kLongestDecomposition];
  for (size_t i = 0; i < text.size();) {
    const Decoded next = decode_utf8(text.substr(i));
    i += next.size;
    if (next.code_point < 0x80) {
      out.push_back(static_cast<utf8proc_int32_t>(next.code_point));
      continue;
    }
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(next.code_point),
                                               buffer, kLongestDecomposition, options, &boundary);
    if (count < 1 || count > kLongestDecomposition) {
      out.push_back(static_cast<utf8proc_int32_t>(next.code_point));
    } else {
      out.insert(out.end(), buffer, buffer + count);
    }
  }
}

int combining_class(utf8proc_int32_t c) {
  return c < 0x300 ? 0 : utf8proc_get_property(c)->combining_class;
}

// Canonical order: stable sort of each run of marks by combining class. utf8proc's own loop is
// quadratic in the length of a run.
void order_marks(std::vector<utf8proc_int32_t>& points) {
  for (size_t i = 0; i < points.size();) {
    if (combining_class(points[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < points.size() && combining_class(points[end]) != 0) ++end;
    std::stable_sort(points.begin() + static_cast<std::ptrdiff_t>(i),
                     points.begin() + static_cast<std::ptrdiff_t>(end),
                     [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    i = end;
  }
}

// Appends the normal form of a run that begins and ends where characters do not interact.
void append_normalized(std::string_view text, NormalForm form,
                       std::vector<utf8proc_int32_t>& points, std::string& out) {
  const bool compatibility = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  points.clear();
  decompose(text, compatibility, points);
  order_marks(points);
  auto count = static_cast<utf8proc_ssize_t>(points.size());
  if (compose) {
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    count = utf8proc_normalize_utf32(points.data(), count, options);
  }
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_utf8(out, static_cast<char32_t>(points[static_cast<size_t>(i)]));
  }
}

}  // namespace

Decoded decode_utf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t lead = bytes[0];
  if (lead < 0x80) return {lead, 1, true};
  const uint32_t size = sequence_size(lead);
  if (size == 0 || text.size() < 2 || !second_byte_fits(lead, bytes[1])) {
    return {kReplacementCharacter, 1, false};
  }
  char32_t point = lead & (0x7Fu >> size);
  point = point << 6 | (bytes[1] & 0x3F);
  for (uint32_t i = 2; i < size; ++i) {
    if (i >= text.size() || !is_continuation(bytes[i])) return {kReplacementCharacter, i, false};
    point = point << 6 | (bytes[i] & 0x3F);
  }
  return {point, size, true};
}

void append_utf8(std::string& out, char32_t c) {
  if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) c = kReplacementCharacter;
  const auto tail = [&](int shift) {
    out.push_back(static_cast<char>(0x80 | (c >> shift & 0x3F)));
  };
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xC0 | c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | c >> 12));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xF0 | c >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string to_utf8(char32_t code_point) {
  std::string out;
  append_utf8(out, code_point);
  return out;
}

bool is_valid_utf8(std::string_view text) { return valid_prefix(text) == text.size(); }

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t good = valid_prefix(text);
    out.append(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) break;
    append_utf8(out, kReplacementCharacter);
    text.remove_prefix(decode_utf8(text).size);
  }
  return out;
}

size_t incomplete_utf8_suffix(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto lead = static_cast<uint8_t>(text[text.size() - back]);
    if (is_continuation(lead)) continue;
    const uint32_t size = sequence_size(lead);
    if (size <= back) return 0;
    const Decoded next = decode_utf8(text.substr(text.size() - back));
    return !next.valid && next.size == back ? back : 0;
  }
  return 0;
}

size_t find_text(std::string_view text, std::string_view what, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (what.empty()) return from;
  // The thread sanitizer takes memmem to read the whole text, which makes loops of this quadratic.
  const char* begin = text.data() + from;
  const size_t size = text.size() - from;
  const void* found = what.size() == 1 ? std::memchr(begin, what[0], size)
                                       : ::memmem(begin, size, what.data(), what.size());
  if (!found) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t grapheme_size(std::string_view text) {
  Decoded last = decode_utf8(text);
  size_t size = last.size;
  utf8proc_int32_t state = 0;
  while (size < text.size()) {
    const Decoded next = decode_utf8(text.substr(size));
    const bool plain = last.code_point < 0x80 && next.code_point < 0x80 && last.code_point != '\r';
    if (plain || utf8proc_grapheme_break_stateful(cluster_point(last.code_point),
                                                  cluster_point(next.code_point), &state)) {
      break;
    }
    size += next.size;
    last = next;
  }
  return size;
}

bool never_one_grapheme(char32_t left, char32_t right) {
  constexpr char32_t kJoiner = 0x200D;  // what it joins depends on what is before it
  return left != kJoiner && utf8proc_grapheme_break(cluster_point(left), cluster_point(right));
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return !is_continuation(static_cast<uint8_t>(c)); }));
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  if (c == 0x85) return true;
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_ZS || kind == UTF8PROC_CATEGORY_ZL ||
         kind == UTF8PROC_CATEGORY_ZP;
}

bool is_numeric(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_letter(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_mark(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t c) {
  if (c == 0x1734 || c == 0x1171E) return true;  // were some in Unicode 8
  return category(c) == UTF8PROC_CATEGORY_MN && !is_newer_mark(c) && !is_mark_of_unicode_9(c);
}

bool is_other(char32_t c) {
  const auto kind = category(c);
  return (kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF ||
          kind == UTF8PROC_CATEGORY_CO) &&
         !is_newer_format(c);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  }
  // These two were punctuation in Unicode 8.
  if (c == 0x166D || c == 0x111C9) return true;
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO && !is_newer_punctuation(c);
}

bool is_word(char32_t c) {
  if (c == 0x200C || c == 0x200D) return true;
  const auto kind = category(c);
  if (kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL) return true;
  if (kind == UTF8PROC_CATEGORY_PC) return true;
  // Alphabetic symbols: circled and squared Latin letters.
  if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
      (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189)) {
    return true;
  }
  return is_letter(c) || is_mark(c);
}

std::string normalize(std::string_view text, NormalForm form) {
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> points;
  size_t copied = 0;  // everything before is in `out`
  size_t last = 0;    // where the character before `i` begins
  for (size_t i = 0; i < text.size();) {
    if (form == NormalForm::kNfc && static_cast<uint8_t>(text[i]) < 0xCC) {
      last = i;
      i += utf8_size(text[i]);
      continue;
    }
    const Decoded next = decode_utf8(text.substr(i));
    if (is_inert(next.code_point, form)) {
      // A newer mark joins nothing, and nothing joins it.
      last = is_newer_mark(next.code_point) ? i + next.size : i;
      i += next.size;
      continue;
    }
    // A run of characters that may change, with the one before, which may join them.
    size_t end = i;
    while (end < text.size()) {
      const Decoded one = decode_utf8(text.substr(end));
      if (is_inert(one.code_point, form)) break;
      end += one.size;
    }
    const size_t begin = std::max(copied, last);
    out.append(text.substr(copied, begin - copied));
    append_normalized(text.substr(begin, end - begin), form, points, out);
    copied = last = i = end;
  }
  return out.append(text.substr(copied));
}

bool begins_normal_form(char32_t c) {
  if (c < 0x80) return true;
  std::vector<utf8proc_int32_t> parts;
  decompose(to_utf8(c), true, parts);
  const auto first = static_cast<char32_t>(parts.front());
  // What joins or changes places with a character before it is a mark or a vowel or final of
  // Hangul.
  return !is_mark(first) && combining_class(parts.front()) == 0 &&
         !(first >= 0x1160 && first <= 0x11FF);
}

std::string to_lower(std::string_view text) {
  return map_characters(text, [](char32_t c, std::string& out) {
    if (c == 0x130) {
      out += "i\xCC\x87";
      return;
    }
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  });
}

std::string to_upper(std::string_view text) {
  return map_characters(text, [](char32_t c, std::string& out) {
    if (c == 0xDF) {
      out += "SS";
      return;
    }
    append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  });
}

std::string strip_marks(std::string_view text) {
  return map_characters(text, [](char32_t c, std::string& out) {
    const bool was_mark = c == 0x1CF2 || c == 0x1CF3;  // letters from Unicode 12 on
    if (!was_mark && (!is_mark(c) || is_newer_mark(c))) append_utf8(out, c);
  });
}

}  // namespace jige::text
