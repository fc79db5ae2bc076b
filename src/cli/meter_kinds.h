// All kinds of meters, their flags, and which of them is asked for.
//
//   kinds.declare(flags);
//   JIGE_TRY(const MeterKind* kind, kinds.chosen(source));
//
// Threads: one thread.
#pragma once

#include <memory>
#include <vector>

#include "cli/meter_simulated.h"

namespace jige::cli {

class MeterKinds {
 public:
  MeterKinds();

  // REQUIRES: flags outlive this.
  void declare(Flags& flags);
  // Flags of the kind that simulates.
  void declare_simulated(Flags& flags) { simulated_.declare(flags); }

  // The kind whose flag is given, otherwise the one that simulates. Fails with kInvalidArgument
  // for flags that do not go together, naming both.
  Result<const MeterKind*> chosen(const TopologyFlags& source) const;
  const SimulatedKind& simulated() const { return simulated_; }
  bool simulates(const MeterKind& kind) const { return &kind == &simulated_; }

 private:
  Status refuse_flags_of_others(const MeterKind& chosen) const;

  const Flags* flags_ = nullptr;
  SimulatedKind simulated_;
  std::vector<std::unique_ptr<MeterKind>> real_;  // in the order of help
};

}  // namespace jige::cli
