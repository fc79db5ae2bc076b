// Quantised products and quantising, bit for bit against the plain model that defines them, and the
// plain model against what it promises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "kernels/cpu/gemm_test_support.h"
#include "kernels/cpu/quant_choice.h"
#include "kernels/cpu/quant_gemm.h"
#include "kernels/cpu/quant_plain.h"
#include "kernels/cpu/quant_test_support.h"

namespace jige::cpu {
namespace {

using gemm_test::Matrix;
using quant_test::checked_block;
using quant_test::format_name;
using quant_test::largest_of;
using quant_test::weight_of;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct QuantCase {
  int64_t rows, columns, depth;
  DType left = DType::kF32;
  DType right = DType::kF32;
  DType out = DType::kF32;
  bool bias = false;

  std::string name() const {
    return fmt::format("[{}, {}, {}] {} {} -> {} bias {}", rows, columns, depth,
                       dtype_info(left).name, dtype_info(right).name, dtype_info(out).name, bias);
  }
};

ElementType type_of(DType dtype) {
  if (dtype == DType::kF32) return ElementType::kF32;
  return dtype == DType::kBF16 ? ElementType::kBf16 : ElementType::kF16;
}

std::vector<float> row_values(const Matrix& matrix, int64_t row, int64_t columns) {
  std::vector<float> values;
  for (int64_t i = 0; i < columns; ++i) values.push_back(matrix.at(row, i));
  return values;
}

// Quantises a weight in `parts` parts, over garbage. Scales: none, or one for each block.
std::vector<std::byte> quant_panels(CpuDevice& device, QuantFormat format, Matrix& right,
                                    int64_t columns, int64_t depth, int64_t parts,
                                    const std::vector<uint16_t>& scales = {}) {
  const int64_t blocks = (depth + kQuantBlock - 1) / kQuantBlock;
  std::vector<std::byte> panels(static_cast<size_t>(quant_panels_bytes(format, columns, depth)),
                                static_cast<std::byte>(0xff));
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t begin = columns * part / parts;
    const std::byte* data = static_cast<const std::byte*>(right.data()) +
                            dtype_bytes(right.dtype(), begin * right.stride());
    quant_pack(device,
               {.format = format,
                .panels = panels.data(),
                .columns = columns,
                .depth = depth,
                .part = {data, type_of(right.dtype()), right.stride()},
                .part_begin = begin,
                .part_count = columns * (part + 1) / parts - begin,
                .scales = {scales.empty() ? nullptr : scales.data() + begin * blocks, blocks}});
  }
  return panels;
}

void quant_product(CpuDevice& device, const QuantEngine& engine, QuantFormat format,
                   const QuantCase& c, Matrix& left, const std::vector<std::byte>& panels,
                   const Matrix& bias, Matrix& out) {
  quant_gemm(device, engine,
             {.rows = c.rows,
              .columns = c.columns,
              .depth = c.depth,
              .left = {left.data(), type_of(c.left), left.stride()},
              .format = format,
              .panels = panels.data(),
              .out = {out.data(), type_of(c.out), out.stride()},
              .bias = c.bias ? reinterpret_cast<const float*>(bias.bytes().data()) : nullptr});
}

// The product by its definition, in the memory of `before`.
Matrix plain_product(QuantFormat format, const QuantCase& c, const Matrix& left,
                     const Matrix& right, const Matrix& bias, const Matrix& before) {
  Matrix out = before;
  std::vector<std::vector<PlainWeightBlock>> weights;
  for (int64_t n = 0; n < c.columns; ++n) {
    weights.push_back(plain_weight_blocks(format, row_values(right, n, c.depth).data(), c.depth));
  }
  for (int64_t t = 0; t < c.rows; ++t) {
    const auto row = plain_row_blocks(format, row_values(left, t, c.depth).data(), c.depth);
    for (int64_t n = 0; n < c.columns; ++n) {
      const float sum = plain_dot(row, weights[static_cast<size_t>(n)]);
      out.set(t * out.stride() + n, c.bias ? sum + bias.at(0, n) : sum);
    }
  }
  return out;
}

// All engines, parts and threads give the product that is defined, and leave the room between rows.
void expect_defined_product(QuantFormat format, const QuantCase& c, Matrix& left, Matrix& right,
                            Rng& rng) {
  const Matrix bias(DType::kF32, 1, c.columns, rng);
  const Matrix before(c.out, c.rows, c.columns, rng);
  const Matrix expected = plain_product(format, c, left, right, bias, before);
  for (const int threads : {1, 3}) {
    CpuDevice device({.thread_count = threads});
    const auto panels = quant_panels(device, format, right, c.columns, c.depth, threads);
    for (const QuantEngine* engine : quant_engines()) {
      Matrix out = before;
      quant_product(device, *engine, format, c, left, panels, bias, out);
      EXPECT_TRUE(out.bytes() == expected.bytes())
          << engine->name << " " << format_name(format) << " " << c.name() << ", " << threads
          << " threads";
    }
  }
}

const QuantCase kCases[] = {
    {1, 1, 1},
    {1, 70, 96, DType::kBF16, DType::kBF16, DType::kBF16},
    {2, 16, 32, DType::kF32, DType::kF16},
    {3, 33, 257, DType::kBF16, DType::kF16, DType::kF32, true},
    {4, 100, 64},
    {5, 47, 31, DType::kF32, DType::kBF16, DType::kBF16, true},
    {6, 31, 320},
    {7, 65, 100, DType::kF32, DType::kF32, DType::kF32, true},
    {13, 257, 48, DType::kBF16, DType::kF32, DType::kBF16},
    {50, 40, 129, DType::kF32, DType::kBF16, DType::kF32, true},
};

TEST(Quant, EnginesGiveTheBitsOfThePlainModel) {
  Rng rng(11);
  for (const QuantCase& c : kCases) {
    for (const QuantFormat format : kQuantFormats) {
      Matrix left(c.left, c.rows, c.depth, rng);
      Matrix right(c.right, c.columns, c.depth, rng);
      expect_defined_product(format, c, left, right, rng);
    }
  }
}

TEST(Quant, ManyRowsAreCutIntoSeveralTasks) {
  Rng rng(12);
  const QuantCase c = {400, 20, 40, DType::kBF16};
  for (const QuantFormat format : kQuantFormats) {
    Matrix left(c.left, c.rows, c.depth, rng);
    Matrix right(c.right, c.columns, c.depth, rng);
    expect_defined_product(format, c, left, right, rng);
  }
}

// Panels so long that those of a task are read in several turns, the last one with a short panel.
TEST(Quant, CallsTakeTheirTurnsOverSomePanels) {
  Rng rng(19);
  const QuantCase c = {13, 300, 2100, DType::kBF16, DType::kBF16, DType::kF32, true};
  for (const QuantFormat format : kQuantFormats) {
    Matrix left(c.left, c.rows, c.depth, rng);
    Matrix right(c.right, c.columns, c.depth, rng);
    expect_defined_product(format, c, left, right, rng);
  }
}

TEST(Quant, EveryRowCountIsExact) {
  Rng rng(13);
  for (int64_t rows = 1; rows <= 50; ++rows) {
    const QuantFormat format = kQuantFormats[rows % kQuantFormatCount];
    const QuantCase c = {rows, 37, 70};
    Matrix left(c.left, c.rows, c.depth, rng);
    Matrix right(c.right, c.columns, c.depth, rng);
    expect_defined_product(format, c, left, right, rng);
  }
}

TEST(Quant, LargestNumbersOfAllSignsDoNotSaturate) {
  Rng rng(14);
  const QuantCase c = {8, 40, 96};
  const auto fill = [&](Matrix& matrix, int64_t rows, uint64_t one_in) {
    for (int64_t i = 0; i < rows * matrix.stride(); ++i) {
      matrix.set(i, one_in > 0 && rng.below(one_in) == 0 ? -1.5f : 1.5f);  // 12 halves of FP4
    }
  };
  for (const QuantFormat format : kQuantFormats) {
    for (const uint64_t signs : {0, 1, 2, 8}) {  // all +1, all -1, half of each, an eighth
      for (const uint64_t weight_signs : {0, 1, 2, 8}) {
        Matrix left(c.left, c.rows, c.depth, rng);
        Matrix right(c.right, c.columns, c.depth, rng);
        fill(left, c.rows, signs);
        fill(right, c.columns, weight_signs);
        expect_defined_product(format, c, left, right, rng);
      }
    }
  }
}

TEST(Quant, NansAndInfinitiesMakeTheirRowOrColumnNan) {
  Rng rng(15);
  const QuantCase c = {7, 35, 80};
  for (const QuantFormat format : kQuantFormats) {
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
      Matrix left(c.left, c.rows, c.depth, rng);
      Matrix right(c.right, c.columns, c.depth, rng);
      left.set(4 * left.stride() + 50, bad);
      right.set(20 * right.stride() + 79, bad);
      CpuDevice device({.thread_count = 1});
      const auto panels = quant_panels(device, format, right, c.columns, c.depth, 1);
      const Matrix bias(DType::kF32, 1, c.columns, rng);
      for (const QuantEngine* engine : quant_engines()) {
        Matrix out(c.out, c.rows, c.columns, rng);
        quant_product(device, *engine, format, c, left, panels, bias, out);
        for (int64_t t = 0; t < c.rows; ++t) {
          for (int64_t n = 0; n < c.columns; ++n) {
            EXPECT_EQ(std::isnan(out.at(t, n)), t == 4 || n == 20) << t << ", " << n;
          }
        }
      }
    }
  }
}

