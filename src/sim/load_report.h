// LoadReport: what a load test found, from the outcome of each request, with the usual definitions:
//
//   TTFT        first token - start              (start: planned arrival, also where the sender is
//   E2E         end - start                       late, or else a slow server would seem faster)
//   TPOT        (E2E - TTFT) / (output tokens - 1), for answers of two tokens and more
//   ITL         each gap between the pieces of an answer
//   normalised  E2E / output tokens (Orca's latency)
//   goodput     requests a second that keep every given bound
//
// Rates are over the time from the first start to the last end. Latencies are those of requests
// that succeeded. Quantiles are interpolated between neighbours in rank. Threads: values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace jige::sim {

struct RequestOutcome {
  double start_s = 0;  // all times since the start of the test
  double first_token_s = 0;
  double end_s = 0;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  std::vector<double> gaps_s;
  std::string failure;  // its kind, a few words; empty: succeeded

  // Counts a token: the first, or one behind a gap; end_s is when the last one came.
  void token_came(double now_s);
};

struct Summary {
  int64_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0;
};
Summary summarise(std::vector<double> values);
// REQUIRES: sorted and not empty, 0 <= share <= 1.
double quantile(std::span<const double> sorted, double share);

struct GoodputBounds {
  std::optional<double> ttft_s, tpot_s, e2e_s, normalised_s;
  bool any() const { return ttft_s || tpot_s || e2e_s || normalised_s; }
};
// Reads bounds in milliseconds: "ttft=500,tpot=50", of ttft, tpot, e2e and norm; empty: none. Fails
// with kInvalidArgument, naming `flag` and the text.
Result<GoodputBounds> parse_goodput(std::string_view text, std::string_view flag);

struct NamedBound {
  std::string_view name;
  std::optional<double>* bound_s = nullptr;
};
// The same for any names: sets those that the text has.
Status parse_bounds(std::string_view text, std::string_view flag,
                    std::span<const NamedBound> bounds);

struct LoadReport {
  int64_t requests = 0;
  int64_t succeeded = 0;
  std::map<std::string, int64_t> failures;  // by kind
  double seconds = 0;
  double requests_per_s = 0;  // that succeeded
  int64_t prompt_tokens = 0;  // of those
  int64_t output_tokens = 0;
  double output_tokens_per_s = 0;
  double tokens_per_s = 0;  // prompts and answers
  Summary ttft_s, tpot_s, itl_s, e2e_s, normalised_s;
  std::optional<double> goodput_per_s;  // where bounds were given
};

// Appends the outcomes of a load that ran later, as if its first start was `all`'s last end.
void append_round(std::vector<RequestOutcome>& all, std::span<const RequestOutcome> more);

LoadReport make_report(std::span<const RequestOutcome> outcomes, const GoodputBounds& bounds = {});

}  // namespace jige::sim
