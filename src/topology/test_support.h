// What the tests of this folder share: a copy of sysfs with what the reader looks at.
//
// Threads: one thread.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/test_path.h"

namespace jige::topology {

class FakeSysfs {
 public:
  FakeSysfs() : root_(test_root() + "jige_sysfs_" + std::to_string(getpid())) {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_ + "/bus/pci/devices");
  }
  ~FakeSysfs() { std::filesystem::remove_all(root_); }
  const std::string& root() const { return root_; }
  void node(int n) {
    std::filesystem::create_directories(fmt::format("{}/devices/system/node/node{}", root_, n));
  }
  // A function below /sys/devices, with its attributes.
  void pci(const std::string& path, const std::string& type, const std::string& vendor, int numa,
           const std::string& speed, const std::string& width) {
    const std::filesystem::path folder = root_ + "/devices/" + path;
    std::filesystem::create_directories(folder);
    const auto put = [&](const char* name, const std::string& text) {
      ASSERT_TRUE(write_file_atomic(folder / name, text + "\n"));
    };
    put("class", type);
    put("vendor", vendor);
    put("numa_node", std::to_string(numa));
    put("current_link_speed", speed);
    put("current_link_width", width);
    std::filesystem::create_symlink(folder,
                                    root_ + "/bus/pci/devices/" + folder.filename().string());
  }

  // What the configuration space of that function shows.
  void configuration(const std::string& path, const std::string& bytes) {
    ASSERT_TRUE(write_file_atomic(root_ + "/devices/" + path + "/config", bytes));
  }

 private:
  std::string root_;
};

}  // namespace jige::topology
