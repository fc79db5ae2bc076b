#include "text/jinja_braces.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja_format.h"
#include "text/jinja_number.h"
#include "text/jinja_spec.h"
#include "text/jinja_text.h"

namespace jige::text::jinja {
namespace {

// Fields (0) may have fields in their specifications (1), which have plain ones (2).
constexpr int kFieldDepthMax = 2;
// Places and indices that fit nowhere else are those of nothing.
constexpr size_t kDigitsMax = 9;

// A field between braces: name!conversion:spec.
struct Field {
  std::string_view name;
  std::string_view spec;
  char conversion = '\0';
};

tl::unexpected<Error> malformed(std::string_view what) {
  return fail(Code::kInvalidArgument, "format: {}", what);
}

// Takes a field from behind its "{" up to its "}".
Result<Field> take_field(std::string_view& text) {
  Field field;
  size_t at = 0;
  for (; at < text.size() && std::string_view("}:!").find(text[at]) == text.npos; ++at) {
    if (text[at] == '{') return malformed("\"{\" in the name of a field");
    if (text[at] == '[') at = std::min(text.find(']', at), text.size() - 1);
  }
  field.name = text.substr(0, at);
  if (at < text.size() && text[at] == '!') {
    if (at + 2 >= text.size()) return malformed("the conversion of a field does not end");
    field.conversion = text[at + 1];
    at += 2;
    if (text[at] != ':' && text[at] != '}') return malformed("expected \":\" behind a conversion");
  }
  if (at >= text.size()) return malformed("\"{\" without \"}\"");
  if (text[at] == ':') {
    const size_t begin = at + 1;
    int depth = 1;
    for (at = begin; at < text.size(); ++at) {
      depth += text[at] == '{' ? 1 : text[at] == '}' ? -1 : 0;
      if (depth == 0) break;
    }
    if (depth > 0) return malformed("\"{\" without \"}\" in a specification");
    field.spec = text.substr(begin, at - begin);
  }
  text.remove_prefix(at + 1);
  return field;
}

bool is_all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

// Fills the fields of one format; those without a number get one after another.
class BraceFormat {
 public:
  BraceFormat(Interpreter& run, const Arguments& given, bool is_markup)
      : run_(run), given_(given), is_markup_(is_markup) {}

  // Also of specifications, with the depth of the field that they belong to.
  Result<std::string> fill(std::string_view text, int depth) {
    if (depth > kFieldDepthMax) return malformed("fields are nested too deeply");
    std::string out;
    while (!text.empty()) {
      const size_t mark = std::min(text.find_first_of("{}"), text.size());
      out += text.substr(0, mark);
      if (mark == text.size()) break;
      const char brace = text[mark];
      text.remove_prefix(mark + 1);
      if (text.starts_with(brace)) {
        out.push_back(brace);
        text.remove_prefix(1);
        continue;
      }
      if (brace == '}') return malformed("\"}\" without \"{\"");
      JIGE_TRY(const Field field, take_field(text));
      JIGE_TRY(const std::string shown, shown_field(field, depth));
      JIGE_DO(run_.budget().bytes(shown.size()));
      out += shown;
    }
    return out;
  }

 private:
  Result<std::string> shown_field(const Field& field, int depth) {
    Budget& budget = run_.budget();
    JIGE_DO(budget.steps(1));
    JIGE_TRY(Value value, field_value(field.name));
    if (field.conversion != '\0') {
      JIGE_TRY(std::string text, converted_text(value, field.conversion));
      value = Value::string(std::move(text));
    }
    JIGE_TRY(const std::string spec, fill(field.spec, depth + 1));
    if (!is_markup_) return format_value(value, spec, budget);
    if (value.is_markup()) {
      if (spec.empty()) return value.text();
      return malformed("HTML takes no format specification");
    }
    JIGE_TRY(const std::string shown, format_value(value, spec, budget));
    return escape_html(shown);
  }

  Result<std::string> converted_text(const Value& value, char conversion) {
    std::string text;
    if (conversion == 's') {
      JIGE_DO(append_text(text, value, run_.budget()));
    } else if (conversion == 'r' || conversion == 'a') {
      JIGE_DO(append_repr(text, value, run_.budget()));
      if (conversion == 'a') text = escape_non_ascii(text);
    } else {
      return malformed("the conversions are !s, !r and !a");
    }
    return text;
  }

  // name, name.attribute, name[key] and so on.
  Result<Value> field_value(std::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    JIGE_TRY(const Value* first, argument(path.substr(0, end), end == path.size()));
    Value value = *first;
    path.remove_prefix(end);
    while (!path.empty()) {
      JIGE_DO(run_.budget().steps(1));
      const bool is_attribute = path[0] == '.';
      if (!is_attribute && path[0] != '[') return malformed("expected \".\" or \"[\" behind \"]\"");
      path.remove_prefix(1);
      const size_t stop =
          is_attribute ? std::min(path.find_first_of(".["), path.size()) : path.find(']');
      if (stop == path.npos) return malformed("\"[\" without \"]\"");
      const std::string_view name = path.substr(0, stop);
      if (name.empty()) return malformed("an attribute without a name");
      path.remove_prefix(is_attribute ? stop : stop + 1);
      JIGE_TRY(value, part_of(value, name, is_attribute));
    }
    return value;
  }

  Result<Value> part_of(const Value& value, std::string_view name, bool is_attribute) {
    if (is_attribute) return run_.member(value, name);
    if (!is_all_digits(name)) return run_.index(value, Value::string_view(name));
    if (name.size() > kDigitsMax) return malformed("an index is too large");
    return run_.index(value, Value::integer(std::stoll(std::string(name))));
  }

  // `alone`: the field is nothing but this, so that its number counts.
  Result<const Value*> argument(std::string_view name, bool alone) {
    if (!(name.empty() && alone) && !is_all_digits(name)) {
      for (const auto& [known, value] : given_.named) {
        if (known == name) return &value;
      }
      return fail(Code::kInvalidArgument, "format: there is no argument \"{}\"", name);
    }
    size_t place = 0;
    if (name.empty()) {
      if (numbered_) return malformed("some fields have a number and some have not");
      place = next_++;
    } else {
      if (alone && next_ > 0) return malformed("some fields have a number and some have not");
      numbered_ = numbered_ || alone;
      place = name.size() > kDigitsMax ? SIZE_MAX : std::stoul(std::string(name));
    }
    if (place < given_.positional.size()) return &given_.positional[place];
    return malformed("there are too few arguments");
  }

  Interpreter& run_;
  const Arguments& given_;
  const bool is_markup_;
  size_t next_ = 0;        // the number of the next field that has none
  bool numbered_ = false;  // a field has a number of its own
};

}  // namespace

Result<Value> format_braces(Interpreter& run, const Value& format, const Arguments& given) {
  JIGE_DO(run.budget().steps(format.text().size() / 16));
  JIGE_TRY(std::string text,
           BraceFormat(run, given, format.is_markup()).fill(format.text(), /*depth=*/0));
  JIGE_DO(run.budget().bytes(text.size()));
  return format.is_markup() ? Value::markup(std::move(text)) : Value::string(std::move(text));
}

}  // namespace jige::text::jinja
