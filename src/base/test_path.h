// Where tests write files: in memory where there is room, else in the folder of temporary files,
// under names with the process, so that programs that run at the same time do not meet, and removed
// when the process ends.
//
//   const std::string path = test_path("store");   // nothing is there yet
//
// What is written is brought to the disk again and again, for which tests would wait: what reaches
// a disk, and when, is tested where it is written (file_test.cc). Included by tests only. Threads:
// one.
#pragma once

#include <gtest/gtest.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace jige {

// The folder for them, with a slash behind it.
inline std::string test_root() {
  constexpr uint64_t kRoomBytes = uint64_t{1} << 30;  // far more than they need
  struct statvfs memory {};
  const bool has_room = statvfs("/dev/shm", &memory) == 0 && access("/dev/shm", W_OK) == 0 &&
                        memory.f_bavail * memory.f_frsize >= kRoomBytes;
  return has_room ? "/dev/shm/" : testing::TempDir();
}

// A path for a file or folder of this name, with nothing there.
inline std::string test_path(const std::string& name) {
  struct Made {
    pid_t process = getpid();
    std::vector<std::string> paths;
    ~Made() {
      std::error_code ignored;
      if (process != getpid()) return;  // a child's copy
      for (const std::string& path : paths) std::filesystem::remove_all(path, ignored);
    }
  };
  static Made made;
  std::string path = test_root() + "jige." + std::to_string(getpid()) + "." + name;
  std::filesystem::remove_all(path);
  made.paths.push_back(path);
  return path;
}

}  // namespace jige
