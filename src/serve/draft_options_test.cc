#include "serve/draft_options.h"

#include <gtest/gtest.h>

#include <string>

namespace jige::serve {
namespace {

TEST(DraftOptions, NameWhatIsOutOfRange) {
  EXPECT_TRUE(validate(DraftOptions{}));
  EXPECT_TRUE(validate(DraftOptions{.tokens_max = 64}));
  for (const int32_t count : {-1, 65}) {
    const Status status = validate(DraftOptions{.tokens_max = count});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kInvalidArgument);
    EXPECT_NE(status.error().message.find(std::to_string(count)), std::string::npos);
  }
}

}  // namespace
}  // namespace jige::serve
