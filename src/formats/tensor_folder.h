// The weights of a Hugging Face folder as one lookup: tensor name -> view, whether they stand in
// one file (STEM.safetensors) or in shards named by STEM.safetensors.index.json; or, where neither
// is there, in files of torch.save (torch_file.h): pytorch_model.bin, or of another stem than
// "model" STEM.bin, and shards likewise. They are written as safetensors alone.
//
// Index layout: {"metadata": {"total_size": bytes}, "weight_map": {tensor name: file name}}. File
// names are plain names in the same folder. When both forms are there the single file counts, and
// safetensors before others, as in transformers.
// Invariant: a view stays valid for as long as its TensorFolder, also when that is moved.
// Threads: const functions may be called from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"

namespace jige::formats {

inline constexpr size_t kIndexBytesMax = size_t{256} << 20;
inline constexpr size_t kShardCountMax = 4096;

// The "weight_map" of a shard index, in file order.
using WeightMap = std::vector<std::pair<std::string, std::string>>;

// Parses an index. Fails with kCorrupt on bad syntax, tensors listed twice, file names that leave
// the folder or do not end as `suffix` says, or more than kShardCountMax of them.
Result<WeightMap> parse_weight_index(std::string_view text, std::string_view where,
                                     std::string_view suffix = ".safetensors");

class TensorFolder {
 public:
  // Maps every file of the folder and checks headers and index; no tensor data is read. Fails with
  // kNotFound on a missing folder, weights or shard, kCorrupt where the index contradicts a shard,
  // kUnsupported where there are only weights in another format; each names file and tensor.
  static Result<TensorFolder> open(const std::string& folder, std::string_view stem = "model");
  TensorFolder(TensorFolder&&) = default;
  TensorFolder& operator=(TensorFolder&&) = default;

  const std::string& folder() const { return folder_; }
  const std::vector<TensorFile>& files() const { return files_; }
  // All tensors, by file and place in it.
  std::vector<const StoredTensor*> tensors() const;
  // The entry of a name, or nullptr.
  const StoredTensor* find(std::string_view name) const;
  // As TensorFile::view.
  Result<TensorView> view(std::string_view name) const;
  // As TensorFile::bytes_of.
  Result<std::span<const std::byte>> bytes_of(std::string_view name) const;

 private:
  explicit TensorFolder(std::string folder) : folder_(std::move(folder)) {}
  Status open_shards(const std::string& index_path, std::string_view suffix);

  std::string folder_;
  std::vector<TensorFile> files_;
  std::unordered_map<std::string_view, size_t> file_of_;  // names live in the files' headers
};

struct TensorFolderOptions {
  std::string stem = "model";
  uint64_t shard_bytes_max = 5'000'000'000;  // a larger tensor gets a shard of its own
};

// Writes the weights of a folder that exists: STEM.safetensors, or shards in the order of `sources`
// and their index. Every new file is complete on disk before the first one is put in place, and
// only then are files of the other form or of former shards removed; so a full disk (kExhausted)
// leaves the old weights as they were. Files of torch.save stay, and no longer count.
Status write_tensor_folder(const std::string& folder, std::span<const TensorSource> sources,
                           const TensorFolderOptions& options = {});

}  // namespace jige::formats
