// The meter of what is not at hand: rates simulated from a description. It is used where no flag
// asks for another. Threads: one thread.
#pragma once

#include "cli/meter_kind.h"

namespace jige::cli {

class SimulatedKind final : public MeterKind {
 public:
  void declare(Flags& flags) override;
  std::string_view flag() const override { return "simulated rates"; }
  std::vector<std::string_view> own_flags() const override { return {"--noise"}; }
  bool takes_source() const override { return true; }
  Result<OpenedMeter> open(const TopologyFlags& source, const MeterRequest& request) const override;
  // Of a machine that was read already.
  OpenedMeter of(topology::Topology topology, const MeterRequest& request) const;

 private:
  double noise_ = 0;
};

}  // namespace jige::cli
