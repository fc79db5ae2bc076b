#include "ops/rope.h"

#include <fmt/format.h>

#include <cmath>

#include "ops/testing.h"

namespace jige::ops {
namespace {

using test::Matrix;
using test::Values;
constexpr int64_t kPositions = 50;

Matrix make_table(int64_t rotary_dim) {
  Matrix table(DType::kF32, kPositions, rotary_dim, 2);
  const int64_t half = rotary_dim / 2;
  table.fill_by([&](int64_t position, int64_t column) {
    const double frequency = std::pow(100.0, -static_cast<double>(column % half) / 8.0);
    const double angle = static_cast<double>(position) * frequency;
    return column < half ? std::cos(angle) : std::sin(angle);
  });
  return table;
}

struct RopeCase {
  int64_t rows, heads, head_dim, rotary_dim;
  DType dtype;
  int64_t first = 0;
};

std::vector<int32_t> make_positions(int64_t rows) {
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < rows; ++t) positions.push_back(static_cast<int32_t>(t * 7 % kPositions));
  return positions;
}

Values rope_reference(const Values& x, const RopeCase& c, const Matrix& table,
                      const std::vector<int32_t>& positions) {
  Values y = x;
  const int64_t half = c.rotary_dim / 2;
  for (int64_t t = 0; t < c.rows; ++t) {
    for (int64_t h = 0; h < c.heads; ++h) {
      for (int64_t i = 0; i < half; ++i) {
        const auto a = static_cast<size_t>((t * c.heads + h) * c.head_dim + c.first + i);
        const size_t b = a + static_cast<size_t>(half);
        const double cosine = table.get(positions[static_cast<size_t>(t)], i);
        const double sine = table.get(positions[static_cast<size_t>(t)], half + i);
        y[a] = x[a] * cosine - x[b] * sine;
        y[b] = x[b] * cosine + x[a] * sine;
      }
    }
  }
  return y;
}

void run(Stream& stream, const RopeCase& c, Matrix& data, Matrix& table,
         std::vector<int32_t>& positions, bool inverse) {
  Rope args;
  args.data = data.view();
  args.positions = test::view_of(positions);
  args.cos_sin = table.view();
  args.head_dim = c.head_dim;
  args.rotary_dim = c.rotary_dim;
  args.first = c.first;
  args.inverse = inverse;
  rope(stream, args);
}

std::vector<RopeCase> rope_cases() {
  std::vector<RopeCase> all;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    all.push_back({5, 3, 8, 8, dtype});
    all.push_back({4, 2, 22, 22, dtype});
    all.push_back({3, 1, 64, 64, dtype});
    all.push_back({6, 2, 40, 26, dtype});  // part of the columns only
    all.push_back({5, 3, 48, 36, dtype});  // the same where halves end in their second vector
    all.push_back({5, 3, 48, 48, dtype});
    all.push_back({3, 2, 62, 62, dtype});
    all.push_back({2, 2, 7, 2, dtype});
    all.push_back({2, 2, 7, 0, dtype});
    all.push_back({1, 1, 128, 128, dtype});
    all.push_back({5, 3, 40, 16, dtype, 24});  // the last columns
    all.push_back({4, 2, 62, 36, dtype, 7});
  }
  return all;
}

TEST(Rope, AgreesWithDouble) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const RopeCase& c : rope_cases()) {
      Rng rng(5);
      Matrix data(c.dtype, c.rows, c.heads * c.head_dim);
      data.fill_normal(rng);
      Matrix table = make_table(c.rotary_dim);
      auto positions = make_positions(c.rows);
      const Values expected = rope_reference(data.values(), c, table, positions);
      run(*stream, c, data, table, positions, false);
      test::expect_near(data, expected, 2e-7, 4e-7,
                        fmt::format("head_dim {} rotary {}", c.head_dim, c.rotary_dim));
    }
  });
}

TEST(Rope, InverseIsTheGradient) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const RopeCase& c : rope_cases()) {
      if (c.dtype != DType::kF32) continue;
      Rng rng(6);
      Matrix x(c.dtype, c.rows, c.heads * c.head_dim);
      x.fill_normal(rng);
      Matrix grad(c.dtype, c.rows, c.heads * c.head_dim);
      grad.fill_normal(rng);
      Matrix table = make_table(c.rotary_dim);
      auto positions = make_positions(c.rows);
      const Values dy = grad.values();
      const Values expected = test::finite_difference(
          [&](const Values& at) { return test::dot(rope_reference(at, c, table, positions), dy); },
          x.values());
      run(*stream, c, grad, table, positions, true);
      test::expect_near(grad, expected, 1e-6, 1e-6, "gradient");
    }
  });
}

TEST(Rope, HasTheSameBitsOnAnyThreadsAndInstructionSet) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const RopeCase c = {211, 4, 50, 38, dtype};
    test::expect_same_bits_everywhere([&](Stream& stream) {
      Rng rng(7);
      Matrix data(c.dtype, c.rows, c.heads * c.head_dim);
      data.fill_normal(rng);
      Matrix table = make_table(c.rotary_dim);
      auto positions = make_positions(c.rows);
      run(stream, c, data, table, positions, false);
      return data;
    });
  }
}

TEST(Rope, TurnsAColumnRangeOfAFusedTensorOnly) {
  test::TestStream stream;
  const RopeCase c = {4, 2, 16, 16, DType::kF32};
  Rng rng(8);
  Matrix fused(DType::kF32, c.rows, 3 * 32);
  fused.fill_normal(rng);
  const Matrix before = fused;
  Matrix table = make_table(16);
  auto positions = make_positions(c.rows);
  Rope args;
  args.data = fused.view().column_range(32, 64);
  args.positions = test::view_of(positions);
  args.cos_sin = table.view();
  args.head_dim = args.rotary_dim = 16;
  rope(*stream, args);
  for (int64_t t = 0; t < c.rows; ++t) {
    for (int64_t i = 0; i < 96; ++i) {
      if (i >= 32 && i < 64) continue;
      EXPECT_EQ(fused.get(t, i), before.get(t, i));
    }
  }
  EXPECT_NE(fused.get(1, 32), before.get(1, 32));
}

}  // namespace
}  // namespace jige::ops
