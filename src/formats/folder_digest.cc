#include "formats/folder_digest.h"

#include <algorithm>

#include "base/file.h"
#include "formats/tensor_folder.h"
#include "formats/xxhash64.h"

namespace jige::formats {
namespace {

constexpr size_t kBytesOfTensor = 256;  // that are looked at

}  // namespace

Result<std::string> folder_digest(const std::string& folder) {
  XxHash64 hash;
  JIGE_TRY(const std::string config, read_file(folder + "/config.json"));
  hash.update(config.data(), config.size());
  JIGE_TRY(const TensorFolder files, TensorFolder::open(folder));
  std::vector<const StoredTensor*> tensors = files.tensors();
  std::ranges::sort(tensors, {}, [](const StoredTensor* tensor) { return tensor->name; });
  for (const StoredTensor* tensor : tensors) {
    hash.update(tensor->name.data(), tensor->name.size() + 1);
    hash.update(tensor->dtype_name.data(), tensor->dtype_name.size() + 1);
    hash.update(tensor->dims.data(), tensor->dims.size() * sizeof(tensor->dims[0]));
    JIGE_TRY(const std::span<const std::byte> bytes, files.bytes_of(tensor->name));
    hash.update(bytes.data(), std::min(bytes.size(), kBytesOfTensor));
  }
  return checksum_text(hash.digest());
}

}  // namespace jige::formats
