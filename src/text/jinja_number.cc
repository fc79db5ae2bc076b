#include "text/jinja_number.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/jinja_format.h"
#include "text/mark_characters.h"
#include "text/unicode.h"

namespace jige::text::jinja {
namespace {

constexpr double kTwoTo64 = 18446744073709551616.0;
constexpr size_t kFloatBytesMax = 400;  // besides its precision

std::string converted(double size, std::chars_format format, int precision) {
  std::string text(static_cast<size_t>(precision) + kFloatBytesMax, '\0');
  const auto result =
      std::to_chars(text.data(), text.data() + text.size(), size, format, precision);
  text.resize(static_cast<size_t>(result.ptr - text.data()));
  return text;
}

// Puts a point in front of the exponent, or at the end, where there is none.
void add_point(std::string& text) {
  if (text.find('.') != std::string::npos) return;
  text.insert(std::min(text.find('e'), text.size()), ".");
}

void drop_zeros(std::string& text) {
  if (text.find('.') == std::string::npos) return;
  const size_t end = std::min(text.find('e'), text.size());
  size_t kept = text.find_last_not_of('0', end - 1) + 1;
  if (text[kept - 1] == '.') --kept;
  text.erase(kept, end - kept);
}

std::string general(double size, const FloatForm& form) {
  const int precision = std::max(form.precision, 1);
  std::string text = converted(size, std::chars_format::scientific, precision - 1);
  const int exponent = std::atoi(text.c_str() + text.find('e') + 1);
  const bool fixed = exponent >= -4 && exponent < precision - (form.with_point ? 1 : 0);
  if (fixed) text = converted(size, std::chars_format::fixed, precision - 1 - exponent);
  if (form.alternate) {
    add_point(text);
  } else {
    drop_zeros(text);
  }
  if (fixed && form.with_point && text.find('.') == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::optional<Whole> whole_of(const Value& value) {
  if (const auto large = value.large_whole()) return Whole{false, *large};
  if (!value.is(Kind::kInt) && !value.is(Kind::kBool)) return std::nullopt;
  const auto bits = static_cast<uint64_t>(value.as_int());
  return value.as_int() < 0 ? Whole{true, 0 - bits} : Whole{false, bits};
}

Result<Whole> truncated(const Value& value) {
  if (const auto whole = whole_of(value)) return *whole;
  if (!value.is_number()) {
    return fail(Code::kInvalidArgument, "a format needs a number, not {}", value.type_name());
  }
  const double number = std::trunc(value.as_double());
  if (!(std::fabs(number) < kTwoTo64)) {
    return fail(Code::kInvalidArgument, "an integer is beyond 64 bits");
  }
  return Whole{number < 0, static_cast<uint64_t>(std::fabs(number))};
}

std::string digits_of(uint64_t size, int base) {
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, size, base);
  return {buffer, result.ptr};
}

std::string float_digits(double value, const FloatForm& form) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return "inf";
  const double size = std::fabs(value);
  if (form.kind == 'g') return general(size, form);
  std::string text = form.kind == 'r' ? format_float(size)
                                      : converted(size,
                                                  form.kind == 'e' ? std::chars_format::scientific
                                                                   : std::chars_format::fixed,
                                                  form.precision);
  if (form.alternate) add_point(text);
  return text;
}

Status append_character(std::string& out, const Whole& code_point) {
  const bool surrogate = code_point.size >= 0xD800 && code_point.size <= 0xDFFF;
  if (code_point.negative || code_point.size > 0x10FFFF || surrogate) {
    return fail(Code::kInvalidArgument, "no character has the number {}{}",
                code_point.negative ? "-" : "", code_point.size);
  }
  append_utf8(out, static_cast<char32_t>(code_point.size));
  return {};
}

std::string escape_non_ascii(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const Decoded next = decode_utf8(text.substr(i));
    const auto c = static_cast<uint32_t>(next.code_point);
    if (c < 0x80 || is_guard_mark(next.code_point)) {
      out.append(text.substr(i, next.size));
    } else {
      out += c <= 0xFF     ? fmt::format("\\x{:02x}", c)
             : c <= 0xFFFF ? fmt::format("\\u{:04x}", c)
                           : fmt::format("\\U{:08x}", c);
    }
    i += next.size;
  }
  return out;
}

}  // namespace jige::text::jinja
