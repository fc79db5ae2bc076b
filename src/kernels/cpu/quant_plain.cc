#include "kernels/cpu/quant_plain.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "tensor/dtype.h"

namespace jige::cpu {
namespace {

using Numbers32 = float[kQuantBlock];

float f16_value(uint16_t bits) { return to_float(Float16{bits}); }

// The bits of the largest magnitude.
uint32_t plain_largest(const Numbers32& x) {
  uint32_t most = 0;
  for (const float value : x) most = std::max(most, std::bit_cast<uint32_t>(value) & 0x7fffffffu);
  return most;
}

uint16_t plain_scale(float wanted) {
  const uint16_t bits = to_float16(std::clamp(wanted, -kQuantScaleMax, kQuantScaleMax)).bits;
  return f16_value(bits) == 0 ? 0 : bits;
}

float sum_of_chains(float (&chains)[8]) {
  for (int apart = 4; apart > 0; apart /= 2) {
    for (int j = 0; j < apart; ++j) chains[j] += chains[j + apart];
  }
  return chains[0];
}

// FP4's nearest number, in halves; of two the one of even bits.
float plain_fp4(float u) {
  const float size = std::min(std::fabs(u), static_cast<float>(kFp4Largest));
  const float step = size <= 4 ? 1 : size <= 8 ? 2 : 4;  // of its numbers there
  return std::copysign(step * std::nearbyint(size / step), u);
}

PlainWeightBlock plain_fp4_block(const Numbers32& x, float most) {
  PlainWeightBlock block = {};
  if (most == 0) return block;
  block.scale = plain_scale(std::ldexp(1.0f, std::max(std::ilogb(most), -120) - 3));
  if (block.scale == 0) return block;
  const float inverse = 1.0f / f16_value(block.scale);
  for (int i = 0; i < kQuantBlock; ++i) {
    block.values[i] = static_cast<int8_t>(plain_fp4(x[i] * inverse));
  }
  return block;
}

// The nearest level, of two the upper.
int nearest_level(int whole) {
  int best = -128;
  for (const int number_of_level : kUnevenUnsigned) {
    const int level = number_of_level - 128;
    if (best == -128 || std::abs(whole - level) <= std::abs(whole - best)) best = level;
  }
  return best;
}

int plain_level(float number) {
  static const auto levels = [] {
    std::array<int, 256> nearest{};
    for (int whole = -128; whole < 128; ++whole) {
      nearest[static_cast<size_t>(whole + 128)] = nearest_level(whole);
    }
    return nearest;
  }();
  const auto whole = static_cast<int>(std::nearbyint(std::clamp(number, -128.0f, 127.0f)));
  return levels[static_cast<size_t>(whole + 128)];
}

// What the extreme number is times, for the scale of its best place.
float plain_uneven_scale(const Numbers32& x, float extreme) {
  const float inverse = 1.0f / extreme;
  float most = 0, scale = 0;
  for (const float& place : kUnevenPlaces) {
    float chains[8] = {};
    float squares = 0;  // whole numbers, exact
    for (int i = 0; i < kQuantBlock; ++i) {
      const float r = x[i] * inverse;
      const int level = plain_level(r * place);
      chains[i % 8] = std::fma(r, static_cast<float>(level), chains[i % 8]);
      squares += static_cast<float>(level * level);
    }
    const float sum = sum_of_chains(chains);
    const float gain = sum * sum / squares;
    if (&place != kUnevenPlaces && !(gain > most)) continue;
    most = gain;
    scale = sum / squares;
  }
  return scale;
}

PlainWeightBlock plain_uneven_block(const Numbers32& x, float extreme) {
  const bool tiny = std::fabs(extreme) < std::bit_cast<float>(kQuantLeast);
  PlainWeightBlock block = {};
  if (!tiny) block.scale = plain_scale(extreme * plain_uneven_scale(x, extreme));
  const float inverse = block.scale == 0 ? 0 : 1.0f / f16_value(block.scale);
  for (int i = 0; i < kQuantBlock; ++i) {
    block.values[i] = static_cast<int8_t>(plain_level(x[i] * inverse));
  }
  return block;
}

// A block of zeros.
PlainWeightBlock plain_zeros(QuantFormat format, uint16_t scale) {
  PlainWeightBlock block = {{}, scale};
  if (format == QuantFormat::kUneven4) std::ranges::fill(block.values, int8_t{1});
  return block;
}

// A block with this scale, and what it leaves of the squares.
PlainWeightBlock plain_with_scale(const Numbers32& x, uint16_t scale, float least, float most,
                                  float* squares) {
  PlainWeightBlock block = {{}, scale};
  const float d = f16_value(scale);
  const float inverse = d == 0 ? 0 : 1.0f / d;
  float chains[8] = {};
  for (int i = 0; i < kQuantBlock; ++i) {
    const float whole = std::nearbyint(std::clamp(x[i] * inverse, least, most));
    block.values[i] = static_cast<int8_t>(whole);
    const float rest = std::fma(-d, whole, x[i]);
    chains[i % 8] = std::fma(rest, rest, chains[i % 8]);
  }
  *squares = sum_of_chains(chains);
  return block;
}

// Whether a given scale is the block's.
bool takes_scale(const Numbers32& x, uint16_t given, float least, float most) {
  const float d = f16_value(given);
  return d != 0 && std::all_of(std::begin(x), std::end(x), [&](float v) {
           const float scaled = v * (1.0f / d);
           return scaled >= least - 0.5f && scaled <= most + 0.5f;
         });
}

PlainWeightBlock plain_weights(QuantFormat format, const Numbers32& x, uint16_t given) {
  const uint32_t bits = plain_largest(x);
  if (bits >= kQuantInfinity) return plain_zeros(format, kQuantScaleNan);
  const float most = std::bit_cast<float>(bits);
  float squares = 0;
  if (format == QuantFormat::kQ8) {
    if (takes_scale(x, given, -127, 127)) return plain_with_scale(x, given, -127, 127, &squares);
    return plain_with_scale(x, plain_scale(most / 127.0f), -127, 127, &squares);
  }
  if (format == QuantFormat::kFp4) return plain_fp4_block(x, most);
  const bool negative = std::find(std::begin(x), std::end(x), -most) != std::end(x);
  const float extreme = negative ? -most : most;
  if (format == QuantFormat::kUneven4) return plain_uneven_block(x, extreme);
  if (takes_scale(x, given, -8, 7)) return plain_with_scale(x, given, -8, 7, &squares);
  PlainWeightBlock best = {};
  float least = 0;
  for (const float& divisor : kQ4Divisors) {
    const PlainWeightBlock block =
        plain_with_scale(x, plain_scale(extreme / -divisor), -8, 7, &squares);
    if (&divisor == kQ4Divisors || squares < least) {
      best = block;
      least = squares;
    }
  }
  return best;
}

QuantBlock plain_row(QuantFormat weights, const Numbers32& x) {
  QuantBlock block = {};
  const uint32_t bits = plain_largest(x);
  if (bits >= kQuantInfinity) block.scale = std::bit_cast<float>(0x7fc00000u);
  if (bits < kQuantLeast || bits >= kQuantInfinity) return block;
  const float most = std::bit_cast<float>(bits);
  block.scale = most / 127.0f;
  int32_t sum = 0;
  for (int i = 0; i < kQuantBlock; ++i) {
    block.values[i] = static_cast<int8_t>(std::nearbyint(x[i] * (127.0f / most)));
    sum += block.values[i];
  }
  const int zero =
      with_format(weights, []<QuantFormat kFormat>() { return QuantTraits<kFormat>::kZero; });
  block.offset = -zero * sum;
  return block;
}

// Calls body(block of 32 numbers) for each block, the last one padded with zeros.
template <typename Body>
void for_each_block(const float* values, int64_t count, Body&& body) {
  for (int64_t at = 0; at < count; at += kQuantBlock) {
    Numbers32 x = {};
    std::copy_n(values + at, std::min<int64_t>(kQuantBlock, count - at), x);
    body(x);
  }
}

float add_block(const QuantBlock& row, const PlainWeightBlock& weights, float acc) {
  int32_t sum = 0;
  for (int i = 0; i < kQuantBlock; ++i) sum += row.values[i] * weights.values[i];
  return std::fma(row.scale * f16_value(weights.scale), static_cast<float>(sum), acc);
}

template <QuantFormat kFormat>
PlainWeightBlock read_block(const std::byte* panel, int64_t column, int64_t block) {
  using Traits = QuantTraits<kFormat>;
  const std::byte* at = panel + block * Traits::kBlockBytes;
  PlainWeightBlock result;
  std::memcpy(&result.scale, at + column * 2, sizeof result.scale);
  const std::byte* data = at + kQuantScaleBytes;
  for (int i = 0; i < kQuantBlock; ++i) {
    const int group = i / kQuantGroup;
    const int line = Traits::kHalves ? group / 2 : group;
    const auto byte = static_cast<uint8_t>(
        data[line * kQuantGroupBytes + column * kQuantGroup + i % kQuantGroup]);
    const int half = group % 2 == 0 ? byte & 15 : byte >> 4;
    int whole = Traits::kHalves ? half : byte;
    if constexpr (Traits::kLooksUp) whole = Traits::kUnsigned[half];
    result.values[i] = static_cast<int8_t>(whole - Traits::kZero);
  }
  return result;
}

template <QuantFormat kFormat>
void plain_micro(const QuantMicroArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t column = 0; column < args.columns; ++column) {
      float acc = 0;
      for (int64_t block = 0; block < args.blocks; ++block) {
        acc = add_block(
            args.left[block * args.rows + row],
            plain_block_of_panels(kFormat, args.panels, args.panel_bytes, column, block), acc);
      }
      if (args.bias) acc += args.bias[column];
      const int64_t at = row * args.out_stride + column;
      if (args.out_is_bf16) {
        static_cast<BFloat16*>(args.out)[at] = to_bfloat16(acc);
      } else {
        static_cast<float*>(args.out)[at] = acc;
      }
    }
  }
}

}  // namespace

