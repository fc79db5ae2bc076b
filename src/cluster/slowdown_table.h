// SlowdownTable: measured throughput of one type of job beside another, as a share of its own
// alone. A type is a model on so many GPUs of so many nodes; the table is not symmetric.
//
//   ,"MoE,2,2","MoE,4,2"          first line: an empty cell, then the types that stand beside
//   "MoE,2,2",0.38,0.50           one line a type: its share beside each of those
//
// A job's share is the smallest over all jobs that it shares a node with, both on several nodes,
// and never below `floor`: only the worst pair counts. Threads: values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cluster/job_type.h"

namespace jige::cluster {

class SlowdownTable {
 public:
  // Fails with kCorrupt, naming `where`, the line and the column.
  static Result<SlowdownTable> parse(std::string_view csv, std::string_view where);

  // The row or column of a type, or -1.
  int32_t type_of(const std::string& model, int32_t gpus, int32_t nodes) const;
  // REQUIRES: types of this table.
  double share(int32_t type, int32_t beside) const {
    return shares_[static_cast<size_t>(type) * type_count() + static_cast<size_t>(beside)];
  }
  size_t type_count() const { return types_.size(); }
  // The models that rows name, sorted.
  std::vector<std::string> models() const;

  double floor = 0.35;  // as the ICPADS'23 environment has it

 private:
  std::map<JobType, int32_t> types_;
  std::vector<double> shares_;
};

}  // namespace jige::cluster
