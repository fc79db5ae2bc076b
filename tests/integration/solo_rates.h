// What every meter of real links promises of `jige profile links solo`: one measured line a link,
// and the same lines from the store when it is asked again.
//
// Threads: one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "integration/process.h"

namespace jige::integration {

// Runs jige with these words and those that name the links and the store, as JSON.
using LinkRun = std::function<Outcome(std::vector<std::string> words)>;

// Expects so many links, and gives their lines; fewer where it failed.
JsonLines expect_solo_rates(const LinkRun& run, size_t links);

}  // namespace jige::integration
