// GgufMetadata of gguf.h: the typed getters.
#include <charconv>
#include <cstring>
#include <limits>

#include "formats/byte_reader.h"
#include "formats/gguf.h"

namespace jige::formats {
namespace {

constexpr uint64_t kInt64Max = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());

// Element `i` of an array of whole numbers; nullopt for other types and values above int64.
std::optional<int64_t> int_in(const GgufNumbers& numbers, uint64_t i) {
  const std::byte* data = numbers.bytes.data();
  switch (numbers.type) {
    case 0:
      return number_at<uint8_t>(data + i);
    case 1:
      return number_at<int8_t>(data + i);
    case 2:
      return number_at<uint16_t>(data + 2 * i);
    case 3:
      return number_at<int16_t>(data + 2 * i);
    case 4:
      return number_at<uint32_t>(data + 4 * i);
    case 5:
      return number_at<int32_t>(data + 4 * i);
    case 10: {
      const auto value = number_at<uint64_t>(data + 8 * i);
      if (value > kInt64Max) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    case 11:
      return number_at<int64_t>(data + 8 * i);
    default:
      return std::nullopt;
  }
}

std::string_view type_name(const GgufValue& value) {
  static constexpr std::string_view kNames[] = {
      "a whole number", "a whole number",      "a number",         "a number", "a truth value",
      "a text",         "an array of numbers", "an array of texts"};
  return kNames[value.index()];
}

}  // namespace

double GgufMetadata::shortest_decimal(float value) {
  char text[32];
  const auto written = std::to_chars(text, text + sizeof text, value);
  double read = value;
  std::from_chars(text, written.ptr, read);
  return read;
}

bool GgufMetadata::add(std::string_view key, GgufValue value) {
  return values_.emplace(key, std::move(value)).second;
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

tl::unexpected<Error> GgufMetadata::missing(std::string_view key) const {
  return fail(Code::kCorrupt, "{}: key \"{}\" is missing", where_, key);
}

tl::unexpected<Error> GgufMetadata::other_type(std::string_view key,
                                               std::string_view wanted) const {
  return fail(Code::kCorrupt, "{}: key \"{}\" is {}; it must be {}", where_, key,
              type_name(*find(key)), wanted);
}

Result<std::optional<int64_t>> GgufMetadata::find_int(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return std::nullopt;
  if (const auto* number = std::get_if<int64_t>(value)) return *number;
  const auto* number = std::get_if<uint64_t>(value);
  if (!number) return other_type(key, "a whole number");
  if (*number > kInt64Max) {
    return fail(Code::kCorrupt, "{}: key \"{}\" is {}, which is too large", where_, key, *number);
  }
  return static_cast<int64_t>(*number);
}

Result<int64_t> GgufMetadata::get_int(std::string_view key) const {
  JIGE_TRY(const auto value, find_int(key));
  if (!value) return missing(key);
  return *value;
}

Result<std::optional<int64_t>> GgufMetadata::find_same_int(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value || !std::holds_alternative<GgufNumbers>(*value)) return find_int(key);
  JIGE_TRY(const auto list, find_ints(key));
  if (list->empty()) return fail(Code::kCorrupt, "{}: key \"{}\" is an empty array", where_, key);
  for (const int64_t number : *list) {
    if (number == list->front()) continue;
    return fail(Code::kUnsupported,
                "{}: key \"{}\" has {} for one layer and {} for another; Jige reads models whose "
                "layers are alike",
                where_, key, list->front(), number);
  }
  return list->front();
}

Result<int64_t> GgufMetadata::get_same_int(std::string_view key) const {
  JIGE_TRY(const auto value, find_same_int(key));
  if (!value) return missing(key);
  return *value;
}

Result<std::optional<double>> GgufMetadata::find_number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return std::nullopt;
  if (const auto* number = std::get_if<float>(value)) return shortest_decimal(*number);
  if (const auto* number = std::get_if<double>(value)) return *number;
  if (const auto* number = std::get_if<int64_t>(value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<uint64_t>(value)) return static_cast<double>(*number);
  return other_type(key, "a number");
}

Result<std::optional<bool>> GgufMetadata::find_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return std::nullopt;
  if (const auto* flag = std::get_if<bool>(value)) return *flag;
  return other_type(key, "a truth value");
}

Result<std::optional<std::string_view>> GgufMetadata::find_text(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return std::nullopt;
  if (const auto* text = std::get_if<std::string_view>(value)) return *text;
  return other_type(key, "a text");
}

Result<std::string_view> GgufMetadata::get_text(std::string_view key) const {
  JIGE_TRY(const auto value, find_text(key));
  if (!value) return missing(key);
  return *value;
}

Result<const std::vector<std::string_view>*> GgufMetadata::find_texts(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return nullptr;
  if (const auto* texts = std::get_if<std::vector<std::string_view>>(value)) return texts;
  return other_type(key, "an array of texts");
}

Result<std::optional<std::vector<int64_t>>> GgufMetadata::find_ints(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return std::nullopt;
  const auto* numbers = std::get_if<GgufNumbers>(value);
  if (!numbers) return other_type(key, "an array of whole numbers");
  std::vector<int64_t> list;
  list.reserve(numbers->count);
  for (uint64_t i = 0; i < numbers->count; ++i) {
    const auto number = int_in(*numbers, i);
    if (!number) return other_type(key, "an array of whole numbers");
    list.push_back(*number);
  }
  return list;
}

Result<std::optional<std::vector<uint8_t>>> GgufMetadata::find_flags(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return std::nullopt;
  const auto* numbers = std::get_if<GgufNumbers>(value);
  if (!numbers) return other_type(key, "an array of truth values");
  std::vector<uint8_t> flags;
  flags.reserve(numbers->count);
  for (uint64_t i = 0; i < numbers->count; ++i) {
    const bool truth = numbers->type == kGgufValueBool;
    const auto number =
        truth ? std::optional<int64_t>(numbers->bytes[i] != std::byte{0}) : int_in(*numbers, i);
    if (!number) return other_type(key, "an array of truth values");
    flags.push_back(*number != 0);
  }
  return flags;
}

bool GgufMetadata::has_array(std::string_view key) const {
  const GgufValue* value = find(key);
  return value && std::holds_alternative<GgufNumbers>(*value);
}

Result<std::optional<std::vector<float>>> GgufMetadata::find_floats(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return std::nullopt;
  const auto* numbers = std::get_if<GgufNumbers>(value);
  if (!numbers || numbers->type != 6) return other_type(key, "an array of f32");
  std::vector<float> list(numbers->count);
  if (!list.empty()) std::memcpy(list.data(), numbers->bytes.data(), numbers->bytes.size());
  return list;
}

}  // namespace jige::formats
