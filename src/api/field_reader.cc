#include "api/field_reader.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace jige::api {
namespace {

std::string integer_range(IntegerBounds bounds) {
  const IntegerBounds all;
  if (bounds.min == all.min && bounds.max == all.max) return "a whole number of 64 bits";
  if (bounds.max == all.max) return fmt::format("a whole number of at least {}", bounds.min);
  return fmt::format("a whole number from {} to {}", bounds.min, bounds.max);
}

std::string number_range(NumberBounds bounds) {
  return fmt::format("a number {} {} {} {}", bounds.above_min ? "above" : "from", bounds.min,
                     bounds.below_max ? "to below" : "to", bounds.max);
}

}  // namespace

std::string shown_value(const Json& value) {
  // Serialising a large value only to cut it would cost what the sender chose.
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  if (value.is_object()) return fmt::format("an object of {}", value.size());
  if (value.is_string() && value.get_ref<const std::string&>().size() > 60) return "a long text";
  return dump_json(value);
}

std::optional<int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (!(std::fabs(number) < 9e15) || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

const Json* FieldReader::find(std::string_view name) const {
  const auto it = object_.find(std::string(name));
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::optional<int64_t> FieldReader::integer(std::string_view name, IntegerBounds bounds) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  const std::optional<int64_t> number = as_integer(*value);
  if (number && *number >= bounds.min && *number <= bounds.max) return number;
  refuse(bad_field(std::string(name), "{} must be {}, found {}", name, integer_range(bounds),
                   shown_value(*value)));
  return std::nullopt;
}

std::optional<double> FieldReader::number(std::string_view name, NumberBounds bounds) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (value->is_number()) {
    const double number = value->get<double>();
    const bool low = bounds.above_min ? number > bounds.min : number >= bounds.min;
    const bool high = bounds.below_max ? number < bounds.max : number <= bounds.max;
    if (low && high) return number;
  }
  refuse(bad_field(std::string(name), "{} must be {}, found {}", name, number_range(bounds),
                   shown_value(*value)));
  return std::nullopt;
}

std::optional<bool> FieldReader::boolean(std::string_view name) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  refuse(bad_field(std::string(name), "{} must be true or false, found {}", name,
                   shown_value(*value)));
  return std::nullopt;
}

std::optional<std::string> FieldReader::text(std::string_view name, size_t bytes_max) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (value->is_string() && value->get_ref<const std::string&>().size() <= bytes_max) {
    return value->get<std::string>();
  }
  refuse(bad_field(std::string(name), "{} must be a text of at most {} bytes, found {}", name,
                   bytes_max, shown_value(*value)));
  return std::nullopt;
}

std::vector<std::string> FieldReader::texts(std::string_view name, ListBounds bounds) {
  const Json* value = find(name);
  if (!value) return {};
  std::vector<std::string> found;
  const auto take = [&](const Json& item) {
    if (!item.is_string() || item.get_ref<const std::string&>().size() > bounds.bytes_max) {
      return false;
    }
    found.push_back(item.get<std::string>());
    return true;
  };
  bool good = true;
  if (value->is_array() && value->size() <= bounds.count_max) {
    for (const Json& item : *value) good = good && take(item);
  } else {
    good = take(*value);
  }
  if (good) return found;
  refuse(bad_field(std::string(name),
                   "{} must be a text or a list of at most {} texts, each of at most {} bytes, "
                   "found {}",
                   name, bounds.count_max, bounds.bytes_max, shown_value(*value)));
  return {};
}

std::vector<int32_t> FieldReader::ids(std::string_view name, IntegerBounds bounds,
                                      size_t count_max) {
  const Json* value = find(name);
  if (!value) return {};
  std::vector<int32_t> found;
  if (value->is_array() && value->size() <= count_max) {
    for (const Json& item : *value) {
      const std::optional<int64_t> id = as_integer(item);
      if (!id || *id < bounds.min || *id > bounds.max) {
        refuse(bad_field(std::string(name), "{}[{}] must be a token id from {} to {}, found {}",
                         name, found.size(), bounds.min, bounds.max, shown_value(item)));
        return {};
      }
      found.push_back(static_cast<int32_t>(*id));
    }
    return found;
  }
  refuse(bad_field(std::string(name),
                   "{} must be a list of at most {} token ids from {} to {}, found {}", name,
                   count_max, bounds.min, bounds.max, shown_value(*value)));
  return {};
}

void FieldReader::refuse(ApiError error) {
  if (!error_) error_ = std::move(error);
}

}  // namespace jige::api
