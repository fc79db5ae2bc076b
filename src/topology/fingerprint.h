// What a measurement depends on, as lines of text, and their hash. Profiles carry both: the hash
// says whether they fit a topology, the lines say what changed.
//
//   component gpu0 device numa 0 at 0000:17:00.0 …
//   link gpu0-port0 gpu0 port0 pcie 13 13 16x8 …
//   environment kernel 6.1.0
//
// Lines are sorted, so the order of a description does not count.
// Threads: pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "topology/description.h"

namespace jige::topology {

struct Fingerprint {
  std::string hash;  // 16 hexadecimal digits
  std::vector<std::string> facts;
};

Fingerprint fingerprint(const Description& description);

// Lines that only one of them has, "- " before those of `before`, "+ " before those of `after`.
// What one of them does not know contradicts nothing: a fact of access control (access_control.h)
// about a port of which the other has none is left out.
std::vector<std::string> difference(std::span<const std::string> before,
                                    std::span<const std::string> after);

}  // namespace jige::topology
