// Workloads from a seed: arrivals, sizes, lengths and models of jobs.
//
//   WorkloadOptions options{.job_count = 2000, .load = 0.8};
//   JIGE_TRY(options.lengths, parse_lengths("lognormal:1800:1.5", "--lengths"));
//   const Workload load = make_workload(options, spec);
//
// A length is the time the job takes alone on its ideal placement. Gaps between arrivals are
// exponential, or come in bursts. Offered load is
//
//   sum of (GPUs * length) / (GPUs of the cluster * time from the first arrival to the last)
//
// and is met exactly: sizes, lengths and the order do not depend on it, only how fast jobs come.
// Threads: pure functions.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "cluster/cluster_spec.h"
#include "cluster/job.h"

namespace jige::cluster {

// Seconds: exponential, uniform, log-normal or fixed, cut to [1, 1e8].
struct LengthDistribution {
  enum class Kind : uint8_t { kFixed, kUniform, kExponential, kLogNormal };
  Kind kind = Kind::kLogNormal;
  double a = 1800;  // value, low, mean, median
  double b = 1.5;   // high, sigma

  double draw_s(Rng& rng) const;
};
inline constexpr double kLengthMax_s = 1e8;

// Reads "600", "uniform:60:3600", "exp:1200" and "lognormal:MEDIAN:SIGMA". Fails with
// kInvalidArgument, naming `flag`, the text and the forms.
Result<LengthDistribution> parse_lengths(std::string_view text, std::string_view flag);

// GPUs and their weight.
using SizeMix = std::vector<std::pair<int32_t, double>>;
// "philly" (shares of the Gavel authors' Philly-derived traces), "distributed" (2 to 32 GPUs),
// "single", or a list such as "1:3,8:1". Fails with kInvalidArgument.
Result<SizeMix> parse_sizes(std::string_view text, std::string_view flag);

struct WorkloadOptions {
  int64_t job_count = 1000;
  double load = 0.8;
  double burst = 1;  // mean number of jobs that come together
  SizeMix sizes = {{1, 1}};
  // Of jobs of several GPUs, the share that asks for equal parts on a fixed number of nodes, from
  // two to all that divide it, each alike.
  double fixed_share = 0;
  LengthDistribution lengths;
  std::vector<double> models;  // by the catalogue; empty: jobs that never communicate
  uint64_t seed = 1;
};

// Sizes above the cluster's are cut to it. REQUIRES: load > 0, burst >= 1.
Workload make_workload(const WorkloadOptions& options, const ClusterSpec& spec);

// Iterations so that the job takes `length_s` alone. REQUIRES: the job could run on the cluster.
void set_length(Job& job, double length_s, const ClusterSpec& spec);

// The same jobs at another offered load; those that all came at once stay so.
void rescale_load(Workload& workload, const ClusterSpec& spec, double load);
double offered_load(const Workload& workload, const ClusterSpec& spec);

// GPU seconds of each job: a history for Gittins.
std::vector<double> service_gpu_s(const Workload& workload, const ClusterSpec& spec);

}  // namespace jige::cluster
