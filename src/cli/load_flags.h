// The flags that say what load is put on a server, real or simulated, and how it is scheduled.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/round_flags.h"
#include "plan/serve_scheduler.h"
#include "sim/load_report.h"
#include "sim/serve_prediction.h"
#include "sim/workload.h"

namespace jige::cli {

class Flags;

// What is to be run: the same requests at one or several rates.
class LoadPlan {
 public:
  // The requests at rates()[i], cut to what the context holds (0: as they are). Another round has
  // other ones, drawn alike, but for those of a trace.
  sim::Workload at(size_t rate_index, int64_t context_max, int64_t round = 0) const;
  // The longest prompt and answer together.
  int64_t tokens_max() const;

  std::vector<double> rates;  // requests a second; 0: all at once, or a trace as it is
  int64_t users = 0;          // > 0: closed loop
  uint64_t seed = 1;
  sim::GoodputBounds goodput;

 private:
  friend struct LoadFlags;
  sim::WorkloadOptions options_;
  std::vector<sim::RequestShape> trace_;
};

struct LoadFlags {
  int64_t requests = 100;
  double rate = 1;
  std::string sweep;
  int64_t users = 0;
  double burstiness = 1;
  std::string lengths = "orca";
  std::string prompt_tokens, output_tokens;
  std::string trace;
  int64_t seed = 1;
  std::string goodput;
  std::string svg;

  // One load has no sweep, no goodput and no drawing; with a rate of 0 it is as much as is carried.
  enum class Use { kManyLoads, kOneLoad };
  // In a section of its own.
  void declare(Flags& flags, Use use = Use::kManyLoads);
  // Fails with kInvalidArgument on what contradicts itself, naming the flags, and as reading the
  // trace does.
  Result<LoadPlan> plan(const Flags& flags) const;
};

// How an engine of this process, or a simulated one, schedules.
struct SchedulingFlags {
  std::string policies = "chunked";
  std::string admission = "reserve";
  RoundFlags rounds;
  int64_t batch_requests = 64;
  int64_t batch_tokens = 512;
  int64_t kv_tokens = 16384;

  void declare(Flags& flags);
  // For a search of settings: from which policies, and how far.
  void declare_limits(Flags& flags);
  // Fails with kInvalidArgument on unknown names.
  Result<std::vector<plan::ServePolicy>> read_policies() const;
  // Fails on flags that none of them has a use for, too.
  Result<std::vector<plan::ServePolicy>> read_policies(const Flags& flags) const;
  // As if its flags had been given.
  void set(const sim::ServeSettings& settings);
  plan::Admission read_admission() const;
  int32_t kv_block_count(int64_t block_tokens) const;
};

// "0.5,1,2" as numbers above zero. Fails with kInvalidArgument, naming `flag` and the text.
Result<std::vector<double>> parse_rates(std::string_view text, std::string_view flag);

}  // namespace jige::cli
