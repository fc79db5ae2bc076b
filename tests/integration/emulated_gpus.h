// Tests that run a jige with emulated GPUs (jige_emulated) in place of the binary under test.
//
// They are skipped where that build is not there, or JIGE_TEST_BINARY names what is to be tested;
// the environment is as before behind each. Threads: one.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

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

}  // namespace jige::integration
