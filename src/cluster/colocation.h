// Colocation: two jobs on the same GPUs, as under MPS, and the share of its own speed that each
// keeps there: a second slowdown table (cluster/slowdown_table.h) beside that of the network, and
// multiplied with it. Without such a table nobody shares a GPU, which is the default.
//
// Types are looked up as they stand, and where the table does not have one, as the model on one
// GPU, "bert,1,1": GPUs are shared one by one. Jobs are compatible when both have a type, each
// keeps at least `share_min` of its speed, and together they keep at least `sum_min`.
// Threads: a value.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cluster/job.h"
#include "cluster/slowdown_table.h"

namespace jige::cluster {

class Colocation {
 public:
  // `models` are the names that Job::model stands for.
  Colocation(SlowdownTable table, std::vector<std::string> models)
      : table_(std::move(table)), models_(std::move(models)) {}

  double share_min = 0.4, sum_min = 1.1;

  // What `job` keeps beside `other` on the same `nodes`; 0 where that was not measured.
  double share(const Job& job, const Job& other, int32_t nodes) const;
  bool compatible(const Job& job, const Job& other, int32_t nodes) const;

 private:
  int32_t type_of(const Job& job, int32_t nodes) const;

  SlowdownTable table_;
  std::vector<std::string> models_;
};

}  // namespace jige::cluster
