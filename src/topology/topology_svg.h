// A topology as an SVG picture: roots on top, what hangs on them below, links as lines as thick as
// their rate, with the rate beside them. No script, no font files.
//
//   write_file_atomic("box.svg", topology_svg(box, {.subtitle = "from box.json"}));
//
// `rings` are drawn as arrows between the components they name, one colour each.
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "topology/topology.h"

namespace jige::topology {

struct SvgOptions {
  std::string title;  // without one, the name of the topology
  std::string subtitle;
  std::vector<std::vector<int32_t>> rings;
};

std::string topology_svg(const Topology& topology, const SvgOptions& options);

}  // namespace jige::topology
