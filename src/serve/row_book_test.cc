#include "serve/row_book.h"

#include <gmock/gmock.h>

#include <thread>

#include "serve/serve_test_support.h"

namespace jige::serve {
namespace {

using ::testing::HasSubstr;
using testing::value_of;

RowBook::Content content_of(uint8_t first) {
  RowBook::Content content{};
  content[0] = first;
  return content;
}

std::vector<float> numbers(size_t count, float value) { return std::vector<float>(count, value); }

TEST(RowBook, GivesAContentTheSameIdsAndRows) {
  RowBook book({.first_id = 100});
  EXPECT_EQ(book.find(content_of(1)), nullptr);
  const auto one =
      value_of(book.add(content_of(1), {.token = 7, .count = 3, .values = numbers(6, 1)}));
  EXPECT_EQ(one->first_id, 100);
  EXPECT_EQ(one->token, 7);
  const auto two =
      value_of(book.add(content_of(2), {.token = 7, .count = 4, .values = numbers(8, 2)}));
  EXPECT_EQ(two->first_id, 103);
  EXPECT_EQ(book.find(content_of(1)), one);
  EXPECT_EQ(value_of(book.add(content_of(1), {.token = 7, .count = 3, .values = numbers(6, 9)})),
            one);
  EXPECT_EQ(one->values, numbers(6, 1));
  EXPECT_EQ(book.bytes(), 14 * 4);
}

TEST(RowBook, ForgetsWhatWasUsedFirstWhereMemoryIsShort) {
  RowBook book({.first_id = 100, .bytes_max = 100});
  value_of(book.add(content_of(1), {.token = 7, .count = 1, .values = numbers(10, 1)}));
  value_of(book.add(content_of(2), {.token = 7, .count = 1, .values = numbers(10, 2)}));
  book.find(content_of(1));
  value_of(book.add(content_of(3), {.token = 7, .count = 1, .values = numbers(10, 3)}));
  EXPECT_EQ(book.find(content_of(2)), nullptr);
  EXPECT_NE(book.find(content_of(1)), nullptr);
  EXPECT_EQ(book.bytes(), 80);
  const auto again =
      value_of(book.add(content_of(2), {.token = 7, .count = 1, .values = numbers(10, 2)}));
  EXPECT_EQ(again->first_id, 103) << "ids are not given twice";
}

TEST(RowBook, RefusesWhatRowsInUseLeaveNoRoomFor) {
  RowBook book({.first_id = 100, .bytes_max = 100});
  auto one = value_of(book.add(content_of(1), {.token = 7, .count = 1, .values = numbers(10, 1)}));
  auto two = value_of(book.add(content_of(2), {.token = 7, .count = 1, .values = numbers(10, 2)}));
  const auto full = book.add(content_of(3), {.token = 7, .count = 1, .values = numbers(10, 3)});
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Code::kExhausted);
  EXPECT_THAT(full.error().message, HasSubstr("the limit is 100 B"));
  EXPECT_EQ(book.bytes(), 80) << "they are alive, though the book has forgotten them";
  one.reset();
  EXPECT_EQ(book.bytes(), 40);
  EXPECT_TRUE(book.add(content_of(3), {.token = 7, .count = 1, .values = numbers(10, 3)}));
  EXPECT_FALSE(book.add(content_of(4), {.token = 7, .count = 1, .values = numbers(30, 3)}));
}

TEST(RowBook, BeginsAnewInAnotherEpochWhenIdsRunOut) {
  RowBook book({.first_id = 100, .id_end = 110});
  const auto one =
      value_of(book.add(content_of(1), {.token = 7, .count = 6, .values = numbers(6, 1)}));
  EXPECT_EQ(book.epoch(), 0U);
  value_of(book.add(content_of(2), {.token = 7, .count = 4, .values = numbers(4, 2)}));
  EXPECT_EQ(book.epoch(), 0U);
  const auto three =
      value_of(book.add(content_of(3), {.token = 7, .count = 1, .values = numbers(1, 3)}));
  EXPECT_EQ(book.epoch(), 1U);
  EXPECT_EQ(three->first_id, 100);
  EXPECT_EQ(book.find(content_of(1)), nullptr) << "its ids may be those of others";
  EXPECT_EQ(one->values, numbers(6, 1));
  EXPECT_FALSE(book.add(content_of(4), {.token = 7, .count = 11, .values = numbers(11, 1)}));
  EXPECT_FALSE(book.add(content_of(4), {.token = 7}));
}

TEST(RowBook, RowsMayOutliveIt) {
  GivenRowsRef rows;
  {
    RowBook book({.first_id = 100});
    rows = value_of(book.add(content_of(1), {.token = 7, .count = 1, .values = numbers(10, 1)}));
  }
  EXPECT_EQ(rows->values, numbers(10, 1));
  rows.reset();
}

TEST(RowBook, ManyThreadsGetTheSameRows) {
  RowBook book({.first_id = 100, .id_end = 400, .bytes_max = 600});
  std::vector<std::thread> threads;
  for (uint8_t t = 0; t < 4; ++t) {
    threads.emplace_back([&book, t] {
      for (int i = 0; i < 2000; ++i) {
        const auto key = static_cast<uint8_t>((i * (t + 3)) % 11);
        GivenRowsRef rows = book.find(content_of(key));
        if (!rows) {
          auto added =
              book.add(content_of(key), {.token = 7, .count = 2, .values = numbers(10, key)});
          if (!added) continue;
          rows = *added;
        }
        EXPECT_EQ(rows->values, numbers(10, key));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(book.bytes(), 600);
}

}  // namespace
}  // namespace jige::serve
