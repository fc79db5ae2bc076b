#include "text/jinja_arguments.h"

#include <algorithm>

namespace jige::text::jinja {

Result<std::vector<const Value*>> bind(const Arguments& arguments,
                                       std::initializer_list<std::string_view> names,
                                       std::string_view what) {
  std::vector<const Value*> bound(names.size(), nullptr);
  if (arguments.positional.size() > names.size()) {
    return fail(Code::kInvalidArgument, "{} takes at most {} arguments, {} were given", what,
                names.size(), arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) {
      return fail(Code::kInvalidArgument, "{} has no argument \"{}\"", what, name);
    }
    bound[static_cast<size_t>(it - names.begin())] = &value;
  }
  return bound;
}

Result<int64_t> int_or(const Value* value, int64_t fallback, std::string_view what) {
  if (!value || value->is(Kind::kNone)) return fallback;
  if (value->is(Kind::kInt) || value->is(Kind::kBool)) return value->as_int();
  return fail(Code::kInvalidArgument, "{} must be an integer, not {}", what, value->type_name());
}

bool bool_or(const Value* value, bool fallback) {
  return value ? value->truth() : fallback;
}

Result<std::string> string_or(const Value* value, std::string_view fallback,
                              std::string_view what) {
  if (!value || value->is(Kind::kNone)) return std::string(fallback);
  if (value->is(Kind::kString)) return value->text();
  return fail(Code::kInvalidArgument, "{} must be a string, not {}", what, value->type_name());
}

}  // namespace jige::text::jinja
