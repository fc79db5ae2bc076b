#include "formats/gguf.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>

namespace jige::formats {
namespace {

constexpr char kGgufMagic[] = {'G', 'G', 'U', 'F'};
constexpr uint64_t kGgufDimensionsMax = 4;
constexpr uint64_t kGgufAlignmentUsual = 32;
constexpr uint64_t kGgufElementsMax = uint64_t{1} << 48;  // of a tensor

// Bytes of a value of fixed size; 0 for texts, arrays and what the format does not have.
size_t value_bytes(uint32_t type) {
  switch (type) {
    case kGgufValueU8:
    case kGgufValueI8:
    case kGgufValueBool:
      return 1;
    case kGgufValueU16:
    case kGgufValueI16:
      return 2;
    case kGgufValueU32:
    case kGgufValueI32:
    case kGgufValueF32:
      return 4;
    case kGgufValueU64:
    case kGgufValueI64:
    case kGgufValueF64:
      return 8;
    default:
      return 0;
  }
}

// Reads a file from its start; every read is checked against its end.
class GgufParser {
 public:
  GgufParser(std::span<const std::byte> file, std::string_view where)
      : file_(file), where_(where), header_(std::string(where)) {}

  Result<GgufHeader> run() {
    JIGE_DO(read_version());
    JIGE_TRY(const uint64_t tensor_count, read<uint64_t>("the tensor count"));
    JIGE_TRY(const uint64_t key_count, read<uint64_t>("the key count"));
    if (key_count > kGgufKeysMax || tensor_count > kGgufTensorsMax) {
      return fail(Code::kCorrupt, "{}: names {} keys and {} tensors; at most {} and {} are read",
                  where_, key_count, tensor_count, kGgufKeysMax, kGgufTensorsMax);
    }
    for (uint64_t i = 0; i < key_count; ++i) JIGE_DO(read_key(i));
    for (uint64_t i = 0; i < tensor_count; ++i) JIGE_DO(read_tensor(i));
    JIGE_DO(place_tensors());
    return std::move(header_);
  }

 private:
  uint64_t left() const { return file_.size() - at_; }

