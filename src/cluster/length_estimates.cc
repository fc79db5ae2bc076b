#include "cluster/length_estimates.h"

#include <cmath>

#include "base/rng.h"

namespace jige::cluster {

double LengthEstimates::factor(JobId id) const {
  if (noise <= 1) return 1;
  Rng rng(derive_key(seed, "job length estimate", static_cast<uint64_t>(id)));
  return std::pow(noise, 2 * rng.uniform() - 1);
}

double LengthEstimates::alone_ns(const ClusterState& cluster, JobId id) const {
  return cluster.alone_ns(id) * factor(id);
}

double LengthEstimates::remaining_ns(const ClusterState& cluster, JobId id) const {
  return cluster.remaining_ns(id) * factor(id);
}

}  // namespace jige::cluster
