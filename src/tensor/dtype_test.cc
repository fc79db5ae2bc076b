#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace jige {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(DType, NamesAndSizesMatch) {
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kI8, DType::kI32, DType::kI64, DType::kU8}) {
    EXPECT_EQ(parse_dtype(dtype_info(dtype).name).value(), dtype);
    EXPECT_EQ(dtype_bytes(dtype, 6), 6 * dtype_info(dtype).block_bytes);
  }
  EXPECT_EQ(dtype_info(DType::kBF16).safetensors, "BF16");
  EXPECT_EQ(dtype_info(DType::kI64).block_bytes, 8);
  EXPECT_EQ(dtype_bytes(DType::kF16, 0), 0);
}

TEST(DType, ParseListsWhatItKnows) {
  for (const char* name : {"", "F32", "float", "f32 ", "bf"}) {
    const auto parsed = parse_dtype(name);
    ASSERT_FALSE(parsed.has_value()) << name;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
    EXPECT_NE(parsed.error().message.find("f32, bf16, f16"), std::string::npos);
  }
}

TEST(BFloat16, SurvivesTheRoundTripThroughF32ForAllBits) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const BFloat16 value = {static_cast<uint16_t>(bits)};
    const float wide = to_float(value);
    EXPECT_EQ(std::bit_cast<uint32_t>(wide), bits << 16);
    const BFloat16 back = to_bfloat16(wide);
    if (std::isnan(wide)) {
      ASSERT_TRUE(std::isnan(to_float(back)));
      ASSERT_EQ(back.bits, bits | 0x40);  // quiet, payload and sign kept
    } else {
      ASSERT_EQ(back.bits, bits);
    }
  }
}

TEST(BFloat16, RoundsToTheNearestAndTiesToEven) {
  // Between every pair of neighbours: just below, at and just above the middle.
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    for (const uint32_t sign : {0u, 0x8000u}) {
      const uint32_t low = bits | sign;
      const uint32_t even = low + (low & 1);
      const auto rounded = [&](uint32_t fraction) {
        return uint32_t{to_bfloat16(std::bit_cast<float>(low << 16 | fraction)).bits};
      };
      ASSERT_EQ(rounded(0x0001), low);
      ASSERT_EQ(rounded(0x7fff), low);
      ASSERT_EQ(rounded(0x8000), even);
      ASSERT_EQ(rounded(0x8001), low + 1);
      ASSERT_EQ(rounded(0xffff), low + 1);
    }
  }
  EXPECT_EQ(to_float(to_bfloat16(std::numeric_limits<float>::max())), kInfinity);
}

// Half precision by its definition.
double half_value(uint32_t bits) {
  const double sign = bits & 0x8000 ? -1 : 1;
  const int exponent = static_cast<int>(bits >> 10 & 31);
  const int fraction = static_cast<int>(bits & 1023);
  if (exponent == 31) return fraction ? std::nan("") : sign * static_cast<double>(kInfinity);
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Float16, WidensAllBitsByTheDefinition) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float wide = to_float(Float16{static_cast<uint16_t>(bits)});
    const double expected = half_value(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide));
      continue;
    }
    ASSERT_EQ(static_cast<double>(wide), expected);
    ASSERT_EQ(std::signbit(wide), (bits & 0x8000) != 0);
    ASSERT_EQ(to_float16(wide).bits, bits);
  }
}

TEST(Float16, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {  // up to the largest finite
    const double low = half_value(bits);
    const double high = half_value(bits + 1);
    const auto middle = static_cast<float>((low + high) / 2);  // exact in f32
    for (const uint32_t sign : {0u, 0x8000u}) {
      const float s = sign ? -1.0f : 1.0f;
      ASSERT_EQ(to_float16(s * middle).bits, (bits + (bits & 1)) | sign);
      ASSERT_EQ(to_float16(s * std::nextafterf(middle, 0.0f)).bits, bits | sign);
      ASSERT_EQ(to_float16(s * std::nextafterf(middle, kInfinity)).bits, (bits + 1) | sign);
    }
  }
  EXPECT_EQ(to_float16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(to_float16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_float16(-1e30f).bits, 0xfc00);
  EXPECT_EQ(to_float16(1e-30f).bits, 0);
  EXPECT_TRUE(std::isnan(to_float(to_float16(std::nanf("")))));
}

TEST(DTypeDeathTest, RefusesNegativeCounts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(dtype_bytes(DType::kF32, -1), "no whole f32 blocks");
}

}  // namespace
}  // namespace jige
