#include "formats/tensor_folder.h"

#include <filesystem>
#include <unordered_set>

#include "formats/gguf.h"
#include "formats/json_sax.h"
#include "formats/torch_file.h"

namespace jige::formats {
namespace {

// Reads "weight_map" and passes over everything else.
class IndexReader : public SaxReader {
 public:
  WeightMap entries;
  bool found = false;

  bool null() override { return in_map_ ? SaxReader::null() : true; }
  bool boolean(bool value) override { return in_map_ ? SaxReader::boolean(value) : true; }
  bool number_integer(int64_t value) override {
    return in_map_ ? SaxReader::number_integer(value) : true;
  }
  bool number_unsigned(uint64_t value) override {
    return in_map_ ? SaxReader::number_unsigned(value) : true;
  }
  bool number_float(double value, const std::string& text) override {
    return in_map_ ? SaxReader::number_float(value, text) : true;
  }
  bool string(std::string& value) override {
    if (!in_map_) return true;
    if (value.size() > kTensorNameBytesMax)
      return refuse("{}: has {} bytes", place(), value.size());
    entries.emplace_back(key_, value);
    return true;
  }
  bool start_object(size_t count) override {
    if (in_map_) return SaxReader::start_object(count);
    if (depth_ == 1 && key_ == "weight_map") {
      if (std::exchange(found, true)) return refuse("\"weight_map\" appears twice");
      in_map_ = true;
    }
    return enter();
  }
  bool key(std::string& name) override {
    if (name.size() > kTensorNameBytesMax) return refuse("a name has {} bytes", name.size());
    if (depth_ == 1 || in_map_) key_ = name;
    return true;
  }
  bool end_object() override {
    in_map_ = false;
    --depth_;
    return true;
  }
  bool start_array(size_t count) override {
    return in_map_ ? SaxReader::start_array(count) : enter();
  }
  bool end_array() override {
    --depth_;
    return true;
  }

 protected:
  std::string place() const override { return fmt::format("\"weight_map\" field \"{}\"", key_); }

 private:
  bool enter() { return ++depth_ <= kJsonDepthMax || refuse("JSON is nested too deep"); }

