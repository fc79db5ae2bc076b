#include "cluster/recorder.h"

namespace jige::cluster {

Recorder::Recorder(const ClusterSpec& spec, bool links) {
  if (links && spec.link_count() <= kLinkSeriesMax) {
    links_.assign(static_cast<size_t>(spec.link_count()), TimeSeries(kSecond, 120));
  }
}

void Recorder::held(int64_t from_ns, int64_t to_ns, int32_t gpus) {
  gpus_.add(from_ns, to_ns, gpus * static_cast<double>(to_ns - from_ns));
}

void Recorder::moved(int64_t from_ns, int64_t to_ns, double iterations,
                     std::span<const LinkLoad> loads) {
  if (links_.empty()) return;
  for (const LinkLoad& load : loads) {
    links_[static_cast<size_t>(load.link)].add(from_ns, to_ns, load.bytes * iterations);
  }
}

}  // namespace jige::cluster
