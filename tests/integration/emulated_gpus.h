// Tests that run a jige with emulated GPUs (jige_emulated) in place of the binary under test.
//
// They are skipped where that build is not there, or JIGE_TEST_BINARY names what is to be tested;
// the environment is as before behind each. Threads: one.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "integration/process.h"

namespace jige::integration {

// Its GPUs' streams run late.
class OnEmulatedGpus : public ::testing::Test {
 protected:
  // A fixture that does more asks IsSkipped() behind it.
  void SetUp() override;
  void TearDown() override;
  // Until the test ends. REQUIRES: the variable is not set.
  void set_variable(const std::string& name, const std::string& value);

 private:
  std::vector<std::string> variables_;  // that were set here
};

// Runs of jige train on some of them, of a few steps.
class TrainsOnEmulatedGpus : public OnEmulatedGpus {
 protected:
  explicit TrainsOnEmulatedGpus(std::string gpu_count) : gpu_count_(std::move(gpu_count)) {}
  void SetUp() override;
  // Of the command that makes `out` in the test's folder.
  std::vector<std::string> arguments(const std::string& out, const std::string& device,
                                     const std::vector<std::string>& more) const;

  TestFolder folder_;

 private:
  const std::string gpu_count_;
};

}  // namespace jige::integration
