// --speculate: whether and how far tokens are drafted, for the commands that generate.
//
// Threads: one thread.
#pragma once

#include <string>

#include "base/result.h"
#include "serve/draft_policy.h"

namespace jige::cli {

class Flags;

struct SpeculationFlags {
  std::string speculate = "auto";

  void declare(Flags& flags);
  // Fails with kInvalidArgument, naming the flag and what it takes.
  Result<serve::DraftOptions> read() const;
};

}  // namespace jige::cli
