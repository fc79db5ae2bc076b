#include "integration/emulated_gpus.h"

#include <cstdlib>
#include <filesystem>

namespace jige::integration {

void OnEmulatedGpus::SetUp() {
  if (std::getenv("JIGE_TEST_BINARY") || !std::filesystem::exists(JIGE_EMULATED_BINARY)) {
    GTEST_SKIP() << "a jige with emulated GPUs is not what is tested";
  }
  set_variable("JIGE_TEST_BINARY", JIGE_EMULATED_BINARY);
  set_variable("JIGE_EMULATED_LATE", "1");
}

void OnEmulatedGpus::TearDown() {
  for (const std::string& name : variables_) unsetenv(name.c_str());
}

void OnEmulatedGpus::set_variable(const std::string& name, const std::string& value) {
  setenv(name.c_str(), value.c_str(), 1);
  variables_.push_back(name);
}

}  // namespace jige::integration
