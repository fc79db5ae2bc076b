#include "cli/load_rounds.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace jige::cli {

const LoadPoint& LoadRounds::add(int64_t round, LoadPoint point,
                                 std::span<const sim::RequestOutcome> outcomes) {
  JIGE_CHECK(round == std::ssize(rounds_) || round + 1 == std::ssize(rounds_),
             "round {} behind {} rounds", round, rounds_.size());
  if (round == std::ssize(rounds_)) rounds_.emplace_back();
  point.report = sim::make_report(outcomes, bounds_);
  auto load = std::ranges::find_if(loads_, [&](const Load& other) {
    return other.point.subject == point.subject && other.point.rate == point.rate &&
           other.point.users == point.users;
  });
  if (load == loads_.end()) load = loads_.insert(loads_.end(), {.point = point});
  sim::append_round(load->outcomes, outcomes);
  if (point.report.normalised_s.count > 0) {
    load->point.rounds_p50_s.push_back(point.report.normalised_s.p50);
  }
  return rounds_.back().emplace_back(std::move(point));
}

std::vector<LoadPoint> LoadRounds::points() const {
  std::vector<std::string> subjects;
  std::vector<LoadPoint> points;
  for (const Load& load : loads_) {
    if (std::ranges::find(subjects, load.point.subject) == subjects.end()) {
      subjects.push_back(load.point.subject);
    }
    points.push_back(load.point);
    points.back().report = sim::make_report(load.outcomes, bounds_);
    if (rounds_.size() < 2) points.back().rounds_p50_s.clear();
  }
  std::ranges::stable_sort(points, {}, [&](const LoadPoint& point) {
    return std::ranges::find(subjects, point.subject) - subjects.begin();
  });
  return points;
}

}  // namespace jige::cli
