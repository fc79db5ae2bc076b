// What an Engine tells about itself: a snapshot for metrics, health and a live view.
//
// Threads: values; EngineHistograms may be read from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "plan/guess_policy.h"
#include "plan/serve_drift.h"
#include "plan/serve_settings.h"
#include "serve/answer.h"
#include "serve/engine_request.h"
#include "serve/histogram.h"

namespace jige::serve {

// One request, for a live view.
struct RequestRow {
  enum class State { kWaiting, kPrefill, kDecode, kPreempted };
  RequestId id = 0;
  State state = State::kWaiting;
  int64_t prompt_tokens = 0;
  int64_t computed_tokens = 0;   // of the prompt and the first choice's answer, in the cache
  int64_t generated_tokens = 0;  // of all choices
  int64_t tokens_max = 0;        // a choice
  int32_t choice_count = 1;
  int32_t preemptions = 0;
  int32_t priority = 0;
  uint64_t tenant = 0;
  int32_t adapter = model::kNoAdapter;
  double age_seconds = 0;  // since submit()
};
// "waiting", "prefill", "decode", "preempted".
std::string_view request_state_name(RequestRow::State state);

// Since the start. Requests: received = refused + finished (by reason) + failed + those there now.
struct EngineCounters {
  int64_t requests_received = 0;
  int64_t requests_refused = 0;  // at submit()
  int64_t requests_failed = 0;
  // Of those received, by the number of an adapter that is there; absent: none.
  std::map<int32_t, int64_t> requests_by_adapter;
  // By the reason of the choice that ended last; index: FinishReason.
  std::array<int64_t, kFinishReasonCount> requests_finished{};
  int64_t prompt_tokens = 0;        // of requests that got to their first token
  int64_t prefix_query_tokens = 0;  // prompt tokens looked up in the prefix cache
  int64_t prefix_hit_tokens = 0;    // and found
  int64_t computed_tokens = 0;      // rows run through the model: prompts, answers, repeats
  int64_t generated_tokens = 0;
  int64_t drafted_tokens = 0;   // guessed, and run through the model
  int64_t accepted_tokens = 0;  // of those, part of an answer
  plan::GuessCounts guesses;    // the same, by kind
  // Of sequences, by the draft model, before it guesses: read, and not since they were known.
  int64_t draft_model_read_tokens = 0;
  int64_t draft_model_known_tokens = 0;
  int64_t preemptions = 0;
  int64_t iterations = 0;
  int64_t iterations_lost = 0;  // whose forward failed
  int64_t layers_restored = 0;  // times that lost layers came back
};

// Work of some iterations, by the model of a roofline: every forward reads the weights once and the
// keys and values that its rows see.
struct RooflineSample {
  double bytes = 0;
  double flops = 0;
  double seconds = 0;
  int64_t tokens = 0;
  double bytes_per_s() const { return seconds > 0 ? bytes / seconds : 0; }
  double flops_per_s() const { return seconds > 0 ? flops / seconds : 0; }
  double tokens_per_s() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};

struct EngineStatus {
  bool accepting = true;  // neither draining nor stopped
  // Work exists, but no iteration has been completed for stall_seconds_max, or the last three have
  // failed: the health check fails.
  bool stalled = false;
  // Layers on other machines are lost; requests wait until they are back, and no more are taken.
  bool layers_lost = false;
  double seconds_since_iteration = 0;  // while work exists; else 0
  double uptime_seconds = 0;

  int64_t waiting_requests = 0;  // not begun yet
  int64_t waiting_prompt_tokens = 0;
  int64_t running_sequences = 0;  // choices in the batch's pool
  int64_t preempted_sequences = 0;
  int64_t kv_blocks = 0;  // of 16 tokens
  int64_t kv_blocks_live = 0;
  int64_t kv_blocks_cached = 0;  // hold prefixes nobody uses now
  int64_t kv_evictions = 0;
  double kv_usage() const {
    return kv_blocks > 0 ? static_cast<double>(kv_blocks_live) / static_cast<double>(kv_blocks) : 0;
  }

  EngineCounters counters;
  int64_t last_iteration_tokens = 0;
  double last_iteration_seconds = 0;
  RooflineSample recent;              // a weighted sum over about the last 10 busy seconds
  RooflineSample total;               // since the start
  double service_requests_per_s = 0;  // while busy, lately; 0: not measured yet
  double retry_after_seconds = 1;     // how long a refused client should wait

  plan::ServeSettings settings;           // in force
  std::optional<plan::DriftState> drift;  // of requests from those of the plan, if there is one
  // What was looked at last for that; null before the first look.
  std::shared_ptr<const plan::RecentLoad> recent_load;

  std::vector<RequestRow> requests;  // by id; filled by status(true) only
};

struct EngineHistograms {
  Histogram first_token_seconds{latency_bounds()};
  Histogram inter_token_seconds{latency_bounds()};
  Histogram total_seconds{latency_bounds()};
  Histogram queue_seconds{latency_bounds()};
  Histogram prefill_seconds{latency_bounds()};
  Histogram decode_seconds{latency_bounds()};
  Histogram iteration_seconds{latency_bounds()};
  Histogram prompt_tokens{token_count_bounds()};
  Histogram generated_tokens{token_count_bounds()};  // of a request
  Histogram tokens_max{token_count_bounds()};        // as asked for
  Histogram choice_count{token_count_bounds()};
  Histogram iteration_tokens{token_count_bounds()};
};

}  // namespace jige::serve
