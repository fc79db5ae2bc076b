#include "cli/page_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/ascii.h"

namespace jige::cli {
namespace {

using ::testing::Contains;
using ::testing::IsSubsetOf;

TEST(PageAddress, IsWhereTheServerListens) {
  EXPECT_EQ(page_address("http://127.0.0.1:8000", "127.0.0.1"), "http://127.0.0.1:8000/");
  EXPECT_EQ(page_address("https://[::1]:80", "::1"), "https://[::1]:80/");
}

TEST(PageAddress, OfEveryNetworkHasTheNameOfTheMachine) {
  char name[256] = {};
  ASSERT_EQ(gethostname(name, sizeof name - 1), 0);
  const std::string machine = lower_ascii(name);
  EXPECT_EQ(page_address("http://0.0.0.0:8000", "0.0.0.0"), "http://" + machine + ":8000/");
  EXPECT_EQ(page_address("https://[::]:443", "::"), "https://" + machine + ":443/");
  const std::vector<std::string> names = names_of_machine("GPU-Box");
  EXPECT_THAT(names, Contains("gpu-box"));
  EXPECT_THAT(names, Contains(machine));
  const std::string label = machine.substr(0, machine.find('.'));
  EXPECT_THAT(names, IsSubsetOf({std::string("gpu-box"), machine, label, label + ".local"}));
}

}  // namespace
}  // namespace jige::cli
