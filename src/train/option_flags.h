// The flags of `jige train` by the options they set, so that messages name what the user can give.
//
// Options are named as in the identity and the log of a run (options.h), with their group:
// "schedule.warmup_steps". Tests of `cli` hold the flags against those that are declared, and the
// options against those of a run's log.
// Threads: pure functions.
#pragma once

#include <span>
#include <string_view>

namespace jige::train {

struct OptionFlag {
  std::string_view option;
  std::string_view flag;  // one, or several between ", " and " or "
};
std::span<const OptionFlag> option_flags();

// "--batch-tokens" for "step_tokens"; of a group ("model.hidden_size") that of the whole group. An
// option that has no flag stands for itself.
std::string_view flag_of(std::string_view option);

}  // namespace jige::train
