// What a signal does to a jige that started processes of its own: it ends, and so do they.
//
//   expect_signal_ends({"profile", "links", "solo", "--shm", "2"}, SIGINT, 2);
//
// Threads: one.
#pragma once

#include <string>
#include <vector>

namespace jige::integration {

// Runs jige, waits for at least so many processes below it, and sends the signal to it alone.
// Expects "interrupted" and the exit code 130, for SIGKILL 137, and that within seconds none of the
// processes is left.
void expect_signal_ends(const std::vector<std::string>& words, int signal, size_t processes);

}  // namespace jige::integration
