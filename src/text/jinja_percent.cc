#include "text/jinja_percent.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/ascii.h"
#include "text/jinja_format.h"
#include "text/jinja_number.h"
#include "text/jinja_text.h"
#include "text/unicode.h"

namespace jige::text::jinja {
namespace {

// One "%…" of a format.
struct Directive {
  bool left = false, zero = false, plus = false, blank = false, alternate = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

// The parts of what one directive shows: zeros are filled in behind the front.
struct Shown {
  std::string front;
  std::string text;
  bool is_number = false;
};

// One format and its values. Values come as in Python: a tuple's by place; anything else is one
// value, and so is what a key finds.
class PercentFormat {
 public:
  PercentFormat(const Value& format, const Value& values, Budget& budget)
      : format_(format.text()), is_markup_(format.is_markup()), values_(values), budget_(budget) {
    by_place_ = values.is(Kind::kTuple);
    // What Python takes for a mapping: all that can be indexed but tuples and texts.
    is_mapping_ = values.is(Kind::kDict) || values.is(Kind::kList) || values.is(Kind::kUndefined);
    single_ = &values;
  }

  Result<Value> run() {
    std::string out;
    while (at_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', at_), format_.size());
      out.append(format_.substr(at_, percent - at_));
      at_ = percent + 1;
      if (percent == format_.size()) break;
      if (take('%')) {
        out.push_back('%');
        continue;
      }
      JIGE_TRY(const Directive directive, read_directive());
      JIGE_TRY(const Value* value, next_value());
      JIGE_DO(budget_.bytes(static_cast<size_t>(directive.width) +
                            static_cast<size_t>(std::max<int64_t>(0, directive.precision))));
      JIGE_TRY(const Shown shown, show(directive, *value));
      JIGE_DO(budget_.bytes(shown.text.size()));
      append_padded(out, directive, shown);
    }
    const bool all_used = by_place_ ? used_ == values_.items().size() : single_ == nullptr;
    if (!all_used && !is_mapping_) {
      return fail(Code::kInvalidArgument, "more values than the format shows");
    }
    JIGE_DO(budget_.bytes(out.size()));
    return is_markup_ ? Value::markup(std::move(out)) : Value::string(std::move(out));
  }

 private:
  tl::unexpected<Error> incomplete() const {
    return fail(Code::kInvalidArgument, "a % format is incomplete");
  }

  Result<const Value*> next_value() {
    if (by_place_ && used_ < values_.items().size()) return &values_.items()[used_++];
    if (!by_place_ && single_) return std::exchange(single_, nullptr);
    return fail(Code::kInvalidArgument, "not enough values for the format");
  }

  bool take(char c) {
    if (at_ >= format_.size() || format_[at_] != c) return false;
    ++at_;
    return true;
  }

  Result<Directive> read_directive() {
    Directive directive;
    JIGE_DO(read_key());
    for (bool more = true; more;) {
      more = false;
      const auto flag = [&](char c, bool& is_set) {
        if (!take(c)) return;
        is_set = more = true;
      };
      flag('-', directive.left);
      flag('+', directive.plus);
      flag(' ', directive.blank);
      flag('#', directive.alternate);
      flag('0', directive.zero);
    }
    JIGE_TRY(const std::optional<int64_t> width, read_size());
    directive.width = std::abs(width.value_or(0));
    directive.left = directive.left || width.value_or(0) < 0;
    if (take('.')) {
      JIGE_TRY(const std::optional<int64_t> precision, read_size());
      directive.precision = std::max<int64_t>(0, precision.value_or(0));
    }
    if (!take('h') && !take('l')) take('L');
    if (at_ >= format_.size()) return incomplete();
    directive.type = format_[at_++];
    return directive;
  }

  // "(key)", which may hold parentheses.
  Status read_key() {
    if (!take('(')) return {};
    if (!is_mapping_) {
      return fail(Code::kInvalidArgument, "a % format with keys needs a dict, not {}",
                  values_.type_name());
    }
    const size_t begin = at_;
    for (int depth = 1; depth > 0; ++at_) {
      if (at_ >= format_.size()) return incomplete();
      depth += format_[at_] == '(' ? 1 : format_[at_] == ')' ? -1 : 0;
    }
    const std::string_view key = format_.substr(begin, at_ - 1 - begin);
    single_ = values_.is(Kind::kDict) ? values_.entries().find(key) : nullptr;
    if (!single_) return fail(Code::kInvalidArgument, "the format's values have no \"{}\"", key);
    return {};
  }

  // Digits, or the next value for a star.
  Result<std::optional<int64_t>> read_size() {
    if (take('*')) {
      JIGE_TRY(const Value* value, next_value());
      if (!value->is(Kind::kInt) && !value->is(Kind::kBool)) {
        return fail(Code::kInvalidArgument, "* in a % format needs an integer, not {}",
                    value->type_name());
      }
      const int64_t size = value->as_int();
      if (size > kFormatSizeMax || size < -kFormatSizeMax) return too_large();
      return size;
    }
    std::optional<int64_t> size;
    for (; at_ < format_.size() && is_digit(); ++at_) {
      size = size.value_or(0) * 10 + (format_[at_] - '0');
      if (*size > kFormatSizeMax) return too_large();
    }
    return size;
  }
  tl::unexpected<Error> too_large() const {
    return fail(Code::kExhausted, "a % format asks for more than {} characters", kFormatSizeMax);
  }
  bool is_digit() const { return format_[at_] >= '0' && format_[at_] <= '9'; }

