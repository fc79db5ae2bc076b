#include "train/machine_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace jige::train {
namespace {

using ::testing::HasSubstr;

TEST(MachineIdentity, OfAnotherMachineIsRefusedWithTheDifference) {
  Json identity = machine_identity();
  EXPECT_TRUE(check_same_machine(identity, "plan.json"));
  identity["processors"] = identity["processors"].get<int>() + 1;
  const Status refused = check_same_machine(identity, "plan.json");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("plan.json: "), std::string::npos);
  EXPECT_NE(refused.error().message.find("processors is"), std::string::npos);
  EXPECT_FALSE(check_same_machine(Json("no machine"), "plan.json"));
}

// Of GPUs that are there in tests/cuda and tests/integration.
TEST(MachineIdentity, TellsPlansForProcessorsFromThoseForGpus) {
  EXPECT_TRUE(check_same_gpus(Json(), {}, "plan.json"));
  const Status no_gpus = check_same_gpus(Json(), {0, 1}, "plan.json");
  ASSERT_FALSE(no_gpus);
  EXPECT_THAT(no_gpus.error().message, HasSubstr("plan.json: is a plan for processors"));
  const Json two = Json::array({{{"name", "A"}}, {{"name", "B"}}});
  const Status processor = check_same_gpus(two, {}, "plan.json");
  ASSERT_FALSE(processor);
  EXPECT_THAT(processor.error().message, HasSubstr("is a plan for 2 GPUs; name them"));
  const Status fewer = check_same_gpus(two, {0}, "plan.json");
  ASSERT_FALSE(fewer);
  EXPECT_THAT(fewer.error().message, HasSubstr("is a plan for 2 GPUs, --device names 1"));
}

}  // namespace
}  // namespace jige::train
