#include "train/group_exchange.h"

#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "ops/elementwise.h"

namespace jige::train {
namespace {

constexpr uint64_t kRowsTag = 0x726f7773;  // "rows", beside the numbers of gradients

std::span<std::byte> bytes_of_rows(const TensorView& whole, const model::RowRange& range) {
  const TensorView rows = whole.row_range(range.begin, range.end);
  return {static_cast<std::byte*>(rows.data),
          static_cast<size_t>(dtype_bytes(rows.dtype, rows.count()))};
}

void copy_own(Stream& stream, const model::ContextSplit& split, int rank,
              const model::DividedRows& tensor) {
  int64_t here = 0;
  for (const model::RowRange& range : split.rows(rank)) {
    if (range.count() > 0) {
      ops::scale(stream, tensor.whole.row_range(range.begin, range.end),
                 tensor.own.row_range(here, here + range.count()), 1.0f);
    }
    here += range.count();
  }
}

}  // namespace

void GroupExchange::begin(model::ContextSplit split) {
  JIGE_CHECK(split.ranks() == group_->size(), "rows of {} ranks among {}", split.ranks(),
             group_->size());
  split_ = std::move(split);
  pieces_ = split_.pieces(group_->rank());
  for (const auto need : {model::ContextNeed::kKeys, model::ContextNeed::kQueries}) {
    std::vector<Rows>& rows = rows_[static_cast<size_t>(need)];
    rows.clear();
    for (int other = 0; other < group_->size(); ++other) {
      rows.push_back({.sent = split_.given(group_->rank(), other, need),
                      .received = split_.given(other, group_->rank(), need)});
    }
  }
}

void GroupExchange::bring(Stream& stream, model::ContextNeed need,
                          std::span<const model::DividedRows> tensors) {
  if (!status_) return;
  for (const model::DividedRows& tensor : tensors) {
    JIGE_CHECK(tensor.whole.contiguous(), "rows of others that are not one memory");
    copy_own(stream, split_, group_->rank(), tensor);
  }
  stream.synchronize();
  const StopWatch watch;
  std::vector<comm::Pending> moving;
  for (int other = 0; other < group_->size(); ++other) {
    const Rows& rows = rows_with(other, need);
    for (const model::DividedRows& tensor : tensors) {
      for (const model::RowRange& range : rows.sent) {
        const std::span<std::byte> bytes = bytes_of_rows(tensor.whole, range);
        moving.push_back(group_->send(other, bytes, kRowsTag));
        sent_bytes_ += static_cast<int64_t>(bytes.size());
      }
      for (const model::RowRange& range : rows.received) {
        moving.push_back(group_->receive(other, bytes_of_rows(tensor.whole, range), kRowsTag));
      }
    }
  }
  for (const comm::Pending& one : moving) {
    if (Status done = one.wait(); !done && status_) status_ = std::move(done);
  }
  wait_s_ += watch.seconds();
}

}  // namespace jige::train
