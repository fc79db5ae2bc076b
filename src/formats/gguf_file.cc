// GgufFile: one file, or the parts of a model that was split.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "formats/gguf.h"

namespace jige::formats {
namespace {

constexpr std::string_view kGgufSuffix = ".gguf";
constexpr std::string_view kOf = "-of-";
constexpr size_t kPartDigitsMin = 5;

// The name of a part, apart.
struct GgufPartName {
  std::string stem;    // with the folder
  int64_t number = 0;  // from 1
  int64_t count = 0;

  std::string path(int64_t of_number) const {
    return fmt::format("{}-{:05}-of-{:05}.gguf", stem, of_number, count);
  }
};

// Takes the number that ends a text, and what stands before it.
std::optional<int64_t> take_number(std::string_view& text, std::string_view before) {
  const size_t digits = text.find_last_not_of("0123456789") + 1;
  const std::string_view number = text.substr(digits);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (number.size() < kPartDigitsMin || error != std::errc() ||
      !text.substr(0, digits).ends_with(before)) {
    return std::nullopt;
  }
  text = text.substr(0, digits - before.size());
  return value;
}

std::optional<GgufPartName> part_name(std::string_view path) {
  if (!path.ends_with(kGgufSuffix)) return std::nullopt;
  path.remove_suffix(kGgufSuffix.size());
  const auto count = take_number(path, kOf);
  const auto number = count ? take_number(path, "-") : std::nullopt;
  if (!number) return std::nullopt;
  return GgufPartName{std::string(path), *number, *count};
}

// The parts that the file says it is one of; 1 for a whole model.
Result<int64_t> stated_parts(const GgufMetadata& keys) {
  JIGE_TRY(const auto count, keys.find_int("split.count"));
  if (count.value_or(1) >= 0 && count.value_or(1) <= kGgufPartsMax) {
    return std::max<int64_t>(count.value_or(1), 1);
  }
  return fail(Code::kCorrupt, "{}: key \"split.count\" is {}; at most {} parts are read",
              keys.where(), *count, kGgufPartsMax);
}

Status check_part(const GgufMetadata& keys, const GgufPartName& name, int64_t number) {
  JIGE_TRY(const int64_t count, stated_parts(keys));
  JIGE_TRY(const int64_t place, keys.get_int("split.no"));
  if (count == name.count && place == number - 1) return {};
  return fail(Code::kCorrupt,
              "{}: keys \"split.no\" and \"split.count\" are {} and {}, but the name says part {} "
              "of {}, which is {} of {} there; take all parts from one place, under their names",
              keys.where(), place, count, number, name.count, number - 1, name.count);
}

}  // namespace

Result<GgufFile> GgufFile::open(const std::string& path) {
  JIGE_TRY(MappedFile map, MappedFile::open(path));
  JIGE_TRY(GgufHeader header, parse_gguf(map.bytes(), path));
  JIGE_TRY(const int64_t count, stated_parts(header.metadata));
  if (count == 1) return GgufFile(std::move(map), std::move(header));
  return open_parts(path, count);
}

Result<GgufFile> GgufFile::open_parts(const std::string& path, int64_t count) {
  const auto name = part_name(path);
  if (!name || name->count != count || name->number < 1 || name->number > count) {
    return fail(
        Code::kInvalidArgument,
        "{}: is one of {} parts (key \"split.count\"), which are found by their names; name "
        "them NAME-00001-of-{:05}.gguf and so on",
        path, count, count);
  }
  std::optional<GgufFile> whole;
  for (int64_t number = 1; number <= count; ++number) {
    const std::string part = name->path(number);
    auto map = MappedFile::open(part);
    if (!map && map.error().code == Code::kNotFound) {
      return fail(Code::kNotFound, "{}: is missing; {} says that there are {} parts", part, path,
                  count);
    }
    if (!map) return tl::unexpected<Error>(std::move(map.error()));
    JIGE_TRY(GgufHeader header, parse_gguf(map->bytes(), part));
    JIGE_DO(check_part(header.metadata, *name, number));
    if (whole) {
      JIGE_DO(whole->add_part(std::move(*map), std::move(header)));
    } else {
      whole = GgufFile(std::move(*map), std::move(header));
    }
  }
  JIGE_TRY(const auto stated, whole->metadata().find_int("split.tensors.count"));
  const auto found = static_cast<int64_t>(whole->header().tensors.size());
  if (stated.value_or(found) != found) {
    return fail(Code::kCorrupt, "{}: key \"split.tensors.count\" is {}, but the {} parts have {}",
                whole->path(), *stated, count, found);
  }
  return std::move(*whole);
}

Status GgufFile::add_part(MappedFile map, GgufHeader header) {
  const auto part = static_cast<uint32_t>(maps_.size());
  for (GgufTensor& tensor : header.tensors) {
    const auto [known, is_new] = header_.index.emplace(tensor.name, header_.tensors.size());
    if (!is_new) {
      return fail(Code::kCorrupt, "{}: tensor \"{}\" is in {}, too", map.path(),
                  gguf_shown(tensor.name), maps_[header_.tensors[known->second].part].path());
    }
    if (header_.tensors.size() >= kGgufTensorsMax) {
      return fail(Code::kCorrupt, "{}: the parts up to here have more than {} tensors", map.path(),
                  kGgufTensorsMax);
    }
    tensor.part = part;
    header_.tensors.push_back(std::move(tensor));
  }
  maps_.push_back(std::move(map));
  return {};
}

}  // namespace jige::formats
