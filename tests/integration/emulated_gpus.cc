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

void TrainsOnEmulatedGpus::SetUp() {
  OnEmulatedGpus::SetUp();
  if (IsSkipped()) return;
  set_variable("JIGE_EMULATED_GPUS", gpu_count_);
  std::string text;
  for (int i = 0; i < 300; ++i) text += "a story of " + std::to_string(i * 37) + " things\n";
  write_text(folder_ / "data.txt", text);
}

std::vector<std::string> TrainsOnEmulatedGpus::arguments(
    const std::string& out, const std::string& device, const std::vector<std::string>& more) const {
  std::vector<std::string> words = {"train",
                                    "--device",
                                    device,
                                    "--data",
                                    folder_ / "data.txt",
                                    "--size",
                                    "tiny",
                                    "--steps",
                                    "5",
                                    "--context",
                                    "16",
                                    "--micro-batch-tokens",
                                    "16",
                                    "--batch-tokens",
                                    "64",
                                    "--threads",
                                    "1",
                                    "--eval-share",
                                    "0",
                                    "--save-every",
                                    "1",
                                    "--out",
                                    folder_ / out};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace jige::integration