  template <typename T>
  Result<T> read(std::string_view what) {
    if (left() < sizeof(T)) {
      return fail(Code::kCorrupt, "{}: ends at byte {} inside {}", where_, file_.size(), what);
    }
    T value;
    std::memcpy(&value, file_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  Result<std::string_view> read_text(std::string_view what) {
    JIGE_TRY(const uint64_t size, read<uint64_t>(what));
    if (size > left()) {
      return fail(Code::kCorrupt, "{}: {} has {} bytes, but the file has {} more", where_, what,
                  size, left());
    }
    const std::string_view text(reinterpret_cast<const char*>(file_.data() + at_), size);
    at_ += size;
    return text;
  }

  Result<std::string_view> read_name(std::string_view what) {
    JIGE_TRY(const std::string_view name, read_text(what));
    if (name.empty() || name.size() > kGgufNameBytesMax) {
      return fail(Code::kCorrupt, "{}: {} has {} bytes; it must have 1 to {}", where_, what,
                  name.size(), kGgufNameBytesMax);
    }
    return name;
  }

  Status read_version() {
    if (!is_gguf(file_)) {
      return fail(Code::kCorrupt, "{}: does not begin with \"GGUF\", so it is no GGUF file",
                  where_);
    }
    at_ = sizeof kGgufMagic;
    JIGE_TRY(const uint32_t version, read<uint32_t>("the version"));
    if (version == 2 || version == 3) return {};
    if ((version & 0xffff) == 0 && version != 0) {
      return fail(Code::kUnsupported,
                  "{}: is a big-endian GGUF file; Jige reads little-endian ones", where_);
    }
    return fail(Code::kUnsupported,
                "{}: is a GGUF file of version {}; Jige reads versions 2 and 3{}", where_, version,
                version == 1 ? ", so convert the original model anew" : "");
  }

  Status read_key(uint64_t number) {
    JIGE_TRY(const std::string_view key, read_name(fmt::format("key number {}", number)));
    const std::string what = fmt::format("the value of key \"{}\"", gguf_shown(key));
    JIGE_TRY(const uint32_t type, read<uint32_t>(what));
    JIGE_TRY(GgufValue value, read_value(type, what));
    if (header_.metadata.add(key, std::move(value))) return {};
    return fail(Code::kCorrupt, "{}: key \"{}\" appears twice", where_, gguf_shown(key));
  }

  Result<GgufValue> read_value(uint32_t type, std::string_view what) {
    switch (type) {
      case kGgufValueU8:
        return read_as<uint8_t, uint64_t>(what);
      case kGgufValueI8:
        return read_as<int8_t, int64_t>(what);
      case kGgufValueU16:
        return read_as<uint16_t, uint64_t>(what);
      case kGgufValueI16:
        return read_as<int16_t, int64_t>(what);
      case kGgufValueU32:
        return read_as<uint32_t, uint64_t>(what);
      case kGgufValueI32:
        return read_as<int32_t, int64_t>(what);
      case kGgufValueU64:
        return read_as<uint64_t, uint64_t>(what);
      case kGgufValueI64:
        return read_as<int64_t, int64_t>(what);
      case kGgufValueF32:
        return read_as<float, float>(what);
      case kGgufValueF64:
        return read_as<double, double>(what);
      case kGgufValueBool:
        return read_bool(what);
      case kGgufValueText: {
        JIGE_TRY(const std::string_view text, read_text(what));
        return GgufValue(text);
      }
      case kGgufValueArray:
        return read_array(what);
      default:
        return fail(Code::kCorrupt, "{}: {} has type number {}, which the format does not have",
                    where_, what, type);
    }
  }

  template <typename Stored, typename Kept>
  Result<GgufValue> read_as(std::string_view what) {
    JIGE_TRY(const Stored value, read<Stored>(what));
    return GgufValue(static_cast<Kept>(value));
  }

  Result<GgufValue> read_bool(std::string_view what) {
    JIGE_TRY(const uint8_t value, read<uint8_t>(what));
    if (value <= 1) return GgufValue(value == 1);
    return fail(Code::kCorrupt, "{}: {} is {}; a truth value is 0 or 1", where_, what, value);
  }

  Result<GgufValue> read_array(std::string_view what) {
    JIGE_TRY(const uint32_t type, read<uint32_t>(what));
    JIGE_TRY(const uint64_t count, read<uint64_t>(what));
    if (type == kGgufValueText) return read_texts(count, what);
    if (type == kGgufValueArray) {
      return fail(Code::kUnsupported, "{}: {} is an array of arrays, which Jige does not read",
                  where_, what);
    }
    const size_t each = value_bytes(type);
    if (each == 0) {
      return fail(Code::kCorrupt, "{}: {} has elements of type number {}, which the format lacks",
                  where_, what, type);
    }
    JIGE_DO(check_count(count, each, what));
    const std::span<const std::byte> bytes = file_.subspan(at_, count * each);
    at_ += bytes.size();
    return GgufValue(GgufNumbers{type, count, bytes});
  }

  Result<GgufValue> read_texts(uint64_t count, std::string_view what) {
    JIGE_DO(check_count(count, sizeof(uint64_t), what));
    if (count > kGgufTextsMax) {
      return fail(Code::kUnsupported, "{}: {} has {} texts; at most {} are read", where_, what,
                  count, kGgufTextsMax);
    }
    std::vector<std::string_view> texts;
    texts.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      JIGE_TRY(const std::string_view text, read_text(what));
      texts.push_back(text);
    }
    return GgufValue(std::move(texts));
  }

  // `each`: bytes that an element has at least.
  Status check_count(uint64_t count, uint64_t each, std::string_view what) const {
    if (count <= left() / each) return {};
    return fail(Code::kCorrupt, "{}: {} has {} elements, but the file has {} more bytes", where_,
                what, count, left());
  }

  Status read_tensor(uint64_t number) {
    GgufTensor tensor;
    JIGE_TRY(tensor.name, read_name(fmt::format("the name of tensor number {}", number)));
    const std::string what = fmt::format("tensor \"{}\"", gguf_shown(tensor.name));
    JIGE_TRY(const uint32_t rank, read<uint32_t>(what));
    if (rank < 1 || rank > kGgufDimensionsMax) {
      return fail(Code::kCorrupt, "{}: {} has {} dimensions; it must have 1 to {}", where_, what,
                  rank, kGgufDimensionsMax);
    }
    uint64_t count = 1;
    for (uint32_t axis = 0; axis < rank; ++axis) {
      JIGE_TRY(const uint64_t size, read<uint64_t>(what));
      if (size < 1 || size > kGgufElementsMax / count) {
        return fail(Code::kCorrupt, "{}: dimension {} of {} is {}", where_, axis, what, size);
      }
      count *= size;
      tensor.dims.insert(tensor.dims.begin(), static_cast<int64_t>(size));
    }
    JIGE_TRY(const uint32_t type, read<uint32_t>(what));
    tensor.type = find_gguf_type(type);
    if (!tensor.type) {
      return fail(Code::kUnsupported,
                  "{}: {} has type number {}, which Jige does not know; it "
                  "reads {}",
                  where_, what, type, readable_gguf_types());
    }
    if (tensor.dims.back() % tensor.type->block_elements != 0) {
      return fail(Code::kCorrupt, "{}: {} is {} with rows of {}, no multiple of {}", where_, what,
                  tensor.type->name, tensor.dims.back(), tensor.type->block_elements);
    }
    tensor.bytes = count / tensor.type->block_elements * tensor.type->block_bytes;
    JIGE_TRY(tensor.offset, read<uint64_t>(what));
    if (!header_.index.emplace(tensor.name, header_.tensors.size()).second) {
      return fail(Code::kCorrupt, "{}: {} is listed twice", where_, what);
    }
    header_.tensors.push_back(std::move(tensor));
    return {};
  }

  // Offsets count from the start of the data; afterwards they count from that of the file.
  Status place_tensors() {
    JIGE_TRY(const auto stated, header_.metadata.find_int("general.alignment"));
    const auto alignment = static_cast<uint64_t>(stated.value_or(kGgufAlignmentUsual));
    if (!std::has_single_bit(alignment) || alignment > kGgufAlignmentMax) {
      return fail(Code::kCorrupt,
                  "{}: key \"general.alignment\" is {}; it must be a power of two up to {}", where_,
                  stated.value_or(0), kGgufAlignmentMax);
    }
    const uint64_t begin = (at_ + alignment - 1) / alignment * alignment;
    for (GgufTensor& tensor : header_.tensors) {
      const bool inside = begin <= file_.size() && tensor.offset <= file_.size() - begin &&
                          tensor.bytes <= file_.size() - begin - tensor.offset;
      if (!inside || tensor.offset % alignment != 0) {
        return fail(Code::kCorrupt,
                    "{}: tensor \"{}\" has {} bytes at offset {} of the data, which begins at byte "
                    "{} of {}; {}",
                    where_, gguf_shown(tensor.name), tensor.bytes, tensor.offset, begin,
                    file_.size(),
                    inside ? fmt::format("offsets must be multiples of {}", alignment)
                           : "the file is cut short, or damaged");
      }
      tensor.offset += begin;
    }
    return check_overlaps();
  }

  Status check_overlaps() const {
    std::vector<const GgufTensor*> order;
    for (const GgufTensor& tensor : header_.tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(),
              [](const GgufTensor* a, const GgufTensor* b) { return a->offset < b->offset; });
    for (size_t i = 1; i < order.size(); ++i) {
      if (order[i - 1]->offset + order[i - 1]->bytes <= order[i]->offset) continue;
      return fail(Code::kCorrupt, "{}: tensors \"{}\" and \"{}\" overlap", where_,
                  gguf_shown(order[i - 1]->name), gguf_shown(order[i]->name));
    }
    return {};
  }

  std::span<const std::byte> file_;
  std::string_view where_;
  size_t at_ = 0;
  GgufHeader header_;
};

}  // namespace

int64_t GgufTensor::rows() const {
  int64_t product = 1;
  for (size_t axis = 0; axis + 1 < dims.size(); ++axis) product *= dims[axis];
  return product;
}

uint64_t GgufTensor::row_bytes() const {
  return static_cast<uint64_t>(columns()) / type->block_elements * type->block_bytes;
}

std::string GgufTensor::shape_text() const { return fmt::format("[{}]", fmt::join(dims, ", ")); }

const GgufTensor* GgufHeader::find(std::string_view name) const {
  const auto it = index.find(name);
  return it == index.end() ? nullptr : &tensors[it->second];
}

bool is_gguf(std::span<const std::byte> file) {
  return file.size() >= sizeof kGgufMagic &&
         std::memcmp(file.data(), kGgufMagic, sizeof kGgufMagic) == 0;
}

std::string gguf_file_in(const std::string& folder) {
  std::error_code error;
  std::string first;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(".gguf") && (first.empty() || name < first)) first = name;
  }
  return first;
}

Result<GgufHeader> parse_gguf(std::span<const std::byte> file, std::string_view where) {
  return GgufParser(file, where).run();
}

}  // namespace jige::formats
