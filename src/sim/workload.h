// Workload: the requests of a load test, when they come and how long they are. From a seed, so that
// a simulation, a server under test and a repetition get the same ones.
//
//   JIGE_TRY(const LengthDistribution prompts, parse_length("32:512", "--prompt-tokens"));
//   const Workload load = make_workload({.request_count = 200, .rate_per_s = 4, .prompt =
//   prompts});
//
// Gaps between arrivals are gamma distributed with mean 1 / rate: shape 1 is a Poisson process,
// a smaller shape bursts, a larger one is steadier. Lengths and unit gaps do not depend on the
// rate: at another rate the same requests come in the same order, only faster. Threads: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/rng.h"

namespace jige::sim {

struct RequestShape {
  double arrival_s = 0;  // since the start
  int64_t prompt_tokens = 1;
  int64_t output_tokens = 1;
};

// Uniform over [low, high], or log-normal and cut to it.
struct LengthDistribution {
  int64_t low = 1;
  int64_t high = 1;
  double median = 0;  // 0: uniform
  double sigma = 0;   // of the logarithm

  int64_t draw(Rng& rng) const;
};

inline constexpr int64_t kLengthMax = int64_t{1} << 20;

// Reads "128", "32:512" (uniform) and "lognormal:MEDIAN:SIGMA". Fails with kInvalidArgument, naming
// `flag`, the text and the forms.
Result<LengthDistribution> parse_length(std::string_view text, std::string_view flag);

struct LengthPair {
  LengthDistribution prompt;
  LengthDistribution output;
};
// Prompts U(32,512), outputs U(1,128): the trace of Yu et al., Orca, OSDI 2022.
LengthPair orca_lengths();
// Log-normal with means of 161 and 338 tokens, those that Kwon et al. (SOSP 2023) report for
// ShareGPT's conversations; the spread is a guess.
LengthPair chat_lengths();

struct WorkloadOptions {
  int64_t request_count = 100;
  double rate_per_s = 0;  // 0: all at once
  double burst_shape = 1;
  LengthPair lengths;
  uint64_t seed = 1;
};

struct Workload {
  std::vector<RequestShape> requests;  // by arrival
  int64_t cut_count = 0;               // requests shortened by cut_to_context
};

// REQUIRES: request_count >= 0, rate_per_s >= 0, burst_shape > 0.
Workload make_workload(const WorkloadOptions& options);

// One line of a trace: {"arrival_s": 0.5, "prompt_tokens": 100, "output_tokens": 20}. Fails with
// kCorrupt, naming `where`, the field and the value.
Result<RequestShape> parse_trace_line(std::string_view line, std::string_view where);

// The same requests at another mean rate; 0: all at once. Those that all came at once stay so.
void rescale_arrivals(std::vector<RequestShape>& requests, double rate_per_s);

// Shortens what a context cannot hold: prompts to context - 1, then answers to what is left.
void cut_to_context(Workload& load, int64_t context_max);

// Tokens that no other prompt of this key and no other index begins with, drawn from
// [0, vocab_size): a prefix cache finds nothing of them.
std::vector<int32_t> random_prompt(uint64_t key, uint64_t index, int64_t count, int64_t vocab_size);

}  // namespace jige::sim
