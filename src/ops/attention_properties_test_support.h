// What attention must hold by whatever kernel it runs, as checks that the tests of vectors and of
// matrix tiles share: large scores, what a row does not see, and the same bits under packing,
// threads, chunks and the ways to cut the work.
// Threads: none.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "base/cpu.h"
#include "ops/attention_cache_test_support.h"

namespace jige::ops::attention_test {

// Where products are of bf16: every weight is off by up to 2^-8 of itself by its rounding, and by
// 3e-6 by the exponential. lse may be null.
inline void expect_near_definition_in_bf16(Definition& definition, const Matrix& dst,
                                           const Matrix* lse) {
  const Inputs& in = definition.inputs();
  int64_t row = 0;
  for (const int length : in.lengths) {
    for (int64_t head = 0; head < in.shape.head_count; ++head) {
      const Oracle& o = definition.of({row, length, head});
      HeadInputs inputs(in, {row, length, head});
      for (double& value : inputs.v) value = std::abs(value);
      for (int64_t i = 0; i < length; ++i) {
        if (lse) {
          ASSERT_NEAR(lse->get(row + i, head), o.lse[static_cast<size_t>(i)], 2e-5)
              << "row " << row + i << " head " << head;
        }
        std::vector<double> magnitudes(static_cast<size_t>(o.dim), 0.0);
        for (int64_t j = 0; j < length; ++j) {
          const double weight = o.weights[static_cast<size_t>(i * length + j)];
          if (weight == 0) continue;
          add_scaled(magnitudes.data(), inputs.v.data() + j * o.dim, weight, o.dim);
        }
        for (int64_t c = 0; c < o.dim; ++c) {
          ASSERT_NEAR(dst.get(row + i, head * o.dim + c), o.dst[static_cast<size_t>(i * o.dim + c)],
                      magnitudes[static_cast<size_t>(c)] * 0x1.02p-8 + 1e-6)
              << "row " << row + i << " head " << head << " column " << c;
        }
      }
    }
    row += length;
  }
}

inline void expect_large_scores_do_not_overflow(Inputs in) {
  in.shape.scale = 100;
  Machine machine;
  const ForwardResult result = forward(machine, in);
  const int64_t rows = in.rows();
  const Oracle o = oracle_forward(in, {0, rows, 0});
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t c = 0; c < o.dim; ++c) {
      // Scores reach thousands: an error of one unit in their last place shows in the weights.
      EXPECT_NEAR(result.dst.get(i, c), o.dst[static_cast<size_t>(i * o.dim + c)], 2e-2);
    }
  }
}

inline void expect_a_not_a_number_query_stays_one(Inputs in) {
  in.q.set(7, 3, std::nanf(""));
  Machine machine;
  const ForwardResult result = forward(machine, in);
  for (int64_t row = 0; row < in.rows(); ++row) {
    for (int64_t c = 0; c < in.q.columns(); ++c) {
      EXPECT_EQ(std::isnan(result.dst.get(row, c)), row == 7 && c < in.shape.head_dim);
    }
  }
}

// One sequence of at least 300 rows under a window.
inline void expect_unseen_rows_leave_no_trace(Inputs in) {
  Machine machine;
  const ForwardResult expected = forward(machine, in);
  for (const int64_t row : {0, 5, 15, 63, 64, 100, 299}) {
    Inputs other = in;
    const KeyRange seen = seen_keys(in.shape, row, in.rows());
    for (int64_t j = 0; j < in.rows(); ++j) {
      if (seen.begin <= j && j < seen.end) continue;
      for (int64_t c = 0; c < in.k.columns(); ++c) {
        other.k.set(j, c, std::nanf(""));
        other.v.set(j, c, c % 2 ? std::nanf("") : INFINITY);
      }
      for (int64_t c = 0; c < in.q.columns(); ++c) other.q.set(j, c, std::nanf(""));
    }
    const ForwardResult result = forward(machine, other);
    EXPECT_TRUE(result.dst.same_rows(row, expected.dst, row, 1)) << row;
    EXPECT_TRUE(result.lse.same_rows(row, expected.lse, row, 1)) << row;
  }
}

// The sequence that begins at the row, without the others.
inline Inputs one_sequence(const Inputs& in, int64_t row, int length) {
  Inputs alone = in;
  alone.lengths = {length};
  alone.q = in.q.rows_copy(row, length);
  alone.k = in.k.rows_copy(row, length);
  alone.v = in.v.rows_copy(row, length);
  return alone;
}

inline void expect_the_same_bits_packed_or_alone(Inputs in) {
  Machine one;
  const ForwardResult expected = forward(one, in);
  for (const int threads : {2, 3}) {
    Machine machine(threads, true);
    const ForwardResult result = forward(machine, in);
    EXPECT_TRUE(result.dst.same_rows(0, expected.dst, 0, in.rows())) << threads;
    EXPECT_TRUE(result.lse.same_rows(0, expected.lse, 0, in.rows())) << threads;
  }
  int64_t row = 0;
  for (const int length : in.lengths) {
    Inputs alone = one_sequence(in, row, length);
    Machine machine(3);
    const ForwardResult result = forward(machine, alone);
    EXPECT_TRUE(result.dst.same_rows(0, expected.dst, row, length)) << length;
    EXPECT_TRUE(result.lse.same_rows(0, expected.lse, row, length)) << length;
    row += length;
  }
}

