// FieldReader: the members of a request's JSON, with types and ranges. The first thing that is
// wrong is kept; later reads go on but report nothing, so that a request is read in one go and
// looked at once.
//
//   FieldReader fields(json);
//   options.n = fields.integer("n", {1, 16}).value_or(1);
//   options.user = fields.text("user", 256).value_or("");
//   if (fields.error()) return *fields.error();
//
// A member that is null counts as absent. Members nobody asks for are passed over.
// Threads: one. The JSON must outlive the reader.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/api_error.h"
#include "base/json.h"

namespace jige::api {

struct IntegerBounds {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
};

struct NumberBounds {
  double min = 0;
  double max = 0;
  bool above_min = false;  // min itself is refused
  bool below_max = false;  // max itself is refused
};

struct ListBounds {
  size_t count_max = 0;
  size_t bytes_max = SIZE_MAX;  // of one text
};

class FieldReader {
 public:
  // REQUIRES: `object` is a JSON object.
  explicit FieldReader(const Json& object) : object_(object) {}

  const Json& object() const { return object_; }
  // The member; nullptr where it is absent or null.
  const Json* find(std::string_view name) const;
  std::optional<int64_t> integer(std::string_view name, IntegerBounds bounds);
  std::optional<double> number(std::string_view name, NumberBounds bounds);
  std::optional<bool> boolean(std::string_view name);
  std::optional<std::string> text(std::string_view name, size_t bytes_max);
  // A text, or a list of them.
  std::vector<std::string> texts(std::string_view name, ListBounds bounds);
  std::vector<int32_t> ids(std::string_view name, IntegerBounds bounds, size_t count_max);

  // Notes an error, if it is the first.
  void refuse(ApiError error);
  const std::optional<ApiError>& error() const { return error_; }

 private:
  const Json& object_;
  std::optional<ApiError> error_;
};

// A JSON value as messages show it: on one line, cut after 60 characters.
std::string shown_value(const Json& value);

// The value as a whole number: 3 and 3.0 count, 3.5 and 1e30 do not.
std::optional<int64_t> as_integer(const Json& value);

}  // namespace jige::api
