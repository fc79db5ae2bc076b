// What a killed run leaves half-written: tokenised copies under temporary names (base/file.h) in
// OUT/cache, results in hidden folders. Checkpoints see to their own (formats/checkpoint.h).
//
// Threads: one thread.
#pragma once

#include <string>

namespace jige::train {

// Removes it. REQUIRES: the lock on the folder (run_lock.h) is held.
void remove_run_remains(const std::string& out_folder);

}  // namespace jige::train
