// Attention whose scores get products with rows by distance: against the definition in double
// precision on every instruction set, against the stated arithmetic, and bit for bit under packing
// and threads.
#include <gtest/gtest.h>

#include <cmath>

#include "base/cpu.h"
#include "kernels/cpu/attention.h"
#include "ops/attention_properties_test_support.h"
#include "ops/attention_tiles_model.h"

namespace jige::ops::attention_test {
namespace {

constexpr DistanceTable kWide{.side = 12, .widens = true, .reach = 90};
constexpr DistanceTable kPlain{.side = 40};

std::vector<InputOptions> distant_shapes() {
  const auto shape = [](int64_t heads, int64_t dim, std::vector<int> lengths,
                        const DistanceTable& table) {
    return InputOptions{.heads = heads,
                        .kv_heads = heads,
                        .dim = dim,
                        .lengths = std::move(lengths),
                        .both_sides = true,
                        .table = table};
  };
  std::vector<InputOptions> shapes = {
      shape(1, 1, {1, 2, 0, 63}, kPlain),
      shape(2, 17, {64, 65, 1, 129}, kWide),
      shape(3, 32, {70, 1}, kWide),
      shape(1, 24, {130, 15, 16, 17}, kPlain),
      shape(2, 64, {300, 64}, kWide),
      shape(1, 40, {513, 33}, {.side = 700}),
      shape(1, 33, {97, 48, 200, 31}, kPlain),
  };
  shapes.push_back(shapes[1]);
  shapes.back().for_keys = false;
  shapes.push_back(shapes[3]);
  shapes.back().for_queries = false;
  shapes.push_back(shapes[2]);
  shapes.back().window = 20;
  return shapes;
}

TEST(AttentionDistanceRows, IsNearTheDefinitionInF32) {
  for (const InputOptions& options : distant_shapes()) {
    SCOPED_TRACE(options.dim);
    Inputs in = make_inputs(options);
    Definition definition(in);
    on_all_isas([&] { expect_near_definition_in_f32(in, definition, 2e-5); });
  }
}

TEST(AttentionDistanceRows, IsNearTheDefinitionInBf16) {
  for (const InputOptions& options : distant_shapes()) {
    SCOPED_TRACE(options.dim);
    Inputs in = bf16_inputs(options);
    Definition definition(in);
    on_all_isas([&] {
      Machine machine(2);
      const ForwardResult result = forward(machine, in);
      expect_near_definition_in_bf16(definition, result.dst, nullptr);
    });
  }
}

TEST(AttentionDistanceRows, HasTheStatedBitsOnTilesAndInPairs) {
  if (cpu::attention_products(true, 1.0f) == cpu::AttentionProducts::kChains) {
    GTEST_SKIP() << "no products of bf16";
  }
  for (InputOptions options : distant_shapes()) {
    Inputs in = bf16_inputs(options);
    Machine machine(2);
    const ForwardResult result = forward(machine, in);
    int64_t row = 0;
    for (const int length : in.lengths) {
      for (int64_t i = 0; i < length; i += 7) {
        const int64_t head = i % in.shape.head_count;
        const TilesModel model = tiles_model(in, {row, length, head}, i);
        EXPECT_FLOAT_EQ(result.lse.get(row + i, head), model.lse) << i;
        for (int64_t c = 0; c < options.dim; ++c) {
          ASSERT_EQ(result.dst.get(row + i, head * options.dim + c),
                    model.dst[static_cast<size_t>(c)])
              << "row " << i << " of " << length << " column " << c;
        }
      }
      row += length;
    }
  }
}

TEST(AttentionDistanceRows, GivesTheSameBitsPackedOrAloneOnAnyNumberOfThreads) {
  for (const DistanceTable& table : {kWide, kPlain}) {
    const InputOptions options{.heads = 2,
                               .kv_heads = 2,
                               .dim = 16,
                               .lengths = {33, 1, 300, 64, 0, 1040},
                               .both_sides = true,
                               .table = table};
    expect_the_same_bits_packed_or_alone(make_inputs(options));
    expect_the_same_bits_packed_or_alone(bf16_inputs(options));
  }
}

TEST(AttentionDistanceRows, EveryDistanceHasItsRow) {
  Inputs in = make_inputs({.heads = 1,
                           .kv_heads = 1,
                           .dim = 16,
                           .lengths = {100},
                           .both_sides = true,
                           .table = {.side = 200}});
  Machine machine;
  const ForwardResult before = forward(machine, in);
  // A key stands 40 behind the queries of rows 0 to 59.
  for (int64_t c = 0; c < 16; ++c) in.for_queries.set(in.shape.distance_tables.row_of[40], c, 9);
  const ForwardResult after = forward(machine, in);
  for (int64_t row = 0; row < 100; ++row) {
    EXPECT_EQ(after.dst.same_rows(row, before.dst, row, 1), row >= 60) << row;
  }
}

TEST(AttentionDistanceRows, ScratchIsBoundedWhateverTheLength) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int length : {90, 1800}) {
      Inputs in = make_inputs({.heads = 1,
                               .kv_heads = 1,
                               .dim = 32,
                               .lengths = {length},
                               .q_dtype = dtype,
                               .kv_dtype = dtype,
                               .both_sides = true,
                               .table = kWide});
      Machine machine;
      forward(machine, in);
      const int64_t stated =
          cpu::attention_scratch_bytes(32) + attention_distance_scratch_bytes(in.shape);
      EXPECT_LE(machine.device.scratch_bytes(), stated + CpuDevice::kScratchUnitBytes) << length;
      EXPECT_LE(stated, 768 * 1024);
    }
  }
}

TEST(AttentionDistanceRowsDeathTest, IsForHeadsWithKeysOfTheirOwnThatSeeBothSides) {
  Machine machine;
  Inputs behind = make_inputs({.heads = 1, .dim = 16, .lengths = {3}, .table = kPlain});
  EXPECT_DEATH(forward(machine, behind), "rows by distance");
  Inputs shared = make_inputs(
      {.heads = 2, .kv_heads = 1, .dim = 16, .lengths = {3}, .both_sides = true, .table = kPlain});
  EXPECT_DEATH(forward(machine, shared), "rows by distance");
}

}  // namespace
}  // namespace jige::ops::attention_test
