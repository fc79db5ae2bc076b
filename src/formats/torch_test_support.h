// Files as torch.save writes them, for tests: a state dict in an archive or in the older container.
//
// Threads: one test at a time.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/safetensors.h"
#include "formats/strided_copy.h"

namespace jige::formats {

template <typename T>
std::string little_endian(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline std::string pickled_text(std::string_view text) {
  return "X" + little_endian(static_cast<uint32_t>(text.size())) + std::string(text);
}

inline std::string pickled_int(int64_t value) { return "\x8a\x08" + little_endian(value); }

inline std::string pickled_global(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}

// A tensor with a storage of its own, contiguous or a matrix whose columns lie there.
struct TorchTensor {
  std::string name;
  std::string storage;  // "FloatStorage"
  std::vector<int64_t> dims;
  std::string bytes;
  int64_t count = 1;
  bool by_column = false;

  static TorchTensor of(const TensorFile& file, const StoredTensor& stored) {
    static const std::map<std::string, std::string> kStorages = {
        {"F32", "FloatStorage"}, {"F16", "HalfStorage"}, {"BF16", "BFloat16Storage"},
        {"I64", "LongStorage"},  {"I32", "IntStorage"},  {"I8", "CharStorage"},
        {"U8", "ByteStorage"}};
    const auto* bytes = reinterpret_cast<const char*>(file.bytes().data()) + stored.offset;
    return {stored.name, kStorages.at(stored.dtype_name), stored.dims,
            std::string(bytes, stored.bytes), stored.count()};
  }

  // The matrix again, stored by column; what is no matrix as it is.
  TorchTensor transposed() const {
    TorchTensor other = *this;
    if (dims.size() != 2 || count == 0) return other;
    other.by_column = true;
    const auto element_bytes = bytes.size() / static_cast<size_t>(count);
    const int64_t by_column_strides[] = {1, dims[1]};
    const int64_t by_column_dims[] = {dims[1], dims[0]};
    copy_strided(reinterpret_cast<const std::byte*>(bytes.data()), by_column_dims,
                 by_column_strides, element_bytes,
                 reinterpret_cast<std::byte*>(other.bytes.data()));
    return other;
  }

  // The call that torch would make; `key` is that of the storage, of which old files say more.
  std::string pickled(std::string_view key, bool legacy) const {
    std::string sizes;
    std::string strides;
    int64_t stride = count;
    for (const int64_t dim : dims) {
      stride = dim > 0 ? stride / dim : stride;
      sizes += pickled_int(dim);
      strides += pickled_int(stride);
    }
    if (by_column) strides = pickled_int(1) + pickled_int(dims[0]);
    return pickled_global("torch._utils", "_rebuild_tensor_v2") + "((" + pickled_text("storage") +
           pickled_global("torch", storage) + pickled_text(key) + pickled_text("cpu") +
           pickled_int(count) + (legacy ? "N" : "") + "tQ" + pickled_int(0) + "(" + sizes + "t(" +
           strides + "t\x89" + pickled_global("collections", "OrderedDict") + ")RtR";
  }
};

inline std::vector<TorchTensor> transposed(std::vector<TorchTensor> tensors) {
  for (TorchTensor& tensor : tensors) tensor = tensor.transposed();
  return tensors;
}

inline std::vector<TorchTensor> torch_tensors(const TensorFile& file) {
  std::vector<TorchTensor> tensors;
  for (const StoredTensor& stored : file.tensors())
    tensors.push_back(TorchTensor::of(file, stored));
  return tensors;
}

inline std::string pickled_state_dict(const std::vector<TorchTensor>& tensors, bool legacy) {
  std::string text = "\x80\x02" + pickled_global("collections", "OrderedDict") + ")R(";
  for (size_t i = 0; i < tensors.size(); ++i) {
    text += pickled_text(tensors[i].name) + tensors[i].pickled(std::to_string(i), legacy);
  }
  return text + "u.";
}

// As torch wrote before 1.6.
inline std::string torch_legacy_file(const std::vector<TorchTensor>& tensors) {
  using std::string_literals::operator""s;
  std::string file = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03."s;
  file += "\x80\x02}(" + pickled_text("little_endian") + "\x88u.";
  file += pickled_state_dict(tensors, true) + "\x80\x02](";
  for (size_t i = 0; i < tensors.size(); ++i) file += pickled_text(std::to_string(i));
  file += "e.";
  for (const TorchTensor& tensor : tensors) file += little_endian(tensor.count) + tensor.bytes;
  return file;
}

// A zip archive of entries that are not packed.
class ZipBuilder {
 public:
  // `wide`: numbers and the place of the directory are said in 64 bits.
  explicit ZipBuilder(bool wide = false) : wide_(wide) {}

  ZipBuilder& add(std::string_view name, std::string_view content, uint16_t method = 0) {
    const auto offset = static_cast<uint64_t>(file_.size());
    const auto size = static_cast<uint64_t>(content.size());
    const std::string padding(16, 'p');
    file_ += "PK\3\4" + std::string(4, '\0') + little_endian(method) + std::string(8, '\0');
    file_ += size_field(size) + size_field(size) + size_field(name.size(), true) +
             little_endian(static_cast<uint16_t>(padding.size()));
    file_ += std::string(name) + padding + std::string(content);
    std::string extra;
    if (wide_) {
      extra = little_endian(uint16_t{7}) + little_endian(uint16_t{1}) + "x";  // another field
      extra += little_endian(uint16_t{1}) + little_endian(uint16_t{24}) + little_endian(size) +
               little_endian(size) + little_endian(offset);
    }
    directory_ += "PK\1\2" + std::string(6, '\0') + little_endian(method) + std::string(8, '\0');
    directory_ += number(size) + number(size) + size_field(name.size(), true) +
                  size_field(extra.size(), true) + std::string(10, '\0') + number(offset);
    directory_ += std::string(name) + extra;
    ++count_;
    return *this;
  }

  std::string bytes(std::string_view comment = "") const {
    const auto begin = static_cast<uint64_t>(file_.size());
    const auto size = static_cast<uint64_t>(directory_.size());
    std::string file = file_ + directory_;
    if (wide_) {
      const auto end = static_cast<uint64_t>(file.size());
      file += "PK\6\6" + little_endian(uint64_t{44}) + std::string(12, '\0') +
              little_endian(uint64_t{count_}) + little_endian(uint64_t{count_}) +
              little_endian(size) + little_endian(begin);
      file += "PK\6\7" + std::string(4, '\0') + little_endian(end) + little_endian(uint32_t{1});
    }
    const auto shown_count = wide_ ? uint16_t{0xffff} : static_cast<uint16_t>(count_);
    return file + "PK\5\6" + std::string(4, '\0') + little_endian(shown_count) +
           little_endian(shown_count) + number(size) + number(begin) +
           size_field(comment.size(), true) + std::string(comment);
  }

 private:
  // Of the directory, where wide archives say it elsewhere.
  std::string number(uint64_t value) const { return size_field(wide_ ? 0xffffffff : value); }
  static std::string size_field(uint64_t value, bool narrow = false) {
    return little_endian(value).substr(0, narrow ? 2 : 4);
  }

  bool wide_;
  uint32_t count_ = 0;
  std::string file_;
  std::string directory_;
};

// As torch writes since 1.6.
inline std::string torch_archive(const std::vector<TorchTensor>& tensors, bool wide = false) {
  ZipBuilder zip(wide);
  zip.add("model/data.pkl", pickled_state_dict(tensors, false)).add("model/byteorder", "little");
  for (size_t i = 0; i < tensors.size(); ++i) {
    zip.add("model/data/" + std::to_string(i), tensors[i].bytes);
  }
  return zip.add("model/version", "3\n").bytes();
}

}  // namespace jige::formats
