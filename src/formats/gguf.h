// GGUF files, read through a memory map: typed key/values and a table of tensors.
//
// Layout, little-endian: "GGUF"; u32 version (2 or 3); u64 tensor count; u64 key count; then each
//   key/value: text key, u32 type, value (an array: u32 type of the elements, u64 count, elements);
//   tensor: text name, u32 dimensions, u64 size of each (the length of a row first), u32 type, u64
//   offset of its data.
// A text is u64 bytes and the bytes. The data begins at the next multiple of general.alignment (32
// where absent) behind the table; offsets count from there and are multiples of the alignment too.
//
// A model may be split into files named NAME-00001-of-00003.gguf and so on, parts of which each has
// the keys split.no (from 0), split.count and split.tensors.count (of all parts) and a table of its
// own tensors. The other keys are those of the first part.
//
// Invariants: (1) every text, array and tensor lies inside the file, tensors do not overlap and
//                 have exactly the bytes of their shape and type.
//             (2) texts and data are views on the map; they stay valid for as long as the GgufFile,
//                 also when that is moved.
// Threads: const functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "formats/gguf_types.h"

namespace jige::formats {

inline constexpr uint64_t kGgufKeysMax = 65'536;
inline constexpr uint64_t kGgufTensorsMax = 1'048'576;
inline constexpr uint64_t kGgufTextsMax = uint64_t{1} << 24;  // in one array
inline constexpr size_t kGgufNameBytesMax = 4096;
inline constexpr uint64_t kGgufAlignmentMax = 65'536;
inline constexpr int64_t kGgufPartsMax = 4096;

// An array of numbers or of booleans; its elements are not aligned.
struct GgufNumbers {
  uint32_t type = 0;  // number of the element type
  uint64_t count = 0;
  std::span<const std::byte> bytes;
};

using GgufValue = std::variant<uint64_t, int64_t, float, double, bool, std::string_view,
                               GgufNumbers, std::vector<std::string_view>>;

// The key/values. Each getter fails with kCorrupt where the value has another type, naming file,
// key and type; the get_ forms also where the key is missing.
class GgufMetadata {
 public:
  explicit GgufMetadata(std::string where) : where_(std::move(where)) {}

  // False, and nothing changed, where the key is there already.
  bool add(std::string_view key, GgufValue value);

  const std::string& where() const { return where_; }
  size_t size() const { return values_.size(); }
  bool has(std::string_view key) const { return values_.contains(key); }
  bool has_array(std::string_view key) const;

  // Of any whole type.
  Result<std::optional<int64_t>> find_int(std::string_view key) const;
  Result<int64_t> get_int(std::string_view key) const;
  // One number, or an array in which all are the same, as of layers that do not differ. Fails with
  // kUnsupported where they differ.
  Result<std::optional<int64_t>> find_same_int(std::string_view key) const;
  Result<int64_t> get_same_int(std::string_view key) const;
  // Of any type of number. An f32 is what its shortest decimal form says: 1e-5, not
  // 9.99999974737875e-06.
  Result<std::optional<double>> find_number(std::string_view key) const;
  Result<std::optional<bool>> find_bool(std::string_view key) const;
  Result<std::optional<std::string_view>> find_text(std::string_view key) const;
  Result<std::string_view> get_text(std::string_view key) const;
  // An array of texts, nullptr where it is missing.
  Result<const std::vector<std::string_view>*> find_texts(std::string_view key) const;
  Result<std::optional<std::vector<int64_t>>> find_ints(std::string_view key) const;
  // An array of truth values or of whole numbers, of which all but 0 are true.
  Result<std::optional<std::vector<uint8_t>>> find_flags(std::string_view key) const;
  Result<std::optional<std::vector<float>>> find_floats(std::string_view key) const;
  // As find_number has it.
  static double shortest_decimal(float value);

 private:
  const GgufValue* find(std::string_view key) const;
  tl::unexpected<Error> missing(std::string_view key) const;
  tl::unexpected<Error> other_type(std::string_view key, std::string_view wanted) const;

  std::string where_;
  std::unordered_map<std::string_view, GgufValue> values_;
};

struct GgufTensor {
  std::string_view name;
  const GgufTypeInfo* type = nullptr;
  std::vector<int64_t> dims;  // 1 to 4, the slowest first, as in Hugging Face folders
  uint64_t offset = 0;        // bytes from the start of the file
  uint32_t part = 0;          // the file
  uint64_t bytes = 0;

  int64_t rows() const;  // product of all dimensions but the last
  int64_t columns() const { return dims.back(); }
  uint64_t row_bytes() const;
  std::string shape_text() const;  // "[96, 32]"
};

struct GgufHeader {
  explicit GgufHeader(std::string where) : metadata(std::move(where)) {}

  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // in the order of the table
  std::unordered_map<std::string_view, size_t> index;

  // The entry of a name, or nullptr.
  const GgufTensor* find(std::string_view name) const;
};

// The beginning of a text from a file, of a length fit for a message.
inline std::string_view gguf_shown(std::string_view text) { return text.substr(0, 200); }

// Whether bytes begin as a GGUF file does.
bool is_gguf(std::span<const std::byte> file);

// The name of a GGUF file in a folder, the first by name; empty where there is none.
std::string gguf_file_in(const std::string& folder);

// Checks a whole file given as bytes, to which the result refers. Fails with kUnsupported on other
// versions, byte orders and on types without a name, with kCorrupt on everything that contradicts
// the layout, each naming `where`, the key or tensor, and the value.
Result<GgufHeader> parse_gguf(std::span<const std::byte> file, std::string_view where);

class GgufFile {
 public:
  // Maps a file and checks its header, or all parts of the model of which it is one; no tensor data
  // is read. Fails as parse_gguf, with kNotFound where a part is missing, and with kCorrupt where
  // parts contradict each other or a tensor is in two of them, naming the files.
  static Result<GgufFile> open(const std::string& path);

  // Of the first part.
  const std::string& path() const { return maps_[0].path(); }
  size_t part_count() const { return maps_.size(); }
  // Of a part.
  uint64_t size(uint32_t part = 0) const { return maps_[part].bytes().size(); }
  const GgufMetadata& metadata() const { return header_.metadata; }
  const GgufHeader& header() const { return header_; }
  // The blocks of a tensor of this file, row behind row.
  const std::byte* data(const GgufTensor& tensor) const {
    return maps_[tensor.part].bytes().data() + tensor.offset;
  }

 private:
  GgufFile(MappedFile map, GgufHeader header) : header_(std::move(header)) {
    maps_.push_back(std::move(map));
  }
  static Result<GgufFile> open_parts(const std::string& path, int64_t count);
  Status add_part(MappedFile map, GgufHeader header);

  std::vector<MappedFile> maps_;
  GgufHeader header_;
};

}  // namespace jige::formats
