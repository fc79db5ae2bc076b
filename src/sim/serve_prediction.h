// What the simulation says of a server with given settings under a load, in the steady state.
//
//   JIGE_TRY(const ServePrediction found,
//            predict_serving(load, bounds, {.batch_requests_max = 16}));
//
// Figures are without the first requests of users, or a tenth of those that come at a rate, and
// rates are of the tokens up to the last arrival: a short load, which begins and ends idle, has
// others.
// Threads: values.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/serve_settings.h"
#include "sim/serve_simulation.h"
#include "sim/workload.h"

namespace jige::sim {

using plan::ServeSettings;
using plan::settings_json;
using plan::settings_text;

// On the quantile of latencies; figures as in load_report.h.
struct ServeBounds {
  std::optional<double> ttft_s, itl_s, tpot_s, e2e_s;
  double quantile = 0.99;
  double margin = 0;  // bounds count as so much less: 0.1 is a tenth
  // Of gaps between tokens half as many may be longer: rounds make some of about one length, and
  // where their share is close to what may be longer it would be luck which side they fall on.
  double gap_quantile() const { return 1 - (1 - quantile) / 2; }
  bool any() const { return ttft_s || itl_s || tpot_s || e2e_s; }
};

// The largest of latency / bound with its margin, and of which; 0 without bounds.
struct BoundRatio {
  double ratio = 0;
  std::string_view tightest;
};
// Of the latencies at the quantile.
BoundRatio ratio_to_bounds(const ServeBounds& bounds, double ttft_s, double itl_s, double tpot_s,
                           double e2e_s);

struct ServeLoad {
  StepTime step;
  std::vector<RequestShape> requests;  // lengths and, at a rate, arrivals; repeated as needed
  int64_t users = 0;                   // > 0: closed loop
  double rate_per_s = 0;               // > 0: open loop; without users
  plan::KvBlockPoolOptions pool;       // blocks are promised, as with Admission::kReserve
  uint64_t seed = 1;
  const std::atomic<bool>* cancel = nullptr;

  // As much as is carried: users are as many as answers are made at once.
  bool saturated() const { return users == 0 && rate_per_s == 0; }
  int64_t users_with(const ServeSettings& settings) const;
};

struct ServeFigure {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0;
  double bounded = 0;  // at the quantile of the bounds; of gaps at theirs
};

struct ServePrediction {
  ServeSettings settings;
  int64_t users = 0;  // of the closed loop that was simulated
  double requests_per_s = 0;
  double output_tokens_per_s = 0;
  ServeFigure ttft_s, itl_s, tpot_s, e2e_s;
  int32_t kv_blocks_max = 0;
  // As ratio_to_bounds() says; infinite where requests come faster than they are answered.
  double ratio = 0;
  std::string_view tightest;

  bool keeps_bounds() const { return ratio <= 1; }
};

// REQUIRES: requests that have room in the pool, prompts and answers of at least one token, and not
// both users and a rate. Fails with kCancelled.
Result<ServePrediction> predict_serving(const ServeLoad& load, const ServeBounds& bounds,
                                        const ServeSettings& settings);

}  // namespace jige::sim
