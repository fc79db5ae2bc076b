#include "sim/step_noise.h"

#include <algorithm>

#include "base/check.h"
#include "sim/load_report.h"

namespace jige::sim {
namespace {

constexpr int64_t kGroupTurnsMin = 200;
constexpr int64_t kGroupsMax = 6;

}  // namespace

std::span<const double> noise_shares() {
  static constexpr double kShares[] = {0,     0.01, 0.02,  0.05,  0.1,   0.15,  0.2,   0.25, 0.3,
                                       0.35,  0.4,  0.45,  0.5,   0.55,  0.6,   0.65,  0.7,  0.75,
                                       0.8,   0.85, 0.9,   0.92,  0.94,  0.95,  0.96,  0.97, 0.98,
                                       0.985, 0.99, 0.993, 0.995, 0.997, 0.998, 0.999, 1};
  return kShares;
}

double NoiseGroup::at(double share) const {
  const std::span<const double> shares = noise_shares();
  JIGE_CHECK(quantiles.size() == shares.size(), "{} quantiles of noise", quantiles.size());
  const auto above = std::ranges::upper_bound(shares, share);
  if (above == shares.begin()) return quantiles.front();
  if (above == shares.end()) return quantiles.back();
  const auto i = static_cast<size_t>(above - shares.begin());
  const double part = (share - shares[i - 1]) / (shares[i] - shares[i - 1]);
  return quantiles[i - 1] + part * (quantiles[i] - quantiles[i - 1]);
}

double NoiseGroup::mean() const {
  const std::span<const double> shares = noise_shares();
  double sum = 0;
  for (size_t i = 1; i < shares.size(); ++i) {
    sum += (shares[i] - shares[i - 1]) * (quantiles[i] + quantiles[i - 1]) / 2;
  }
  return sum;
}

const NoiseGroup* StepNoise::group_of(double usual_s) const {
  if (groups.empty()) return nullptr;
  const auto found = std::ranges::lower_bound(groups, usual_s, {}, &NoiseGroup::end_s);
  return found == groups.end() ? &groups.back() : &*found;
}

double StepNoise::draw(double usual_s, Rng& rng) const {
  const NoiseGroup* const group = group_of(usual_s);
  return group ? group->at(rng.uniform()) : 1;
}

double StepNoise::mean(double usual_s) const {
  const NoiseGroup* const group = group_of(usual_s);
  return group ? group->mean() : 1;
}

StepNoise noise_of(std::vector<TimedTurn> turns) {
  StepNoise noise;
  if (turns.empty()) return noise;
  std::ranges::stable_sort(turns, {}, &TimedTurn::usual_s);
  const int64_t count = std::clamp(std::ssize(turns) / kGroupTurnsMin, int64_t{1}, kGroupsMax);
  auto begin = turns.begin();
  for (int64_t i = 1; i <= count && begin != turns.end(); ++i) {
    // Turns of one usual time stay together.
    const double end_s = turns[static_cast<size_t>(std::ssize(turns) * i / count - 1)].usual_s;
    const auto end = std::ranges::upper_bound(begin, turns.end(), end_s, {}, &TimedTurn::usual_s);
    if (begin == end) continue;
    std::vector<double> ratios;
    for (auto turn = begin; turn != end; ++turn) ratios.push_back(turn->seconds / turn->usual_s);
    std::ranges::sort(ratios);
    NoiseGroup& group = noise.groups.emplace_back();
    group.end_s = end_s;
    for (const double share : noise_shares()) group.quantiles.push_back(quantile(ratios, share));
    begin = end;
  }
  return noise;
}

}  // namespace jige::sim
