// The arguments of a call, filter or test, and their binding to parameter names.
//
//   JIGE_TRY(const auto bound, bind(arguments, {"width", "first"}, "indent"));
//   JIGE_TRY(const int64_t width, int_or(bound[0], 4, "indent: width"));
//
// Threads: values.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja_value.h"

namespace jige::text::jinja {

struct Arguments {
  Items positional;
  std::vector<std::pair<std::string, Value>> named;

  bool empty() const { return positional.empty() && named.empty(); }
};

// One pointer per name, null where the argument was not given. Fails with kInvalidArgument on too
// many arguments and unknown names; `what` names the callee.
Result<std::vector<const Value*>> bind(const Arguments& arguments,
                                       std::initializer_list<std::string_view> names,
                                       std::string_view what);

// The argument as a C++ value, or the fallback where it is null.
Result<int64_t> int_or(const Value* value, int64_t fallback, std::string_view what);
bool bool_or(const Value* value, bool fallback);
Result<std::string> string_or(const Value* value, std::string_view fallback, std::string_view what);

}  // namespace jige::text::jinja
