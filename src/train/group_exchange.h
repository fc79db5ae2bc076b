// GroupExchange: rows of attention between ranks that have a part of every sequence each, as
// messages of a group (model/context_exchange.h). Who needs no row of a rank gets none.
//
// Invariant: two ranks send to one another and receive in the same order, that of tensors and of
// rows. Threads: one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "comm/async_group.h"
#include "model/context_exchange.h"

namespace jige::train {

class GroupExchange final : public model::ContextExchange {
 public:
  // The group must outlive the exchange.
  explicit GroupExchange(comm::AsyncGroup& group) : group_(&group) {}

  // What rows belong to from here on. REQUIRES: as many ranks as the group has.
  void begin(model::ContextSplit split);
  const model::ContextSplit& split() const { return split_; }

  int64_t row_count() const override { return split_.row_count(); }
  const std::vector<ops::SequencePiece>& pieces() const override { return pieces_; }
  void bring(Stream& stream, model::ContextNeed need,
             std::span<const model::DividedRows> tensors) override;

  // The first error; then nothing is brought any more.
  const Status& status() const { return status_; }
  // Since the beginning: time in which nothing was computed for lack of rows, and bytes sent.
  double wait_s() const { return wait_s_; }
  int64_t sent_bytes() const { return sent_bytes_; }

 private:
  struct Rows {
    std::vector<model::RowRange> sent, received;
  };
  const Rows& rows_with(int rank, model::ContextNeed need) const {
    return rows_[static_cast<size_t>(need)][static_cast<size_t>(rank)];
  }

  comm::AsyncGroup* group_;
  model::ContextSplit split_;
  std::vector<ops::SequencePiece> pieces_;
  std::array<std::vector<Rows>, 2> rows_;  // by need and rank
  Status status_;
  double wait_s_ = 0;
  int64_t sent_bytes_ = 0;
};

}  // namespace jige::train
