// The global functions of templates: range, namespace, dict, cycler, joiner, raise_exception,
// strftime_now.
#include <algorithm>
#include <array>
#include <ctime>

#include "text/jinja_builtins.h"
#include "text/jinja_format.h"
#include "text/unicode.h"

namespace jige::text::jinja {
namespace {

// The limit of Jinja's sandbox.
constexpr int64_t kRangeMax = 100'000;

constexpr std::array<std::string_view, 7> kNames = {
    "range", "namespace", "dict", "cycler", "joiner", "raise_exception", "strftime_now"};

Result<Value> range(Interpreter& run, const Arguments& given) {
  const size_t count = given.positional.size();
  if (count < 1 || count > 3 || !given.named.empty()) {
    return fail(Code::kInvalidArgument, "range takes 1 to 3 arguments");
  }
  int64_t bounds[3] = {0, 0, 1};
  for (size_t i = 0; i < count; ++i) {
    const size_t slot = count == 1 ? 1 : i;
    if (given.positional[i].is(Kind::kNone)) {
      return fail(Code::kInvalidArgument, "range takes integers, not none");
    }
    JIGE_TRY(bounds[slot], int_or(&given.positional[i], 0, "an argument of range"));
  }
  const auto [begin, end, step] = bounds;
  if (step == 0) return fail(Code::kInvalidArgument, "the step of range must not be 0");
  const __int128 distance =
      step > 0 ? static_cast<__int128>(end) - begin : static_cast<__int128>(begin) - end;
  const __int128 stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 size = distance > 0 ? (distance + stride - 1) / stride : 0;
  if (size > kRangeMax) {
    return fail(Code::kExhausted, "a range of more than {} numbers", kRangeMax);
  }
  Items items;
  for (int64_t i = 0; i < static_cast<int64_t>(size); ++i) {
    items.push_back(Value::integer(begin + i * step));
  }
  return Value::list(std::move(items), run.budget());
}

// The entries of dict(…) and namespace(…): a mapping or pairs, then named arguments.
Result<DictData> entries(Interpreter& run, const Arguments& given, std::string_view what) {
  DictData result;
  if (given.positional.size() > 1) {
    return fail(Code::kInvalidArgument, "{} takes at most one positional argument", what);
  }
  if (!given.positional.empty()) {
    const Value& source = given.positional[0];
    if (source.is(Kind::kDict)) {
      JIGE_DO(run.budget().bytes(source.entries().entries.size() * 2 * sizeof(Value)));
      result = source.entries();
    } else {
      JIGE_TRY(const Items pairs, iterate(source, run.budget()));
      for (const Value& pair : pairs) {
        JIGE_TRY(const Items parts, iterate(pair, run.budget()));
        if (parts.size() != 2 || !parts[0].is(Kind::kString)) {
          return fail(Code::kInvalidArgument, "{} takes pairs of a name and a value", what);
        }
        result.set(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : given.named) result.set(Value::string(name), value);
  return result;
}

Result<Value> make_namespace(Interpreter& run, const Arguments& given) {
  JIGE_TRY(DictData attributes, entries(run, given, "namespace"));
  JIGE_TRY(Namespace * made, run.make_namespace());
  made->attributes = std::move(attributes);
  return Value::name_space(made);
}

Result<Value> make_cycler(Interpreter& run, const Arguments& given) {
  if (given.positional.empty() || !given.named.empty()) {
    return fail(Code::kInvalidArgument, "cycler takes the values to go through");
  }
  JIGE_TRY(Cycler * made, run.make_cycler({.items = given.positional}));
  return Value::cycler(made);
}

Result<Value> make_joiner(Interpreter& run, const Arguments& given) {
  JIGE_TRY(const auto bound, bind(given, {"sep"}, "joiner"));
  Cycler joiner{.items = {bound[0] ? *bound[0] : Value::string(", ")}, .joins = true};
  JIGE_TRY(Cycler * made, run.make_cycler(std::move(joiner)));
  return Value::cycler(made);
}

Result<Value> raise(Interpreter& run, const Arguments& given) {
  JIGE_TRY(const auto bound, bind(given, {"message"}, "raise_exception"));
  std::string message;
  if (bound[0]) JIGE_DO(append_text(message, *bound[0], run.budget()));
  return fail(Code::kInvalidArgument, "{}", message);
}

Result<Value> strftime_now(Interpreter& run, const Arguments& given) {
  JIGE_TRY(const auto bound, bind(given, {"format"}, "strftime_now"));
  JIGE_TRY(const std::string format, string_or(bound[0], "", "the format of strftime_now"));
  const std::time_t now =
      run.now_s() >= 0 ? static_cast<std::time_t>(run.now_s()) : std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  if (format.empty()) return Value::string("");
  char buffer[512];
  const size_t size = std::strftime(buffer, sizeof buffer, format.c_str(), &local);
  if (size == 0) {
    return fail(Code::kInvalidArgument, "strftime_now makes a text that is empty or too long");
  }
  return Value::string(replace_invalid_utf8({buffer, size}));
}

}  // namespace

bool has_function(std::string_view name) {
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

Result<Value> call_function(Interpreter& run, std::string_view name, const Arguments& given) {
  if (name == "range") return range(run, given);
  if (name == "namespace") return make_namespace(run, given);
  if (name == "cycler") return make_cycler(run, given);
  if (name == "joiner") return make_joiner(run, given);
  if (name == "raise_exception") return raise(run, given);
  if (name == "strftime_now") return strftime_now(run, given);
  JIGE_TRY(DictData made, entries(run, given, "dict"));
  return Value::dict(std::move(made), run.budget());
}

}  // namespace jige::text::jinja
