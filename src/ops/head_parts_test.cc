#include "ops/head_parts.h"

#include <fmt/format.h>

#include "ops/testing.h"

namespace jige::ops {
namespace {

using test::Matrix;
using test::Values;

struct PartsCase {
  int64_t rows, heads, own, shared, value;
  DType dtype;
  int64_t width() const { return own + shared; }
  int64_t part() const { return own + value; }
};

std::vector<PartsCase> parts_cases() {
  std::vector<PartsCase> all;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    all.push_back({5, 3, 8, 4, 6, dtype});
    all.push_back({4, 2, 12, 8, 20, dtype});  // values as wide as keys
    all.push_back({3, 1, 128, 64, 128, dtype});
    all.push_back({7, 4, 33, 18, 17, dtype});
    all.push_back({2, 3, 0, 6, 5, dtype});
    all.push_back({0, 3, 8, 4, 6, dtype});
  }
  return all;
}

struct Joined {
  Values keys, values;
};
Joined join_reference(const PartsCase& c, const Values& parts, const Values& shared) {
  Joined out{Values(static_cast<size_t>(c.rows * c.heads * c.width())),
             Values(static_cast<size_t>(c.rows * c.heads * c.width()))};
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  for (int64_t t = 0; t < c.rows; ++t) {
    for (int64_t h = 0; h < c.heads; ++h) {
      const int64_t to = (t * c.heads + h) * c.width();
      const int64_t from = (t * c.heads + h) * c.part();
      for (int64_t i = 0; i < c.own; ++i) out.keys[at(to + i)] = parts[at(from + i)];
      for (int64_t i = 0; i < c.shared; ++i) {
        out.keys[at(to + c.own + i)] = shared[at(t * c.shared + i)];
      }
      for (int64_t i = 0; i < c.value; ++i) out.values[at(to + i)] = parts[at(from + c.own + i)];
    }
  }
  return out;
}

// Operands in a tensor each, with gaps between rows.
struct Operands {
  Matrix keys, values, parts, shared;

  explicit Operands(const PartsCase& c)
      : keys(c.dtype, c.rows, c.heads * c.width()),
        values(c.dtype, c.rows, c.heads * c.width()),
        parts(c.dtype, c.rows, c.heads * c.part()),
        shared(c.dtype, c.rows, c.shared) {}
  HeadParts args(const PartsCase& c) {
    return {.keys = keys.view(),
            .values = values.view(),
            .parts = parts.view(),
            .shared = shared.view(),
            .head_count = c.heads,
            .value_columns = c.value};
  }
};

std::string name_of(const PartsCase& c) {
  return fmt::format("{} heads of {} + {}, values of {}", c.heads, c.own, c.shared, c.value);
}

TEST(HeadParts, AreJoinedWithZerosBehindValues) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const PartsCase& c : parts_cases()) {
      Rng rng(5);
      Operands operands(c);
      operands.parts.fill_normal(rng);
      operands.shared.fill_normal(rng);
      const Joined expected = join_reference(c, operands.parts.values(), operands.shared.values());
      join_heads(*stream, operands.args(c));
      test::expect_near(operands.keys, expected.keys, 0, 0, name_of(c));
      test::expect_near(operands.values, expected.values, 0, 0, name_of(c));
    }
  });
}

TEST(HeadParts, BackwardIsTheGradient) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const PartsCase& c : parts_cases()) {
      Rng rng(6);
      Operands gradients(c);
      const Values dk = gradients.keys.fill_normal(rng).values();
      const Values dv = gradients.values.fill_normal(rng).values();
      const Values parts = Operands(c).parts.fill_normal(rng).values();
      const Values shared = Operands(c).shared.fill_normal(rng).values();
      const auto total = [&](const Values& at_parts, const Values& at_shared) {
        const Joined joined = join_reference(c, at_parts, at_shared);
        return test::dot(joined.keys, dk) + test::dot(joined.values, dv);
      };
      const Values expected_parts =
          test::finite_difference([&](const Values& at) { return total(at, shared); }, parts);
      const Values expected_shared =
          test::finite_difference([&](const Values& at) { return total(parts, at); }, shared);
      join_heads_backward(*stream, gradients.args(c));
      test::expect_near(gradients.parts, expected_parts, 1e-6, 1e-6, name_of(c));
      test::expect_near(gradients.shared, expected_shared, 1e-6, 1e-6, name_of(c));
    }
  });
}

TEST(HeadParts, HaveTheSameBitsOnAnyThreadsAndInstructionSet) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const PartsCase c = {211, 5, 40, 24, 32, dtype};
    test::expect_same_bits_everywhere([&](Stream& stream) {
      Rng rng(7);
      Operands gradients(c);
      gradients.keys.fill_normal(rng);
      gradients.values.fill_normal(rng);
      join_heads_backward(stream, gradients.args(c));
      return std::pair(gradients.parts, gradients.shared);
    });
  }
}

TEST(FitHeads, CutsOrAddsZeros) {
  test::TestStream stream;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto& [from, to] : {std::pair(6, 10), std::pair(10, 6), std::pair(7, 7)}) {
      Rng rng(8);
      Matrix src(dtype, 5, 3 * from);
      src.fill_normal(rng);
      Matrix dst(dtype, 5, 3 * to);
      fit_heads(*stream, {.dst = dst.view(), .src = src.view(), .head_count = 3});
      Values expected;
      for (int64_t t = 0; t < 5; ++t) {
        for (int64_t h = 0; h < 3; ++h) {
          for (int64_t i = 0; i < to; ++i) {
            expected.push_back(i < from ? static_cast<double>(src.get(t, h * from + i)) : 0.0);
          }
        }
      }
      test::expect_near(dst, expected, 0, 0, fmt::format("{} to {}", from, to));
    }
  }
}

TEST(FitHeads, WritesTheLastColumnsOfHeadsAlone) {
  test::TestStream stream;
  Rng rng(9);
  Matrix src(DType::kBF16, 4, 3 * 7);
  src.fill_normal(rng);
  Matrix dst(DType::kBF16, 4, 3 * 9);
  dst.fill(5);
  fit_heads(
      *stream,
      {.dst = dst.view(), .src = src.view(), .head_count = 3, .dst_first = 6, .src_first = 4});
  Values expected;
  for (int64_t t = 0; t < 4; ++t) {
    for (int64_t h = 0; h < 3; ++h) {
      for (int64_t i = 0; i < 9; ++i) {
        expected.push_back(i < 6 ? 5.0 : static_cast<double>(src.get(t, h * 7 + 4 + i - 6)));
      }
    }
  }
  test::expect_near(dst, expected, 0, 0, "last columns");
}

}  // namespace
}  // namespace jige::ops
