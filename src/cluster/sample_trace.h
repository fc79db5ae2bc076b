// Jobs that are given by samples, and the measured speeds that make times of them: the tables and
// traces of the ICPADS'23 scheduler (gajagajago/deepshare, scheduler/jobs and scheduler/traces).
//
//   trace   JSON {"0": {"model": "MoE", "gpu_demand": 4, "total_samples_to_train": 61432.2}, ...};
//           all arrive at once, in the order of the file
//   rates   CSV with a head line; then "MoE,4,2",17.68: samples a second alone, by type
//
// A job may stand on so many nodes with equal shares as its types in the rates say. As a Workload
// each stands on a fixed number of them, and an iteration is a second alone there.
// Threads: values.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cluster/cluster_spec.h"
#include "cluster/job.h"
#include "cluster/job_type.h"

namespace jige::cluster {

struct SampleJob {
  std::string name;
  std::string model;
  int32_t gpus = 0;
  double samples = 0;
};

// Fails with kCorrupt, naming `where`, the job and the field.
Result<std::vector<SampleJob>> parse_sample_trace(std::string_view json, std::string_view where);

class RateTable {
 public:
  // Fails with kCorrupt, naming `where`, the line and the cell.
  static Result<RateTable> parse(std::string_view csv, std::string_view where);

  // Samples a second; 0 where it was not measured.
  double rate(const JobType& type) const;
  // Numbers of nodes, two or more and ascending, that were measured and that the cluster has.
  std::vector<int32_t> spreads(const SampleJob& job, const ClusterSpec& spec) const;

 private:
  std::map<JobType, double> rates_;
};

enum class Spread : uint8_t { kFewest, kWidest };

// Fails with kInvalidArgument, naming the job, where it has no spread, and with kCorrupt where it
// takes longer than kLengthMax_s. Costs of restarts are assigned by model.
Result<Workload> to_workload(const std::vector<SampleJob>& jobs, const RateTable& rates,
                             Spread spread, const ClusterSpec& spec, std::string_view where);

}  // namespace jige::cluster
