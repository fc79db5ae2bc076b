// The steady state of a serving policy in closed form: how many rows live, how long an iteration
// takes, what comes out a second and how long an answer takes, from the lengths of requests and the
// time of an iteration. It takes microseconds, where a simulation takes milliseconds.
//
//   const LengthModel lengths(pairs, block_tokens);
//   const SteadyState state = steady_state(lengths, options, seconds_of);
//
// An answer of S tokens has its first from the iteration of its prompt, of n tokens, and d = S - 1
// from iterations of its own; the j-th of them reads n + j cached tokens. X is requests a second.
//
//   rounds   B prompts begin in each round of N iterations, and stay for c = ceil(d / N) rounds.
//            Iteration u of a round has b(u) = B sum over k >= 0 of P(d >= kN + u) rows. So
//            B E[max(c, 1)] are inside behind the prompts: what lives is biased by its length, and
//            the mean of c counts, not that of 1 / c. X = B / (prompts + sum over u of b(u)'s time)
//   orca     M inside, each for S iterations: M / E[S] prompts an iteration, and E[d] M / E[S] rows
//   chunked  the same, with F iterations for a prompt in place of one: its pieces, and the wait for
//            what next tokens leave of batch_tokens_max, as of a queue with random arrivals; at
//            most batch_tokens_max / (E[n] + E[d]) prompts an iteration
//   static   M begin together; iteration j has M P(d >= j) rows, if any is left
//
// B and M are what options allow: round_prompts, batch_requests_max, users, and with `reserve` the
// blocks that are promised, of which about half of the next request's lie idle. With a rate they
// are what carries it. Lengths are independent of what else is inside; deviations from the mean
// count only where there are thresholds: in how many prompts meet, and in a static batch's longest.
// Not modelled: prefixes found in the cache, drafts, optimistic admission, priorities.
// Threads: values.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "plan/serve_scheduler.h"

namespace jige::plan {

struct RequestLengths {
  int64_t prompt_tokens = 1;
  int64_t output_tokens = 1;
};

// What an iteration runs, in the mean: one row for each next token and each token of a prompt.
struct StepLoad {
  double next_rows = 0;      // next tokens of those inside
  double prompts = 0;        // that end in it, and are sampled from
  double prompt_tokens = 0;  // of those, and of pieces of others
  double kv_tokens = 0;      // keys that sequences read, those of the iteration's rows among them
  double pairs = 0;          // of a row and a key that it sees
  double rows() const { return next_rows + prompt_tokens; }
  double sequences() const { return next_rows + prompts; }
  double sampled_rows() const { return next_rows + prompts; }
};
using StepSeconds = std::function<double(const StepLoad&)>;

// Sums over the lengths of requests, each as likely as the others.
class LengthModel {
 public:
  // REQUIRES: not empty, all lengths >= 1, output tokens at most kLengthModelMax.
  LengthModel(std::span<const RequestLengths> lengths, int32_t block_tokens);

  std::span<const RequestLengths> all() const { return lengths_; }
  // The largest d.
  int64_t steps_max() const { return std::ssize(live_) - 1; }
  // P(d >= j), and E[n + j where d >= j]: the rows of a request in its j-th iteration behind the
  // prompt, and what they read; that squared. REQUIRES: 0 <= j <= steps_max().
  double live(int64_t j) const { return live_[static_cast<size_t>(j)]; }
  double read(int64_t j) const { return read_[static_cast<size_t>(j)]; }
  double read_square(int64_t j) const { return read_square_[static_cast<size_t>(j)]; }
  double steps_mean() const { return steps_mean_; }
  // Of all iterations of a request behind its first.
  double read_mean() const { return read_mean_; }
  double read_square_mean() const { return read_square_mean_; }
  double prompt_mean() const { return prompt_mean_; }
  double prompt_square_mean() const { return prompt_square_mean_; }
  double pairs_mean() const { return pairs_mean_; }
  // Lengths of prompts, ascending, each as likely as the others: few, for sums that come often.
  std::span<const double> prompt_quantiles() const { return prompt_quantiles_; }
  int32_t block_tokens() const { return block_tokens_; }
  // Of prompt and answer.
  int64_t blocks(const RequestLengths& one) const;
  // The mean of f(lengths).
  template <typename F>
  double mean(const F& f) const {
    double sum = 0;
    for (const RequestLengths& one : lengths_) sum += f(one);
    return sum / static_cast<double>(lengths_.size());
  }
  // The output length that a share of the requests does not exceed.
  int64_t output_quantile(double share) const;

 private:
  std::vector<RequestLengths> lengths_;  // by output length
  int32_t block_tokens_;
  std::vector<double> live_, read_, read_square_, prompt_quantiles_;
  double steps_mean_ = 0, read_mean_ = 0, read_square_mean_ = 0;
  double prompt_mean_ = 0, prompt_square_mean_ = 0, pairs_mean_ = 0;
};
inline constexpr int64_t kLengthModelMax = int64_t{1} << 20;

// The scheduler's options that count, and the load.
struct SteadyOptions {
  ServePolicy policy = ServePolicy::kChunked;
  int32_t batch_requests_max = 64;
  int32_t batch_tokens_max = 512;
  int32_t round_prompts = 8;
  int32_t round_steps = 16;
  int32_t block_count = 0;  // promised in the worst case, as with `reserve`
  double users = 0;         // > 0: a closed loop of so many; else as many as there is room for
  double rate_per_s = 0;    // > 0: an open loop; without users
};

struct SteadyGap {
  double seconds = 0;
  double weight = 0;  // how often, in any unit
};

struct SteadyState {
  // False: the rate is more than can be carried, or a request has no room. What follows is then
  // that of the most that can be, or 0.
  bool carried = true;
  double inside = 0;     // requests, behind an iteration in which prompts begin
  double next_rows = 0;  // rows of next tokens, in the mean of the iterations that have some
  double kv_tokens = 0;  // that those read
  double prompts = 0;    // that begin in a round, an iteration or a batch
  double cycle_s = 0;    // of a round, an iteration or a batch
  double requests_per_s = 0;
  double output_tokens_per_s = 0;
  double blocks_mean = 0;  // live, where they are most
  // Three standard deviations more, as of requests that come at random; at most those there are.
  double blocks_peak = 0;
  double wait_s = 0;            // until a request is let in, in the mean: with users or a rate
  double first_s = 0;           // from then to its first token
  double answer_s = 0;          // from then to its last, in the mean of all lengths
  std::vector<SteadyGap> gaps;  // between the tokens of an answer, ascending

  // From when it is let in to the end of an answer of so many tokens, in the mean.
  double latency_s(int64_t output_tokens) const;
  double gap_quantile_s(double share) const;
  double gap_mean_s() const;

  // What latency_s() is made of.
  ServePolicy policy = ServePolicy::kChunked;
  double prompts_s = 0;         // rounds: the prompts of one
  std::vector<double> steps_s;  // rounds: the iterations of one behind them; else one for all
};

SteadyState steady_state(const LengthModel& lengths, const SteadyOptions& options,
                         const StepSeconds& seconds_of);

}  // namespace jige::plan
