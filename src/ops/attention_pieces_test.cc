// Attention of pieces of sequences: the bits of whole sequences, whatever stands in rows that do
// not count.
#include <gtest/gtest.h>

#include <limits>

#include "base/cpu.h"
#include "ops/attention.h"
#include "ops/attention_test_support.h"

namespace jige::ops::attention_test {
namespace {

// Cuts the sequences at random and takes some of the parts.
std::vector<SequencePiece> random_pieces(const std::vector<int>& lengths, Rng& rng) {
  std::vector<SequencePiece> pieces;
  int32_t begin = 0;
  int32_t here = 0;
  for (const int length : lengths) {
    for (int32_t position = 0; position < length;) {
      const auto count =
          static_cast<int32_t>(1 + rng.below(static_cast<uint64_t>(length - position)));
      if (rng.below(2) == 0) {
        pieces.push_back({here, count, position, begin, length});
        here += count;
      }
      position += count;
    }
    begin += length;
  }
  return pieces;
}

int64_t rows_of(const std::vector<SequencePiece>& pieces) {
  return pieces.empty() ? 0 : pieces.back().row_begin + pieces.back().row_count;
}

// The rows of whole sequences for which `counts` says so of some piece; the others are NaN.
template <typename Counts>
Matrix rows_that_count(const Matrix& whole, const std::vector<SequencePiece>& pieces,
                       const Counts& counts) {
  Matrix result(DType::kF32, 0, 0);
  result = whole;
  for (int64_t row = 0; row < whole.rows(); ++row) {
    const bool any = std::ranges::any_of(pieces, [&](const SequencePiece& piece) {
      const int64_t at = row - piece.whole_begin;
      return at >= 0 && at < piece.whole_count && counts(piece, at);
    });
    for (int64_t c = 0; c < whole.columns() && !any; ++c) {
      result.set(row, c, std::numeric_limits<float>::quiet_NaN());
    }
  }
  return result;
}

Matrix own_rows(const Matrix& whole, const std::vector<SequencePiece>& pieces, DType dtype) {
  Matrix result(dtype, rows_of(pieces), whole.columns(), 2);
  for (const SequencePiece& piece : pieces) {
    for (int32_t i = 0; i < piece.row_count; ++i) {
      const int64_t row = piece.whole_begin + piece.position + i;
      for (int64_t c = 0; c < whole.columns(); ++c) {
        result.set(piece.row_begin + i, c, whole.get(row, c));
      }
    }
  }
  return result;
}

bool same_as_whole(const Matrix& own, const Matrix& whole,
                   const std::vector<SequencePiece>& pieces) {
  return std::ranges::all_of(pieces, [&](const SequencePiece& piece) {
    return own.same_rows(piece.row_begin, whole, piece.whole_begin + piece.position,
                         piece.row_count);
  });
}

void expect_bits_of_whole(const InputOptions& options, int threads, uint64_t seed) {
  Machine machine(threads);
  Inputs in = make_inputs(options);
  const DType type = options.q_dtype;
  Matrix grad_dst = make_grad_dst(in, type);
  ForwardResult whole = forward(machine, in, type);
  const Gradients expected = backward(machine, in, whole, grad_dst, type);
  Rng rng(seed);
  const std::vector<SequencePiece> pieces = random_pieces(in.lengths, rng);
  if (pieces.empty()) return;

  const auto seen = [](const SequencePiece& piece, int64_t at) {
    return at < piece.position + piece.row_count;
  };
  const auto sees = [](const SequencePiece& piece, int64_t at) {
    return at >= first_query_row(piece);
  };
  Matrix k = rows_that_count(in.k, pieces, seen);
  Matrix v = rows_that_count(in.v, pieces, seen);
  Matrix own_q = own_rows(in.q, pieces, type);
  ForwardResult result{Matrix(type, own_q.rows(), in.q.columns(), 2),
                       Matrix(DType::kF32, own_q.rows(), in.shape.head_count, 1)};
  AttentionForward args{result.dst.view(), own_q.view(), k.view(), v.view(),
                        result.lse.view(), {},           in.shape};
  for (const SequencePiece& piece : pieces) {
    args.sequences.push_back({piece.row_begin, piece.row_count, piece.position});
    args.key_begins.push_back(piece.whole_begin);
  }
  attention_forward(*machine.stream, args);
  Matrix q = rows_that_count(in.q, pieces, sees);
  Matrix dst = rows_that_count(whole.dst, pieces, sees);
  Matrix lse = rows_that_count(whole.lse, pieces, sees);
  Matrix grad = rows_that_count(grad_dst, pieces, sees);
  Gradients grads{Matrix(type, own_q.rows(), in.q.columns(), 1),
                  Matrix(type, own_q.rows(), in.k.columns(), 2),
                  Matrix(type, own_q.rows(), in.k.columns(), 3)};
  attention_backward_pieces(*machine.stream, {.grad_q = grads.q.view(),
                                              .grad_k = grads.k.view(),
                                              .grad_v = grads.v.view(),
                                              .grad_dst = grad.view(),
                                              .q = q.view(),
                                              .k = k.view(),
                                              .v = v.view(),
                                              .dst = dst.view(),
                                              .lse = lse.view(),
                                              .pieces = pieces,
                                              .shape = in.shape});
  machine.stream->synchronize();
  EXPECT_TRUE(same_as_whole(result.dst, whole.dst, pieces));
  EXPECT_TRUE(same_as_whole(result.lse, whole.lse, pieces));
  EXPECT_TRUE(same_as_whole(grads.q, expected.q, pieces));
  EXPECT_TRUE(same_as_whole(grads.k, expected.k, pieces));
  EXPECT_TRUE(same_as_whole(grads.v, expected.v, pieces));
}

TEST(AttentionPieces, HaveTheBitsOfWholeSequencesOnEveryInstructionSet) {
  const Isa before = active_isa();
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      for (const int64_t window : {0, 1, 50}) {
        SCOPED_TRACE(fmt::format("seed {}, window {}", seed, window));
        expect_bits_of_whole({.heads = 4,
                              .kv_heads = seed % 2 == 0 ? 2 : 4,
                              .dim = 12,
                              .window = window,
                              .lengths = {130, 1, 63, 0, 200},
                              .seed = seed},
                             seed % 3 == 0 ? 3 : 1, seed);
      }
    }
  }
  set_active_isa(before);
}

TEST(AttentionPieces, HaveTheBitsOfWholeSequencesInBf16UnderACapAndOverSplits) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    expect_bits_of_whole({.heads = 6,
                          .kv_heads = 2,
                          .dim = 17,
                          .lengths = {70, 133, 1},
                          .q_dtype = DType::kBF16,
                          .kv_dtype = DType::kBF16,
                          .seed = seed,
                          .cap = 3},
                         2, seed);
    expect_bits_of_whole({.heads = 1, .dim = 5, .lengths = {1100}, .seed = seed, .cap = 20}, 2,
                         seed);
  }
}

}  // namespace
}  // namespace jige::ops::attention_test
