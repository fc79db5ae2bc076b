#include "formats/gguf_writer.h"

#include <algorithm>
#include <cstring>

#include "base/file.h"

namespace jige::formats {
namespace {

constexpr uint64_t kWrittenAlignment = 32;  // what readers take where no key says otherwise
constexpr uint32_t kWrittenVersion = 3;

uint64_t aligned(uint64_t size) {
  return (size + kWrittenAlignment - 1) / kWrittenAlignment * kWrittenAlignment;
}

template <typename T>
void put_raw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& out, std::string_view text) {
  put_raw<uint64_t>(out, text.size());
  out += text;
}

template <typename T>
void put_array(std::string& out, uint32_t type, std::span<const T> values) {
  put_raw(out, type);
  put_raw<uint64_t>(out, values.size());
  out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

std::string header_of(const GgufKeys& keys, std::span<const GgufTensorSource> sources) {
  std::string out = "GGUF";
  put_raw(out, kWrittenVersion);
  put_raw<uint64_t>(out, sources.size());
  put_raw<uint64_t>(out, keys.count());
  out += keys.bytes();
  uint64_t offset = 0;
  for (const GgufTensorSource& source : sources) {
    put_text(out, source.name);
    put_raw(out, static_cast<uint32_t>(source.dims.size()));
    for (size_t i = source.dims.size(); i-- > 0;) {
      put_raw(out, static_cast<uint64_t>(source.dims[i]));
    }
    put_raw(out, source.type->number);
    put_raw(out, offset);
    offset += aligned(source.bytes());
  }
  out.resize(aligned(out.size()), '\0');
  return out;
}

Status write_blocks(AtomicFile& file, const GgufTensorSource& source, const std::string& path) {
  uint64_t left = source.bytes();
  JIGE_DO(source.produce([&](std::span<const std::byte> blocks) -> Status {
    if (blocks.size() > left) {
      return fail(Code::kInvalidArgument, "{}: tensor \"{}\" was given more than its {} bytes",
                  path, source.name, source.bytes());
    }
    left -= blocks.size();
    return file.write(blocks.data(), blocks.size());
  }));
  if (left > 0) {
    return fail(Code::kInvalidArgument, "{}: tensor \"{}\" was given {} bytes too few of its {}",
                path, source.name, left, source.bytes());
  }
  const std::string padding(aligned(source.bytes()) - source.bytes(), '\0');
  return file.write(padding.data(), padding.size());
}

}  // namespace

void GgufKeys::begin(std::string_view key, uint32_t type) {
  ++count_;
  put_text(bytes_, key);
  put_raw(bytes_, type);
}

void GgufKeys::number(std::string_view key, uint32_t value) {
  begin(key, kGgufValueU32);
  put_raw(bytes_, value);
}

void GgufKeys::real(std::string_view key, float value) {
  begin(key, kGgufValueF32);
  put_raw(bytes_, value);
}

void GgufKeys::flag(std::string_view key, bool value) {
  begin(key, kGgufValueBool);
  put_raw<uint8_t>(bytes_, value ? 1 : 0);
}

void GgufKeys::text(std::string_view key, std::string_view value) {
  begin(key, kGgufValueText);
  put_text(bytes_, value);
}

void GgufKeys::texts(std::string_view key, std::span<const std::string> values) {
  begin(key, kGgufValueArray);
  put_raw(bytes_, kGgufValueText);
  put_raw<uint64_t>(bytes_, values.size());
  for (const std::string& value : values) put_text(bytes_, value);
}

void GgufKeys::ints(std::string_view key, std::span<const int32_t> values) {
  begin(key, kGgufValueArray);
  put_array(bytes_, kGgufValueI32, values);
}

void GgufKeys::reals(std::string_view key, std::span<const float> values) {
  begin(key, kGgufValueArray);
  put_array(bytes_, kGgufValueF32, values);
}

void GgufKeys::flags(std::string_view key, std::span<const uint8_t> values) {
  begin(key, kGgufValueArray);
  put_array(bytes_, kGgufValueBool, values);
}

uint64_t GgufTensorSource::bytes() const {
  uint64_t count = 1;
  for (const int64_t dim : dims) count *= static_cast<uint64_t>(dim);
  return count / type->block_elements * type->block_bytes;
}

Result<uint64_t> write_gguf(const std::string& path, const GgufKeys& keys,
                            std::span<const GgufTensorSource> sources) {
  JIGE_TRY(AtomicFile file, AtomicFile::create(path));
  const std::string header = header_of(keys, sources);
  JIGE_DO(file.write(header.data(), header.size()));
  uint64_t size = header.size();
  for (const GgufTensorSource& source : sources) {
    JIGE_DO(write_blocks(file, source, path));
    size += aligned(source.bytes());
  }
  JIGE_DO(file.commit());
  return size;
}

}  // namespace jige::formats
