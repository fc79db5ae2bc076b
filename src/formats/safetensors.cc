// The header: tokens in, checked entries out.
#include "formats/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "formats/json_sax.h"

namespace jige::formats {
namespace {

constexpr int kSkippedDepthMax = 16;

// Collects the entries. Ranges are taken as they stand; check_tensor and check_coverage judge them.
class HeaderReader : public SaxReader {
 public:
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
  };

  std::vector<StoredTensor> tensors;  // offset = begin of the range, bytes = its length
  std::vector<std::pair<std::string, std::string>> metadata;

  bool null() override { return skipping() || SaxReader::null(); }
  bool boolean(bool value) override { return skipping() || SaxReader::boolean(value); }
  bool number_integer(int64_t value) override {
    return skipping() || SaxReader::number_integer(value);
  }
  bool number_float(double value, const std::string& text) override {
    return skipping() || SaxReader::number_float(value, text);
  }

  bool number_unsigned(uint64_t value) override {
    if (skipping()) return true;
    if (place_ == Place::kShape) return add_dimension(value);
    if (place_ == Place::kOffsets && offset_count_ < 2) {
      (offset_count_++ == 0 ? range_.begin : range_.end) = value;
      return true;
    }
    return SaxReader::number_unsigned(value);
  }

  bool string(std::string& value) override {
    if (skipping()) return true;
    if (place_ == Place::kMetadata) {
      metadata.emplace_back(key_, value);
      return true;
    }
    if (place_ == Place::kTensor && field_ == "dtype") {
      tensor_.dtype_name = value;
      return true;
    }
    return SaxReader::string(value);
  }

  bool start_object(size_t count) override {
    if (skipping()) return skip_into();
    if (place_ == Place::kStart) {
      place_ = Place::kRoot;
      return true;
    }
    if (place_ != Place::kRoot) return SaxReader::start_object(count);
    if (key_ == "__metadata__") {
      if (metadata_seen_) return refuse("\"__metadata__\" appears twice");
      metadata_seen_ = true;
      place_ = Place::kMetadata;
      return true;
    }
    place_ = Place::kTensor;
    tensor_ = {};
    tensor_.name = key_;
    range_ = {};
    seen_dtype_ = seen_shape_ = seen_offsets_ = false;
    return true;
  }

  bool key(std::string& name) override {
    if (skip_depth_ > 0) return true;
    if (name.size() > kTensorNameBytesMax) return refuse("a name has {} bytes", name.size());
    if (place_ != Place::kTensor) {
      key_ = name;
      return true;
    }
    field_ = name;
    bool* seen = field_ == "dtype"          ? &seen_dtype_
                 : field_ == "shape"        ? &seen_shape_
                 : field_ == "data_offsets" ? &seen_offsets_
                                            : nullptr;
    if (seen && std::exchange(*seen, true)) return refuse("{}: field appears twice", place());
    return true;
  }

  bool end_object() override {
    if (skip_depth_ > 0) return skip_out();
    if (place_ == Place::kTensor) return finish_tensor();
    place_ = place_ == Place::kMetadata ? Place::kRoot : Place::kStart;
    return true;
  }

  bool start_array(size_t count) override {
    if (skipping()) return skip_into();
    if (place_ == Place::kTensor && field_ == "shape") {
      place_ = Place::kShape;
      return true;
    }
    if (place_ == Place::kTensor && field_ == "data_offsets") {
      place_ = Place::kOffsets;
      offset_count_ = 0;
      return true;
    }
    return SaxReader::start_array(count);
  }

  bool end_array() override {
    if (skip_depth_ > 0) return skip_out();
    if (place_ == Place::kOffsets && offset_count_ != 2) {
      return refuse("{}: needs two numbers", place());
    }
    place_ = Place::kTensor;
    return true;
  }

 protected:
  std::string place() const override {
    switch (place_) {
      case Place::kStart:
      case Place::kRoot:
        return "header";
      case Place::kMetadata:
        return fmt::format("\"__metadata__\" field \"{}\"", key_);
      default:
        return fmt::format("tensor \"{}\" field \"{}\"", key_, field_);
    }
  }

 private:
  enum class Place { kStart, kRoot, kMetadata, kTensor, kShape, kOffsets };

  // Fields the format may grow are passed over, whatever their value.
  bool skipping() const {
    return skip_depth_ > 0 || (place_ == Place::kTensor && field_ != "dtype" && field_ != "shape" &&
                               field_ != "data_offsets");
  }
  bool skip_into() {
    return ++skip_depth_ <= kSkippedDepthMax || refuse("{}: is nested too deep", place());
  }
  bool skip_out() {
    --skip_depth_;
    return true;
  }

