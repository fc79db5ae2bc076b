#include "text/jinja_format.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/mark_characters.h"
#include "text/unicode.h"

namespace jige::text::jinja {
namespace {

bool is_printable(char32_t c) {
  if (c == ' ' || is_guard_mark(c)) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
  }
}

void append_quoted(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != text.npos;
  const char quote = has_single && text.find('"') == text.npos ? '"' : '\'';
  out.push_back(quote);
  for (size_t i = 0; i < text.size();) {
    const Decoded next = decode_utf8(text.substr(i));
    const char32_t c = next.code_point;
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      out.append(text.substr(i, next.size));
    } else if (c <= 0xFF) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c <= 0xFFFF) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
    i += next.size;
  }
  out.push_back(quote);
}

Status append_items(std::string& out, const Value& value, Budget& budget) {
  const bool is_tuple = value.is(Kind::kTuple);
  out.push_back(is_tuple ? '(' : '[');
  bool first = true;
  for (const Value& item : value.items()) {
    if (!first) out += ", ";
    first = false;
    JIGE_DO(append_repr(out, item, budget));
  }
  if (is_tuple && value.items().size() == 1) out.push_back(',');
  out.push_back(is_tuple ? ')' : ']');
  return {};
}

Status append_entries(std::string& out, const Value& value, Budget& budget) {
  out.push_back('{');
  bool first = true;
  for (const auto& [key, item] : value.entries().entries) {
    if (!first) out += ", ";
    first = false;
    JIGE_DO(append_repr(out, key, budget));
    out += ": ";
    JIGE_DO(append_repr(out, item, budget));
  }
  out.push_back('}');
  return {};
}

void append_json_string(std::string& out, std::string_view text, bool ensure_ascii) {
  out.push_back('"');
  for (size_t i = 0; i < text.size();) {
    const Decoded next = decode_utf8(text.substr(i));
    const char32_t c = next.code_point;
    constexpr std::string_view kFrom = "\"\\\n\r\t\b\f", kTo = "\"\\nrtbf";
    const bool escaped = ensure_ascii && c > 0x7E && !is_guard_mark(c);
    const size_t simple = c < 0x80 ? kFrom.find(static_cast<char>(c)) : kFrom.npos;
    if (simple != kFrom.npos) {
      out.push_back('\\');
      out.push_back(kTo[simple]);
    } else if (c < 0x20 || (escaped && c <= 0xFFFF)) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else if (escaped) {
      const auto offset = static_cast<uint32_t>(c) - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (offset >> 10), 0xDC00 + (offset & 0x3FF));
    } else {
      out.append(text.substr(i, next.size));
    }
    i += next.size;
  }
  out.push_back('"');
}

std::string shown_float(const Value& value) {
  const auto large = value.large_whole();
  return large ? std::to_string(*large) : format_float(value.as_double());
}

// Writes JSON as Python's json.dumps does.
class JsonWriter {
 public:
  JsonWriter(std::string& out, const JsonFormat& format, Budget& budget)
      : out_(out), format_(format), budget_(budget) {}

  Status write(const Value& value) {
    const size_t before = out_.size();
    JIGE_DO(budget_.steps(1));
    switch (value.kind()) {
      case Kind::kNone: out_ += "null"; break;
      case Kind::kBool: out_ += value.as_bool() ? "true" : "false"; break;
      case Kind::kInt: out_ += std::to_string(value.as_int()); break;
      case Kind::kFloat: out_ += json_float(value); break;
      case Kind::kString: append_json_string(out_, value.text(), format_.ensure_ascii); break;
      case Kind::kList:
      case Kind::kTuple: return list(value.items());
      case Kind::kDict: return dict(value.entries());
      default:
        return fail(Code::kInvalidArgument, "{} cannot be written as JSON", value.type_name());
    }
    return budget_.bytes(out_.size() - before);
  }

 private:
  static std::string json_float(const Value& value) {
    const double number = value.as_double();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return shown_float(value);
  }

  Status new_line() {
    if (!format_.indent) return {};
    constexpr int64_t kIndentMax = 1 << 16;
    const auto spaces =
        static_cast<size_t>(level_ * std::clamp<int64_t>(*format_.indent, 0, kIndentMax));
    JIGE_DO(budget_.bytes(spaces + 1));
    out_.push_back('\n');
    out_.append(spaces, ' ');
    return {};
  }

  Status list(const Items& items) {
    if (items.empty()) {
      out_ += "[]";
      return {};
    }
    out_.push_back('[');
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += format_.item_separator;
      JIGE_DO(new_line());
      JIGE_DO(write(items[i]));
    }
    --level_;
    JIGE_DO(new_line());
    out_.push_back(']');
    return {};
  }

  Status dict(const DictData& dict) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return {};
    }
    auto entries = dict.entries;
    JIGE_DO(budget_.steps(entries.size()));
    if (format_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
        return a.first.is(Kind::kString) && b.first.is(Kind::kString) &&
               a.first.text() < b.first.text();
      });
    }
    out_.push_back('{');
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += format_.item_separator;
      JIGE_DO(new_line());
      JIGE_DO(key(entries[i].first));
      out_ += format_.key_separator;
      JIGE_DO(write(entries[i].second));
    }
    --level_;
    JIGE_DO(new_line());
    out_.push_back('}');
    return {};
  }

  // Keys are always strings in JSON; numbers, booleans and none become their JSON text.
  Status key(const Value& key) {
    if (key.is(Kind::kString)) return write(key);
    if (!key.is_number() && !key.is(Kind::kNone)) {
      return fail(Code::kInvalidArgument, "{} cannot be a key in JSON", key.type_name());
    }
    out_.push_back('"');
    JIGE_DO(write(key));
    out_.push_back('"');
    return {};
  }

  std::string& out_;
  const JsonFormat& format_;
  Budget& budget_;
  int64_t level_ = 0;
};

}  // namespace

std::string format_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto result =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(result.ptr - buffer));
  const size_t mark = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(mark + 1)).c_str());
  if (exponent < -4 || exponent >= 16) {
    // Python writes at least two digits of exponent, as to_chars does.
    return std::string(text);
  }
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  std::string out(buffer, static_cast<size_t>(fixed.ptr - buffer));
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

Status append_text(std::string& out, const Value& value, Budget& budget) {
  if (value.is(Kind::kUndefined)) return {};
  if (!value.is(Kind::kString)) return append_repr(out, value, budget);
  JIGE_DO(budget.bytes(value.text().size()));
  out += value.text();
  return {};
}

Result<std::string> to_text(const Value& value, Budget& budget) {
  std::string out;
  JIGE_DO(append_text(out, value, budget));
  return out;
}

Status append_repr(std::string& out, const Value& value, Budget& budget) {
  JIGE_DO(budget.steps(1));
  const size_t before = out.size();
  switch (value.kind()) {
    case Kind::kUndefined: out += "Undefined"; break;
    case Kind::kNone: out += "None"; break;
    case Kind::kBool: out += value.as_bool() ? "True" : "False"; break;
    case Kind::kInt: out += std::to_string(value.as_int()); break;
    case Kind::kFloat: out += shown_float(value); break;
    case Kind::kString: append_quoted(out, value.text()); break;
    case Kind::kList:
    case Kind::kTuple: return append_items(out, value, budget);
    case Kind::kDict: return append_entries(out, value, budget);
    default: out += fmt::format("<{}>", value.type_name()); break;
  }
  return budget.bytes(out.size() - before);
}

Status append_json(std::string& out, const Value& value, const JsonFormat& format,
                   Budget& budget) {
  return JsonWriter(out, format, budget).write(value);
}

}  // namespace jige::text::jinja
