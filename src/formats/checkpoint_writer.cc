// The writing half of checkpoint.h.
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/ascii.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/log.h"
#include "formats/checkpoint.h"
#include "formats/staged_folder.h"
#include "formats/xxhash64.h"

namespace jige::formats {
namespace {

constexpr uint64_t kHeaderBytesPerTensor = 200;  // a generous guess, for the room check only

// Whether a file of the run folder is the pointer of a killed writer: "latest" with a dot and six
// characters behind it. A folder of such a name is somebody's copy.
bool is_unfinished_pointer(const std::filesystem::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  std::error_code ignored;
  return name.starts_with("latest.") && name.size() == temporary_pattern("latest.").size() &&
         entry.is_regular_file(ignored);
}

// Removes what a killed writer left: hidden folders, pointers, and moved-away copies with a
// successor.
void remove_remains(const std::string& run_folder) {
  std::vector<std::filesystem::path> remains;
  std::error_code error;
  for (std::filesystem::directory_iterator it(run_folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(std::string(kStagedPrefix) + "step-") || is_unfinished_pointer(*it)) {
      remains.push_back(it->path());
    }
  }
  // Of one step, the plain name stands before the one that was moved away.
  const std::vector<CheckpointName> names = list_checkpoints(run_folder);
  for (size_t i = 1; i < names.size(); ++i) {
    if (names[i].step == names[i - 1].step) remains.push_back(run_folder + "/" + names[i].folder);
  }
  for (const auto& path : remains) std::filesystem::remove_all(path, error);
}

// Keeps the newest `keep_last` of the checkpoints up to `step`. Later ones belong to a future that
// was abandoned by hand and are none of this writer's business.
void prune(const std::string& run_folder, int64_t step, int keep_last) {
  if (keep_last < 1) return;
  int kept = 0;
  for (const CheckpointName& name : list_checkpoints(run_folder)) {
    if (name.step > step || ++kept <= keep_last) continue;
    const Status removed = remove_folder(run_folder + "/" + name.folder);
    if (!removed) log_warn("pruning an old checkpoint failed: {}", removed.error().message);
  }
}

bool plain_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 100 && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return is_ascii_alphanumeric(c) || c == '_' || c == '-' || c == '.';
         });
}

}  // namespace

CheckpointWriter::CheckpointWriter(std::string run_folder, int64_t step)
    : run_folder_(std::move(run_folder)), step_(step) {}

void CheckpointWriter::add(const std::string& file, TensorSource source) {
  const auto it = std::find_if(files_.begin(), files_.end(),
                               [&](const File& candidate) { return candidate.name == file; });
  File& target = it == files_.end() ? files_.emplace_back(File{file, {}}) : *it;
  target.sources.push_back(std::move(source));
}

Status CheckpointWriter::check_room(const std::string& state_text) const {
  uint64_t needed = state_text.size() + (1 << 16);
  for (const File& file : files_) {
    for (const TensorSource& source : file.sources) {
      needed += source.bytes() + source.name.size() + kHeaderBytesPerTensor;
    }
  }
  struct statvfs info {};
  if (::statvfs(run_folder_.c_str(), &info) != 0) return {};  // the write itself will tell
  const uint64_t free_bytes = uint64_t{info.f_bavail} * info.f_frsize;
  if (needed <= free_bytes) return {};
  return fail(Code::kExhausted,
              "{}: the checkpoint of step {} needs {}, but only {} are free on the disk; free some "
              "room or keep fewer checkpoints",
              run_folder_, step_, format_bytes(needed), format_bytes(free_bytes));
}

Status CheckpointWriter::write_files(const std::string& folder,
                                     const std::string& state_text) const {
  std::string checksums;
  const auto note = [&](uint64_t checksum, const std::string& name) {
    checksums += checksum_text(checksum) + "  " + name + "\n";
  };
  for (const File& file : files_) {
    const std::string name = file.name + ".safetensors";
    if (!plain_file_name(name)) {
      return fail(Code::kInvalidArgument, "\"{}\" cannot name a file of a checkpoint", file.name);
    }
    JIGE_TRY(const WrittenFile written, write_safetensors(folder + "/" + name, file.sources));
    note(written.xxh64, name);
  }
  JIGE_DO(write_file_atomic(folder + "/state.json", state_text));
  note(xxhash64(std::as_bytes(std::span(state_text))), "state.json");
  return write_file_atomic(folder + "/checksums.xxh64", checksums);
}

Status CheckpointWriter::commit(const Json& state, int keep_last) {
  if (step_ < 0 || step_ > kCheckpointStepMax) {
    return fail(Code::kInvalidArgument, "{}: no checkpoint can be of step {}; at most {}",
                run_folder_, step_, kCheckpointStepMax);
  }
  const std::string name = fmt::format("step-{:08}", step_);
  Json wrapped;
  wrapped["format"] = "jige-checkpoint";
  wrapped["version"] = 1;
  wrapped["step"] = step_;
  wrapped["state"] = state;
  const std::string state_text = dump_json(wrapped, 1) + "\n";
  if (state_text.size() > kStateBytesMax) {
    return fail(Code::kExhausted, "{}: state.json would have {} bytes; at most {}", run_folder_,
                state_text.size(), kStateBytesMax);
  }
  JIGE_DO(make_folders(run_folder_));
  remove_remains(run_folder_);
  JIGE_DO(check_room(state_text));

  JIGE_TRY(StagedFolder staged, StagedFolder::create(run_folder_ + "/" + name));
  JIGE_DO(write_files(staged.path(), state_text));
  // The pointer is on disk under its temporary name before the folder appears, so that a disk that
  // fills up in between cannot leave a checkpoint that nothing points to.
  JIGE_TRY(AtomicFile latest, AtomicFile::create(run_folder_ + "/latest"));
  JIGE_DO(latest.write((name + "\n").data(), name.size() + 1));
  JIGE_DO(latest.sync());
  JIGE_DO(staged.commit());
  JIGE_DO(latest.commit());
  prune(run_folder_, step_, keep_last);
  return {};
}

}  // namespace jige::formats
