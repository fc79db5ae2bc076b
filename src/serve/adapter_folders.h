// Adapters beside a fixture model, for the tests of serving, in a folder that goes with them.
//
// Threads: one test at a time.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/test_path.h"
#include "model/adapter_test_support.h"

namespace jige::serve::testing {

// Three of different ranks, scales and targets: "all", "some" and "other".
struct AdapterFolders {
  explicit AdapterFolders(const std::string& model) {
    std::string pattern = temporary_pattern(test_root() + "jige_adapters_");
    path = mkdtemp(pattern.data());
    sources = model::testing::write_three_adapters(
        path, std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/" + model);
  }
  AdapterFolders(const AdapterFolders&) = delete;
  AdapterFolders& operator=(const AdapterFolders&) = delete;
  ~AdapterFolders() { std::filesystem::remove_all(path); }

  std::string path;
  std::vector<model::AdapterSource> sources;
};

}  // namespace jige::serve::testing
