// write_tensor_folder of tensor_folder.h.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "formats/tensor_folder.h"

namespace jige::formats {
namespace {

struct Shard {
  std::string name;
  std::vector<TensorSource> sources;
  uint64_t bytes = 0;
};

std::vector<Shard> plan_shards(std::span<const TensorSource> sources,
                               const TensorFolderOptions& options) {
  std::vector<Shard> shards(1);
  for (const TensorSource& source : sources) {
    const bool full = shards.back().bytes + source.bytes() > options.shard_bytes_max;
    if (full && !shards.back().sources.empty()) shards.emplace_back();
    shards.back().sources.push_back(source);
    shards.back().bytes += source.bytes();
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].name = shards.size() == 1 ? options.stem + ".safetensors"
                                        : fmt::format("{}-{:05}-of-{:05}.safetensors", options.stem,
                                                      i + 1, shards.size());
  }
  return shards;
}

// Written line by line: an ordered JSON tree of this many names would cost quadratic time.
std::string index_text(const std::vector<Shard>& shards) {
  std::vector<std::pair<std::string_view, std::string_view>> entries;
  uint64_t total = 0;
  for (const Shard& shard : shards) {
    total += shard.bytes;
    for (const TensorSource& source : shard.sources) entries.emplace_back(source.name, shard.name);
  }
  std::sort(entries.begin(), entries.end());
  std::string text = fmt::format(
      "{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{", total);
  for (size_t i = 0; i < entries.size(); ++i) {
    text += fmt::format("{}\n    {}: {}", i ? "," : "", dump_json(Json(entries[i].first)),
                        dump_json(Json(entries[i].second)));
  }
  return text + "\n  }\n}\n";
}

bool is_shard_name(std::string_view name, std::string_view stem) {
  constexpr std::string_view kPattern = "-ddddd-of-ddddd.safetensors";
  if (name.size() != stem.size() + kPattern.size() || !name.starts_with(stem)) return false;
  name.remove_prefix(stem.size());
  return std::equal(name.begin(), name.end(), kPattern.begin(), [](char found, char wanted) {
    return wanted == 'd' ? found >= '0' && found <= '9' : found == wanted;
  });
}

// Removes weights of the same stem that the new ones replace.
void remove_stale(const std::string& folder, const std::vector<Shard>& shards,
                  const std::string& stem) {
  std::error_code error;
  if (shards.size() == 1) {
    std::filesystem::remove(folder + "/" + stem + ".safetensors.index.json", error);
  } else {
    std::filesystem::remove(folder + "/" + stem + ".safetensors", error);
  }
  std::vector<std::filesystem::path> stale;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    const bool kept = std::any_of(shards.begin(), shards.end(),
                                  [&](const Shard& shard) { return shard.name == name; });
    if (!kept && is_shard_name(name, stem)) stale.push_back(it->path());
  }
  for (const auto& path : stale) std::filesystem::remove(path, error);
}

}  // namespace

Status write_tensor_folder(const std::string& folder, std::span<const TensorSource> sources,
                           const TensorFolderOptions& options) {
  const std::vector<Shard> shards = plan_shards(sources, options);
  if (shards.size() > kShardCountMax) {
    return fail(Code::kInvalidArgument, "{}: {} bytes per shard would make {} shards; at most {}",
                folder, options.shard_bytes_max, shards.size(), kShardCountMax);
  }
  std::vector<std::string_view> names;
  for (const TensorSource& source : sources) names.push_back(source.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    return fail(Code::kInvalidArgument, "{}: tensor \"{}\" is given twice", folder, *twice);
  }

  std::vector<AtomicFile> files;
  for (const Shard& shard : shards) {
    const std::string path = folder + "/" + shard.name;
    JIGE_TRY(AtomicFile file, AtomicFile::create(path));
    JIGE_TRY(const WrittenFile written, stream_safetensors(file, path, shard.sources));
    static_cast<void>(written);
    JIGE_DO(file.sync());
    files.push_back(std::move(file));
  }
  if (shards.size() > 1) {
    const std::string path = folder + "/" + options.stem + ".safetensors.index.json";
    JIGE_TRY(AtomicFile file, AtomicFile::create(path));
    const std::string text = index_text(shards);
    JIGE_DO(file.write(text.data(), text.size()));
    JIGE_DO(file.sync());
    files.push_back(std::move(file));
  }
  for (AtomicFile& file : files) JIGE_DO(file.commit());
  remove_stale(folder, shards, options.stem);
  return {};
}

}  // namespace jige::formats
