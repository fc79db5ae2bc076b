// The writing half of checkpoint.h.
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <functional>
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

constexpr const char* kStateFile = "state.json";
constexpr const char* kChecksumsFile = "checksums.xxh64";
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

// Of the checkpoints up to `step`. Later ones belong to a future that was abandoned by hand and are
// none of this writer's business.
void prune(const std::string& run_folder, int64_t step, const KeptCheckpoints& kept) {
  if (kept.newest < 1) return;
  int64_t newest = 0;
  for (const CheckpointName& name : list_checkpoints(run_folder)) {
    if (name.step > step || ++newest <= kept.newest || name.step == kept.step) continue;
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

// What state.json of a checkpoint holds. Fails with kInvalidArgument on a step that no checkpoint
// has, kExhausted on a state that is too large.
Result<std::string> text_of_state(const std::string& run_folder, int64_t step, const Json& state) {
  if (step < 0 || step > kCheckpointStepMax) {
    return fail(Code::kInvalidArgument, "{}: no checkpoint can be of step {}; at most {}",
                run_folder, step, kCheckpointStepMax);
  }
  Json wrapped;
  wrapped["format"] = "jige-checkpoint";
  wrapped["version"] = 1;
  wrapped["step"] = step;
  wrapped["state"] = state;
  std::string text = dump_json(wrapped, 1) + "\n";
  if (text.size() > kStateBytesMax) {
    return fail(Code::kExhausted, "{}: state.json would have {} bytes; at most {}", run_folder,
                text.size(), kStateBytesMax);
  }
  return text;
}

// Puts the folder of a step in place, with what `fill` writes into it, and makes it the latest.
Status put_checkpoint(const std::string& run_folder, int64_t step,
                      const std::function<Status(const std::string& folder)>& fill) {
  const std::string name = fmt::format("step-{:08}", step);
  JIGE_DO(make_folders(run_folder));
  remove_remains(run_folder);
  JIGE_TRY(StagedFolder staged, StagedFolder::create(run_folder + "/" + name));
  JIGE_DO(fill(staged.path()));
  // The pointer is on disk under its temporary name before the folder appears, so that a disk that
  // fills up in between cannot leave a checkpoint that nothing points to.
  JIGE_TRY(AtomicFile latest, AtomicFile::create(run_folder + "/latest"));
  JIGE_DO(latest.write((name + "\n").data(), name.size() + 1));
  JIGE_DO(latest.sync());
  JIGE_DO(staged.commit());
  return latest.commit();
}

std::string checksum_line(uint64_t checksum, const std::string& name) {
  return checksum_text(checksum) + "  " + name + "\n";
}

// The same file under another name, or a copy of it where the file system has no such thing.
struct FileLink {
  std::string from;
  std::string to;
};
Status link_file(const FileLink& link) {
  std::error_code error;
  std::filesystem::create_hard_link(link.from, link.to, error);
  if (!error) return {};
  JIGE_TRY(const MappedFile source, MappedFile::open(link.from));
  JIGE_TRY(AtomicFile copy, AtomicFile::create(link.to));
  JIGE_DO(copy.write(source.bytes().data(), source.bytes().size()));
  return copy.commit();
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
  for (const File& file : files_) {
    const std::string name = file.name + ".safetensors";
    if (!plain_file_name(name)) {
      return fail(Code::kInvalidArgument, "\"{}\" cannot name a file of a checkpoint", file.name);
    }
    JIGE_TRY(const WrittenFile written, write_safetensors(folder + "/" + name, file.sources));
    checksums += checksum_line(written.xxh64, name);
  }
  JIGE_DO(write_file_atomic(folder + "/" + kStateFile, state_text));
  checksums += checksum_line(xxhash64(std::as_bytes(std::span(state_text))), kStateFile);
  return write_file_atomic(folder + "/" + kChecksumsFile, checksums);
}

Status CheckpointWriter::commit(const Json& state, const KeptCheckpoints& kept) {
  JIGE_TRY(const std::string state_text, text_of_state(run_folder_, step_, state));
  const auto fill = [&](const std::string& folder) -> Status {
    JIGE_DO(check_room(state_text));
    return write_files(folder, state_text);
  };
  JIGE_DO(put_checkpoint(run_folder_, step_, fill));
  prune(run_folder_, step_, kept);
  return {};
}

Status link_checkpoint(const CheckpointReader& from, const std::string& run_folder,
                       const Json& state) {
  JIGE_TRY(const std::string state_text, text_of_state(run_folder, from.step(), state));
  return put_checkpoint(run_folder, from.step(), [&](const std::string& folder) -> Status {
    std::string checksums;
    for (const auto& [name, checksum] : from.checksums()) {
      const bool is_state = name == kStateFile;
      JIGE_DO(is_state
                  ? write_file_atomic(folder + "/" + name, state_text)
                  : link_file({.from = from.folder() + "/" + name, .to = folder + "/" + name}));
      const uint64_t own = is_state ? xxhash64(std::as_bytes(std::span(state_text))) : checksum;
      checksums += checksum_line(own, name);
    }
    return write_file_atomic(folder + "/" + kChecksumsFile, checksums);
  });
}

}  // namespace jige::formats
