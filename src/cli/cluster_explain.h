// The story of a job from the decision log of a scheduler: why here, why it waits, what was evicted
// for it and what that gained, what evicted it.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace jige::cli {

// Lines of the log that are about the job, or name it as evicted. A last line that is not whole is
// left out: the scheduler may be writing it. So is any other that is no JSON, with a warning.
std::vector<Json> lines_about(std::string_view log, int64_t job, std::string_view where);

// Sentences, one a line; `job` is the one that is asked about.
std::string explain_text(const std::vector<Json>& lines, int64_t job);

}  // namespace jige::cli
