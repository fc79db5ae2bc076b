// How template values print: as Python's str() and repr(), and as json.dumps writes them.
//
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja_value.h"

namespace jige::text::jinja {

// Appends str(value): a string as it is, undefined as nothing, all else as repr.
Status append_text(std::string& out, const Value& value, Budget& budget);
// Appends repr(value).
Status append_repr(std::string& out, const Value& value, Budget& budget);
// str(value) as a new string.
Result<std::string> to_text(const Value& value, Budget& budget);

// Python's repr of a float: the shortest digits that read back the same.
std::string format_float(double value);

struct JsonFormat {
  std::optional<int64_t> indent = {};  // spaces per level; none writes one line
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// Appends the value as JSON. Fails with kInvalidArgument on values that JSON lacks.
Status append_json(std::string& out, const Value& value, const JsonFormat& format, Budget& budget);

}  // namespace jige::text::jinja
