// Models that a device has no kernels for are refused by name.
#include "model/device_support.h"

#include <string>

#include "formats/test_support.h"
#include "model/tiny_config_test_support.h"

namespace jige::model {
namespace {

Status support_of(formats::Family family, DeviceKind kind) {
  const auto architecture = Architecture::create(testing::tiny_config(family), std::nullopt,
                                                 HeadKind::kLanguageModel, kind);
  EXPECT_TRUE(architecture);
  return check_device_support(kind, "cuda:0", **architecture);
}

TEST(DeviceSupport, WhatHasNoKernelsForGpusIsRefusedThere) {
  for (const formats::Family family :
       {formats::Family::kMamba, formats::Family::kFalconMamba, formats::Family::kJamba}) {
    EXPECT_TRUE(support_of(family, DeviceKind::kCpu));
    const Status refused = support_of(family, DeviceKind::kCuda);
    EXPECT_FAILS_WITH(refused, Code::kUnsupported, "--device cpu");
    EXPECT_NE(refused.error().message.find(formats::family_name(family)), std::string::npos);
  }
  EXPECT_FAILS_WITH(support_of(formats::Family::kKimiLinear, DeviceKind::kCuda), Code::kUnsupported,
                    "decays by key");
  EXPECT_TRUE(support_of(formats::Family::kMamba2, DeviceKind::kCuda));
}

}  // namespace
}  // namespace jige::model
