// A paged cache for tests, attention over it step by step, and what its rows are in 8 bits.
// Threads: none.
#pragma once

#include <algorithm>
#include <cmath>

#include "ops/attention_test_support.h"

namespace jige::ops::attention_test {

// A cache whose blocks are handed out in random order and start as NaN.
class Cache {
 public:
  Cache(DType dtype, const AttentionShape& shape, const std::vector<int>& lengths, uint64_t seed) {
    std::vector<int32_t> free_blocks;
    int64_t needed = 7;  // some that nobody owns
    for (const int length : lengths) needed += (length + 15) / 16;
    free_blocks.resize(static_cast<size_t>(needed));
    std::iota(free_blocks.begin(), free_blocks.end(), 0);
    Rng rng(derive_key(seed, "blocks"));
    rng.shuffle(std::span<int32_t>(free_blocks));
    for (const int length : lengths) {
      blocks_.emplace_back();
      for (int i = 0; i < (length + 15) / 16; ++i) {
        blocks_.back().push_back(free_blocks.back());
        free_blocks.pop_back();
      }
    }
    data_.resize(
        static_cast<size_t>(kv_cache_bytes(dtype, needed, shape.kv_head_count, shape.head_dim)));
    std::memset(data_.data(), 0xff, data_.size());
    view_ = {data_.data(), dtype, needed, shape.kv_head_count, shape.head_dim};
  }
  const KvCacheView& view() const { return view_; }
  std::vector<int32_t>& blocks(size_t sequence) { return blocks_[sequence]; }
  float at(int64_t element) const {
    if (view_.dtype == DType::kF32) return static_cast<const float*>(view_.data)[element];
    return to_float(static_cast<const BFloat16*>(view_.data)[element]);
  }
  // Overwrites a block with NaN.
  void ruin(int32_t block) {
    const int64_t bytes = kv_cache_bytes(view_.dtype, 1, view_.kv_head_count, view_.head_dim);
    std::memset(data_.data() + block * bytes, 0xff, static_cast<size_t>(bytes));
  }

 private:
  std::vector<char> data_;
  std::vector<std::vector<int32_t>> blocks_;
  KvCacheView view_;
};

// Runs steps in which sequence i takes chunks(i, done) tokens, until all are done; the steps' rows
// are packed in order of the sequences.
template <typename Chunks>
Matrix run_in_chunks(Machine& machine, Inputs& in, Cache& cache, DType dst_dtype, Chunks chunks) {
  Matrix dst(dst_dtype, in.rows(), in.q.columns());
  std::vector<int> done(in.lengths.size(), 0);
  while (done != in.lengths) {
    std::vector<SequenceSpan> sequences;
    std::vector<int64_t> source_rows;
    int64_t first_row = 0;
    for (size_t i = 0; i < in.lengths.size(); ++i) {
      const int count = std::min(chunks(i, done[i]), in.lengths[i] - done[i]);
      sequences.push_back(
          {static_cast<int32_t>(source_rows.size()), count, done[i], cache.blocks(i).data()});
      for (int r = 0; r < count; ++r) source_rows.push_back(first_row + done[i] + r);
      done[i] += count;
      first_row += in.lengths[i];
    }
    const int64_t rows = static_cast<int64_t>(source_rows.size());
    Matrix q(in.q.view().dtype, rows, in.q.columns(), 4);
    Matrix k(in.k.view().dtype, rows, in.k.columns());
    Matrix v(in.v.view().dtype, rows, in.v.columns(), 8);
    Matrix out(dst_dtype, rows, in.q.columns());
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t from = source_rows[static_cast<size_t>(r)];
      for (int64_t c = 0; c < in.q.columns(); ++c) q.set(r, c, in.q.get(from, c));
      for (int64_t c = 0; c < in.k.columns(); ++c) k.set(r, c, in.k.get(from, c));
      for (int64_t c = 0; c < in.k.columns(); ++c) v.set(r, c, in.v.get(from, c));
    }
    kv_append(*machine.stream, cache.view(), k.view(), v.view(), sequences);
    attention_cached(*machine.stream, {out.view(), q.view(), cache.view(), sequences, in.shape});
    machine.stream->synchronize();
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < in.q.columns(); ++c) {
        dst.set(source_rows[static_cast<size_t>(r)], c, out.get(r, c));
      }
    }
  }
  return dst;
}

// A row in 8 bits, one number after another.
struct PlainRow {
  float scale = 0;
  std::vector<int> numbers;
};

inline PlainRow plain_row(const std::vector<float>& row) {
  float largest = 0;
  for (const float x : row) largest = std::max(largest, std::abs(x));
  const float least = largest / 127.0f;
  BFloat16 scale{0};
  while (to_float(scale) < least) ++scale.bits;  // the positive ones in ascending order
  PlainRow result{to_float(scale), {}};
  for (const float x : row) {
    result.numbers.push_back(
        result.scale == 0 ? 0 : static_cast<int>(std::nearbyint(x / result.scale)));
  }
  return result;
}

inline std::vector<float> row_of_head(const Matrix& from, int64_t row, int64_t head, int64_t dim) {
  std::vector<float> values;
  for (int64_t c = 0; c < dim; ++c) values.push_back(from.get(row, head * dim + c));
  return values;
}

// The keys or values that a cache in 8 bits stands for.
inline Matrix rounded(const Matrix& from, int64_t dim) {
  Matrix result(DType::kF32, from.rows(), from.columns());
  for (int64_t row = 0; row < from.rows(); ++row) {
    for (int64_t head = 0; head < from.columns() / dim; ++head) {
      const PlainRow plain = plain_row(row_of_head(from, row, head, dim));
      for (int64_t c = 0; c < dim; ++c) {
        result.set(row, head * dim + c,
                   plain.scale * static_cast<float>(plain.numbers[static_cast<size_t>(c)]));
      }
    }
  }
  return result;
}

}  // namespace jige::ops::attention_test
