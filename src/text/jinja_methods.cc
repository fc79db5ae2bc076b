// The methods of strings, lists, dicts, loops and cyclers that templates may call.
#include <algorithm>
#include <array>
#include <optional>

#include "text/jinja_braces.h"
#include "text/jinja_builtins.h"
#include "text/jinja_format.h"
#include "text/jinja_text.h"
#include "text/unicode.h"

namespace jige::text::jinja {
namespace {

constexpr std::array<std::string_view, 36> kStringMethods = {
    "strip",      "lstrip",    "rstrip",  "split",        "rsplit",       "splitlines",
    "startswith", "endswith",  "upper",   "lower",        "title",        "capitalize",
    "replace",    "join",      "find",    "rfind",        "index",        "rindex",
    "count",      "isdigit",   "isalpha", "isalnum",      "isspace",      "isupper",
    "islower",    "isnumeric", "format",  "removeprefix", "removesuffix", "partition",
    "rpartition", "zfill",     "ljust",   "rjust",        "center",       "swapcase"};
constexpr std::array<std::string_view, 5> kDictMethods = {"items", "keys", "values", "get", "copy"};
constexpr std::array<std::string_view, 3> kListMethods = {"index", "count", "copy"};
constexpr std::array<std::string_view, 2> kLoopMethods = {"cycle", "changed"};
constexpr std::array<std::string_view, 2> kCyclerMethods = {"next", "reset"};

template <size_t N>
bool lists(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// One call of a string method.
class StringMethod {
 public:
  StringMethod(Interpreter& run, std::string_view text, std::string_view name,
               const Arguments& given)
      : run_(run), text_(text), name_(name), given_(given) {}

  Result<Value> call() {
    JIGE_DO(run_.budget().steps(text_.size() / 16));
    if (name_ == "strip" || name_ == "lstrip" || name_ == "rstrip") return strip();
    if (name_ == "split" || name_ == "rsplit") return split();
    if (name_ == "splitlines") return splitlines();
    if (name_ == "startswith" || name_ == "endswith") return affix();
    if (name_ == "upper") return made(to_upper(text_));
    if (name_ == "lower") return made(to_lower(text_));
    if (name_ == "title") return made(title_words(text_));
    if (name_ == "capitalize") return made(capitalize(text_));
    if (name_ == "swapcase") return swapcase();
    if (name_ == "replace") return replace();
    if (name_ == "join") return join();
    if (name_ == "find" || name_ == "rfind" || name_ == "index" || name_ == "rindex" ||
        name_ == "count") {
      return find();
    }
    if (name_ == "removeprefix" || name_ == "removesuffix") return remove_affix();
    if (name_ == "partition" || name_ == "rpartition") return partition();
    if (name_ == "zfill" || name_ == "ljust" || name_ == "rjust" || name_ == "center") return pad();
    return is();
  }

 private:
  Result<Value> made(std::string text) {
    JIGE_DO(run_.budget().bytes(text.size()));
    return Value::string(std::move(text));
  }

  Result<Value> made(const std::vector<std::string_view>& parts) {
    Items items;
    for (const std::string_view part : parts) {
      JIGE_DO(run_.budget().bytes(part.size() + sizeof(std::string)));
      items.push_back(Value::string_view(part));
    }
    return Value::list(std::move(items), run_.budget());
  }

  Result<std::string> text_argument(const Value* value, std::string_view what) {
    if (!value) return fail(Code::kInvalidArgument, "{} needs {}", name_, what);
    if (value->is(Kind::kString)) return value->text();
    return fail(Code::kInvalidArgument, "{} needs a string, not {}", name_, value->type_name());
  }

  Result<Value> strip() {
    JIGE_TRY(const auto bound, bind(given_, {"chars"}, name_));
    std::string_view text = text_;
    if (!bound[0] || bound[0]->is(Kind::kNone)) {
      if (name_ != "rstrip") text = strip_left(text);
      if (name_ != "lstrip") text = strip_right(text);
    } else {
      JIGE_TRY(const std::string set, text_argument(bound[0], "characters"));
      JIGE_DO(run_.budget().steps(text.size() / 64 * (set.size() + 1)));
      if (name_ != "rstrip") text = strip_left(text, set);
      if (name_ != "lstrip") text = strip_right(text, set);
    }
    return made(std::string(text));
  }

  Result<Value> split() {
    JIGE_TRY(const auto bound, bind(given_, {"sep", "maxsplit"}, name_));
    JIGE_TRY(const int64_t count, int_or(bound[1], -1, "maxsplit"));
    const bool right = name_ == "rsplit";
    if (!bound[0] || bound[0]->is(Kind::kNone)) {
      return made(right ? rsplit_space(text_, count) : split_space(text_, count));
    }
    JIGE_TRY(const std::string separator, text_argument(bound[0], "a separator"));
    if (separator.empty()) return fail(Code::kInvalidArgument, "{}: empty separator", name_);
    if (!right) return made(split_text(text_, separator, count));
    JIGE_DO(run_.budget().steps(text_.size() / 64 * separator.size()));
    return made(rsplit_text(text_, separator, count));
  }

  Result<Value> splitlines() {
    JIGE_TRY(const auto bound, bind(given_, {"keepends"}, name_));
    return made(split_lines(text_, bool_or(bound[0], false)));
  }

  // The characters from `start` up to `end` as a slice has them; nothing where start is behind end.
  struct Stretch {
    std::string_view text;
    int64_t start = 0;
  };
  Result<std::optional<Stretch>> stretch(const Value* start, const Value* end) {
    if (!start && !end) return Stretch{text_, 0};
    const auto count = static_cast<int64_t>(count_characters(text_));
    const auto place = [&](int64_t at) { return at < 0 ? std::max<int64_t>(at + count, 0) : at; };
    JIGE_TRY(const int64_t given_start, int_or(start, 0, "the start"));
    JIGE_TRY(const int64_t given_end, int_or(end, count, "the end"));
    const int64_t first = place(given_start), last = std::min(place(given_end), count);
    if (first > last) return std::nullopt;
    size_t begin = 0, stop = 0;
    for (int64_t i = 0; i < last; ++i) {
      if (i == first) begin = stop;
      stop += utf8_size(text_[stop]);
    }
    if (first == last) begin = stop;
    return Stretch{text_.substr(begin, stop - begin), first};
  }

  Result<Value> affix() {
    JIGE_TRY(const auto bound, bind(given_, {"prefix", "start", "end"}, name_));
    JIGE_TRY(const auto in, stretch(bound[1], bound[2]));
    const auto fits = [&](const Value& value) -> Result<bool> {
      JIGE_TRY(const std::string part, text_argument(&value, "a string"));
      if (!in) return false;
      return name_ == "startswith" ? in->text.starts_with(part) : in->text.ends_with(part);
    };
    if (!bound[0]) return fail(Code::kInvalidArgument, "{} needs an argument", name_);
    if (!bound[0]->is(Kind::kTuple)) {
      JIGE_TRY(const bool result, fits(*bound[0]));
      return Value::boolean(result);
    }
    for (const Value& part : bound[0]->items()) {
      JIGE_TRY(const bool result, fits(part));
      if (result) return Value::boolean(true);
    }
    return Value::boolean(false);
  }

  Result<Value> swapcase() {
    std::string out;
    for (const std::string_view character : characters(text_)) {
      const std::string upper = to_upper(character);
      out += upper == character ? to_lower(character) : upper;
    }
    return made(std::move(out));
  }

  Result<Value> replace() {
    JIGE_TRY(const auto bound, bind(given_, {"old", "new", "count"}, name_));
    JIGE_TRY(const std::string from, text_argument(bound[0], "what to replace"));
    JIGE_TRY(const std::string to, text_argument(bound[1], "a replacement"));
    JIGE_TRY(const int64_t count, int_or(bound[2], -1, "count"));
    auto replaced = replace_text(text_, from, to, count, static_cast<size_t>(Budget::kBytes) / 8);
    if (!replaced) return fail(Code::kExhausted, "replace makes too long a text");
    return made(std::move(*replaced));
  }

  Result<Value> join() {
    JIGE_TRY(const auto bound, bind(given_, {"iterable"}, name_));
    if (!bound[0]) return fail(Code::kInvalidArgument, "join needs a list");
    JIGE_TRY(const Items items, iterate(*bound[0], run_.budget()));
    std::string out;
    for (size_t i = 0; i < items.size(); ++i) {
      JIGE_TRY(const std::string part, text_argument(&items[i], "strings"));
      JIGE_DO(run_.budget().bytes(part.size() + text_.size()));
      if (i > 0) out += text_;
      out += part;
    }
    return Value::string(std::move(out));
  }

  Result<Value> find() {
    JIGE_TRY(const auto bound, bind(given_, {"sub", "start", "end"}, name_));
    JIGE_TRY(const std::string part, text_argument(bound[0], "what to find"));
    JIGE_TRY(const auto in, stretch(bound[1], bound[2]));
    const std::string_view text = in ? in->text : std::string_view();
    if (name_ == "count") {
      if (!in) return Value::integer(0);
      if (part.empty()) return Value::integer(static_cast<int64_t>(count_characters(text)) + 1);
      return Value::integer(static_cast<int64_t>(split_text(text, part, -1).size()) - 1);
    }
    const bool last = name_[0] == 'r';
    if (last) JIGE_DO(run_.budget().steps(text.size() / 64 * (part.size() + 1)));
    const size_t at = !in ? text.npos : last ? text.rfind(part) : find_text(text, part);
    if (at != text.npos) {
      return Value::integer(in->start + static_cast<int64_t>(count_characters(text.substr(0, at))));
    }
    if (name_.ends_with("index")) return fail(Code::kInvalidArgument, "substring not found");
    return Value::integer(-1);
  }

  Result<Value> remove_affix() {
    JIGE_TRY(const auto bound, bind(given_, {"affix"}, name_));
    JIGE_TRY(const std::string part, text_argument(bound[0], "a string"));
    std::string_view text = text_;
    if (name_ == "removeprefix" && text.starts_with(part)) text.remove_prefix(part.size());
    if (name_ == "removesuffix" && text.ends_with(part)) text.remove_suffix(part.size());
    return made(std::string(text));
  }

  Result<Value> partition() {
    JIGE_TRY(const auto bound, bind(given_, {"sep"}, name_));
    JIGE_TRY(const std::string separator, text_argument(bound[0], "a separator"));
    if (separator.empty()) return fail(Code::kInvalidArgument, "{}: empty separator", name_);
    const bool right = name_ == "rpartition";
    if (right) JIGE_DO(run_.budget().steps(text_.size() / 64 * separator.size()));
    const size_t at = right ? text_.rfind(separator) : find_text(text_, separator);
    std::string_view parts[3] = {text_, "", ""};
    if (at == text_.npos && right) std::swap(parts[0], parts[2]);
    if (at != text_.npos) {
      parts[0] = text_.substr(0, at);
      parts[1] = separator;
      parts[2] = text_.substr(at + separator.size());
    }
    JIGE_DO(run_.budget().bytes(text_.size()));
    Items items;
    for (const std::string_view part : parts) items.push_back(Value::string_view(part));
    return Value::tuple(std::move(items), run_.budget());
  }

  Result<Value> pad() {
    JIGE_TRY(const auto bound, bind(given_, {"width", "fillchar"}, name_));
    JIGE_TRY(const int64_t width, int_or(bound[0], 0, "width"));
    JIGE_TRY(const std::string fill, string_or(bound[1], name_ == "zfill" ? "0" : " ", "fillchar"));
    const auto size = static_cast<int64_t>(count_characters(text_));
    if (width <= size || count_characters(fill) != 1) return made(std::string(text_));
    const auto missing = static_cast<size_t>(width - size);
    JIGE_DO(run_.budget().bytes(missing * fill.size()));
    // Python's center puts the odd one left when the width is odd.
    const size_t before = name_ == "ljust" ? 0
                          : name_ == "center"
                              ? missing / 2 + (missing & static_cast<size_t>(width) & 1)
                              : missing;
    const bool has_sign = name_ == "zfill" && (text_.starts_with('-') || text_.starts_with('+'));
    std::string out(text_.substr(0, has_sign ? 1 : 0));
    for (size_t i = 0; i < before; ++i) out += fill;
    out += text_.substr(has_sign ? 1 : 0);
    for (size_t i = before; i < missing; ++i) out += fill;
    return made(std::move(out));
  }

  Result<Value> is() {
    if (name_ == "isupper") {
      return Value::boolean(to_upper(text_) == text_ && to_lower(text_) != text_);
    }
    if (name_ == "islower") {
      return Value::boolean(to_lower(text_) == text_ && to_upper(text_) != text_);
    }
    bool all = !text_.empty();
    for (size_t i = 0; i < text_.size() && all;) {
      const Decoded next = decode_utf8(text_.substr(i));
      const char32_t c = next.code_point;
      if (name_ == "isalpha")
        all = is_letter(c);
      else if (name_ == "isspace")
        all = is_space(c);
      else if (name_ == "isalnum")
        all = is_letter(c) || is_numeric(c);
      else
        all = is_numeric(c);
      i += next.size;
    }
    return Value::boolean(all);
  }

  Interpreter& run_;
  std::string_view text_;
  std::string_view name_;
  const Arguments& given_;
};

Result<Value> call_dict_method(Interpreter& run, const Value& dict, std::string_view name,
                               const Arguments& given) {
  const DictData& data = dict.entries();
  if (name == "get") {
    JIGE_TRY(const auto bound, bind(given, {"key", "default"}, name));
    if (!bound[0]) return fail(Code::kInvalidArgument, "get needs a key");
    if (!bound[0]->is(Kind::kString)) JIGE_DO(run.budget().steps(data.entries.size()));
    if (const Value* found = data.find(*bound[0])) return *found;
    return bound[1] ? *bound[1] : Value::none();
  }
  JIGE_TRY([[maybe_unused]] const auto bound, bind(given, {}, name));
  if (name == "copy") return dict;
  Items items;
  for (const auto& [key, value] : data.entries) {
    if (name == "keys") {
      items.push_back(key);
    } else if (name == "values") {
      items.push_back(value);
    } else {
      JIGE_TRY(Value pair, Value::tuple({key, value}, run.budget()));
      items.push_back(std::move(pair));
    }
  }
  return Value::list(std::move(items), run.budget());
}

Result<Value> call_list_method(Interpreter& run, const Value& list, std::string_view name,
                               const Arguments& given) {
  if (name == "copy") return list;
  JIGE_TRY(const auto bound, bind(given, {"value"}, name));
  if (!bound[0]) return fail(Code::kInvalidArgument, "{} needs a value", name);
  int64_t count = 0;
  for (size_t i = 0; i < list.items().size(); ++i) {
    JIGE_TRY(const bool same, equals(list.items()[i], *bound[0], run.budget()));
    if (same && name == "index") return Value::integer(static_cast<int64_t>(i));
    count += same ? 1 : 0;
  }
  if (name == "index") return fail(Code::kInvalidArgument, "the value is not in the list");
  return Value::integer(count);
}

Result<Value> call_loop_method(Interpreter& run, const LoopState& loop, std::string_view name,
                               const Arguments& given) {
  if (name == "cycle") {
    if (given.positional.empty()) {
      return fail(Code::kInvalidArgument, "loop.cycle needs values to go through");
    }
    return given.positional[loop.at % given.positional.size()];
  }
  JIGE_TRY(Value now, Value::tuple(given.positional, run.budget()));
  JIGE_TRY(const bool changed, run.loop_changed(loop, std::move(now)));
  return Value::boolean(changed);
}

Result<Value> call_cycler_method(Cycler& cycler, std::string_view name, const Arguments& given) {
  JIGE_DO(bind(given, {}, name));
  if (name == "reset") {
    cycler.at = 0;
    return Value::none();
  }
  const size_t at = cycler.at;
  cycler.at = (at + 1) % cycler.items.size();
  return cycler.items[at];
}

}  // namespace

const Value* cycler_attribute(const Cycler& cycler, std::string_view name) {
  return !cycler.joins && name == "current" ? &cycler.items[cycler.at] : nullptr;
}

Result<Value> call_joiner(Cycler& joiner, const Arguments& given) {
  JIGE_DO(bind(given, {}, "joiner"));
  if (joiner.at++ == 0) return Value::string("");
  return joiner.items[0];
}

bool has_method(const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Kind::kString:
      return lists(kStringMethods, name);
    case Kind::kDict:
      return lists(kDictMethods, name);
    case Kind::kList:
    case Kind::kTuple:
      return lists(kListMethods, name);
    case Kind::kLoop:
      return lists(kLoopMethods, name);
    case Kind::kCycler:
      return !value.as_cycler().joins && lists(kCyclerMethods, name);
    default:
      return false;
  }
}

Result<Value> call_method(Interpreter& run, const Value& value, std::string_view name,
                          const Arguments& given) {
  switch (value.kind()) {
    case Kind::kString:
      if (name == "format") return format_braces(run, value, given);
      return StringMethod(run, value.text(), name, given).call();
    case Kind::kDict:
      return call_dict_method(run, value, name, given);
    case Kind::kLoop:
      return call_loop_method(run, value.as_loop(), name, given);
    case Kind::kCycler:
      return call_cycler_method(value.as_cycler(), name, given);
    default:
      return call_list_method(run, value, name, given);
  }
}

Value loop_attribute(const Value& value, std::string_view name) {
  const LoopState& loop = value.as_loop();
  const auto at = static_cast<int64_t>(loop.at);
  const auto size = [&] { return static_cast<int64_t>(loop.size()); };
  if (name == "index") return Value::integer(at + 1);
  if (name == "index0") return Value::integer(at);
  if (name == "revindex") return Value::integer(size() - at);
  if (name == "revindex0") return Value::integer(size() - at - 1);
  if (name == "first") return Value::boolean(at == 0);
  if (name == "last") return Value::boolean(!loop.has(loop.at + 1));
  if (name == "length") return Value::integer(size());
  if (name == "depth") return Value::integer(loop.depth + 1);
  if (name == "depth0") return Value::integer(loop.depth);
  if (name == "previtem") {
    return at > 0 ? loop.item(loop.at - 1) : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return loop.has(loop.at + 1) ? loop.item(loop.at + 1)
                                 : Value::undefined("there is no next item");
  }
  if (has_method(value, name)) return Value::method(name);
  return Value::undefined(fmt::format("loop has no attribute '{}'", name));
}

}  // namespace jige::text::jinja
