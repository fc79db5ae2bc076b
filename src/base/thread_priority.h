// Threads that stand back behind those that somebody waits for.
//
// Threads: any.
#pragma once

namespace jige {

// From now on the calling thread gets what others leave of the processors, and little beside them
// where they leave nothing. There is no way back: for threads that end.
void lower_thread_priority();

}  // namespace jige
