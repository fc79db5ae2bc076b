#include "text/jinja_spec.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/ascii.h"
#include "text/jinja_format.h"
#include "text/jinja_number.h"
#include "text/unicode.h"

namespace jige::text::jinja {
namespace {

struct Spec {
  std::string fill = " ";
  char align = '\0';  // '\0': as the value has it
  char sign = '\0';
  bool positive_zero = false;  // z
  bool alternate = false;
  int64_t width = 0;
  char grouping = '\0';  // ',' or '_'
  int64_t precision = -1;
  char type = '\0';
};

// Reads a specification from its beginning to its end.
class SpecReader {
 public:
  SpecReader(std::string_view text, bool of_text) : whole_(text), text_(text), of_text_(of_text) {}

  Result<Spec> read() {
    const bool filled = read_fill();
    for (const char sign : {' ', '+', '-'}) {
      if (spec_.sign == '\0' && take(sign)) spec_.sign = sign;
    }
    spec_.positive_zero = take('z');
    spec_.alternate = take('#');
    if (!filled && take('0')) {
      spec_.fill = "0";
      if (spec_.align == '\0' && !of_text_) spec_.align = '=';
    }
    JIGE_TRY(const std::optional<int64_t> width, number());
    spec_.width = width.value_or(0);
    for (const char grouping : {',', '_', ','}) {
      if (!take(grouping)) continue;
      if (spec_.grouping != '\0') return refuse();
      spec_.grouping = grouping;
    }
    if (take('.')) {
      JIGE_TRY(const std::optional<int64_t> precision, number());
      if (!precision) return refuse();
      spec_.precision = *precision;
    }
    if (text_.size() > 1) return refuse();
    if (!text_.empty()) spec_.type = text_[0];
    JIGE_DO(check_grouping());
    return spec_;
  }

  tl::unexpected<Error> refuse() const {
    return fail(Code::kInvalidArgument, "\"{}\" is no format specification that Python takes here",
                whole_);
  }

 private:
  static bool is_align(std::string_view text) {
    return !text.empty() && std::string_view("<>=^").find(text[0]) != std::string_view::npos;
  }

  // True where a character to fill with is named.
  bool read_fill() {
    const size_t first = text_.empty() ? 0 : std::min(utf8_size(text_[0]), text_.size());
    const bool filled = is_align(text_.substr(first)) && first > 0;
    if (!filled && !is_align(text_)) return false;
    if (filled) {
      spec_.fill = text_.substr(0, first);
      text_.remove_prefix(first);
    }
    spec_.align = text_[0];
    text_.remove_prefix(1);
    return filled;
  }

  bool take(char c) {
    if (!text_.starts_with(c)) return false;
    text_.remove_prefix(1);
    return true;
  }

  Result<std::optional<int64_t>> number() {
    std::optional<int64_t> value;
    for (; !text_.empty() && text_[0] >= '0' && text_[0] <= '9'; text_.remove_prefix(1)) {
      value = value.value_or(0) * 10 + (text_[0] - '0');
      if (*value > kFormatSizeMax) {
        return fail(Code::kExhausted, "the format \"{}\" asks for more than {} characters", whole_,
                    kFormatSizeMax);
      }
    }
    return value;
  }

  Status check_grouping() const {
    if (spec_.grouping == '\0') return {};
    const char type = spec_.type != '\0' ? spec_.type : of_text_ ? 's' : 'd';
    const std::string_view types = spec_.grouping == '_' ? "deEfFgG%boxX" : "deEfFgG%";
    if (types.find(type) == std::string_view::npos) return refuse();
    return {};
  }

  const std::string_view whole_;
  std::string_view text_;
  const bool of_text_;
  Spec spec_;
};

std::string repeated(std::string_view fill, int64_t count) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) text += fill;
  return text;
}

// The parts of a number that is shown: sign and prefix, digits that can be grouped, the rest.
struct NumberParts {
  std::string front;
  std::string digits;
  std::string rest;
};

// Digits with a separator behind every `size` of them, from the right, and with zeros in front up
// to `width` characters.
std::string grouped(std::string_view digits, char separator, int64_t size, int64_t width) {
  std::string reversed;
  const auto count = static_cast<int64_t>(digits.size());
  for (int64_t i = 0; i < count || static_cast<int64_t>(reversed.size()) < width; ++i) {
    if (separator != '\0' && i > 0 && i % size == 0) reversed.push_back(separator);
    reversed.push_back(i < count ? digits[static_cast<size_t>(count - 1 - i)] : '0');
  }
  std::reverse(reversed.begin(), reversed.end());
  return reversed;
}