TEST(Quant, WeightsAreAsNearAsTheirScaleLets) {
  Rng rng(16);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<float> values(32);
    const float size = std::ldexp(1.0f, static_cast<int>(rng.below(20)) - 12);
    for (float& x : values) x = rough_normal(rng) * size;
    const float most = largest_of(values);
    const PlainWeightBlock q8 = checked_block(QuantFormat::kQ8, values);
    const PlainWeightBlock q4 = checked_block(QuantFormat::kQ4, values);
    for (size_t i = 0; i < values.size(); ++i) {
      // Half a step; below the normal range of f16 a scale is a multiple of 2^-24.
      EXPECT_LE(std::fabs(values[i] - weight_of(q8, i)), 0.5003f * most / 127 + 127 * 0x1p-25f);
      // The largest divisor leaves 8.75 - 7 steps of a number opposite to the extreme one.
      EXPECT_LE(std::fabs(values[i] - weight_of(q4, i)), 1.76f * most / 8.75f + 8 * 0x1p-25f);
    }
  }
}

TEST(Quant, FourBitsLeaveLessThanTheUsualScale) {
  Rng rng(17);
  double squares = 0, usual_squares = 0, total = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    std::vector<float> values(32);
    for (float& x : values) x = rough_normal(rng);
    const float most = largest_of(values);
    const bool negative = std::find(values.begin(), values.end(), -most) != values.end();
    const float usual = to_float(to_float16((negative ? -most : most) / -8));
    const PlainWeightBlock block = checked_block(QuantFormat::kQ4, values);
    double of_block = 0, usual_of_block = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      of_block += std::pow(values[i] - weight_of(block, i), 2);
      const float whole = std::clamp(std::nearbyint(values[i] / usual), -8.0f, 7.0f);
      usual_of_block += std::pow(values[i] - usual * whole, 2);
      total += std::pow(values[i], 2);
    }
    EXPECT_LE(of_block, usual_of_block * 1.0001);
    squares += of_block;
    usual_squares += usual_of_block;
  }
  EXPECT_LT(squares, 0.93 * usual_squares);
  EXPECT_LT(std::sqrt(squares / total), 0.085);
}

