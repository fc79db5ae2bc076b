// jige train with a say in what it is asked to do, for tests of what no flag can bring about, such
// as a device that fails in the middle of a step.
//
// Threads: one thread.
#pragma once

#include <functional>
#include <memory>

#include "cli/command.h"
#include "train/options.h"

namespace jige::cli {

// As make_train_command(); `adjust` sees the options that the flags gave, before the run.
std::unique_ptr<Command> make_adjusted_train_command(
    std::function<void(train::TrainOptions&)> adjust);

}  // namespace jige::cli
