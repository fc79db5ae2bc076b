// Slurm's short form for sets of node names.
//
//   "n[1-3,07],gpu2"  <->  n1 n2 n3 n07 gpu2
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace jige::slurm {

// The names in the order written; none of "" and "(null)". Fails with kCorrupt, naming the text, on
// brackets that do not match, bad ranges and more than `kHostsMax` names.
inline constexpr size_t kHostsMax = 65536;
Result<std::vector<std::string>> expand_hosts(std::string_view text);

// "n1,n2,n3", which Slurm reads as well.
std::string join_hosts(const std::vector<std::string>& names);

}  // namespace jige::slurm
