#include "model/context_support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/tiny_config_test_support.h"

namespace jige::model {
namespace {

using ::testing::HasSubstr;

TEST(ContextSupport, RefusesModelsThatReadOtherTokensInOtherWays) {
  const auto refusal = [](formats::Family family) {
    const Status status = check_context_support(testing::tiny_config(family), "--flag");
    return status ? "" : status.error().message;
  };
  using formats::Family;
  for (const Family family : {Family::kLlama, Family::kGpt2, Family::kGemma2, Family::kQwen3,
                              Family::kCohere2, Family::kApertus}) {
    EXPECT_EQ(refusal(family), "");
  }
  EXPECT_THAT(refusal(Family::kMixtral), HasSubstr("--flag divides sequences among ranks, and a "
                                                   "mixtral model has experts"));
  EXPECT_THAT(refusal(Family::kYoutu), HasSubstr("latents"));
  EXPECT_THAT(refusal(Family::kQwen35), HasSubstr("recurrent layers"));
  EXPECT_THAT(refusal(Family::kLfm2), HasSubstr("recurrent layers"));
  EXPECT_THAT(refusal(Family::kGemma3n), HasSubstr("shared keys and values"));
}

}  // namespace
}  // namespace jige::model
