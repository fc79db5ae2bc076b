#include "cli/route_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace jige::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Json top_of_router() {
  return {
      {"router", true},
      {"policy", "prefix"},
      {"waiting_requests", 2},
      {"running", 5},
      {"expected_answer_tokens", 81.4},
      {"servers",
       {{{"address", "http://a:1"},
         {"state", "up"},
         {"requests", 5},
         {"other_requests", 11.6},
         {"prompt_speed", 1.318},
         {"answer_speed", 0.759},
         {"prompt_tokens_total", 200},
         {"known_tokens_total", 50},
         {"first_byte_seconds_p50", 0.25}},
        {{"address", "http://b:1"}, {"state", "down"}, {"trouble", "cannot \x1b[2J connect"}}}}};
}

TEST(RouteFrame, ShowsARowForEveryServer) {
  const std::string frame = render_router(top_of_router(), {.address = "here", .columns_max = 200});
  for (const char* part : {"policy prefix", "waiting 2", "answers of 81 tokens", "http://a:1",
                           "25 %", "250", "down", " 12 ", "1.32", "0.76", "http://b:1: cannot"}) {
    EXPECT_THAT(frame, HasSubstr(part));
  }
  EXPECT_THAT(frame, Not(HasSubstr("\x1b")));
}

TEST(RouteFrame, FitsTheTerminal) {
  const std::string frame =
      render_router(top_of_router(), {.address = "here", .rows_max = 5, .columns_max = 30});
  EXPECT_LE(std::ranges::count(frame, '\n'), 4);
  for (size_t begin = 0; begin < frame.size();) {
    const size_t end = frame.find('\n', begin);
    EXPECT_LE(end - begin, 34U) << "an ellipsis has three bytes";
    begin = end + 1;
  }
}

TEST(RouteFrame, TakesAnythingThatIsJson) {
  EXPECT_FALSE(is_router(Json::array()));
  EXPECT_FALSE(is_router({{"router", "yes"}}));
  EXPECT_TRUE(is_router(top_of_router()));
  for (const Json& top : {Json{{"router", true}}, Json{{"router", true}, {"servers", 5}},
                          Json{{"router", true}, {"servers", {1, nullptr, {{"state", 7}}}}}}) {
    EXPECT_THAT(render_router(top, {}), HasSubstr("router"));
  }
}

}  // namespace
}  // namespace jige::cli
