// JobType: a model on so many GPUs of so many nodes, as measured tables name it: "MoE,4,2".
//
// Threads: values.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

namespace jige::cluster {

struct JobType {
  std::string model;
  int32_t gpus = 0;
  int32_t nodes = 0;
  auto operator<=>(const JobType&) const = default;
};

// The whole cell as a type; nothing where it is none. Model names may hold commas.
std::optional<JobType> parse_job_type(const std::string& cell);
std::string to_string(const JobType& type);

}  // namespace jige::cluster