std::vector<PlainWeightBlock> plain_weight_blocks(QuantFormat format, const float* values,
                                                  int64_t count, const uint16_t* scales) {
  std::vector<PlainWeightBlock> blocks;
  for_each_block(values, count, [&](const Numbers32& x) {
    const uint16_t given = scales ? scales[blocks.size()] : uint16_t{0};
    blocks.push_back(plain_weights(format, x, given));
  });
  return blocks;
}

std::vector<QuantBlock> plain_row_blocks(QuantFormat weights, const float* values, int64_t count) {
  std::vector<QuantBlock> blocks;
  for_each_block(values, count,
                 [&](const Numbers32& x) { blocks.push_back(plain_row(weights, x)); });
  return blocks;
}

float plain_dot(const std::vector<QuantBlock>& row, const std::vector<PlainWeightBlock>& weights) {
  float acc = 0;
  for (size_t block = 0; block < row.size(); ++block) {
    acc = add_block(row[block], weights[block], acc);
  }
  return acc;
}

PlainWeightBlock plain_block_of_panels(QuantFormat format, const std::byte* panels,
                                       int64_t panel_bytes, int64_t column, int64_t block) {
  const std::byte* panel = panels + column / kQuantColumns * panel_bytes;
  const int64_t in_panel = column % kQuantColumns;
  return with_format(
      format, [&]<QuantFormat kFormat>() { return read_block<kFormat>(panel, in_panel, block); });
}

const QuantEngine kQuantPlain = {
    .name = "plain bytes",
    .rows = 4,
    .rows_max = 4,
    .micro = {plain_micro<QuantFormat::kQ8>, plain_micro<QuantFormat::kQ4>,
              plain_micro<QuantFormat::kFp4>, plain_micro<QuantFormat::kUneven4>},
};

}  // namespace jige::cpu
