// Which topology a command is about: a file, a reference by name, or this machine.
//
//   source_.declare(flags, "--topology");
//   JIGE_TRY(const topology::Topology topology, source_.load());
//
// Threads: one thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "topology/topology.h"

namespace jige::cli {

class Flags;

struct TopologyFlags {
  std::string file, reference, source = "auto";

  // `file_flag` is --file or --topology.
  void declare(Flags& flags, std::string_view file_flag);
  bool given() const { return !file.empty() || !reference.empty(); }
  // This machine when neither is given. Fails with kInvalidArgument when both are, or one of them
  // and --source.
  Result<topology::Topology> load() const;
};

}  // namespace jige::cli
