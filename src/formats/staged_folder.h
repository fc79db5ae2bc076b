// StagedFolder: a folder that appears whole or not at all.
//
// It is filled under a hidden name beside its target and renamed into place, so readers and a
// killed writer never see half of it. An existing target is exchanged in one step where the file
// system can do that; elsewhere it is moved to TARGET.old, which readers may fall back on, and
// removed last.
// Invariant: a folder that holds anything but the files of a model, tokenizer, adapter or
// checkpoint is never replaced: a person's own files are worth more than ours.
// Threads: one thread at a time.
#pragma once

#include <string>

#include "base/result.h"

namespace jige::formats {

// Names of folders under construction begin with this.
inline constexpr const char* kStagedPrefix = ".write-";

class StagedFolder {
 public:
  // Creates the hidden folder beside `target`, whose parent must exist. Fails as check_replaceable.
  static Result<StagedFolder> create(const std::string& target);
  StagedFolder(StagedFolder&& other) noexcept;
  StagedFolder& operator=(StagedFolder&& other) noexcept;
  // Removes what was not committed.
  ~StagedFolder();

  // Where to put the files; each must be on disk (fsync) before commit.
  const std::string& path() const { return path_; }
  // Puts the folder in place of the target and brings the rename to the disk. Fails as
  // check_replaceable, should the target have changed meanwhile.
  Status commit();

 private:
  StagedFolder(std::string target, std::string path)
      : target_(std::move(target)), path_(std::move(path)) {}
  std::string target_;
  std::string path_;  // empty once committed
};

// Whether a StagedFolder may take the place of `target`: it is not there, or is a folder of nothing
// but files that Jige writes. Fails with kInvalidArgument, naming what would be lost. To be asked
// before long work whose result shall go there.
Status check_replaceable(const std::string& target);

struct ReplaceFolderOptions {
  std::string from;
  std::string to;
  bool exchange = true;  // false: behave as on a file system that cannot exchange names
};

// Renames a folder over another, which is removed without asking what it holds.
Status replace_folder(const ReplaceFolderOptions& options);

// Removes a folder with everything in it, hiding it first so that nobody sees half of it.
Status remove_folder(const std::string& path);

// Brings the entries of a folder to the disk.
Status sync_folder(const std::string& path);

}  // namespace jige::formats
