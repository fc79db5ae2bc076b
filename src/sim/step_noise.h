// StepNoise: how far single forwards are from what is usual of their like.
//
// Turns that took about the same usual time (the median of their cell) are a group, which has the
// quantiles of time over usual time at noise_shares(), with straight lines between them. Other
// programs lengthen short forwards seldom and then by much, long ones often: so groups differ. What
// is drawn lengthens a simulated forward. Without it gaps between tokens would have no tail, and
// since times lean to the long side their mean is above what is usual.
// Threads: values.
#pragma once

#include <span>
#include <vector>

#include "base/rng.h"

namespace jige::sim {

// Ascending from 0 to 1, closer where the tail is.
std::span<const double> noise_shares();

struct NoiseGroup {
  double end_s = 0;               // of usual times; the last one has all that are longer, too
  std::vector<double> quantiles;  // as many as shares, ascending, above 0

  double at(double share) const;
  double mean() const;
};

struct StepNoise {
  std::vector<NoiseGroup> groups = {};  // by end_s, ascending; without any there is no noise

  // Of a forward that usually takes so long; null: no noise.
  const NoiseGroup* group_of(double usual_s) const;
  double draw(double usual_s, Rng& rng) const;
  double mean(double usual_s) const;
};

struct TimedTurn {
  double usual_s = 0;  // above 0
  double seconds = 0;  // above 0
};
// Groups of as many turns, each of enough that its tail can be told.
StepNoise noise_of(std::vector<TimedTurn> turns);

}  // namespace jige::sim
