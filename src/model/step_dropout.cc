#include "model/step_dropout.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "base/check.h"
#include "base/rng.h"
#include "model/block.h"

namespace jige::model {
namespace {

// Rows of one subnetwork.
struct MemberRows {
  int64_t begin;
  int64_t end;
  uint64_t key;
};

std::vector<MemberRows> rows_by_member(const Batch& batch) {
  const StepDropout& dropout = batch.dropout;
  const auto count = std::ssize(dropout.members);
  JIGE_CHECK(count > 0 && dropout.token_count > 0, "{} subnetworks for a step of {} tokens", count,
             dropout.token_count);
  std::vector<MemberRows> all;
  int64_t last = -1;
  for (const ops::SequenceSpan& sequence : batch.sequences) {
    if (sequence.row_count == 0) continue;
    const int64_t place = dropout.token_begin + sequence.row_begin;
    const int64_t member = std::min(place * count / dropout.token_count, count - 1);
    const int64_t end = int64_t{sequence.row_begin} + sequence.row_count;
    if (member == last) {
      all.back().end = end;
      continue;
    }
    all.push_back({sequence.row_begin, end, dropout.members[static_cast<size_t>(member)]});
    last = member;
  }
  return all;
}

// The columns of `kept` of all blocks, chosen by a key.
std::vector<ops::KeptRun> choose_blocks(uint64_t key, int64_t kept, int64_t block_size,
                                        int64_t block_count) {
  std::vector<int64_t> blocks(static_cast<size_t>(block_count));
  std::iota(blocks.begin(), blocks.end(), int64_t{0});
  Rng(key).shuffle(std::span(blocks));
  blocks.resize(static_cast<size_t>(kept));
  std::ranges::sort(blocks);
  std::vector<ops::KeptRun> runs;
  for (const int64_t block : blocks) {
    const int64_t begin = block * block_size;
    if (!runs.empty() && runs.back().begin + runs.back().count == begin) {
      runs.back().count += block_size;
    } else {
      runs.push_back({begin, block_size});
    }
  }
  return runs;
}

}  // namespace

ops::Dropout adapter_dropout(const StepDropout& step) {
  return {.rate = step.adapter_rate, .key = step.key, .token_begin = step.token_begin};
}

int64_t kept_block_count(double block_rate, int64_t block_size, int64_t hidden_size) {
  const int64_t blocks = hidden_size / block_size;
  return blocks - std::llround(block_rate * static_cast<double>(blocks));
}

void drop(Stream& stream, const TensorView& dst, const TensorView& src, const Batch& batch,
          uint64_t site) {
  const StepDropout& dropout = batch.dropout;
  if (!dropout.pooled || dropout.rate == 0) {
    return ops::dropout(
        stream, dst, src,
        {.rate = dropout.rate, .key = dropout.key, .token_begin = dropout.token_begin}, site);
  }
  for (const MemberRows& rows : rows_by_member(batch)) {
    ops::dropout(stream, dst.row_range(rows.begin, rows.end), src.row_range(rows.begin, rows.end),
                 {.rate = dropout.rate, .key = rows.key, .one_mask = true}, site);
  }
}

std::optional<ops::KeptColumns> kept_columns(const Batch& batch, uint64_t site,
                                             int64_t hidden_size) {
  const StepDropout& dropout = batch.dropout;
  if (dropout.block_rate == 0) return std::nullopt;
  JIGE_CHECK(hidden_size % dropout.block_size == 0, "blocks of {} of a width of {}",
             dropout.block_size, hidden_size);
  const int64_t kept = kept_block_count(dropout.block_rate, dropout.block_size, hidden_size);
  JIGE_CHECK(kept > 0, "no block of {} stays", hidden_size);
  ops::KeptColumns columns{.size = hidden_size, .kept = kept * dropout.block_size, .rows = {}};
  for (const MemberRows& rows : rows_by_member(batch)) {
    columns.rows.push_back({rows.begin, rows.end,
                            choose_blocks(derive_key(rows.key, "blocks", site), kept,
                                          dropout.block_size, hidden_size / dropout.block_size)});
  }
  return columns;
}

}  // namespace jige::model
