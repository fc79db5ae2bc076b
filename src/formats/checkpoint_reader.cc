// The reading half of checkpoint.h.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/log.h"
#include "formats/checkpoint.h"
#include "formats/json_file.h"
#include "formats/xxhash64.h"

namespace jige::formats {
namespace {

constexpr std::string_view kTensorSuffix = ".safetensors";
constexpr std::string_view kOldSuffix = ".old";
constexpr size_t kChecksumsBytesMax = size_t{1} << 20;
constexpr size_t kLatestBytesMax = 256;

// "step-00000123", also with ".old" behind it: the number, or -1.
int64_t step_of(std::string_view name) {
  if (name.ends_with(kOldSuffix)) name.remove_suffix(kOldSuffix.size());
  constexpr std::string_view kPrefix = "step-";
  if (name.size() != kPrefix.size() + 8 || !name.starts_with(kPrefix)) return -1;
  name.remove_prefix(kPrefix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() && step >= 0 ? step : -1;
}

Status verify(std::span<const std::byte> bytes, uint64_t wanted, const std::string& path) {
  const uint64_t found = xxhash64(bytes);
  if (found == wanted) return {};
  return fail(Code::kCorrupt,
              "{}: its checksum is {}, checksums.xxh64 says {}; the file is damaged or truncated",
              path, checksum_text(found), checksum_text(wanted));
}

// The folders to try, best first: the one `latest` names, then older ones, then the rest.
Result<std::vector<CheckpointName>> candidates(const std::string& run_folder) {
  std::vector<CheckpointName> names = list_checkpoints(run_folder);
  if (names.empty()) return fail(Code::kNotFound, "{}: holds no checkpoint", run_folder);
  Result<std::string> latest = read_file(run_folder + "/latest", kLatestBytesMax);
  std::string wanted = latest ? *latest : "";
  while (!wanted.empty() && wanted.back() == '\n') wanted.pop_back();
  const int64_t step = step_of(wanted);
  if (step < 0) {
    log_warn("{}/latest is {}; taking the newest checkpoint, {}", run_folder,
             latest ? "damaged" : "missing", names.front().folder);
    return names;
  }
  if (std::none_of(names.begin(), names.end(),
                   [&](const CheckpointName& name) { return name.folder == wanted; })) {
    log_warn("{}: {}, the latest checkpoint, is missing; looking for the one before", run_folder,
             wanted);
  }
  std::stable_partition(names.begin(), names.end(),
                        [&](const CheckpointName& name) { return name.step <= step; });
  return names;
}

}  // namespace

std::vector<CheckpointName> list_checkpoints(const std::string& run_folder) {
  std::vector<CheckpointName> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(run_folder, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    const std::string name = it->path().filename().string();
    const int64_t step = step_of(name);
    if (step >= 0 && it->is_directory(ignored)) names.push_back({name, step});
  }
  // At the same step the plain name sorts before the one ending in ".old".
  std::sort(names.begin(), names.end(), [](const CheckpointName& a, const CheckpointName& b) {
    return a.step != b.step ? a.step > b.step : a.folder < b.folder;
  });
  return names;
}

Result<std::vector<std::pair<std::string, uint64_t>>> parse_checksums(std::string_view text,
                                                                      std::string_view where) {
  std::vector<std::pair<std::string, uint64_t>> entries;
  for (int line_number = 1; !text.empty(); ++line_number) {
    const size_t line_end = text.find('\n');
    const std::string_view line = text.substr(0, line_end);
    uint64_t checksum = 0;
    const auto [end, error] =
        std::from_chars(line.data(), line.data() + std::min<size_t>(line.size(), 16), checksum, 16);
    const bool shaped = line_end != std::string_view::npos && line.size() > 18 &&
                        error == std::errc() && end == line.data() + 16 &&
                        line.substr(16, 2) == "  ";
    const std::string name(shaped ? line.substr(18) : "");
    if (!shaped || name.find('/') != std::string::npos || name.front() == '.') {
      return fail(Code::kCorrupt, "{}: line {} is not \"<16 hex digits>  <file name>\"", where,
                  line_number);
    }
    if (std::any_of(entries.begin(), entries.end(),
                    [&](const auto& entry) { return entry.first == name; })) {
      return fail(Code::kCorrupt, "{}: names \"{}\" twice", where, name);
    }
    if (entries.size() >= 1000) {
      return fail(Code::kCorrupt, "{}: names more than 1000 files", where);
    }
    entries.emplace_back(name, checksum);
    text.remove_prefix(line_end + 1);
  }
  return entries;
}

Status CheckpointReader::read_state(std::string_view text, const std::string& path) {
  JIGE_TRY(const Json json, parse_json_object(text, path));
  JIGE_TRY(const std::string format, get_string(json, "format", path));
  if (format != "jige-checkpoint") {
    return fail(Code::kCorrupt, "{}: field \"format\" is \"{}\", not \"jige-checkpoint\"", path,
                format);
  }
  JIGE_TRY(const int64_t version, get_int(json, "version", path));
  if (version != 1) {
    return fail(Code::kUnsupported, "{}: is of version {} of the format; this Jige reads version 1",
                path, version);
  }
  JIGE_TRY(step_, get_int(json, "step", path));
  if (step_ < 0 || step_ > kCheckpointStepMax) {
    return fail(Code::kCorrupt, "{}: field \"step\" is {}; it must lie in [0, {}]", path, step_,
                kCheckpointStepMax);
  }
  if (!json.contains("state")) {
    return fail(Code::kNotFound, "{}: field \"state\" is missing", path);
  }
  state_ = std::make_shared<const Json>(json.at("state"));
  return {};
}

Result<CheckpointReader> CheckpointReader::open(const std::string& folder) {
  CheckpointReader reader;
  reader.folder_ = folder;
  const std::string sums_path = folder + "/checksums.xxh64";
  JIGE_TRY(const std::string sums, read_file(sums_path, kChecksumsBytesMax));
  JIGE_TRY(const auto entries, parse_checksums(sums, sums_path));
  reader.checksums_ = entries;
  for (const auto& [name, checksum] : entries) {
    const std::string path = folder + "/" + name;
    if (name == "state.json") {
      JIGE_TRY(const std::string text, read_file(path, kStateBytesMax));
      JIGE_DO(verify(std::as_bytes(std::span(text)), checksum, path));
      JIGE_DO(reader.read_state(text, path));
    } else if (name.ends_with(kTensorSuffix)) {
      JIGE_TRY(TensorFile file, open_safetensors(path));
      JIGE_DO(verify(file.bytes(), checksum, path));
      reader.files_.emplace_back(name.substr(0, name.size() - kTensorSuffix.size()),
                                 std::move(file));
    } else {
      return fail(Code::kCorrupt, "{}: names \"{}\", which is no file of a checkpoint", sums_path,
                  name);
    }
  }
  if (!reader.state_) {
    return fail(Code::kCorrupt, "{}: does not name state.json; it is truncated", sums_path);
  }
  return reader;
}

Result<CheckpointReader> CheckpointReader::open_latest(const std::string& run_folder) {
  JIGE_TRY(const std::vector<CheckpointName> names, candidates(run_folder));
  Error first{Code::kCorrupt, {}};
  for (const CheckpointName& name : names) {
    Result<CheckpointReader> reader = open(run_folder + "/" + name.folder);
    if (reader) {
      if (!first.message.empty()) log_warn("continuing from the older {}", reader->folder());
      return reader;
    }
    std::error_code error;
    // One that its writer removed meanwhile is not damaged.
    if (std::filesystem::exists(run_folder + "/" + name.folder, error)) {
      log_warn("unusable checkpoint: {}", reader.error().message);
    }
    if (first.message.empty()) first = std::move(reader.error());
  }
  return with_context(std::move(first), "{}: no checkpoint is intact", run_folder);
}

const TensorFile* CheckpointReader::find_file(std::string_view file) const {
  for (const auto& [name, content] : files_) {
    if (name == file) return &content;
  }
  return nullptr;
}

bool CheckpointReader::has_file(std::string_view file) const { return find_file(file) != nullptr; }

std::vector<const StoredTensor*> CheckpointReader::tensors(std::string_view file) const {
  std::vector<const StoredTensor*> result;
  if (const TensorFile* content = find_file(file)) {
    for (const StoredTensor& tensor : content->tensors()) result.push_back(&tensor);
  }
  return result;
}

Result<TensorView> CheckpointReader::tensor(std::string_view file, std::string_view name) const {
  const TensorFile* content = find_file(file);
  if (!content) return fail(Code::kNotFound, "{}: has no file {}{}", folder_, file, kTensorSuffix);
  return content->view(name);
}

Result<std::string> find_latest_checkpoint(const std::string& run_folder) {
  JIGE_TRY(const CheckpointReader reader, CheckpointReader::open_latest(run_folder));
  return reader.folder();
}

}  // namespace jige::formats
