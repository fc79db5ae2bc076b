// DriftDetector: whether the requests of a server are still like those that its plan was made for.
//
//   DriftDetector drift({.prompt_tokens = length_quantiles(prompts), …});
//   drift.arrive(9.5);
//   if (drift.add({.prompt_tokens = 40, .answer_tokens = 7})) …drift.state()…
//
// Looked at are the last `window` requests that have ended. How far their lengths are from the
// plan's is the largest difference between the shares of requests up to a length (Kolmogorov and
// Smirnov's distance, 0 to 1), of prompts and of answers. Their rate is compared where the plan was
// made for one; it is that of the last `window` arrivals, whatever has become of them: those that
// have ended came over a longer time, as much as answers differ in how long they take. A drift is
// told where one of these is beyond its upper threshold, and taken back where all are within the
// lower ones, so that what lies near a threshold does not tell it again and again. The thresholds
// of lengths are beyond chance: 256 requests of the plan's own distribution are farther than 0.2
// from it about once in 100 000 looks; where the plan itself was made for few requests both
// thresholds are larger, as chance has more of a share in it.
//
// The first requests that end are the short ones, the more so the more are under way: nothing is
// told before thrice as many have ended as are.
//
// replan() gives it another plan in the middle: the requests that it knows are looked at beside
// that one from then on.
//
// Invariants: nothing is told before the window is full, and between looks, every `step` requests;
// state() is that of the last look. Threads: none; one caller.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace jige::plan {

// As many quantiles at equal shares, from the least to the greatest, as plans have of lengths.
inline constexpr size_t kLengthQuantiles = 33;
// REQUIRES: not empty.
std::vector<double> length_quantiles(std::vector<double> lengths);

struct PlannedLoad {
  std::vector<double> prompt_tokens, answer_tokens;  // kLengthQuantiles each, ascending
  double rate_per_s = 0;                             // 0: users who wait for their answers
  int64_t requests = 0;  // that the quantiles are of; 0: of all that there are
};

struct DriftOptions {
  int32_t window = 256;
  int32_t step = 32;
  double distance_high = 0.2, distance_low = 0.14;
  double rate_high = 1.4, rate_low = 1.2;  // times as many or as few
};

struct EndedRequest {
  int64_t prompt_tokens = 0;
  int64_t answer_tokens = 0;
};

// The last requests, of each as many as a window has at most.
struct RecentLoad {
  std::vector<EndedRequest> ended;  // in the order of their ends
  std::vector<double> arrivals_s;   // of those that came last, whatever has become of them

  // Requests a second between the first and the last arrival; 0 where they came at once.
  double rate_per_s() const;
};

// What a plan for such requests is made for; at their rate, or for none. REQUIRES: one has ended.
PlannedLoad planned_for(const RecentLoad& recent, bool with_rate);

// How far requests are from those of a plan.
struct LoadDistance {
  double prompts = 0, answers = 0;
  double rate_ratio = 1;  // of the rate over the plan's; 1 where one of them has none

  double lengths() const { return prompts > answers ? prompts : answers; }
  double rate_times() const { return rate_ratio > 1 ? rate_ratio : 1 / rate_ratio; }
};
// REQUIRES: one has ended.
LoadDistance load_distance(const RecentLoad& recent, const PlannedLoad& planned);
// Whether it is beyond an upper threshold.
bool is_drift(const LoadDistance& distance, const PlannedLoad& planned,
              const DriftOptions& options);

struct DriftState {
  bool drifted = false;
  int64_t plans = 1;  // that the detector was given; all else is of the last
  int64_t looks = 0;  // since the start
  double prompt_distance = 0, answer_distance = 0;
  double rate_ratio = 1;  // of the rate over the plan's; 1 where it has none
  double prompt_tokens_mean = 0, answer_tokens_mean = 0, rate_per_s = 0;
};

// The largest difference between the shares of values and of a distribution up to a length.
// REQUIRES: whole numbers, ascending, not empty; quantiles at equal shares.
double length_distance(std::span<const double> values, std::span<const double> quantiles);

class DriftDetector {
 public:
  explicit DriftDetector(PlannedLoad planned, DriftOptions options = {});

  // A request has come; in about the order of times.
  void arrive(double now_s);
  // One has ended, beside which so many have begun and not ended. True where state().drifted is
  // another one than before.
  bool add(const EndedRequest& request, int64_t under_way = 0);
  // Another plan is in force.
  void replan(PlannedLoad planned);
  const DriftState& state() const { return state_; }
  RecentLoad recent() const;

 private:
  void look();

  PlannedLoad planned_;
  DriftOptions options_;

  std::deque<EndedRequest> last_;
  std::deque<double> arrivals_s_;
  int64_t ended_count_ = 0;
  int32_t since_look_ = 0;
  DriftState state_;
};

}  // namespace jige::plan
