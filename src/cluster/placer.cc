#include "cluster/placer.h"

namespace jige::cluster {
namespace {

class BlindPlacer final : public Placer {
 public:
  BlindPlacer(PlacementKind kind, uint64_t seed)
      : kind_(kind), rng_(derive_key(seed, "cluster placement")) {}
  std::optional<Placement> place(ClusterState& cluster, JobId id, bool) override {
    return place_blindly(kind_, cluster.job(id), cluster.free(), cluster.spec(), rng_);
  }

 private:
  PlacementKind kind_;
  Rng rng_;
};

}  // namespace

std::unique_ptr<Placer> make_blind_placer(PlacementKind kind, uint64_t seed) {
  return std::make_unique<BlindPlacer>(kind, seed);
}

}  // namespace jige::cluster
