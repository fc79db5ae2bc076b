// The flags that say what an iteration of the engine takes: a profile, or three figures.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "sim/step_profile.h"

namespace jige::cli {

class Flags;

struct KnownStepTime {
  sim::StepTime step;
  std::string text;  // "as 15m on an EPYC, 2 threads: 4.2 ms a next token, 30 ms a prompt of 128"
};

// What a scheduler may ask of a forward.
struct ForwardRows {
  int64_t batch_tokens = 0;
  int64_t batch_requests = 0;
};

// Of a profile, for a model that is loaded for these rows; a warning where they were not measured.
KnownStepTime known_step_time(const sim::StepProfile& profile, const ForwardRows& rows);

struct StepTimeFlags {
  std::string profile_path;
  double base_ms = 20, token_us = 100, kv_token_ns = 20;

  // In a section of its own: --profile, --base-ms, --token-us, --kv-token-ns.
  void declare(Flags& flags);
  // Fails with kInvalidArgument where both a profile and figures are given.
  Status check_use(const Flags& flags) const;
  // The figures. Fails with kInvalidArgument where an iteration would take no time.
  Result<KnownStepTime> by_figures() const;
};

}  // namespace jige::cli