// The numbers of FP4, by their definition: a sign, two bits of exponent, one of mantissa.
float fp4_number(uint32_t bits) {
  const auto exponent = static_cast<int>(bits >> 1 & 3), mantissa = static_cast<int>(bits & 1);
  const float size = exponent == 0
                         ? 0.5f * static_cast<float>(mantissa)
                         : std::ldexp(1 + 0.5f * static_cast<float>(mantissa), exponent - 1);
  return (bits & 8) != 0 ? -size : size;
}

TEST(Quant, BlocksOfMxfp4AreKeptAsTheyAre) {
  Rng rng(20);
  for (int trial = 0; trial < 300; ++trial) {
    const auto exponent = static_cast<int>(rng.below(37)) - 20;   // as far as f16 has the scale
    const uint64_t most = trial % 3 == 0 ? 8 : 1 + rng.below(7);  // small numbers alone, too
    std::vector<float> values(32);
    for (float& x : values) {
      const auto size = static_cast<uint32_t>(rng.below(most));
      x = std::ldexp(fp4_number(size + 8 * static_cast<uint32_t>(rng.below(2))), exponent);
    }
    const PlainWeightBlock block = checked_block(QuantFormat::kFp4, values);
    for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(weight_of(block, i), values[i]) << i;
  }
}

