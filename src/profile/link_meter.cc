#include "profile/link_meter.h"

#include <algorithm>

namespace jige::profile {

Result<Measurement> LinkMeter::measure_shares(std::span<const topology::Transfer> set,
                                              std::span<const double> shares) {
  if (std::ranges::any_of(shares, [&](double share) { return share != shares[0]; })) {
    return fail(Code::kUnsupported, "this meter sends the same amount over every link");
  }
  JIGE_TRY(Measurement m, measure(set));
  m.rate /= shares[0];
  return m;
}

}  // namespace jige::profile
