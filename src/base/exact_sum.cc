#include "base/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

namespace jige {
namespace {

constexpr int kExponentBias = 127;
constexpr int kMantissaBits = 23;
constexpr int kFractionBits = 64;
constexpr int kExponentMax = 46;  // magnitudes below 2^47

}  // namespace

void ExactSum::add(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const int exponent = static_cast<int>((bits >> kMantissaBits) & 0xFF) - kExponentBias;
  if (exponent > kExponentMax) {
    ++refused_count_;
    return;
  }
  if (exponent < -kFractionBits) return;  // zeros, denormals and what is below one unit
  const auto mantissa = static_cast<Wide>((bits & 0x7FFFFF) | 0x800000);
  const int shift = exponent - kMantissaBits + kFractionBits;
  const Wide units = shift >= 0 ? mantissa << shift : mantissa >> -shift;
  units_ += (bits >> 31) != 0 ? -units : units;
}

void ExactSum::add(std::span<const float> values) {
  for (const float value : values) add(value);
}

void ExactSum::merge(const ExactSum& other) {
  units_ += other.units_;
  refused_count_ += other.refused_count_;
}

std::array<uint64_t, 3> ExactSum::words() const {
  __extension__ using Bits = unsigned __int128;
  const auto bits = static_cast<Bits>(units_);
  return {static_cast<uint64_t>(bits), static_cast<uint64_t>(bits >> 64),
          static_cast<uint64_t>(refused_count_)};
}

ExactSum ExactSum::from_words(const std::array<uint64_t, 3>& words) {
  __extension__ using Bits = unsigned __int128;
  ExactSum sum;
  sum.units_ = static_cast<Wide>(static_cast<Bits>(words[1]) << 64 | words[0]);
  sum.refused_count_ = static_cast<int64_t>(words[2]);
  return sum;
}

double ExactSum::value() const {
  if (refused_count_ > 0) return std::numeric_limits<double>::quiet_NaN();
  return std::ldexp(static_cast<double>(units_), -kFractionBits);
}

}  // namespace jige
