// Training checkpoints: folders that are complete or not there, verified when they are read.
//
//   RUN/latest                       text: the name of the newest checkpoint folder
//   RUN/step-00000123/FILE.safetensors   named tensors, by parameter and never by device
//   RUN/step-00000123/state.json     {"format": "jige-checkpoint", "version": 1, "step": 123,
//                                     "state": whatever the caller gave}
//   RUN/step-00000123/checksums.xxh64    one line per file, "<16 hex digits>  <name>", as xxhsum
//   prints
//
// Order of a write: hidden folder, every file fsynced, folder fsynced, rename, `latest` replaced,
// old ones pruned. A writer killed anywhere leaves the checkpoint that `latest` names as it was. A
// checkpoint is the newest once `latest` says so; to go back, edit that file.
// Invariant: a reader never hands out a tensor of a file whose checksum differs.
// Threads: a run folder has one writer; readers may come at any time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"

namespace jige::formats {

inline constexpr int64_t kCheckpointStepMax = 99'999'999;
inline constexpr size_t kStateBytesMax = size_t{64} << 20;

// Checkpoints that stay where a new one is written.
struct KeptCheckpoints {
  int64_t newest = 2;           // so many up to the new one's step, itself included; 0: all
  std::optional<int64_t> step;  // and that of this step
};

// Collects what one checkpoint shall hold and writes it in one go.
class CheckpointWriter {
 public:
  // Touches nothing yet; commit() refuses a step outside [0, kCheckpointStepMax].
  CheckpointWriter(std::string run_folder, int64_t step);

  // Adds a tensor to FILE.safetensors, for example file "params", "adam_m". A view's memory must
  // stay unchanged until commit() returns; a source is asked for its rows inside commit().
  void add(const std::string& file, TensorSource source);
  void add(const std::string& file, std::string name, const TensorView& view) {
    add(file, TensorSource::of(std::move(name), view));
  }

  // Writes the checkpoint, makes it the latest and prunes those up to this step that are not to be
  // kept. Fails with kExhausted on a full disk, also before starting when the file
  // system has too little room; after a failure the run folder is as it was before.
  Status commit(const Json& state, const KeptCheckpoints& kept = {});

 private:
  struct File {
    std::string name;
    std::vector<TensorSource> sources;
  };
  Status check_room(const std::string& state_text) const;
  Status write_files(const std::string& folder, const std::string& state_text) const;

  std::string run_folder_;
  int64_t step_;
  std::vector<File> files_;
};

class CheckpointReader {
 public:
  // Maps a checkpoint folder and verifies every checksum (one pass over all bytes). Fails with
  // kNotFound or kCorrupt, naming the file; kUnsupported on a newer version of the format.
  static Result<CheckpointReader> open(const std::string& folder);
  // The checkpoint that `latest` names; should it be missing or damaged, the newest intact one
  // before it, with a warning. Fails with kNotFound when the run has none, with the reason of the
  // newest when none is intact.
  static Result<CheckpointReader> open_latest(const std::string& run_folder);
  CheckpointReader(CheckpointReader&&) = default;
  CheckpointReader& operator=(CheckpointReader&&) = default;

  const std::string& folder() const { return folder_; }
  int64_t step() const { return step_; }
  // The caller's own JSON.
  const Json& state() const { return *state_; }
  // What checksums.xxh64 says, by file.
  const std::vector<std::pair<std::string, uint64_t>>& checksums() const { return checksums_; }
  bool has_file(std::string_view file) const;
  // All tensors of FILE.safetensors; empty when there is no such file.
  std::vector<const StoredTensor*> tensors(std::string_view file) const;
  // Fails with kNotFound, naming file and tensor.
  Result<TensorView> tensor(std::string_view file, std::string_view name) const;

 private:
  CheckpointReader() = default;
  Status read_state(std::string_view text, const std::string& path);
  const TensorFile* find_file(std::string_view file) const;

  std::string folder_;
  int64_t step_ = 0;
  std::vector<std::pair<std::string, uint64_t>> checksums_;
  std::shared_ptr<const Json> state_;
  std::vector<std::pair<std::string, TensorFile>> files_;
};

// Makes the same checkpoint, with another state, the latest of another run. Its tensors are hard
// links where the file system has them, for no file of a checkpoint is ever changed. Prunes none.
// Fails as CheckpointWriter::commit.
Status link_checkpoint(const CheckpointReader& from, const std::string& run_folder,
                       const Json& state);

// The folder open_latest would read, verified.
Result<std::string> find_latest_checkpoint(const std::string& run_folder);

struct CheckpointName {
  std::string folder;  // "step-00000123"
  int64_t step = 0;
};

// Checkpoint folders of a run by descending step, whatever their condition.
std::vector<CheckpointName> list_checkpoints(const std::string& run_folder);

// Parses checksums.xxh64 into (file name, checksum). Fails with kCorrupt on anything but the lines
// described above, on file names that leave the folder and on names given twice.
Result<std::vector<std::pair<std::string, uint64_t>>> parse_checksums(std::string_view text,
                                                                      std::string_view where);

}  // namespace jige::formats