  std::string key_;
  int depth_ = 0;
  bool in_map_ = false;
};

bool exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

constexpr std::string_view kSafetensorsSuffix = ".safetensors";
constexpr std::string_view kTorchSuffix = ".bin";

// The stem of weights that torch.save wrote, as PyTorch's files have it.
std::string torch_stem(std::string_view stem) {
  return stem == "model" ? "pytorch_model" : std::string(stem);
}

Result<TensorFile> open_file(const std::string& path) {
  return path.ends_with(kTorchSuffix) ? open_torch_file(path) : open_safetensors(path);
}

// What to say about a folder without weights that are read.
tl::unexpected<Error> no_weights(const std::string& folder, std::string_view stem) {
  for (const char* other : {"tf_model.h5", "flax_model.msgpack"}) {
    if (!exists(folder + "/" + other)) continue;
    return fail(Code::kUnsupported,
                "{}: has weights only as {}, which Jige does not read; convert the folder with "
                "transformers: AutoModelForCausalLM.from_pretrained(folder).save_pretrained("
                "new_folder, safe_serialization=True)",
                folder, other);
  }
  if (const std::string file = gguf_file_in(folder); !file.empty()) {
    return fail(Code::kUnsupported,
                "{}: has weights only as {}; make a model folder of that file with `jige import`",
                folder, file);
  }
  for (const char* adapter : {"adapter_model.safetensors", "adapter_model.bin"}) {
    if (stem != "model" || !exists(folder + "/" + adapter)) continue;
    return fail(Code::kNotFound,
                "{}: is an adapter ({}), not a whole model; name the folder of its base model as "
                "the model",
                folder, adapter);
  }
  return fail(Code::kNotFound,
              "{0}: has neither {1}.safetensors nor {1}.safetensors.index.json, nor {2}.bin or "
              "{2}.bin.index.json",
              folder, stem, torch_stem(stem));
}

}  // namespace

Result<WeightMap> parse_weight_index(std::string_view text, std::string_view where,
                                     std::string_view suffix) {
  IndexReader reader;
  JIGE_DO(reader.run(text, where));
  if (!reader.found) return fail(Code::kCorrupt, "{}: has no object \"weight_map\"", where);
  if (reader.entries.empty()) return fail(Code::kCorrupt, "{}: \"weight_map\" is empty", where);
  std::unordered_set<std::string_view> names;
  std::unordered_set<std::string_view> files;
  for (const auto& [name, file] : reader.entries) {
    if (!names.insert(name).second) {
      return fail(Code::kCorrupt, "{}: tensor \"{}\" is listed twice", where, name);
    }
    if (file.find('/') != std::string::npos || file.starts_with('.') || !file.ends_with(suffix)) {
      return fail(Code::kCorrupt,
                  "{}: tensor \"{}\" is said to be in \"{}\", which is not the plain name of a "
                  "{} file",
                  where, name, file, suffix);
    }
    files.insert(file);
    if (files.size() > kShardCountMax) {
      return fail(Code::kCorrupt, "{}: names more than {} shards", where, kShardCountMax);
    }
  }
  return std::move(reader.entries);
}

Status TensorFolder::open_shards(const std::string& index_path, std::string_view suffix) {
  JIGE_TRY(const std::string text, read_file(index_path, kIndexBytesMax));
  JIGE_TRY(const WeightMap entries, parse_weight_index(text, index_path, suffix));
  std::unordered_map<std::string_view, size_t> shard_of;
  for (const auto& [name, file] : entries) {
    if (shard_of.contains(file)) continue;
    const std::string path = folder_ + "/" + file;
    if (!exists(path)) {
      return fail(
          Code::kNotFound,
          "{}: names shard \"{}\" (for tensor \"{}\"), which is not in the folder; fetch it "
          "again",
          index_path, file, name);
    }
    JIGE_TRY(TensorFile shard, open_file(path));
    shard_of.emplace(file, files_.size());
    files_.push_back(std::move(shard));
  }
  file_of_.reserve(entries.size());
  for (const auto& [name, file] : entries) {
    const size_t shard = shard_of.at(file);
    const StoredTensor* tensor = files_[shard].find(name);
    if (!tensor) {
      std::string others;
      for (const TensorFile& candidate : files_) {
        if (candidate.find(name)) others = "; it is in " + candidate.path();
      }
      return fail(Code::kCorrupt, "{}: tensor \"{}\" is said to be in \"{}\", which lacks it{}",
                  index_path, name, file, others);
    }
    file_of_.emplace(tensor->name, shard);
  }
  return {};
}

Result<TensorFolder> TensorFolder::open(const std::string& folder, std::string_view stem) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return fail(Code::kNotFound, "{}: is not a folder", folder);
  }
  TensorFolder result(folder);
  const std::pair<std::string, std::string_view> kinds[] = {{std::string(stem), kSafetensorsSuffix},
                                                            {torch_stem(stem), kTorchSuffix}};
  for (const auto& [of_kind, suffix] : kinds) {
    const std::string single = fmt::format("{}/{}{}", folder, of_kind, suffix);
    const std::string index_path = single + ".index.json";
    if (exists(single)) {
      JIGE_TRY(TensorFile file, open_file(single));
      result.files_.push_back(std::move(file));
      for (const StoredTensor& tensor : result.files_[0].tensors()) {
        result.file_of_.emplace(tensor.name, 0);
      }
      return result;
    }
    if (exists(index_path)) {
      JIGE_DO(result.open_shards(index_path, suffix));
      return result;
    }
  }
  return no_weights(folder, stem);
}

std::vector<const StoredTensor*> TensorFolder::tensors() const {
  std::vector<const StoredTensor*> result;
  for (size_t i = 0; i < files_.size(); ++i) {
    for (const StoredTensor& tensor : files_[i].tensors()) {
      const auto it = file_of_.find(tensor.name);
      if (it != file_of_.end() && it->second == i) result.push_back(&tensor);
    }
  }
  return result;
}

const StoredTensor* TensorFolder::find(std::string_view name) const {
  const auto it = file_of_.find(name);
  return it == file_of_.end() ? nullptr : files_[it->second].find(name);
}

Result<TensorView> TensorFolder::view(std::string_view name) const {
  const auto it = file_of_.find(name);
  if (it == file_of_.end()) {
    return fail(Code::kNotFound, "{}: has no tensor \"{}\"", folder_, name);
  }
  return files_[it->second].view(name);
}

Result<std::span<const std::byte>> TensorFolder::bytes_of(std::string_view name) const {
  const auto it = file_of_.find(name);
  if (it == file_of_.end()) {
    return fail(Code::kNotFound, "{}: has no tensor \"{}\"", folder_, name);
  }
  return files_[it->second].bytes_of(name);
}

}  // namespace jige::formats
