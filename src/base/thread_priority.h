// Threads that stand back behind those that somebody waits for.
//
// Threads: any.
#pragma once

namespace jige {

inline constexpr int kNicenessMax = 19;

// From now on the calling thread, and those that it begins, stand back by so many of Linux's steps
// of niceness, each a quarter more of the processors to others: with all of them they get what
// others leave, and little where that is nothing. There is no way back: for threads that end.
void lower_thread_priority(int niceness = kNicenessMax);

}  // namespace jige
