#include "api/image_queue.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace jige::api {
namespace {

using Id = ImageQueue::Id;

constexpr double kDue = ImageQueue::kDueSecondsPerToken;

// Decodes all that there is room for.
void decode_all(ImageQueue& queue) {
  while (const auto id = queue.next_to_decode()) queue.decoded(*id);
}

TEST(ImageQueue, TakesTheSmallestOfThoseThatCameTogether) {
  ImageQueue queue({});
  const auto large = queue.add({.bytes = 10, .pixels = 100, .tokens = 1000}, 0);
  const auto small = queue.add({.bytes = 10, .pixels = 100, .tokens = 10}, 0);
  const auto middle = queue.add({.bytes = 10, .pixels = 100, .tokens = 100}, 0);
  EXPECT_EQ(queue.next_to_read(), std::nullopt);  // nothing is decoded yet
  for (const auto& expected : {small, middle, large}) {
    const auto id = queue.next_to_decode();
    ASSERT_EQ(id, expected);
    EXPECT_EQ(queue.next_to_read(), std::nullopt);
    queue.decoded(*id);
    EXPECT_EQ(queue.next_to_read(), expected);
    queue.remove(*id);
  }
  EXPECT_EQ(queue.next_to_decode(), std::nullopt);
}

// Small ones come for ever, one each time that one is read: the large one has its turn all the
// same, once it is due.
TEST(ImageQueue, NoneWaitsForEver) {
  ImageQueue queue({});
  const auto large = queue.add({.bytes = 1, .pixels = 1, .tokens = 1000}, 0);
  double now_s = 0;
  for (;; now_s += 0.5) {
    ASSERT_LE(now_s, kDue * 1000 + 1);
    ASSERT_TRUE(queue.add({.bytes = 1, .pixels = 1, .tokens = 10}, now_s));
    decode_all(queue);
    const auto id = queue.next_to_read();
    ASSERT_TRUE(id);
    if (id == large) break;
    queue.remove(*id);
  }
  EXPECT_GE(now_s, kDue * 900);  // and not before
}

TEST(ImageQueue, ThoseOfOneSizeComeAsTheyCame) {
  ImageQueue queue({});
  std::vector<Id> came;
  for (int i = 0; i < 5; ++i)
    came.push_back(queue.add({.bytes = 1, .pixels = 1, .tokens = 7}, 3).value());
  decode_all(queue);
  for (const Id id : came) EXPECT_EQ(queue.next_to_read(), id);
}

TEST(ImageQueue, ReadsThoseAloneThatAreSmallEnough) {
  ImageQueue queue({});
  const auto large = queue.add({.bytes = 1, .pixels = 1, .tokens = 50}, 0);
  const auto small = queue.add({.bytes = 1, .pixels = 1, .tokens = 20}, 100);  // due behind it
  decode_all(queue);
  EXPECT_EQ(queue.next_to_read(19), std::nullopt);
  EXPECT_EQ(queue.next_to_read(20), small);
  EXPECT_EQ(queue.next_to_read(20), std::nullopt);
  EXPECT_EQ(queue.next_to_read(), large);
}

TEST(ImageQueue, BoundsThePixelsThatAreDecoded) {
  ImageQueue queue({.requests_max = 64, .bytes_max = 100, .pixels_max = 100});
  const auto first = queue.add({.bytes = 1, .pixels = 70, .tokens = 1}, 0);
  const auto second = queue.add({.bytes = 1, .pixels = 40, .tokens = 2}, 0);
  const auto third = queue.add({.bytes = 1, .pixels = 5, .tokens = 3}, 0);
  EXPECT_EQ(queue.next_to_decode(), first);
  EXPECT_EQ(queue.next_to_decode(), std::nullopt);  // nor the third, or the second never might
  queue.decoded(*first);
  EXPECT_EQ(queue.next_to_decode(), std::nullopt);
  EXPECT_EQ(queue.next_to_read(), first);
  EXPECT_EQ(queue.next_to_decode(), std::nullopt);  // its pixels are there until it is read
  queue.remove(*first);
  EXPECT_EQ(queue.next_to_decode(), second);
  EXPECT_EQ(queue.next_to_decode(), third);
}

TEST(ImageQueue, OneRequestMayHaveMorePixelsThanAll) {
  ImageQueue queue({.requests_max = 64, .bytes_max = 100, .pixels_max = 100});
  const auto huge = queue.add({.bytes = 1, .pixels = 1000, .tokens = 1}, 0);
  EXPECT_EQ(queue.next_to_decode(), huge);
}

TEST(ImageQueue, BoundsThoseThatWaitAndTheirFiles) {
  ImageQueue queue({.requests_max = 3, .bytes_max = 100, .pixels_max = 100});
  const auto large = queue.add({.bytes = 120, .pixels = 1, .tokens = 1}, 0);
  ASSERT_TRUE(large);                                                  // alone it may
  EXPECT_FALSE(queue.add({.bytes = 1, .pixels = 1, .tokens = 1}, 0));  // no bytes are left
  ASSERT_EQ(queue.next_to_decode(), large);
  EXPECT_FALSE(queue.add({.bytes = 1, .pixels = 1, .tokens = 1}, 0));  // its file is there yet
  queue.decoded(*large);
  EXPECT_TRUE(queue.add({.bytes = 60, .pixels = 1, .tokens = 1}, 0));
  EXPECT_FALSE(queue.add({.bytes = 60, .pixels = 1, .tokens = 1}, 0));
  EXPECT_TRUE(queue.add({.bytes = 40, .pixels = 1, .tokens = 1}, 0));
  EXPECT_EQ(queue.waiting_count(), 3u);
  EXPECT_FALSE(queue.add({.bytes = 0, .pixels = 1, .tokens = 1}, 0));  // nor any request
  ASSERT_EQ(queue.next_to_read(), large);                              // which waits no more
  EXPECT_EQ(queue.waiting_count(), 2u);
  EXPECT_TRUE(queue.add({.bytes = 0, .pixels = 1, .tokens = 1}, 0));
  EXPECT_EQ(queue.idle().size(), 3u);
}

}  // namespace
}  // namespace jige::api
