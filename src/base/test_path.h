// Where tests write files: in the folder of temporary files, under names with the process, so that
// programs that run at the same time do not meet, and removed when the process ends.
//
//   const std::string path = test_path("store");   // nothing is there yet
//
// Included by tests only. Threads: one.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace jige {

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
  std::string path = testing::TempDir() + "jige." + std::to_string(getpid()) + "." + name;
  std::filesystem::remove_all(path);
  made.paths.push_back(path);
  return path;
}

}  // namespace jige
