#include "tensor/upload_slots.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace jige {
namespace {

// Goes through work that uploads texts; where they are, once all of them fit.
std::vector<int64_t> go_through(UploadSlots& slots, const std::vector<std::string>& texts) {
  std::vector<int64_t> places;
  do {
    places.clear();
    slots.restart();
    for (const std::string& text : texts)
      places.push_back(slots.put(text.data(), std::ssize(text)));
  } while (slots.widen());
  return places;
}

std::string text_at(std::span<const std::byte> contents, int64_t place, size_t count) {
  return {reinterpret_cast<const char*>(contents.data()) + place, count};
}

TEST(UploadSlots, GatherWhatTheWorkPuts) {
  UploadSlots slots;
  const auto places = go_through(slots, {"tokens", "tables", "tokens"});
  EXPECT_EQ(places[2], places[0]);
  EXPECT_NE(places[1], places[0]);
  EXPECT_EQ(places[1] % 256, 0);
  const auto contents = slots.take_changes();
  EXPECT_EQ(std::ssize(contents), places[1] + 6);
  EXPECT_EQ(text_at(contents, places[0], 6), "tokens");
  EXPECT_EQ(text_at(contents, places[1], 6), "tables");
}

TEST(UploadSlots, HaveTheirPlaceWhateverTheContents) {
  UploadSlots slots;
  const auto places = go_through(slots, {"a", "bb"});
  slots.take_changes();
  EXPECT_EQ(go_through(slots, {"ccc", "dddd"}), places);
  const auto contents = slots.take_changes();
  EXPECT_EQ(text_at(contents, places[0], 3), "ccc");
  EXPECT_EQ(text_at(contents, places[1], 4), "dddd");
}

TEST(UploadSlots, SendNothingThatIsThere) {
  UploadSlots slots;
  go_through(slots, {"a", "bb"});
  EXPECT_FALSE(slots.take_changes().empty());
  go_through(slots, {"a", "bb"});
  EXPECT_TRUE(slots.take_changes().empty());
  go_through(slots, {"a"});
  EXPECT_TRUE(slots.take_changes().empty());
}

TEST(UploadSlots, SendEverythingAgainOnceTheyMoved) {
  UploadSlots slots;
  const auto before = go_through(slots, {"a", "bb", "c"});
  slots.take_changes();
  const int64_t bytes = slots.bytes();
  const std::string longer(5000, 'x');
  const auto places = go_through(slots, {"a", longer, "c"});
  EXPECT_GT(slots.bytes(), bytes);
  EXPECT_GE(places[2] - places[1], 5000);
  const auto contents = slots.take_changes();
  EXPECT_EQ(text_at(contents, places[0], 1), "a");
  EXPECT_EQ(text_at(contents, places[1], longer.size()), longer);
  EXPECT_EQ(text_at(contents, places[2], 1), "c");
}

// The work of a step may be shorter than that of the one before.
TEST(UploadSlots, AreSentUpToTheLastOneInUse) {
  UploadSlots slots;
  const auto places = go_through(slots, {"a", "bb", "c"});
  slots.take_changes();
  go_through(slots, {"a", "dd"});
  EXPECT_EQ(std::ssize(slots.take_changes()), places[1] + 2);
}

}  // namespace
}  // namespace jige