  bool add_dimension(uint64_t value) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return refuse("{}: dimension {} is too large", place(), value);
    }
    if (tensor_.dims.size() >= kRankListedMax) {
      return refuse("{}: more than {} dimensions", place(), kRankListedMax);
    }
    tensor_.dims.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool finish_tensor() {
    if (!seen_dtype_ || !seen_shape_ || !seen_offsets_) {
      return refuse("tensor \"{}\": field \"{}\" is missing", key_,
                    !seen_dtype_   ? "dtype"
                    : !seen_shape_ ? "shape"
                                   : "data_offsets");
    }
    if (range_.begin > range_.end) {
      return refuse("tensor \"{}\": data_offsets [{}, {}] run backwards", key_, range_.begin,
                    range_.end);
    }
    tensor_.dtype = readable_dtype(tensor_.dtype_name);
    tensor_.offset = range_.begin;
    tensor_.bytes = range_.end - range_.begin;
    tensors.push_back(std::move(tensor_));
    place_ = Place::kRoot;
    return true;
  }

  Place place_ = Place::kStart;
  std::string key_;    // of the root or of the metadata
  std::string field_;  // of the tensor
  StoredTensor tensor_;
  Range range_;
  int offset_count_ = 0;
  int skip_depth_ = 0;
  bool metadata_seen_ = false;
  bool seen_dtype_ = false;
  bool seen_shape_ = false;
  bool seen_offsets_ = false;
};

// The range is inside the data and has the bytes of the shape.
Status check_tensor(const StoredTensor& tensor, uint64_t data_bytes, std::string_view where) {
  if (tensor.offset + tensor.bytes > data_bytes) {
    return fail(Code::kCorrupt,
                "{}: tensor \"{}\" ends at byte {} of the data, which has only {}; the file is "
                "truncated or its header lies",
                where, tensor.name, tensor.offset + tensor.bytes, data_bytes);
  }
  JIGE_TRY(const uint64_t count, checked_count(tensor, where));
  const int element_bits = stored_type_bits(tensor.dtype_name);
  const uint64_t bits = count * static_cast<uint64_t>(element_bits);
  if (element_bits > 0 && (bits % 8 != 0 || bits / 8 != tensor.bytes)) {
    return fail(Code::kCorrupt,
                "{}: tensor \"{}\": its shape and type {} need {} bytes, data_offsets give {}",
                where, tensor.name, tensor.dtype_name, (bits + 7) / 8, tensor.bytes);
  }
  return {};
}

// The ranges follow each other without gap or overlap and fill the data.
Status check_coverage(const std::vector<StoredTensor>& tensors, uint64_t data_bytes,
                      std::string_view where) {
  uint64_t covered = 0;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.offset != covered) {
      return fail(
          Code::kCorrupt, "{}: tensor \"{}\" begins at byte {} of the data, {} byte {}", where,
          tensor.name, tensor.offset,
          tensor.offset < covered ? "inside the tensor that ends at" : "leaving a gap after",
          covered);
    }
    covered += tensor.bytes;
  }
  if (covered != data_bytes) {
    return fail(Code::kCorrupt, "{}: has {} bytes after the last tensor", where,
                data_bytes - covered);
  }
  return {};
}

// The JSON text of the header. Fails when the length before it is a lie.
Result<std::string_view> header_text(std::span<const std::byte> file, std::string_view where) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t length = 0;
  if (file.size() < sizeof length) {
    return fail(Code::kCorrupt, "{}: has {} bytes, too few for a safetensors file", where,
                file.size());
  }
  std::memcpy(&length, file.data(), sizeof length);
  if (length > file.size() - sizeof length) {
    return fail(Code::kCorrupt,
                "{}: says its header has {} bytes, but only {} follow; the file is truncated or is "
                "no safetensors file",
                where, length, file.size() - sizeof length);
  }
  if (length > kSafetensorsHeaderBytesMax) {
    return fail(Code::kCorrupt, "{}: says its header has {} bytes; the format allows {}", where,
                length, kSafetensorsHeaderBytesMax);
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + sizeof length, length);
  if (!text.starts_with('{')) {
    return fail(Code::kCorrupt, "{}: its header does not begin with '{{'", where);
  }
  return text;
}

}  // namespace

Result<TensorTable> parse_safetensors_header(std::span<const std::byte> file,
                                             std::string_view where) {
  JIGE_TRY(const std::string_view text, header_text(file, where));
  HeaderReader reader;
  JIGE_DO(reader.run(text, where));

  TensorTable table;
  table.metadata = std::move(reader.metadata);
  table.tensors = std::move(reader.tensors);
  const uint64_t data_begin = sizeof(uint64_t) + text.size();
  const uint64_t data_bytes = file.size() - data_begin;
  for (const StoredTensor& tensor : table.tensors) {
    JIGE_DO(check_tensor(tensor, data_bytes, where));
  }
  JIGE_DO(table.arrange(where));
  JIGE_DO(check_coverage(table.tensors, data_bytes, where));
  for (StoredTensor& tensor : table.tensors) tensor.offset += data_begin;
  return table;
}

Result<TensorFile> open_safetensors(const std::string& path) {
  JIGE_TRY(MappedFile map, MappedFile::open(path));
  JIGE_TRY(TensorTable table, parse_safetensors_header(map.bytes(), path));
  return TensorFile(std::move(map), std::move(table));
}

}  // namespace jige::formats
