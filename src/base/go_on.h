// How long work asks whether to go on, where more than one thing may end it.
//
// Threads: whoever takes one says from which thread it is asked.
#pragma once

#include <functional>

#include "base/result.h"

namespace jige {

// Asked now and then; work that gets an error ends, and fails with it. Empty: nothing ends it.
using GoOn = std::function<Status()>;

inline Status may_go_on(const GoOn& ask) { return ask ? ask() : Status(); }

}  // namespace jige
