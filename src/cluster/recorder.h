// Recorder: how a simulated cluster was used over time: GPUs held, and bytes on links.
//
// Links are recorded while they are at most kLinkSeriesMax.
// Threads: one thread.
#pragma once

#include <span>
#include <vector>

#include "cluster/cluster_spec.h"
#include "cluster/time_series.h"
#include "cluster/traffic.h"

namespace jige::cluster {

inline constexpr int32_t kLinkSeriesMax = 2048;

class Recorder {
 public:
  // Without `links` only GPUs are recorded.
  Recorder(const ClusterSpec& spec, bool links);

  void held(int64_t from_ns, int64_t to_ns, int32_t gpus);
  // A job did this many iterations and put its loads on links.
  void moved(int64_t from_ns, int64_t to_ns, double iterations, std::span<const LinkLoad> loads);

  // GPU nanoseconds.
  const TimeSeries& gpus() const { return gpus_; }
  // Bytes by link; empty where they were not recorded.
  const std::vector<TimeSeries>& links() const { return links_; }

 private:
  TimeSeries gpus_;
  std::vector<TimeSeries> links_;
};

}  // namespace jige::cluster
