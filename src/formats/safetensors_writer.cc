#include "formats/safetensors_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "formats/safetensors.h"
#include "formats/xxhash64.h"

namespace jige::formats {
namespace {

constexpr size_t kGatherBytes = size_t{1} << 20;

// Place of a type in the usual order of the format: larger elements first.
int type_rank(DType dtype) {
  switch (dtype) {
    case DType::kI64:
      return 0;
    case DType::kF32:
      return 1;
    case DType::kI32:
      return 2;
    case DType::kBF16:
      return 3;
    case DType::kF16:
      return 4;
    case DType::kI8:
      return 5;
    case DType::kU8:
      return 6;
  }
  return 7;
}

// Appends to the file and to its checksum; gathers the rows of strided views.
class HashedStream {
 public:
  explicit HashedStream(AtomicFile& file) : file_(file) {}

  Status write(const void* data, size_t size) {
    hash_.update(data, size);
    bytes_ += size;
    return file_.write(data, size);
  }

  Status write_rows(const TensorView& rows) {
    if (rows.count() == 0) return {};
    const auto* data = static_cast<const std::byte*>(rows.data);
    const auto row_bytes = static_cast<size_t>(dtype_bytes(rows.dtype, rows.columns()));
    const auto row_count = static_cast<size_t>(rows.rows());
    if (rows.contiguous()) return write(data, row_bytes * row_count);
    const auto stride = static_cast<size_t>(dtype_bytes(rows.dtype, rows.row_stride));
    const size_t gathered_rows = std::max<size_t>(1, kGatherBytes / row_bytes);
    const auto buffer = std::make_unique<std::byte[]>(gathered_rows * row_bytes);
    for (size_t begin = 0; begin < row_count; begin += gathered_rows) {
      const size_t taken = std::min(gathered_rows, row_count - begin);
      for (size_t i = 0; i < taken; ++i) {
        std::memcpy(buffer.get() + i * row_bytes, data + (begin + i) * stride, row_bytes);
      }
      JIGE_DO(write(buffer.get(), taken * row_bytes));
    }
    return {};
  }

  WrittenFile written() const { return {bytes_, hash_.digest()}; }

 private:
  AtomicFile& file_;
  XxHash64 hash_;
  uint64_t bytes_ = 0;
};

std::string json_text(std::string_view text) { return dump_json(Json(text)); }

// Length field, JSON and padding. `sources` in file order.
std::string header_bytes(std::span<const TensorSource* const> sources,
                         const SafetensorsMetadata& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (size_t i = 0; i < metadata.size(); ++i) {
      text += (i ? "," : "") + json_text(metadata[i].first) + ":" + json_text(metadata[i].second);
    }
    text += "}";
  }
  uint64_t offset = 0;
  for (const TensorSource* source : sources) {
    text += text.size() > 1 ? "," : "";
    text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[", json_text(source->name),
                        dtype_info(source->dtype).safetensors);
    for (int axis = 0; axis < source->shape.rank(); ++axis) {
      text += fmt::format("{}{}", axis ? "," : "", source->shape[axis]);
    }
    text += fmt::format("],\"data_offsets\":[{},{}]}}", offset, offset + source->bytes());
    offset += source->bytes();
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::array<char, sizeof length> prefix;
  std::memcpy(prefix.data(), &length, sizeof length);
  return std::string(prefix.data(), prefix.size()) + text;
}

// The sources in file order. Fails on names that cannot stand in one file.
Result<std::vector<const TensorSource*>> ordered(std::span<const TensorSource> sources,
                                                 std::string_view where) {
  std::vector<const TensorSource*> order;
  for (const TensorSource& source : sources) order.push_back(&source);
  std::sort(order.begin(), order.end(),
            [](const TensorSource* a, const TensorSource* b) { return a->name < b->name; });
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i]->name == "__metadata__") {
      return fail(Code::kInvalidArgument, "{}: no tensor may be named \"__metadata__\"", where);
    }
    if (i > 0 && order[i]->name == order[i - 1]->name) {
      return fail(Code::kInvalidArgument, "{}: tensor \"{}\" is given twice", where,
                  order[i]->name);
    }
  }
  std::stable_sort(order.begin(), order.end(), [](const TensorSource* a, const TensorSource* b) {
    return type_rank(a->dtype) < type_rank(b->dtype);
  });
  return order;
}

Status write_source(HashedStream& stream, const TensorSource& source, std::string_view where) {
  const int64_t rows_wanted = source.shape.rank() == 0 ? 1 : source.shape[0];
  int64_t rows_done = 0;
  JIGE_DO(source.produce([&](const TensorView& rows) -> Status {
    if (rows.dtype != source.dtype || rows.columns() != source.shape.row_count_elements() ||
        rows.rows() > rows_wanted - rows_done) {
      return fail(Code::kInvalidArgument, "{}: tensor \"{}\" {} {} was given rows {} {} after {}",
                  where, source.name, dtype_info(source.dtype).name, source.shape.to_string(),
                  dtype_info(rows.dtype).name, rows.shape.to_string(), rows_done);
    }
    rows_done += rows.rows();
    return stream.write_rows(rows);
  }));
  if (rows_done != rows_wanted) {
    return fail(Code::kInvalidArgument, "{}: tensor \"{}\" was given {} of its {} rows", where,
                source.name, rows_done, rows_wanted);
  }
  return {};
}

}  // namespace

TensorSource TensorSource::of(std::string name, const TensorView& view) {
  return {std::move(name), view.dtype, view.shape,
          [view](const RowSink& sink) -> Status { return sink(view); }};
}

uint64_t TensorSource::bytes() const {
  return static_cast<uint64_t>(dtype_bytes(dtype, shape.count()));
}

SafetensorsMetadata default_metadata() { return {{"format", "pt"}}; }

Result<WrittenFile> stream_safetensors(AtomicFile& file, std::string_view where,
                                       std::span<const TensorSource> sources,
                                       const SafetensorsMetadata& metadata) {
  JIGE_TRY(const std::vector<const TensorSource*> order, ordered(sources, where));
  const std::string header = header_bytes(order, metadata);
  if (header.size() > kSafetensorsHeaderBytesMax) {
    return fail(Code::kExhausted, "{}: {} tensors need a header of {} bytes; the format allows {}",
                where, sources.size(), header.size(), kSafetensorsHeaderBytesMax);
  }
  HashedStream stream(file);
  JIGE_DO(stream.write(header.data(), header.size()));
  for (const TensorSource* source : order) JIGE_DO(write_source(stream, *source, where));
  return stream.written();
}

Result<WrittenFile> write_safetensors(const std::string& path,
                                      std::span<const TensorSource> sources,
                                      const SafetensorsMetadata& metadata) {
  JIGE_TRY(AtomicFile file, AtomicFile::create(path));
  JIGE_TRY(const WrittenFile written, stream_safetensors(file, path, sources, metadata));
  JIGE_DO(file.commit());
  return written;
}

}  // namespace jige::formats
