#include "text/image_text.h"

#include <gmock/gmock.h>

namespace jige::text {
namespace {

using ::testing::ElementsAre;

struct Put {
  std::string text;
  std::vector<size_t> guards;
};

Put put(std::string text, std::vector<size_t> guards = {}) {
  put_image_text({.token = "<i>", .text = "\n[<i>]\n"}, text, guards);
  return {std::move(text), std::move(guards)};
}

TEST(ImageText, StandsWhereItsTokenStood) {
  EXPECT_EQ(put("").text, "");
  EXPECT_EQ(put("no image < i>").text, "no image < i>");
  EXPECT_EQ(put("<i>").text, "\n[<i>]\n");
  EXPECT_EQ(put("a<i><i>b").text, "a\n[<i>]\n\n[<i>]\nb");
}

TEST(ImageText, MovesPlacesWithTheTextAroundIt) {
  std::string text = "a<i>b<i>c";
  std::vector<size_t> guards;
  std::vector<size_t> places = {0, 1, 1, 2, 4, 5, 8, 9};  // of which one is inside of a token
  put_image_text({.token = "<i>", .text = "\n[<i>]\n"}, text, guards, &places);
  EXPECT_EQ(text, "a\n[<i>]\nb\n[<i>]\nc");
  EXPECT_THAT(places, ElementsAre(0, 1, 1, 8, 8, 9, 16, 17));
}

TEST(ImageText, LeavesTokensThatAreGuarded) {
  // "a<i>b<i>c", the first one spelled out: nothing may span its first letter.
  const Put first = put("a<i>b<i>c", {1, 2, 3, 4});
  EXPECT_EQ(first.text, "a<i>b\n[<i>]\nc");
  EXPECT_THAT(first.guards, ElementsAre(1, 2, 3, 4));
  // Guards around one do not cover it.
  const Put second = put("a<i>b<i>c", {1, 4, 6, 7});
  EXPECT_EQ(second.text, "a\n[<i>]\nb<i>c");
  EXPECT_THAT(second.guards, ElementsAre(1, 8, 10, 11));
}

TEST(ImageText, IsNoneWithoutAToken) {
  std::string text = "<i>";
  std::vector<size_t> guards = {2};
  put_image_text({}, text, guards);
  EXPECT_EQ(text, "<i>");
  EXPECT_THAT(guards, ElementsAre(2));
}

}  // namespace
}  // namespace jige::text
