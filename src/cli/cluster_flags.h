// What `jige cluster` commands are told about the cluster, the jobs and their contention.
//
// Threads: one thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/contention.h"
#include "cluster/policy_list.h"
#include "cluster/sample_trace.h"
#include "cluster/simulation.h"
#include "cluster/workload.h"

namespace jige::cli {

class Flags;

// What is simulated, read and checked.
struct ClusterScene {
  cluster::ClusterSpec spec;
  std::optional<cluster::Workload> trace;  // nothing: generated
  cluster::WorkloadOptions generated;
  std::string contention;  // links, table or none
  cluster::LinkModel links;
  std::optional<cluster::SlowdownTable> table, colocation;
  // Of a trace of samples, for policies of cluster/published_rounds.h.
  std::vector<cluster::SampleJob> samples;
  std::optional<cluster::RateTable> rates;
  double noise = 1;
  // For the policies `learned` ("") and `learned:NAME`.
  std::map<std::string, std::shared_ptr<const cluster::PolicyNetwork>> networks;
  std::string text;  // in words

  // The jobs of a seed at an offered load; without one a trace keeps its own arrivals.
  cluster::Workload workload(uint64_t seed, std::optional<double> load) const;
  std::unique_ptr<cluster::Contention> make_contention(const cluster::Workload& workload) const;
  // Fails with kInvalidArgument, naming `flag`, where there is no such policy here.
  Status check_policy(const std::string& name, std::string_view flag) const;
  // Runs one. REQUIRES: checked.
  Result<cluster::SimulationResult> simulate(const std::string& policy,
                                             const cluster::Workload& workload, uint64_t seed,
                                             const cluster::SimulationOptions& options) const;

 private:
  Result<std::unique_ptr<cluster::Policy>> make_policy(const std::string& name,
                                                       std::string_view flag, uint64_t seed) const;
};

class ClusterFlags {
 public:
  void declare(Flags& flags);
  // Reads files. Fails as they do, and with kInvalidArgument, also on flags that would do nothing.
  Result<ClusterScene> scene() const;
  // For commands that run policies: --learned and --noise..
  void declare_policies(Flags& flags);

 private:
  Status check_given() const;
  Status read_jobs(ClusterScene& scene) const;
  Status read_trace(ClusterScene& scene, const std::vector<double>& mix) const;
  Status read_contention(ClusterScene& scene) const;
  Status read_networks(ClusterScene& scene) const;

  std::string cluster_ = "8x4x8@100/2", trace_, trace_format_ = "auto";
  std::string sizes_ = "distributed", lengths_ = "lognormal:1800:1.5", models_ = "heavy";
  std::string learned_, contention_ = "links", fairness_ = "bytes", phases_ = "collide", table_;
  std::string rates_, spread_ = "fewest", colocate_;
  int64_t jobs_ = 1000;
  double fixed_shapes_ = 0, burst_ = 1, noise_ = 1;
  const Flags* flags_ = nullptr;
};

// A trained policy. Fails as the file does, and with kUnsupported where this build sees otherwise.
Result<std::shared_ptr<const cluster::PolicyNetwork>> read_policy_network(const std::string& path);

// Numbers between commas. Fails with kInvalidArgument, naming `flag` and the text.
Result<std::vector<double>> read_loads(const std::string& text, std::string_view flag);

}  // namespace jige::cli