// Between any two neighbours of FP4 the nearer one is taken, and in the middle that of even bits.
TEST(Quant, Fp4TakesTheNearestNumber) {
  for (uint32_t bits = 0; bits < 7; ++bits) {
    const float low = fp4_number(bits), high = fp4_number(bits + 1), middle = (low + high) / 2;
    const std::pair<float, float> cases[] = {{std::nextafter(middle, 0.0f), low},
                                             {middle, bits % 2 == 0 ? low : high},
                                             {std::nextafter(middle, 9.0f), high}};
    for (const auto& [value, nearest] : cases) {
      std::vector<float> values(32, -6.0f);  // the largest, so that the scale is one
      values[5] = value;
      values[6] = -value;
      const PlainWeightBlock block = checked_block(QuantFormat::kFp4, values);
      EXPECT_EQ(weight_of(block, 5), nearest) << value;
      EXPECT_EQ(weight_of(block, 6), -nearest) << value;
    }
  }
  std::vector<float> values(32, 7.9f);
  EXPECT_EQ(weight_of(checked_block(QuantFormat::kFp4, values), 0), 6.0f)
      << "there is no larger one";
  values[0] = 8;
  EXPECT_EQ(weight_of(checked_block(QuantFormat::kFp4, values), 1), 8.0f);
}

// A weight of multiples of scales that are given for its blocks. In every third block the scale is
// not given, in another third one number, or its negative, is more than the integers reach.
struct Multiples {
  Matrix numbers;
  std::vector<uint16_t> scales;  // given
  std::vector<PlainWeightBlock> blocks;

  Multiples(QuantFormat format, DType type, int64_t columns, int64_t depth, Rng& rng)
      : numbers(type, columns, depth, rng) {
    const int most = format == QuantFormat::kQ8 ? 127 : 7;
    const int least = format == QuantFormat::kQ8 ? -127 : -8;
    for (int64_t n = 0; n < columns; ++n) {
      for (int64_t from = 0; from < depth; from += kQuantBlock) {
        // Of either sign, up to 256, also those below the normal range.
        const auto magnitude = static_cast<uint16_t>(1 + rng.below(0x5c00));
        PlainWeightBlock block = {{}, static_cast<uint16_t>(magnitude | rng.below(2) << 15)};
        const int64_t count = std::min<int64_t>(kQuantBlock, depth - from);
        const int64_t beyond = blocks.size() % 3 == 1
                                   ? static_cast<int64_t>(rng.below(static_cast<uint64_t>(count)))
                                   : -1;
        for (int64_t i = 0; i < count; ++i) {
          int code = least + static_cast<int>(rng.below(static_cast<uint64_t>(most - least + 1)));
          if (i == beyond) code = rng.below(2) == 0 ? most + 1 : least - 1;
          block.values[i] = static_cast<int8_t>(code);
          numbers.set(n * numbers.stride() + from + i,
                      to_float(Float16{block.scale}) * static_cast<float>(code));
        }
        scales.push_back(blocks.size() % 3 == 2 ? uint16_t{0} : block.scale);
        blocks.push_back(block);
      }
    }
  }
};

TEST(Quant, MultiplesOfAGivenScaleAreKeptAsTheyAre) {
  Rng rng(26);
  for (const QuantFormat format : {QuantFormat::kQ8, QuantFormat::kQ4}) {
    for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const auto& [columns, depth] : {std::pair{1, 31}, {45, 96}, {70, 257}}) {
        Multiples right(format, type, columns, depth, rng);
        const auto block_count = static_cast<int64_t>(right.blocks.size()) / columns;
        for (const int threads : {1, 3}) {
          CpuDevice device({.thread_count = threads});
          const auto panels =
              quant_panels(device, format, right.numbers, columns, depth, threads, right.scales);
          const int64_t panel_bytes = quant_panel_bytes(format, depth);
          for (int64_t n = 0; n < columns; ++n) {
            const auto row = row_values(right.numbers, n, depth);
            const uint16_t* given = &right.scales[static_cast<size_t>(n * block_count)];
            const auto plain = plain_weight_blocks(format, row.data(), depth, given);
            const auto rounded = plain_weight_blocks(format, row.data(), depth);
            for (int64_t b = 0; b < block_count; ++b) {
              const auto at = static_cast<size_t>(n * block_count + b);
              const auto found = plain_block_of_panels(format, panels.data(), panel_bytes, n, b);
              const auto& wanted = at % 3 == 0 ? right.blocks[at] : rounded[static_cast<size_t>(b)];
              for (const PlainWeightBlock& block : {found, plain[static_cast<size_t>(b)]}) {
                EXPECT_EQ(block.scale, wanted.scale) << format_name(format) << " block " << at;
                EXPECT_EQ(std::memcmp(block.values, wanted.values, sizeof wanted.values), 0)
                    << format_name(format) << " " << dtype_info(type).name << " block " << at;
              }
            }
          }
        }
      }
    }
  }
}

