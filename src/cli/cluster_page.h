// The report of `jige cluster compare` as one HTML page: the table and pictures, no script, nothing
// loaded from elsewhere.
//
// Threads: values.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/cluster_view.h"
#include "cluster/simulation.h"

namespace jige::cli {

// One run that is shown in pictures.
struct ClusterPicture {
  std::string policy;
  double load = 0;
  std::vector<double> jct_s;  // sorted
  cluster::Recorder record;
};

struct ClusterPage {
  std::string scene;  // in words
  std::string base;
  int64_t seed_count = 0;
  std::span<const ClusterPoint> points;
  std::span<const ClusterPicture> pictures;
  cluster::ClusterSpec spec;
};

std::string render_page(const ClusterPage& page);

}  // namespace jige::cli
