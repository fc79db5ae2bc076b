// What guessing is decided by, measured while the system works: what a step costs by its rows, and
// how often guesses come true.
//
//   StepCost cost;                        HitRate rate(0.6);
//   cost.add(rows, seconds);              rate.judge(hits, missed);
//   cost.price(rows + 1)                  rate.chance()
//
// A step of a model over R rows takes about base + slope · R seconds, a line through the last
// steps'; slope / (base + slope · R) is the *price* of one more row, as a share of the step.
// Reading the weights is the base, so the price is small while a step is bound by memory and nears
// 1 / R where it is bound by arithmetic. Threads: values; one at a time.
#pragma once

#include <cstdint>

namespace jige::plan {

// The time of a step by its rows.
class StepCost {
 public:
  void add(int64_t rows, double seconds);
  // Of one more row than `rows`, as a share of the step.
  double price(int64_t rows) const;
  // Of a step; 0 until one was seen.
  double seconds(int64_t rows) const;
  // Whether enough steps were seen to go by.
  bool known() const { return weight_ > 3; }

 private:
  double slope() const;

  double weight_ = 0, rows_ = 0, seconds_ = 0, rows_rows_ = 0, rows_seconds_ = 0;  // sums
  double slope_ = -1;  // seconds a row, as last seen; below 0: not yet
};

// How often guesses came true; the last count most.
class HitRate {
 public:
  // Begins as if so many trials had come out with `chance`; of all about `trials_kept` count.
  explicit HitRate(double chance = 0, double trials = 1, double trials_kept = 20)
      : hits_(chance * trials), trials_(trials), trials_kept_(trials_kept) {}
  // `hits` guesses in a row came true, and then one did not, or none was left.
  void judge(int32_t hits, bool missed);
  double chance() const { return hits_ / trials_; }

 private:
  double hits_;
  double trials_;
  double trials_kept_;
};

}  // namespace jige::plan
