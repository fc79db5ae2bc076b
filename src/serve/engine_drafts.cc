#include "serve/engine_drafts.h"

#include <algorithm>
#include <utility>

namespace jige::serve {

EngineDrafts::EngineDrafts(const DraftOptions& options, int64_t sequences, int64_t tokens_max,
                           int64_t sample_rows_max)
    : options_(options), sample_rows_max_(sample_rows_max) {
  if (!enabled()) return;
  for (int64_t i = 0; i < sequences; ++i) {
    free_.push_back(std::make_unique<Speculator>(tokens_max));
  }
}

int64_t EngineDrafts::bytes_for(const DraftOptions& options, int64_t sequences,
                                int64_t tokens_max) {
  return options.tokens_max > 0 ? sequences * Speculator::bytes_for(tokens_max) : 0;
}

void EngineDrafts::follow(plan::RequestId sequence, const TokenSequence& tokens,
                          int64_t tokens_left) {
  if (!enabled()) return;
  ++sequences_;
  auto found = used_.find(sequence);
  if (found == used_.end()) {
    if (free_.empty()) return;
    found = used_.emplace(sequence, std::move(free_.back())).first;
    free_.pop_back();
    found->second->clear();
  }
  Speculator& speculator = *found->second;
  speculator.follow(tokens);
  // What is run together is followed by one token more.
  const int64_t room = std::min(tokens_left, sample_rows_max_) - 1;
  followed_.push_back({sequence, &speculator, tokens});
  wishes_.push_back(
      speculator.wish(static_cast<int32_t>(std::clamp<int64_t>(room, 0, options_.tokens_max))));
}

void EngineDrafts::forget(plan::RequestId sequence) {
  const auto found = used_.find(sequence);
  if (found == used_.end()) return;
  free_.push_back(std::move(found->second));
  used_.erase(found);
}

void EngineDrafts::decide(const Tell& tell) {
  const int64_t room = sample_rows_max_ - sequences_;
  if (options_.adaptive) {
    share_step(wishes_, cost_, sequences_, room);
  } else {
    int64_t left = std::max<int64_t>(room, 0);
    for (DraftWish& wish : wishes_) {
      wish.count = static_cast<int32_t>(std::min<int64_t>(left, wish.count_max));
      left -= wish.count;
    }
  }
  for (size_t i = 0; i < followed_.size(); ++i) {
    if (wishes_[i].count == 0) continue;
    const Followed& one = followed_[i];
    tell(one.sequence, one.speculator->draft(one.tokens, wishes_[i].count));
  }
  sequences_ = 0;
  followed_.clear();
  wishes_.clear();
}

}  // namespace jige::serve
