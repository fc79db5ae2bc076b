// Codes read strip by strip against what the order of words says of each by itself.
#include "formats/quantised_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/rng.h"

namespace jige::formats {
namespace {

// Lines of random words that are not aligned in memory.
class Words {
 public:
  Words(Rng& rng, int64_t lines, int64_t columns)
      : columns_(columns), bytes_(static_cast<size_t>(lines * columns * 4) + 1) {
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(rng.next_u32());
  }

  WordLines lines() const { return {bytes_.data() + 1, columns_}; }
  float code(int64_t line, int64_t column, int bits, int64_t place) const {
    uint32_t word = 0;
    std::memcpy(&word, lines().bytes + (line * columns_ + column) * 4, sizeof(word));
    return static_cast<float>(word >> (place * bits) & ((1u << bits) - 1));
  }

 private:
  int64_t columns_;
  std::vector<std::byte> bytes_;
};

// Beyond what may be written; no code is this.
constexpr float kUntouched = -1000.0f;

void expect_untouched(const std::vector<float>& numbers, int64_t from) {
  EXPECT_TRUE(std::all_of(numbers.begin() + from, numbers.end(),
                          [](float number) { return number == kUntouched; }));
}

TEST(QuantisedCodes, AByteIsANumberOfFourAndThreeBits) {
  EXPECT_EQ(float8_value(0x00), 0.0f);
  EXPECT_EQ(float8_value(0x01), 0x1p-9f);
  EXPECT_EQ(float8_value(0x08), 0x1p-6f);
  EXPECT_EQ(float8_value(0x38), 1.0f);
  EXPECT_EQ(float8_value(0xb9), -1.125f);
  EXPECT_EQ(float8_value(0x7e), 448.0f);
  EXPECT_TRUE(std::isnan(float8_value(0x7f)));
  EXPECT_TRUE(std::isnan(float8_value(0xff)));
}

TEST(QuantisedCodes, RunsOfWordsEndAnywhere) {
  Rng rng(1);
  for (const int bits : {4, 8}) {
    const int64_t per_word = 32 / bits;
    for (int64_t count = 1; count <= 70; ++count) {
      const Words words(rng, 1, (count + per_word - 1) / per_word);
      std::vector<float> found(static_cast<size_t>(count) + 8, kUntouched);
      read_words(found.data(), words.lines().bytes, bits, 3, count);
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(found[static_cast<size_t>(i)],
                  words.code(0, i / per_word, bits, i % per_word) - 3)
            << bits << " bits, " << i << " of " << count;
      }
      expect_untouched(found, count);
    }
  }
}

TEST(QuantisedCodes, RowsOfGptqAreColumnsOfItsWords) {
  Rng rng(2);
  for (const int bits : {4, 8}) {
    const int64_t per_word = 32 / bits;
    for (const int64_t lines : {1, 3, 16, 17, 40}) {
      const Words words(rng, lines, 45);
      const int64_t width = lines * per_word;
      for (const auto& [begin, count] : {std::pair{0, 32}, {13, 32}, {44, 1}, {7, 5}}) {
        std::vector<float> found(static_cast<size_t>(count * width) + 8, kUntouched);
        read_gptq_rows(found.data(), words.lines(), bits, begin, count, width);
        for (int64_t i = 0; i < count * width; ++i) {
          const int64_t k = i % width;
          ASSERT_EQ(found[static_cast<size_t>(i)],
                    words.code(k / per_word, begin + i / width, bits, k % per_word))
              << bits << " bits, row " << begin + i / width << ", column " << k;
        }
        expect_untouched(found, count * width);
      }
    }
  }
}

TEST(QuantisedCodes, RowsOfAwqAreEighthsOfItsColumns) {
  constexpr int64_t kPlaces[] = {0, 4, 1, 5, 2, 6, 3, 7};
  Rng rng(3);
  for (const int64_t width : {1, 8, 16, 31, 64}) {
    const Words words(rng, width, 6);
    for (const auto& [begin, count] : {std::pair{0, 32}, {16, 32}, {13, 32}, {47, 1}, {5, 9}}) {
      std::vector<float> found(static_cast<size_t>(count * width) + 8, kUntouched);
      read_awq_rows(found.data(), words.lines(), begin, count, width);
      for (int64_t i = 0; i < count * width; ++i) {
        const int64_t row = begin + i / width;
        ASSERT_EQ(found[static_cast<size_t>(i)],
                  words.code(i % width, row / 8, 4, kPlaces[row % 8]))
            << "row " << row << ", column " << i % width;
      }
      expect_untouched(found, count * width);
    }
  }
}

}  // namespace
}  // namespace jige::formats
