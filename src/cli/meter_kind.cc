#include "cli/meter_kind.h"

namespace jige::cli {

Result<topology::Description> described(topology::Description known, const TopologyFlags& source) {
  if (!source.given()) return known;
  JIGE_TRY(const topology::Topology given, source.load());
  topology::Description description = given.description();
  description.environment.merge(known.environment);
  return description;
}

}  // namespace jige::cli