// Gradients of a dst of the type.
inline void expect_the_same_gradients_packed_or_alone(Inputs in, DType dst_dtype) {
  Matrix grad_dst = make_grad_dst(in, dst_dtype);
  Machine one;
  ForwardResult result = forward(one, in, dst_dtype);
  const Gradients expected = backward(one, in, result, grad_dst);
  for (const int threads : {2, 3}) {
    Machine machine(threads, true);
    const Gradients grads = backward(machine, in, result, grad_dst);
    EXPECT_TRUE(grads.same_rows(0, expected, 0, in.rows())) << threads;
  }
  int64_t row = 0;
  for (const int length : in.lengths) {
    Inputs alone = one_sequence(in, row, length);
    ForwardResult alone_result{result.dst.rows_copy(row, length),
                               result.lse.rows_copy(row, length)};
    Matrix alone_grad_dst = grad_dst.rows_copy(row, length);
    for (const int threads : {1, 4}) {
      Machine machine(threads);
      const Gradients grads = backward(machine, alone, alone_result, alone_grad_dst);
      EXPECT_TRUE(grads.same_rows(0, expected, row, length)) << length << " " << threads;
    }
    row += length;
  }
}

// What the cache gives: the bits of flat attention, or, in 8 bits, those of one piece on one
// thread.
inline Matrix expected_of_cache(Inputs& in, DType cache_dtype, DType dst_dtype = DType::kF32) {
  Machine machine;
  if (cache_dtype != DType::kI8) return forward(machine, in, dst_dtype).dst;
  Cache cache(cache_dtype, in.shape, in.lengths, 4);
  return run_in_chunks(machine, in, cache, dst_dtype, [](size_t, int) { return 1 << 20; });
}

// A cache filled in chunks of random length.
inline void expect_the_same_bits_in_random_chunks(Inputs in, DType cache_dtype, DType dst_dtype,
                                                  Rng& rng) {
  const Matrix expected = expected_of_cache(in, cache_dtype, dst_dtype);
  for (const int threads : {1, 2, 3}) {
    Machine machine(threads, threads == 3);
    Cache cache(cache_dtype, in.shape, in.lengths, 5);
    const Matrix dst = run_in_chunks(machine, in, cache, dst_dtype, [&](size_t, int) {
      return static_cast<int>(rng.below(4) == 0 ? 1 + rng.below(100) : rng.below(30));
    });
    EXPECT_TRUE(dst.same_rows(0, expected, 0, in.rows())) << threads << " threads";
  }
}

// The last tokens one by one, the prompts in pieces of 500: the two meet in one step.
inline void expect_the_same_bits_of_decodes_among_prompts(Inputs in, DType cache_dtype) {
  const Matrix expected = expected_of_cache(in, cache_dtype);
  for (const int threads : {1, 2, 3}) {
    Machine machine(threads);
    Cache cache(cache_dtype, in.shape, in.lengths, 8);
    const Matrix dst = run_in_chunks(machine, in, cache, DType::kF32, [&](size_t i, int done) {
      return in.lengths[i] - done <= 6 ? 1 : std::min(500, in.lengths[i] - 6 - done);
    });
    EXPECT_TRUE(dst.same_rows(0, expected, 0, in.rows())) << threads;
  }
}

// One sequence of 1200 rows under a window, whose blocks are given back as the window leaves them.
inline void expect_blocks_before_the_window_may_be_gone(Inputs in, DType cache_dtype) {
  Machine machine(2);
  Cache cache(cache_dtype, in.shape, in.lengths, 10);
  const Matrix expected = expected_of_cache(in, cache_dtype);
  const Matrix dst = run_in_chunks(machine, in, cache, DType::kF32, [&](size_t, int done) {
    for (int i = 0; (i + 1) * 16 <= done - in.shape.window + 1; ++i) {
      int32_t& block = cache.blocks(0)[static_cast<size_t>(i)];
      if (block >= 0) cache.ruin(block);
      block = -1;
    }
    return done < 1150 ? 77 : 1;
  });
  EXPECT_TRUE(dst.same_rows(0, expected, 0, in.rows()));
}

// Runs the body with every instruction set that this processor has.
template <typename Body>
void on_all_isas(Body&& body) {
  const Isa before = active_isa();
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    SCOPED_TRACE(isa_name(isa));
    body();
  }
  set_active_isa(before);
}

// Forward in f32, results to `tolerance` and sums of exponentials to twice that.
inline void expect_near_definition_in_f32(Inputs& in, Definition& definition,
                                          double tolerance = 1e-5) {
  Machine machine(2);
  const ForwardResult result = forward(machine, in);
  int64_t row = 0;
  for (const int length : in.lengths) {
    for (int64_t head = 0; head < in.shape.head_count; ++head) {
      const Oracle& o = definition.of({row, length, head});
      for (int64_t i = 0; i < length; ++i) {
        ASSERT_NEAR(result.lse.get(row + i, head), o.lse[static_cast<size_t>(i)], 2 * tolerance)
            << "row " << i << " of " << length;
        for (int64_t c = 0; c < o.dim; ++c) {
          const double expected = o.dst[static_cast<size_t>(i * o.dim + c)];
          ASSERT_NEAR(result.dst.get(row + i, head * o.dim + c), expected,
                      tolerance * std::max(1.0, std::abs(expected)))
              << "row " << i << " of " << length << " column " << c;
        }
      }
    }
    row += length;
  }
}

}  // namespace jige::ops::attention_test