std::string aligned(const Spec& spec, const NumberParts& parts, int64_t group_size) {
  const auto fixed = static_cast<int64_t>(count_characters(parts.front + parts.rest));
  const bool with_zeros = spec.fill == "0" && spec.align == '=';
  std::string digits;
  if (!parts.digits.empty()) {
    digits = grouped(parts.digits, spec.grouping, group_size, with_zeros ? spec.width - fixed : 0);
  }
  const int64_t missing =
      std::max<int64_t>(0, spec.width - fixed - static_cast<int64_t>(digits.size()));
  const int64_t left = spec.align == '<' ? 0 : spec.align == '^' ? missing / 2 : missing;
  const std::string fill = repeated(spec.fill, left);
  if (spec.align == '=') return parts.front + fill + digits + parts.rest;
  return fill + parts.front + digits + parts.rest + repeated(spec.fill, missing - left);
}

std::string sign_of(const Spec& spec, bool negative) {
  if (negative) return "-";
  return spec.sign == '+' || spec.sign == ' ' ? std::string(1, spec.sign) : std::string();
}

std::string in_capitals(std::string text) {
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return text;
}

Result<std::string> text_in(const Value& value, const Spec& spec, const SpecReader& reader) {
  const bool usual = spec.type == '\0' || spec.type == 's';
  if (!usual || spec.sign != '\0' || spec.positive_zero || spec.alternate || spec.align == '=') {
    return reader.refuse();
  }
  std::string_view text = value.text();
  size_t bytes = 0;
  int64_t count = 0;
  for (; bytes < text.size() && (spec.precision < 0 || count < spec.precision); ++count) {
    bytes += utf8_size(text[bytes]);
  }
  const int64_t missing = std::max<int64_t>(0, spec.width - count);
  const int64_t left = spec.align == '>' ? missing : spec.align == '^' ? missing / 2 : 0;
  return repeated(spec.fill, left) + std::string(text.substr(0, bytes)) +
         repeated(spec.fill, missing - left);
}

Result<std::string> whole_in(const Whole& value, const Spec& spec, const SpecReader& reader) {
  if (spec.precision >= 0 || spec.positive_zero) return reader.refuse();
  NumberParts parts;
  if (spec.type == 'c') {
    if (spec.sign != '\0' || spec.alternate) return reader.refuse();
    JIGE_DO(append_character(parts.rest, value));
    return aligned(spec, parts, 3);
  }
  const char type = lower_ascii(spec.type);
  const int base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' ? 16 : 10;
  parts.front = sign_of(spec, value.negative);
  parts.digits = digits_of(value.size, base);
  if (spec.type == 'X') parts.digits = in_capitals(std::move(parts.digits));
  if (spec.alternate && base != 10) parts.front += std::string("0") + spec.type;
  return aligned(spec, parts, base == 10 ? 3 : 4);
}

Result<std::string> fraction_in(double value, const Spec& spec) {
  constexpr int kPrecisionUsual = 6;
  const char type = lower_ascii(spec.type);
  const bool percent = type == '%';
  FloatForm form{.kind = percent ? 'f' : type == 'n' ? 'g' : type, .alternate = spec.alternate};
  if (type == '\0') {
    form.kind = spec.precision < 0 ? 'r' : 'g';
    form.with_point = true;
  }
  form.precision = spec.precision < 0 ? kPrecisionUsual : static_cast<int>(spec.precision);
  const double shown = percent ? value * 100 : value;
  std::string text = float_digits(shown, form);
  bool negative = std::signbit(shown) && !std::isnan(shown);
  if (spec.positive_zero && text.find_first_of("123456789i") == std::string::npos) negative = false;
  if (spec.type == 'E' || spec.type == 'F' || spec.type == 'G') text = in_capitals(text);
  NumberParts parts{.front = sign_of(spec, negative), .digits = {}, .rest = {}};
  const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  parts.digits = text.substr(0, end);
  parts.rest = text.substr(end) + (percent ? "%" : "");
  return aligned(spec, parts, 3);
}

}  // namespace

Result<std::string> format_value(const Value& value, std::string_view spec_text, Budget& budget) {
  if (spec_text.empty()) return to_text(value, budget);
  const bool is_text = value.is(Kind::kString);
  if (!is_text && !value.is_number()) {
    return fail(Code::kInvalidArgument, "{} takes no format specification such as \"{}\"",
                value.type_name(), spec_text);
  }
  SpecReader reader(spec_text, is_text);
  JIGE_TRY(const Spec spec, reader.read());
  JIGE_DO(budget.bytes(static_cast<size_t>(spec.width) * spec.fill.size() * 2 +
                       static_cast<size_t>(std::max<int64_t>(0, spec.precision))));
  if (is_text) {
    JIGE_DO(budget.bytes(value.text().size()));
    return text_in(value, spec, reader);
  }
  const auto whole = whole_of(value);
  const auto one_of = [&](std::string_view types) {
    return spec.type == '\0' || types.find(spec.type) != std::string_view::npos;
  };
  if (whole && one_of("bcdoxXn")) return whole_in(*whole, spec, reader);
  if (one_of(whole ? "eEfFgG%" : "eEfFgGn%")) return fraction_in(value.as_double(), spec);
  return reader.refuse();
}

}  // namespace jige::text::jinja
