// What was profiled: a model on a machine, as files of profiles and plans tell it, and whether
// another one is meant.
//
//   "machine": {"processor": "AMD EPYC", "kernels": "avx512_bf16", "device": "cpu",
//               "processors": 2, "threads": 2},
//   "model": {"name": "15m (random)", "compute": "bf16", "weights": "none", "kv_cache": "bf16",
//             "parameters": 15191712, "layers": 6, "width": 288, "vocabulary": 32000,
//             "context": 1024}
//
// "weights" also tells how many layers stream from the host, where some do: "q8, 8 layers stream".
// The name says where a model came from, and two of one shape take the same time: names and
// contexts are told and not compared.
// Threads: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace jige::sim {

struct ProfiledMachine {
  std::string processor, kernels, device;
  int64_t processors = 0;
  int64_t threads = 0;
};

struct ProfiledModel {
  std::string name, compute, weights, kv_cache;
  int64_t parameters = 0;
  int64_t layers = 0;
  int64_t width = 0;
  int64_t vocabulary = 0;
  int64_t context = 0;  // the longest that was measured
};

struct ProfiledSubject {
  ProfiledMachine machine;
  ProfiledModel model;
};

// Adds "machine" and "model".
void add_subject(const ProfiledSubject& subject, Json& json);
// Fails with kNotFound or kInvalidArgument on fields that are missing or wrong, naming them.
Result<ProfiledSubject> subject_in(const Json& json, std::string_view where);

// Whether the models have the same number of parameters, layers and so on.
bool same_shape(const ProfiledModel& one, const ProfiledModel& other);
// What else makes their iterations take other times: "threads: 2, now 4".
std::vector<std::string> differences(const ProfiledSubject& profiled, const ProfiledSubject& now);

}  // namespace jige::sim
