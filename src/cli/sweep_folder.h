// What a folder is to a sweep (train/sweep.h), for commands that were given one in place of a model
// or a run.
//
// Threads: reads files only.
#pragma once

#include <string>

namespace jige::cli {

// Behind "holds no …": "; it is that of a sweep: give a trial of it, such as the best, …" of OUT,
// and of a trial that was dropped and of which no checkpoint was kept, how to have its model. Else
// nothing.
std::string sweep_note(const std::string& folder);

}  // namespace jige::cli
