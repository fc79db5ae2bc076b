// What kinds of models jobs train: computation and traffic of an iteration, from round figures of
// parameter counts and bytes. Assigned, not measured: whoever has measurements replaces them.
//
// Threads: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "cluster/job.h"

namespace jige::cluster {

struct ModelProfile {
  std::string_view name;
  double compute_s = 1;
  std::array<double, kCollectiveCount> bytes{};
  double overlap = 0;
  double restart_s = 60;
};

std::span<const ModelProfile> model_catalogue();
std::vector<std::string> catalogue_names();

// Sets model, computation, traffic, overlap and restart of a job.
void assign_model(Job& job, int32_t model);

// How likely each model of the catalogue is: "low", "medium", "heavy" (by the share of time that
// communication takes) or "all" alike. Fails with kInvalidArgument, naming `flag` and the mixes.
Result<std::vector<double>> model_mix(std::string_view name, std::string_view flag);
int32_t draw_model(const std::vector<double>& mix, Rng& rng);

// The model of the catalogue that a trace's name for one begins like ("ResNet-18 (batch size 64)"
// is resnet); -1: none.
int32_t model_named(std::string_view trace_name);

}  // namespace jige::cluster
