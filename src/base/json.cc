#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json_error.h"
#include "base/json_object.h"

namespace jige {
namespace {

tl::unexpected<Error> wrong_type(const Json& value, std::string_view field, std::string_view where,
                                 std::string_view wanted) {
  std::string shown = dump_json(value);
  if (shown.size() > 60) shown = shown.substr(0, 57) + "...";
  return fail(Code::kInvalidArgument, "{}: field \"{}\" must be {}, found {}", where, field, wanted,
              shown);
}

tl::unexpected<Error> absent(const Json& object, std::string_view field, std::string_view where) {
  const bool null = object.is_object() && object.contains(field);
  return fail(Code::kNotFound, "{}: field \"{}\" is {}", where, field, null ? "null" : "missing");
}

// The value as an integer; numbers such as 1e3 and 2.0 count, 2.5 does not.
bool as_int(const Json& value, int64_t& out) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return false;
    out = static_cast<int64_t>(number);
    return true;
  }
  if (value.is_number_integer()) {
    out = value.get<int64_t>();
    return true;
  }
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (!(std::fabs(number) < 9e15) || number != std::floor(number)) return false;
    out = static_cast<int64_t>(number);
    return true;
  }
  return false;
}

// Makes the value of a text. The library's own builder looks for every name among those before it,
// one by one; beyond a few members this one keeps a map of them, so that its time is linear.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  struct Options {
    int depth_max = kJsonDepthMax;
    size_t values_max = SIZE_MAX;
    bool object_alone = false;  // the top must be one, and no name may be given twice
  };
  explicit Builder(const Options& options)
      : depth_max_(static_cast<size_t>(options.depth_max)),
        values_max_(options.values_max),
        object_alone_(options.object_alone) {}

  Json& value() { return root_; }
  // Why the reading ended early: of the library's, without a place, and of ours.
  const std::string& syntax_error() const { return syntax_error_; }
  const std::string& refusal() const { return refusal_; }

  bool null() override { return put(Json()); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(int64_t value) override { return put(value); }
  bool number_unsigned(uint64_t value) override { return put(value); }
  bool number_float(double value, const std::string&) override { return put(value); }
  bool string(std::string& value) override { return put(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }  // not in a text
  bool start_object(size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    Open& object = open_.back();
    auto& members = object.value->get_ref<Json::object_t&>();
    const size_t at = object.find(name);
    if (at == members.size()) {
      if (at == kJsonMembersMax) {
        refusal_ = fmt::format("a JSON object has more than {} members", kJsonMembersMax);
        return false;
      }
      if (!object.places.empty()) object.places.emplace(name, at);
      members.emplace_back(std::move(name), Json());
    } else if (object_alone_) {
      refusal_ = fmt::format("field \"{}\" appears twice", name);
      return false;
    }
    member_ = &(members.begin() + static_cast<ptrdiff_t>(at))->second;
    return true;
  }
  bool parse_error(size_t, const std::string&, const Json::exception& error) override {
    syntax_error_ = error.what();
    return false;
  }

 private:
  static constexpr size_t kMembersLookedAt = 32;

  struct Open {
    Json* value;
    std::unordered_map<std::string, size_t> places;  // of an object with many members

    // Where the member is, or the number of members.
    size_t find(const std::string& name) {
      const auto& members = value->get_ref<const Json::object_t&>();
      if (members.size() < kMembersLookedAt) {
        const auto it = std::find_if(members.begin(), members.end(),
                                     [&](const auto& member) { return member.first == name; });
        return static_cast<size_t>(it - members.begin());
      }
      if (places.empty()) {
        for (const auto& member : members) places.emplace(member.first, places.size());
      }
      const auto it = places.find(name);
      return it == places.end() ? members.size() : it->second;
    }
  };

  // Puts a value where the next one belongs.
  Json* place(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    Json& container = *open_.back().value;
    if (container.is_object()) return &(*member_ = std::move(value));
    container.push_back(std::move(value));
    return &container.back();
  }
  bool count(bool is_object) {
    if (object_alone_ && open_.empty() && !is_object) {
      refusal_ = "must be a JSON object";
      return false;
    }
    if (value_count_++ < values_max_) return true;
    refusal_ = fmt::format("the JSON has more than {} values", values_max_);
    return false;
  }
  bool put(Json value) {
    if (!count(false)) return false;
    place(std::move(value));
    return true;
  }
  bool open(Json container) {
    if (open_.size() == depth_max_) {
      refusal_ = fmt::format("JSON is nested deeper than {} levels", depth_max_);
      return false;
    }
    if (!count(container.is_object())) return false;
    open_.push_back({place(std::move(container)), {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const size_t depth_max_;
  const size_t values_max_;
  const bool object_alone_;
  size_t value_count_ = 0;
  Json root_;
  std::vector<Open> open_;  // from the outermost in
  Json* member_ = nullptr;  // of the innermost object, whose value comes next
  std::string syntax_error_, refusal_;
};

Result<Json> build(std::string_view text, std::string_view where, const Builder::Options& options) {
  const auto invalid = [&](std::string_view what) {
    return fail(Code::kCorrupt, "{}: not valid JSON: {}", where, json_error_text(what, text));
  };
  // The library takes a NUL byte for the end of the text.
  if (text.find('\0') != std::string_view::npos) {
    return fail(Code::kCorrupt, "{}: JSON holds a NUL byte", where);
  }
  try {
    Builder builder(options);
    if (Json::sax_parse(text.begin(), text.end(), &builder)) return std::move(builder.value());
    if (builder.refusal().empty()) return invalid(builder.syntax_error());
    return fail(Code::kCorrupt, "{}: {}", where, builder.refusal());
  } catch (const std::exception& error) {
    return invalid(error.what());
  }
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view where, int depth_max,
                        size_t values_max) {
  return build(text, where, {.depth_max = depth_max, .values_max = values_max});
}

Result<Json> parse_json_object(std::string_view text, std::string_view where) {
  return build(text, where, {.object_alone = true});
}

std::string dump_json(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

const Json* find_field(const Json& object, std::string_view field) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(field);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Result<int64_t> get_int(const Json& object, std::string_view field, std::string_view where) {
  const Json* value = find_field(object, field);
  if (!value) return absent(object, field, where);
  int64_t number = 0;
  if (!as_int(*value, number)) return wrong_type(*value, field, where, "an integer");
  return number;
}

Result<int64_t> get_int_or(const Json& object, std::string_view field, int64_t fallback,
                           std::string_view where) {
  if (!find_field(object, field)) return fallback;
  return get_int(object, field, where);
}

Result<double> get_number(const Json& object, std::string_view field, std::string_view where) {
  const Json* value = find_field(object, field);
  if (!value) return absent(object, field, where);
  if (!value->is_number()) return wrong_type(*value, field, where, "a number");
  return value->get<double>();
}

Result<double> get_number_or(const Json& object, std::string_view field, double fallback,
                             std::string_view where) {
  if (!find_field(object, field)) return fallback;
  return get_number(object, field, where);
}

Result<bool> get_bool_or(const Json& object, std::string_view field, bool fallback,
                         std::string_view where) {
  const Json* value = find_field(object, field);
  if (!value) return fallback;
  if (!value->is_boolean()) return wrong_type(*value, field, where, "true or false");
  return value->get<bool>();
}

Result<std::string> get_string(const Json& object, std::string_view field, std::string_view where) {
  const Json* value = find_field(object, field);
  if (!value) return absent(object, field, where);
  if (!value->is_string()) return wrong_type(*value, field, where, "a string");
  return value->get<std::string>();
}

Result<std::string> get_string_or(const Json& object, std::string_view field,
                                  std::string_view fallback, std::string_view where) {
  if (!find_field(object, field)) return std::string(fallback);
  return get_string(object, field, where);
}

}  // namespace jige
