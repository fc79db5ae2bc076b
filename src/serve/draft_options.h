// Whether tokens are guessed ahead, how many, and from what.
//
// Threads: values.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace jige::serve {

inline constexpr int32_t kDraftTokensMax = 64;  // of one draft
// With the token before them as many rows of logits as a model has unless more are asked for.
inline constexpr int32_t kDraftTokensAuto = 7;  // where costs decide

struct DraftOptions {
  int32_t tokens_max = 0;  // of a draft; 0: none are made
  // As many as are worth it (plan/guess_policy.h); else every draft is as long as it may be.
  bool adaptive = true;
  // Of what there is to guess from.
  bool forced = true;  // what rules make certain
  bool copied = true;  // what the text repeats
  bool model = true;   // the draft model, where there is one
  bool operator==(const DraftOptions&) const = default;
};
// "0..64" is what tokens_max may be. Fails with kInvalidArgument.
Status validate(const DraftOptions& options);

}  // namespace jige::serve