  Result<Shown> show(const Directive& directive, const Value& value) {
    switch (directive.type) {
      case 's':
      case 'r':
      case 'a':
        return show_text(directive, value);
      case 'c':
        return show_character(directive, value);
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return show_whole(directive, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return show_fraction(directive, value);
      default:
        return fail(Code::kInvalidArgument, "there is no format %{}", directive.type);
    }
  }

  Result<Shown> show_text(const Directive& directive, const Value& value) {
    Shown shown;
    if (directive.type == 's') {
      JIGE_DO(append_text(shown.text, value, budget_));
    } else {
      JIGE_DO(append_repr(shown.text, value, budget_));
    }
    if (directive.type == 'a') {
      if (is_markup_) return no_markup(directive);
      shown.text = escape_non_ascii(shown.text);
    }
    const bool is_html = value.is_markup() && directive.type == 's';
    if (is_markup_ && !is_html) shown.text = escape_html(shown.text);
    if (directive.precision >= 0) {
      size_t bytes = 0;
      for (int64_t i = 0; i < directive.precision && bytes < shown.text.size(); ++i) {
        bytes += utf8_size(shown.text[bytes]);
      }
      shown.text.resize(std::min(bytes, shown.text.size()));
    }
    return shown;
  }

  tl::unexpected<Error> no_markup(const Directive& directive) const {
    return fail(Code::kUnsupported, "the format %{} of HTML is not supported", directive.type);
  }

  Result<Shown> show_character(const Directive& directive, const Value& value) {
    if (is_markup_) return no_markup(directive);
    Shown shown;
    if (const auto whole = whole_of(value)) {
      JIGE_DO(append_character(shown.text, *whole));
    } else if (value.is(Kind::kString) && count_characters(value.text()) == 1) {
      shown.text = value.text();
    } else {
      return fail(Code::kInvalidArgument, "%c needs a number or one character");
    }
    return shown;
  }

  Result<Shown> show_whole(const Directive& directive, const Value& value) {
    if (is_markup_) return no_markup(directive);
    const char type = lower_ascii(directive.type);
    const int base = type == 'o' ? 8 : type == 'x' ? 16 : 10;
    if (base != 10 && !whole_of(value)) {
      return fail(Code::kInvalidArgument, "%{} needs an integer, not {}", directive.type,
                  value.type_name());
    }
    JIGE_TRY(const Whole whole, truncated(value));
    Shown shown = with_sign(directive, whole.negative);
    if (directive.alternate && base != 10) shown.front += std::string("0") + type;
    shown.text = digits_of(whole.size, base);
    const auto digits = static_cast<int64_t>(shown.text.size());
    if (digits < directive.precision) {
      shown.text.insert(0, static_cast<size_t>(directive.precision - digits), '0');
    }
    if (directive.type == 'X') to_capitals(shown);
    return shown;
  }

  Result<Shown> show_fraction(const Directive& directive, const Value& value) {
    constexpr int kPrecisionUsual = 6;
    if (is_markup_) return no_markup(directive);
    if (!value.is_number()) {
      return fail(Code::kInvalidArgument, "%{} needs a number, not {}", directive.type,
                  value.type_name());
    }
    const double number = value.as_double();
    const int precision =
        directive.precision < 0 ? kPrecisionUsual : static_cast<int>(directive.precision);
    Shown shown = with_sign(directive, std::signbit(number) && !std::isnan(number));
    shown.text = float_digits(number, {.kind = lower_ascii(directive.type),
                                       .precision = precision,
                                       .alternate = directive.alternate});
    if (directive.type < 'a') to_capitals(shown);
    return shown;
  }

  static Shown with_sign(const Directive& directive, bool negative) {
    return {.front = negative          ? "-"
                     : directive.plus  ? "+"
                     : directive.blank ? " "
                                       : "",
            .text = {},
            .is_number = true};
  }

  static void to_capitals(Shown& shown) {
    shown.front = to_upper(shown.front);
    shown.text = to_upper(shown.text);
  }

  static void append_padded(std::string& out, const Directive& directive, const Shown& shown) {
    const auto size = static_cast<int64_t>(shown.front.size() + count_characters(shown.text));
    const auto missing = static_cast<size_t>(std::max<int64_t>(0, directive.width - size));
    const bool zeros = shown.is_number && directive.zero && !directive.left;
    if (!directive.left && !zeros) out.append(missing, ' ');
    out += shown.front;
    if (zeros) out.append(missing, '0');
    out += shown.text;
    if (directive.left) out.append(missing, ' ');
  }

  const std::string_view format_;
  const bool is_markup_;
  const Value& values_;
  Budget& budget_;
  size_t at_ = 0;
  bool by_place_ = false;
  bool is_mapping_ = false;
  size_t used_ = 0;                // of a tuple
  const Value* single_ = nullptr;  // the value that comes next; null where it was used
};

}  // namespace

Result<Value> format_percent(const Value& format, const Value& values, Budget& budget) {
  return PercentFormat(format, values, budget).run();
}

}  // namespace jige::text::jinja
