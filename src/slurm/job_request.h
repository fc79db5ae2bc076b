// What a Slurm job tells Jige about itself in its comment, and the Job that policies see.
//
//   sbatch -N2 --gres=gpu:4 --comment="jige model=bert length=7200 checkpoint=/data/run/marker" ...
//
//   model       a name of the catalogue (cluster/model_catalogue.h); without: no communication
//   length      seconds it takes alone; without: its time limit, else `default_length_s`
//   restart     seconds that checkpoint, requeue and restore take; without: the model's
//   checkpoint  a file that the job replaces after every checkpoint; its change says that one is
//               done. %j stands for the job's number
//
// Words that are not known are an error, so that a mistyped one is not lost.
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "cluster/cluster_spec.h"
#include "cluster/job.h"
#include "slurm/snapshot.h"

namespace jige::slurm {

// Of what Slurm says about a job, that which the request follows from.
struct AskedFor {
  explicit AskedFor(const SeenJob& seen);
  bool operator==(const AskedFor&) const = default;

  int32_t node_count = 1, gpus_per_node = 0;
  int64_t time_limit_s = 0;
  std::string comment, other_request;
  NodeNeeds needs;
};

struct JobRequest {
  cluster::Job job;
  std::string model = "none";
  std::string checkpoint;  // may be empty
};

struct RequestDefaults {
  double length_s = 3600;
  double restart_s = 60;
};

// Whether it waits for a time that its user chose (--begin). Slurm lets a job that it has requeued
// begin two minutes later, and Jige one that it places at once: both are no wish of a user, though
// clocks differ by the five minutes that munge allows.
bool begins_later(const SeenJob& seen, int64_t unix_s);

// Local time, as Slurm writes it.
std::string slurm_date(int64_t unix_s);

// Fails with kInvalidArgument, naming the word, and with kUnsupported where the job could never run
// on the cluster, or is one that Jige cannot place.
Result<JobRequest> read_request(const SeenJob& seen, const cluster::ClusterSpec& spec,
                                const RequestDefaults& defaults);

}  // namespace jige::slurm
