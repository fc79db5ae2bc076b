// Filters on single values: text, numbers, defaults, JSON.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "base/ascii.h"
#include "text/jinja_builtins.h"
#include "text/jinja_format.h"
#include "text/jinja_operators.h"
#include "text/jinja_percent.h"
#include "text/jinja_text.h"
#include "text/unicode.h"

namespace jige::text::jinja {
namespace {

Result<Value> made(const FilterCall& call, std::string text) {
  JIGE_DO(call.budget().bytes(text.size()));
  return Value::string(std::move(text));
}

Result<std::string> input_text(const FilterCall& call) {
  return to_text(call.input, call.budget());
}

Status no_arguments(const FilterCall& call) {
  return bind(call.arguments, {}, call.name).map([](const auto&) {});
}

// The input, changed: HTML stays HTML.
Result<Value> changed(const FilterCall& call, std::string text) {
  JIGE_DO(call.budget().bytes(text.size()));
  return call.input.is_markup() ? Value::markup(std::move(text)) : Value::string(std::move(text));
}

// Filters that map text to text and take no arguments.
template <auto Function>
Result<Value> text_filter(const FilterCall& call) {
  JIGE_DO(no_arguments(call));
  JIGE_TRY(const std::string text, input_text(call));
  return changed(call, std::string(Function(text)));
}

Result<Value> title(const FilterCall& call) {
  JIGE_DO(no_arguments(call));
  JIGE_TRY(const std::string text, input_text(call));
  return made(call, title_filter(text));
}

Result<Value> trim(const FilterCall& call) {
  JIGE_TRY(const auto bound, bind(call.arguments, {"chars"}, call.name));
  JIGE_TRY(const std::string text, input_text(call));
  if (!bound[0] || bound[0]->is(Kind::kNone)) {
    return changed(call, std::string(strip_right(strip_left(text))));
  }
  JIGE_TRY(const std::string set, string_or(bound[0], "", "the characters of trim"));
  JIGE_DO(call.budget().steps(text.size() / 64 * (set.size() + 1)));
  return changed(call, std::string(strip_right(strip_left(text, set), set)));
}

Result<Value> replace(const FilterCall& call) {
  JIGE_TRY(const auto bound, bind(call.arguments, {"old", "new", "count"}, call.name));
  if (!bound[0] || !bound[1]) return fail(Code::kInvalidArgument, "replace needs two texts");
  JIGE_TRY(const std::string text, input_text(call));
  JIGE_TRY(const std::string from, to_text(*bound[0], call.budget()));
  JIGE_TRY(const std::string to, to_text(*bound[1], call.budget()));
  JIGE_TRY(const int64_t count, int_or(bound[2], -1, "the count of replace"));
  auto replaced = replace_text(text, from, to, count, static_cast<size_t>(Budget::kBytes) / 8);
  if (!replaced) return fail(Code::kExhausted, "replace makes too long a text");
  return made(call, std::move(*replaced));
}

Result<Value> indent(const FilterCall& call) {
  JIGE_TRY(const auto bound, bind(call.arguments, {"width", "first", "blank"}, call.name));
  JIGE_TRY(const std::string text, input_text(call));
  std::string indention;
  if (bound[0] && bound[0]->is(Kind::kString)) {
    indention = bound[0]->text();
  } else {
    JIGE_TRY(const int64_t width, int_or(bound[0], 4, "the width of indent"));
    indention.assign(static_cast<size_t>(std::clamp<int64_t>(width, 0, 10000)), ' ');
  }
  const bool blank = bool_or(bound[2], false);
  const std::string ended = text + "\n";  // so that a last empty line counts
  std::string out;
  bool is_first = true;
  for (const std::string_view line : split_lines(ended)) {
    JIGE_DO(call.budget().bytes(indention.size() + line.size()));
    if (!is_first) out.push_back('\n');
    const bool wanted = is_first ? bool_or(bound[1], false) : blank || !line.empty();
    if (wanted) out += indention;
    out += line;
    is_first = false;
  }
  return Value::string(std::move(out));
}

Result<Value> center(const FilterCall& call) {
  JIGE_TRY(const auto bound, bind(call.arguments, {"width"}, call.name));
  JIGE_TRY(const int64_t width, int_or(bound[0], 80, "the width of center"));
  JIGE_TRY(std::string text, input_text(call));
  return call_method(call.run, Value::string(std::move(text)), "center",
                     {{Value::integer(width)}, {}});
}

Result<Value> truncate(const FilterCall& call) {
  JIGE_TRY(const auto bound,
           bind(call.arguments, {"length", "killwords", "end", "leeway"}, call.name));
  JIGE_TRY(const int64_t length_max, int_or(bound[0], 255, "the length of truncate"));
  JIGE_TRY(const std::string end, string_or(bound[2], "...", "the end of truncate"));
  JIGE_TRY(const int64_t leeway, int_or(bound[3], 5, "the leeway of truncate"));
  JIGE_TRY(const std::string text, input_text(call));
  const auto size = static_cast<int64_t>(count_characters(text));
  const auto end_size = static_cast<int64_t>(count_characters(end));
  if (length_max < end_size) {
    return fail(Code::kInvalidArgument, "truncate: the length is shorter than the end");
  }
  if (leeway < 0) return fail(Code::kInvalidArgument, "truncate: the leeway is negative");
  if (size <= length_max || size - length_max <= leeway) return made(call, text);
  const auto letters = characters(text);
  std::string kept;
  for (int64_t i = 0; i < length_max - end_size; ++i) kept += letters[static_cast<size_t>(i)];
  if (!bool_or(bound[1], false)) {
    const size_t space = kept.rfind(' ');
    if (space != std::string::npos) kept.resize(space);
  }
  return made(call, kept + end);
}

Result<Value> word_count(const FilterCall& call) {
  JIGE_TRY(const std::string text, input_text(call));
  int64_t count = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size();) {
    const Decoded next = decode_utf8(std::string_view(text).substr(i));
    const bool word = is_word(next.code_point);
    count += word && !inside ? 1 : 0;
    inside = word;
    i += next.size;
  }
  return Value::integer(count);
}

Result<Value> url_encode(const FilterCall& call) {
  JIGE_TRY(const std::string text, input_text(call));
  std::string out;
  for (const char c : text) {
    const bool plain =
        is_ascii_alphanumeric(c) || std::string_view("_.-~/").find(c) != std::string_view::npos;
    if (plain) {
      out.push_back(c);
    } else {
      out += fmt::format("%{:02X}", static_cast<uint8_t>(c));
    }
  }
  return made(call, std::move(out));
}

Result<Value> string(const FilterCall& call) {
  if (call.input.is(Kind::kString)) return call.input;
  JIGE_TRY(std::string text, input_text(call));
  return Value::string(std::move(text));
}

Result<Value> safe(const FilterCall& call) {
  JIGE_TRY(const Value text, string(call));
  return Value::markup(text.text());
}

Result<Value> escape(const FilterCall& call) {
  JIGE_TRY(const Value text, string(call));
  if (text.is_markup() && call.name != "forceescape") return text;
  std::string escaped = escape_html(text.text());
  JIGE_DO(call.budget().bytes(escaped.size()));
  return Value::markup(std::move(escaped));
}

Result<Value> format(const FilterCall& call) {
  JIGE_TRY(const Value text, string(call));
  const Arguments& given = call.arguments;
  if (given.named.empty()) {
    JIGE_TRY(const Value values, Value::tuple(given.positional, call.budget()));
    return format_percent(text, values, call.budget());
  }
  if (!given.positional.empty()) {
    return fail(Code::kInvalidArgument, "format takes values by place or by name, not both");
  }
  DictData named;
  for (const auto& [name, value] : given.named) named.set(Value::string(name), value);
  JIGE_TRY(const Value values, Value::dict(std::move(named), call.budget()));
  return format_percent(text, values, call.budget());
}

Result<Value> default_value(const FilterCall& call) {
  JIGE_TRY(const auto bound, bind(call.arguments, {"default_value", "boolean"}, call.name));
  const bool missing =
      call.input.is(Kind::kUndefined) || (bool_or(bound[1], false) && !call.input.truth());
  if (!missing) return call.input;
  return bound[0] ? *bound[0] : Value::string("");
}

Result<Value> length_of(const FilterCall& call) {
  JIGE_DO(no_arguments(call));
  if (call.input.is(Kind::kString)) JIGE_DO(call.budget().steps(call.input.text().size() / 64));
  JIGE_TRY(const int64_t size, length(call.input));
  return Value::integer(size);
}

// A number as Python's int() or float() reads it from text; nullopt when it is none.
std::optional<double> parse_float(std::string_view text) {
  std::string digits(strip_right(strip_left(text)));
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  if (digits.starts_with('+')) digits.erase(0, 1);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_int(std::string_view text, int base) {
  std::string digits(strip_right(strip_left(text)));
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  if (digits.starts_with('+')) digits.erase(0, 1);
  const size_t sign = digits.starts_with('-') ? 1 : 0;
  const std::string_view marks = base == 16 ? "xX" : base == 8 ? "oO" : base == 2 ? "bB" : "";
  if (digits.size() > sign + 2 && digits[sign] == '0' &&
      marks.find(digits[sign + 1]) != marks.npos) {
    digits.erase(sign, 2);
  }
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> whole(double value) {
  if (!(std::fabs(value) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(value);
}

Result<Value> to_int(const FilterCall& call) {
  JIGE_TRY(const auto bound, bind(call.arguments, {"default", "base"}, call.name));
  JIGE_TRY(const int64_t base, int_or(bound[1], 10, "the base of int"));
  if (base < 2 || base > 36) return fail(Code::kInvalidArgument, "the base of int must be 2 to 36");
  std::optional<int64_t> number;
  if (call.input.is(Kind::kFloat)) {
    number = whole(call.input.as_double());
  } else if (call.input.is_number()) {
    number = call.input.as_int();
  } else if (call.input.is(Kind::kString)) {
    number = parse_int(call.input.text(), static_cast<int>(base));
    if (!number) {
      const auto value = parse_float(call.input.text());
      if (value) number = whole(*value);
    }
  } else if (call.input.is(Kind::kUndefined)) {
    return fail(Code::kInvalidArgument, "{}", call.input.undefined_hint());
  }
  if (number) return Value::integer(*number);
  return bound[0] ? *bound[0] : Value::integer(0);
}

Result<Value> to_float(const FilterCall& call) {
  JIGE_TRY(const auto bound, bind(call.arguments, {"default"}, call.name));
  if (call.input.is_number()) return Value::number(call.input.as_double());
  if (call.input.is(Kind::kUndefined)) {
    return fail(Code::kInvalidArgument, "{}", call.input.undefined_hint());
  }
  if (call.input.is(Kind::kString)) {
    if (const auto value = parse_float(call.input.text())) return Value::number(*value);
  }
  return bound[0] ? *bound[0] : Value::number(0.0);
}

Result<Value> absolute(const FilterCall& call) {
  JIGE_DO(no_arguments(call));
  if (!call.input.is_number()) {
    return fail(Code::kInvalidArgument, "abs needs a number, not {}", call.input.type_name());
  }
  if (call.input.as_double() < 0) return negate(call.input);
  return call.input.is(Kind::kBool) ? Value::integer(call.input.as_int()) : call.input;
}

Result<Value> round(const FilterCall& call) {
  JIGE_TRY(const auto bound, bind(call.arguments, {"precision", "method"}, call.name));
  JIGE_TRY(const int64_t precision, int_or(bound[0], 0, "the precision of round"));
  JIGE_TRY(const std::string method, string_or(bound[1], "common", "the method of round"));
  if (!call.input.is_number()) {
    return fail(Code::kInvalidArgument, "round needs a number, not {}", call.input.type_name());
  }
  const auto digits = static_cast<int>(std::clamp<int64_t>(precision, -300, 300));
  const double value = call.input.as_double();
  const double scale = std::pow(10.0, digits);
  if (method == "ceil") return Value::number(std::ceil(value * scale) / scale);
  if (method == "floor") return Value::number(std::floor(value * scale) / scale);
  if (method != "common") return fail(Code::kInvalidArgument, "round: unknown method {}", method);
  // An integer stays one, as in Python.
  const bool whole_number = !call.input.is(Kind::kFloat);
  if (whole_number && digits >= 0) return Value::integer(call.input.as_int());
  if (!std::isfinite(value)) return call.input;
  if (digits < 0) {
    const double rounded = std::nearbyint(value * scale) / scale;
    const auto integer = whole_number ? whole(rounded) : std::nullopt;
    return integer ? Value::integer(*integer) : Value::number(rounded);
  }
  // Printing rounds the exact value to even, which is what Python's round does.
  double rounded = 0;
  const std::string text = fmt::format("{:.{}f}", value, digits);
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return Value::number(rounded);
}

Result<Value> to_json(const FilterCall& call) {
  // transformers' order of arguments, not Jinja's.
  JIGE_TRY(const auto bound,
           bind(call.arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}, call.name));
  JsonFormat format;
  if (bound[1] && !bound[1]->is(Kind::kNone)) {
    JIGE_TRY(format.indent, int_or(bound[1], 0, "the indent of tojson"));
    format.item_separator = ",";
  }
  format.ensure_ascii = bool_or(bound[0], false);
  format.sort_keys = bool_or(bound[3], false);
  if (bound[2] && bound[2]->is_sequence() && bound[2]->items().size() == 2) {
    JIGE_TRY(format.item_separator, string_or(&bound[2]->items()[0], "", "a separator"));
    JIGE_TRY(format.key_separator, string_or(&bound[2]->items()[1], "", "a separator"));
  }
  std::string out;
  JIGE_DO(append_json(out, call.input, format, call.budget()));
  return Value::string(std::move(out));
}

}  // namespace

Filter find_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> kFilters = {
      {"abs", absolute},
      {"capitalize", text_filter<capitalize>},
      {"center", center},
      {"count", length_of},
      {"d", default_value},
      {"default", default_value},
      {"e", escape},
      {"escape", escape},
      {"float", to_float},
      {"forceescape", escape},
      {"format", format},
      {"indent", indent},
      {"int", to_int},
      {"length", length_of},
      {"lower", text_filter<to_lower>},
      {"replace", replace},
      {"round", round},
      {"safe", safe},
      {"string", string},
      {"title", title},
      {"tojson", to_json},
      {"trim", trim},
      {"truncate", truncate},
      {"upper", text_filter<to_upper>},
      {"urlencode", url_encode},
      {"wordcount", word_count},
  };
  const auto it = kFilters.find(name);
  return it != kFilters.end() ? it->second : find_list_filter(name);
}

}  // namespace jige::text::jinja
