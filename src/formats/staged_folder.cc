#include "formats/staged_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/file.h"

namespace jige::formats {
namespace {

tl::unexpected<Error> system_error(const std::string& path, std::string_view action) {
  const int reason = errno;
  const bool full = reason == ENOSPC || reason == EDQUOT;
  return fail(full ? Code::kExhausted : Code::kIo, "{}: cannot {}: {}", path, action,
              std::strerror(reason));
}

std::string parent_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string hidden_sibling(const std::string& path) {
  return temporary_pattern(parent_of(path) + "/" + kStagedPrefix +
                           std::filesystem::path(path).filename().string() + ".");
}

// Files that Jige or its like made, and can make again.
bool is_ours(const std::string& name) {
  static constexpr std::string_view kNames[] = {"config.json",
                                                "generation_config.json",
                                                "adapter_config.json",
                                                "processor_config.json",
                                                "preprocessor_config.json",
                                                "video_preprocessor_config.json",
                                                "tokenizer.json",
                                                "tekken.json",
                                                "tiktoken.model",
                                                "tokenizer_config.json",
                                                "tokenizer.model",
                                                "spm.model",
                                                "added_tokens.json",
                                                "special_tokens_map.json",
                                                "chat_template.jinja",
                                                "chat_template.json",
                                                "vocab.json",
                                                "merges.txt",
                                                "vocab.txt",
                                                "state.json",
                                                "checksums.xxh64"};
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") ||
         std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

std::string without_trailing_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

Status rename_folder(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return {};
  return system_error(to, "put in place");
}

}  // namespace

Status sync_folder(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return system_error(path, "open");
  const int result = ::fsync(fd);
  const int reason = errno;
  ::close(fd);
  // Some file systems cannot sync folders (EINVAL); there is nothing more to be done on them.
  if (result == 0 || reason == EINVAL) return {};
  errno = reason;
  return system_error(path, "write to disk");
}

Status remove_folder(const std::string& path) {
  std::string hidden = hidden_sibling(path);
  std::error_code error;
  // The rename hides the folder at once; where it fails, removing in place is still right.
  const bool renamed =
      ::mkdtemp(hidden.data()) != nullptr && ::rename(path.c_str(), hidden.c_str()) == 0;
  std::filesystem::remove_all(renamed ? hidden : path, error);
  if (!renamed) {
    std::error_code ignored;
    std::filesystem::remove(hidden, ignored);
  }
  if (error) return fail(Code::kIo, "{}: cannot remove: {}", path, error.message());
  return {};
}

Status check_replaceable(const std::string& target) {
  std::error_code error;
  if (!std::filesystem::exists(target, error)) return {};
  if (!std::filesystem::is_directory(target, error)) {
    return fail(Code::kInvalidArgument, "{}: is there already and is no folder", target);
  }
  for (std::filesystem::directory_iterator it(target, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (!is_ours(name) || it->is_directory(ignored)) {
      return fail(Code::kInvalidArgument,
                  "{}: is there already and holds \"{}\", which replacing the folder would delete; "
                  "move it away or choose another folder",
                  target, name);
    }
  }
  if (error) return fail(Code::kIo, "{}: cannot list: {}", target, error.message());
  return {};
}

Status replace_folder(const ReplaceFolderOptions& options) {
  std::error_code error;
  if (!std::filesystem::exists(options.to, error)) return rename_folder(options.from, options.to);
  if (options.exchange && ::renameat2(AT_FDCWD, options.from.c_str(), AT_FDCWD, options.to.c_str(),
                                      RENAME_EXCHANGE) == 0) {
    // The new folder must be sure of its name before the old one goes.
    JIGE_DO(sync_folder(parent_of(options.to)));
    std::filesystem::remove_all(options.from, error);
    return {};
  }
  const std::string old = options.to + ".old";
  std::filesystem::remove_all(old, error);
  JIGE_DO(rename_folder(options.to, old));
  JIGE_DO(rename_folder(options.from, options.to));
  JIGE_DO(sync_folder(parent_of(options.to)));
  return remove_folder(old);
}

StagedFolder::StagedFolder(StagedFolder&& other) noexcept
    : target_(std::exchange(other.target_, {})), path_(std::exchange(other.path_, {})) {}

StagedFolder& StagedFolder::operator=(StagedFolder&& other) noexcept {
  std::swap(target_, other.target_);
  std::swap(path_, other.path_);
  return *this;
}

StagedFolder::~StagedFolder() {
  std::error_code error;
  if (!path_.empty()) std::filesystem::remove_all(path_, error);
}

Result<StagedFolder> StagedFolder::create(const std::string& target) {
  const std::string plain = without_trailing_slashes(target);
  JIGE_DO(check_replaceable(plain));
  std::string path = hidden_sibling(plain);
  if (!::mkdtemp(path.data())) return system_error(path, "create folder");
  std::error_code error;
  std::filesystem::permissions(path, std::filesystem::perms{0755}, error);
  return StagedFolder(plain, std::move(path));
}

Status StagedFolder::commit() {
  JIGE_DO(check_replaceable(target_));
  JIGE_DO(sync_folder(path_));
  JIGE_DO(replace_folder({.from = path_, .to = target_}));
  path_.clear();
  return sync_folder(parent_of(target_));
}

}  // namespace jige::formats
