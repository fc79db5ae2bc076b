// LentRows: rows of a forward that a program lends who holds layers in the same process, in place
// of sending them: they are read and written where they are (layer_group.h, layer_holder.h).
//
// Rows are taken in the order in which they were lent; the message that tells of them comes behind.
// Threads: any.
#pragma once

#include <deque>
#include <mutex>
#include <optional>

#include "tensor/view.h"

namespace jige::serve {

class LentRows {
 public:
  struct Rows {
    TensorView view;
    bool are_pinned = false;  // a GPU may copy from and to them
  };

  void lend(const Rows& rows) {
    const std::lock_guard lock(mutex_);
    rows_.push_back(rows);
  }
  std::optional<Rows> take() {
    const std::lock_guard lock(mutex_);
    if (rows_.empty()) return std::nullopt;
    const Rows first = rows_.front();
    rows_.pop_front();
    return first;
  }
  // Forgets those that nobody has taken.
  void clear() {
    const std::lock_guard lock(mutex_);
    rows_.clear();
  }

 private:
  std::mutex mutex_;
  std::deque<Rows> rows_;
};

}  // namespace jige::serve