TEST(Quant, AGivenScaleMakesNoNumberOutOfNanAndInfinity) {
  CpuDevice device({.thread_count = 1});
  Rng rng(27);
  const std::vector<uint16_t> scales(4, to_float16(0.5f).bits);
  for (const QuantFormat format : kQuantFormats) {
    Matrix right(DType::kF32, 2, 64, rng);
    for (int64_t i = 0; i < 2 * right.stride(); ++i) right.set(i, 1.5f);
    right.set(3, kNan);
    right.set(right.stride() + 40, -kInfinity);
    const auto panels = quant_panels(device, format, right, 2, 64, 1, scales);
    for (int64_t n = 0; n < 2; ++n) {
      for (int64_t block = 0; block < 2; ++block) {
        const auto found =
            plain_block_of_panels(format, panels.data(), quant_panel_bytes(format, 64), n, block);
        EXPECT_EQ(found.scale == kQuantScaleNan, n == block);
        const bool takes = format == QuantFormat::kQ8 || format == QuantFormat::kQ4;
        const bool given = n != block && takes;
        EXPECT_EQ(found.scale == scales[0], given) << format_name(format);
      }
    }
  }
}

TEST(Quant, ZeroTinyAndHugeBlocksAreDefined) {
  for (const QuantFormat format : kQuantFormats) {
    const bool uneven = format == QuantFormat::kUneven4;
    const float levels = format == QuantFormat::kQ8 || uneven ? 127 : 8;
    std::vector<float> values(32, 0.0f);
    PlainWeightBlock block = checked_block(format, values);
    EXPECT_EQ(block.scale, 0);
    EXPECT_EQ(weight_of(block, 0), 0.0f);

    values[3] = -levels * 0x1p-26f;  // a scale that rounds to zero
    block = checked_block(format, values);
    EXPECT_EQ(block.scale, 0);
    EXPECT_EQ(block.values[3], uneven ? 1 : 0);  // nothing, times zero

    values[3] = -levels * 0x1p-24f;  // the least there is
    values[4] = levels * 0x1.4p-24f;
    block = checked_block(format, values);
    EXPECT_NE(block.scale & 0x7fff, 0);
    EXPECT_LT(block.scale & 0x7fff, 0x400);  // subnormal
    EXPECT_NEAR(weight_of(block, 3), values[3], levels * 0x1p-26f);

    for (const float huge : {1e7f, 1e30f, 3e38f}) {
      values[3] = -huge;
      values[4] = huge;
      block = checked_block(format, values);
      EXPECT_TRUE(std::isfinite(weight_of(block, 3)));
      EXPECT_LT(weight_of(block, 3), -5e5f);
      EXPECT_GT(weight_of(block, 4), 4e5f);
      EXPECT_EQ(std::fabs(weight_of(block, 0)), uneven ? kQuantScaleMax : 0.0f);
    }
    values[5] = kNan;
    EXPECT_EQ(checked_block(format, values).scale, kQuantScaleNan);
  }
}

TEST(Quant, RowsOfExtremeSizesAreDefined) {
  Rng rng(18);
  const QuantCase c = {7, 20, 64};
  const float sizes[] = {0, 1e-45f, 0x1p-113f, 0x1p-112f, 1e30f, 3e38f, 1};
  for (const QuantFormat format : kQuantFormats) {
    Matrix left(c.left, c.rows, c.depth, rng);
    Matrix right(c.right, c.columns, c.depth, rng);
    for (int64_t t = 0; t < c.rows; ++t) {
      for (int64_t k = 0; k < c.depth; ++k) {
        left.set(t * left.stride() + k, sizes[t] * (k % 3 == 0 ? -1.0f : 0.7f));
      }
    }
    expect_defined_product(format, c, left, right, rng);
  }
}

// One that failed its check would be left out, and out of these tests.
TEST(Quant, EnginesOfEveryInstructionSetHereAreInUse) {
  const Isa before = active_isa();
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    const bool vnni = isa >= Isa::kAvx512 && cpu_features().avx512_vnni;
    const bool tiles = vnni && isa == Isa::kAmx && cpu_features().amx_int8;
    const std::string expected = tiles ? "amx" : vnni ? "avx512_vnni" : "avx2";
    EXPECT_THAT(quant_engine().name, ::testing::StartsWith(expected)) << isa_name(isa);
  }
  set_active_isa(before);
}

TEST(Quant, AnEngineThatIsWrongIsFound) {
  QuantEngine wrong = kQuantPlain;
  EXPECT_TRUE(quant_engine_agrees(wrong));
  wrong.micro[0] = kQuantPlain.micro[1];  // the other way round it would read too far
  EXPECT_FALSE(quant_engine_agrees(wrong));
}

}  // namespace
}  // namespace jige::cpu
