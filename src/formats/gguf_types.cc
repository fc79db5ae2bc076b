#include "formats/gguf_types.h"

#include <bit>
#include <cstring>

#include "tensor/dtype.h"

namespace jige::formats {
namespace {

constexpr int kSuperBlock = 256;  // elements of a block of the K types

uint8_t byte_at(const std::byte* at) { return static_cast<uint8_t>(*at); }

float half_at(const std::byte* at) {
  Float16 value;
  std::memcpy(&value.bits, at, sizeof value.bits);
  return to_float(value);
}

uint32_t word_at(const std::byte* at) {
  uint32_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

void decode_f32(const std::byte* blocks, int64_t count, float* out) {
  std::memcpy(out, blocks, static_cast<size_t>(count) * sizeof(float));
}

void decode_f16(const std::byte* blocks, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = half_at(blocks + 2 * i);
}

void decode_bf16(const std::byte* blocks, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    BFloat16 value;
    std::memcpy(&value.bits, blocks + 2 * i, sizeof value.bits);
    out[i] = to_float(value);
  }
}

void decode_q8_0(const std::byte* block, int64_t count, float* out) {
  for (; count > 0; --count, block += 34, out += 32) {
    const float d = half_at(block);
    for (int i = 0; i < 32; ++i) {
      out[i] = static_cast<float>(static_cast<int8_t>(byte_at(block + 2 + i))) * d;
    }
  }
}

// Q4_0, Q4_1, Q5_0 and Q5_1 differ in whether there are a minimum and fifth bits.
template <bool minimum, bool fifth>
void decode_simple(const std::byte* block, int64_t count, float* out) {
  constexpr int kHead = 2 + (minimum ? 2 : 0);
  constexpr int kLow = kHead + (fifth ? 4 : 0);
  constexpr int kMiddle = fifth ? 16 : 8;
  for (; count > 0; --count, block += kLow + 16, out += 32) {
    const float d = half_at(block);
    const float m = minimum ? half_at(block + 2) : 0.0f;
    const uint32_t high = fifth ? word_at(block + kHead) : 0;
    for (int i = 0; i < 32; ++i) {
      const uint8_t pair = byte_at(block + kLow + i % 16);
      const int low = i < 16 ? pair & 15 : pair >> 4;
      const int q = low | static_cast<int>((high >> i & 1u) << 4);
      if constexpr (minimum) {
        out[i] = d * static_cast<float>(q) + m;
      } else {
        out[i] = d * static_cast<float>(q - kMiddle);
      }
    }
  }
}

void decode_q2_k(const std::byte* block, int64_t count, float* out) {
  for (; count > 0; --count, block += 84, out += kSuperBlock) {
    const std::byte* low = block + 16;
    const float d = half_at(block + 80);
    const float dmin = half_at(block + 82);
    for (int i = 0; i < kSuperBlock; ++i) {
      const uint8_t scales = byte_at(block + i / 16);
      const float scale = d * static_cast<float>(scales & 15);
      const float offset = dmin * static_cast<float>(scales >> 4);
      const int q = byte_at(low + i / 128 * 32 + i % 32) >> (i / 32 % 4 * 2) & 3;
      out[i] = scale * static_cast<float>(q) - offset;
    }
  }
}

void decode_q3_k(const std::byte* block, int64_t count, float* out) {
  for (; count > 0; --count, block += 110, out += kSuperBlock) {
    const std::byte* low = block + 32;
    const std::byte* scales = block + 96;
    const float d = half_at(block + 108);
    float scale[16];
    for (int i = 0; i < 16; ++i) {
      const int four = byte_at(scales + i % 8) >> (i < 8 ? 0 : 4) & 15;
      const int two = byte_at(scales + 8 + i % 4) >> (i / 4 * 2) & 3;
      scale[i] = d * static_cast<float>((four | two << 4) - 32);
    }
    for (int i = 0; i < kSuperBlock; ++i) {
      const int two = byte_at(low + i / 128 * 32 + i % 32) >> (i / 32 % 4 * 2) & 3;
      const bool high = byte_at(block + i % 32) >> (i / 32) & 1;
      out[i] = scale[i / 16] * static_cast<float>(high ? two : two - 4);
    }
  }
}

struct ScaleAndMinimum {
  uint8_t scale;
  uint8_t minimum;
};

// Scale and minimum of the part `i` of 8 of Q4_K and Q5_K: four bits at the end of the twelve
// bytes and two at the top of others for the last four parts, six bits in one byte for the first.
ScaleAndMinimum scale_and_minimum(const std::byte* scales, int i) {
  const auto byte = [&](int at) { return byte_at(scales + at); };
  if (i < 4) return {static_cast<uint8_t>(byte(i) & 63), static_cast<uint8_t>(byte(i + 4) & 63)};
  return {static_cast<uint8_t>((byte(i + 4) & 15) | (byte(i - 4) >> 2 & 48)),
          static_cast<uint8_t>(byte(i + 4) >> 4 | (byte(i) >> 2 & 48))};
}

template <bool fifth>
void decode_q45_k(const std::byte* block, int64_t count, float* out) {
  constexpr int kLow = fifth ? 48 : 16;
  for (; count > 0; --count, block += kLow + 128, out += kSuperBlock) {
    const float d = half_at(block);
    const float dmin = half_at(block + 2);
    for (int part = 0; part < 8; ++part) {
      const ScaleAndMinimum packed = scale_and_minimum(block + 4, part);
      const float scale = d * static_cast<float>(packed.scale);
      const float offset = dmin * static_cast<float>(packed.minimum);
      for (int i = 0; i < 32; ++i) {
        const int low = byte_at(block + kLow + part / 2 * 32 + i) >> (part % 2 * 4) & 15;
        const int high = fifth ? byte_at(block + 16 + i) >> part & 1 : 0;
        out[part * 32 + i] = scale * static_cast<float>(low | high << 4) - offset;
      }
    }
  }
}

void decode_q6_k(const std::byte* block, int64_t count, float* out) {
  for (; count > 0; --count, block += 210, out += kSuperBlock) {
    const std::byte* high = block + 128;
    const std::byte* scales = block + 192;
    const float d = half_at(block + 208);
    for (int i = 0; i < kSuperBlock; ++i) {
      const auto scale = static_cast<int8_t>(byte_at(scales + i / 16));
      const int four = byte_at(block + i / 128 * 64 + i % 64) >> (i / 64 % 2 * 4) & 15;
      const int two = byte_at(high + i / 128 * 32 + i % 32) >> (i / 32 % 4 * 2) & 3;
      out[i] = d * static_cast<float>(scale) * static_cast<float>((four | two << 4) - 32);
    }
  }
}

// Of IQ4_NL and IQ4_XS: what the 16 numbers of four bits stand for.
constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};

// 32 numbers of four bits, low halves of the bytes first.
template <typename T>
void decode_table(const std::byte* packed, float scale, const T (&table)[16], float* out) {
  for (int i = 0; i < 32; ++i) {
    const int q = byte_at(packed + i % 16) >> (i < 16 ? 0 : 4) & 15;
    out[i] = scale * static_cast<float>(table[q]);
  }
}

void decode_iq4_nl(const std::byte* block, int64_t count, float* out) {
  for (; count > 0; --count, block += 18, out += 32) {
    decode_table(block + 2, half_at(block), kIq4Values, out);
  }
}

void decode_iq4_xs(const std::byte* block, int64_t count, float* out) {
  for (; count > 0; --count, block += 136, out += kSuperBlock) {
    const float d = half_at(block);
    const int high = byte_at(block + 2) | byte_at(block + 3) << 8;
    for (int part = 0; part < 8; ++part) {
      const int low = byte_at(block + 4 + part / 2) >> (part % 2 * 4) & 15;
      const int scale = (low | (high >> (2 * part) & 3) << 4) - 32;
      decode_table(block + 8 + 16 * part, d * static_cast<float>(scale), kIq4Values,
                   out + 32 * part);
    }
  }
}

// Twice the 16 numbers of four bits, two of them exponent; the scale is half of its power of two.
constexpr int8_t kFp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void decode_mxfp4(const std::byte* block, int64_t count, float* out) {
  for (; count > 0; --count, block += 17, out += 32) {
    const uint32_t power = byte_at(block);
    // The smallest two are subnormal.
    const uint32_t bits = power < 2 ? 0x00200000u << power : (power - 1) << 23;
    decode_table(block + 1, std::bit_cast<float>(bits), kFp4Values, out);
  }
}

// Types without a function are known, so that their sizes are checked and they are refused by name.
constexpr GgufTypeInfo kGgufTypes[] = {
    {kGgufF32, "F32", 1, 4, decode_f32},
    {kGgufF16, "F16", 1, 2, decode_f16},
    {kGgufQ4_0, "Q4_0", 32, 18, decode_simple<false, false>},
    {3, "Q4_1", 32, 20, decode_simple<true, false>},
    {6, "Q5_0", 32, 22, decode_simple<false, true>},
    {7, "Q5_1", 32, 24, decode_simple<true, true>},
    {kGgufQ8_0, "Q8_0", 32, 34, decode_q8_0},
    {9, "Q8_1", 32, 40, nullptr},
    {10, "Q2_K", 256, 84, decode_q2_k},
    {11, "Q3_K", 256, 110, decode_q3_k},
    {12, "Q4_K", 256, 144, decode_q45_k<false>},
    {13, "Q5_K", 256, 176, decode_q45_k<true>},
    {14, "Q6_K", 256, 210, decode_q6_k},
    {15, "Q8_K", 256, 292, nullptr},
    {16, "IQ2_XXS", 256, 66, nullptr},
    {17, "IQ2_XS", 256, 74, nullptr},
    {18, "IQ3_XXS", 256, 98, nullptr},
    {19, "IQ1_S", 256, 50, nullptr},
    {20, "IQ4_NL", 32, 18, decode_iq4_nl},
    {21, "IQ3_S", 256, 110, nullptr},
    {22, "IQ2_S", 256, 82, nullptr},
    {23, "IQ4_XS", 256, 136, decode_iq4_xs},
    {24, "I8", 1, 1, nullptr},
    {25, "I16", 1, 2, nullptr},
    {26, "I32", 1, 4, nullptr},
    {27, "I64", 1, 8, nullptr},
    {28, "F64", 1, 8, nullptr},
    {29, "IQ1_M", 256, 56, nullptr},
    {kGgufBF16, "BF16", 1, 2, decode_bf16},
    {34, "TQ1_0", 256, 54, nullptr},
    {35, "TQ2_0", 256, 66, nullptr},
    {39, "MXFP4", 32, 17, decode_mxfp4},
    {40, "NVFP4", 64, 36, nullptr},
    {41, "Q1_0", 128, 18, nullptr},
};

}  // namespace

const GgufTypeInfo* find_gguf_type(uint32_t number) {
  for (const GgufTypeInfo& info : kGgufTypes) {
    if (info.number == number) return &info;
  }
  return nullptr;
}

std::string readable_gguf_types() {
  std::string names;
  for (const GgufTypeInfo& info : kGgufTypes) {
    if (info.decode) names += (names.empty() ? "" : ", ") + std::string(info.name);
  }
  return names;
}

}  // namespace jige::formats
