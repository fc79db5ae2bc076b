#include "cluster/contention_placer.h"

#include <algorithm>
#include <set>

namespace jige::cluster {
namespace {

constexpr double kMoveWorth = 2;       // gain over cost
constexpr double kStandsWell = 0.9;    // progress above which nobody looks for a better place
constexpr size_t kMovesLookedAt = 12;  // jobs a round
constexpr size_t kMovePlaces = 6;      // candidates for each
constexpr size_t kForecasts = 5;       // candidates that are worth one

PlacementScore score_of(const ClusterState& cluster, JobId id, const Placement& placement,
                        const Contention::Forecast& forecast,
                        const ContentionPlacerOptions& options) {
  PlacementScore result;
  result.progress = forecast.rate * cluster.at(id).ideal_iteration_ns;
  for (const auto& [other, rate] : forecast.others) {
    const double lost = (cluster.at(other).rate - rate) * cluster.at(other).ideal_iteration_ns;
    result.loss += lost;
    result.slowed += lost > 0;
  }
  const size_t fewest = ideal_placement(cluster.job(id), cluster.spec()).size();
  result.extra_nodes = static_cast<double>(placement.size()) - static_cast<double>(fewest);
  result.score = result.progress - result.loss - options.span_cost * result.extra_nodes;
  return result;
}

class ContentionPlacer final : public Placer {
 public:
  explicit ContentionPlacer(const ContentionPlacerOptions& options) : options_(options) {}

  std::optional<Placement> place(ClusterState& cluster, JobId id, bool must) override {
    const double least = must ? -1e300 : waiting_threshold(cluster, id, options_);
    if (turned_down_.still(cluster, id, least)) return std::nullopt;
    PromisingPlacements promising = promising_placements(cluster, id, options_);
    std::vector<Placement>& candidates = promising.placements;
    size_t best = 0;
    double best_score = 1;
    if (promising.hopeless(least)) {
      best_score = promising.reach();
    } else if (candidates.size() > 1 || candidates[0].size() > 1) {
      best_score = -1e300;
      for (size_t i = 0; i < candidates.size(); ++i) {
        const double score = score_placement(cluster, id, candidates[i], options_).score;
        if (score > best_score) {
          best_score = score;
          best = i;
        }
      }
    }
    if (best_score < least) {
      turned_down_.note(cluster, id, best_score);
      return std::nullopt;
    }
    return std::move(candidates[best]);
  }

  void improve(ClusterState& cluster) override {
    if (options_.moves_max == 0 || (cluster.version() == looked_at_ && wanted_.empty())) return;
    looked_at_ = cluster.version();
    cluster.refresh();
    std::vector<std::pair<double, JobId>> worst;
    for (const JobId id : cluster.running()) {
      const double progress = cluster.progress(id);
      const bool restarting = cluster.at(id).progress_from_ns > cluster.now_ns();
      const bool may_move = cluster.job(id).stoppable && cluster.at(id).partner < 0;
      if (cluster.at(id).placement.size() > 1 && progress < kStandsWell && !restarting &&
          may_move) {
        worst.emplace_back(progress, id);
      }
    }
    std::ranges::sort(worst);
    if (worst.size() > kMovesLookedAt) worst.resize(kMovesLookedAt);
    std::set<JobId> wanted_now;
    int64_t moves = 0;
    for (const auto& [progress, id] : worst) {
      const std::optional<Placement> better = better_place(cluster, id);
      if (!better) continue;
      wanted_now.insert(id);
      if (!wanted_.contains(id) || moves == options_.moves_max) continue;
      cluster.migrate(id, *better);
      ++moves;
    }
    wanted_ = std::move(wanted_now);
  }

 private:
  // A place that pays, if there is one among the candidates on free GPUs.
  std::optional<Placement> better_place(ClusterState& cluster, JobId id) const {
    if (!cluster.free().fits(cluster.job(id))) return std::nullopt;
    std::vector<Placement> candidates = candidate_placements(cluster, id, kMovePlaces);
    const std::vector<ClusterState::Move> moves = cluster.forecast_moves(id, candidates);
    const double progress = cluster.progress(id);
    const double horizon_ns = options_.knows_lengths ? options_.lengths.remaining_ns(cluster, id)
                                                     : static_cast<double>(cluster.held_ns(id));
    const auto restart_ns = static_cast<double>(cluster.job(id).restart_ns);
    std::optional<Placement> best;
    double best_gain = 0;
    for (size_t i = 0; i < moves.size(); ++i) {
      const double after = moves[i].rate * cluster.at(id).ideal_iteration_ns;
      const double gain = after - progress + moves[i].others_gain;
      if (gain * horizon_ns <= kMoveWorth * restart_ns * after || gain <= best_gain) continue;
      best_gain = gain;
      best = std::move(candidates[i]);
    }
    return best;
  }

  ContentionPlacerOptions options_;
  TurnedDown turned_down_;
  int64_t looked_at_ = -1;
  std::set<JobId> wanted_;  // jobs that would have gained in the round before
};

}  // namespace

bool TurnedDown::still(const ClusterState& cluster, JobId id, double least) const {
  const auto i = static_cast<size_t>(id);
  return i < jobs_.size() && jobs_[i].departures == cluster.departures() && jobs_[i].score < least;
}

void TurnedDown::note(const ClusterState& cluster, JobId id, double score) {
  const auto i = static_cast<size_t>(id);
  if (jobs_.size() <= i) jobs_.resize(i + 1);
  jobs_[i] = {cluster.departures(), score};
}

PromisingPlacements promising_placements(ClusterState& cluster, JobId id,
                                         const ContentionPlacerOptions& options) {
  std::vector<Placement> candidates =
      candidate_placements(cluster, id, static_cast<size_t>(options.candidates_max));
  // One node disturbs nobody.
  if (candidates[0].size() == 1) return {std::move(candidates), 1};
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Contention::Forecast estimate = cluster.estimate(id, candidates[i]);
    order.emplace_back(-score_of(cluster, id, candidates[i], estimate, options).score, i);
  }
  const size_t count = std::min(order.size(), kForecasts);
  std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(count));
  PromisingPlacements best{.placements = {}, .best_estimate = -order.front().first};
  for (size_t k = 0; k < count; ++k) {
    best.placements.push_back(std::move(candidates[order[k].second]));
  }
  return best;
}

PlacementScore score_placement(ClusterState& cluster, JobId id, const Placement& placement,
                               const ContentionPlacerOptions& options) {
  return score_of(cluster, id, placement, cluster.forecast(id, placement), options);
}

double waiting_threshold(const ClusterState& cluster, JobId id,
                         const ContentionPlacerOptions& options) {
  const auto waited_ns = static_cast<double>(cluster.now_ns() - cluster.at(id).waiting_since_ns);
  auto patience_ns = static_cast<double>(options.patience_min_ns);
  if (options.knows_lengths) {
    patience_ns =
        std::max(patience_ns, options.patience * options.lengths.remaining_ns(cluster, id));
  }
  return options.threshold * std::max(0.0, 1 - waited_ns / patience_ns);
}

std::unique_ptr<Placer> make_contention_placer(const ContentionPlacerOptions& options) {
  return std::make_unique<ContentionPlacer>(options);
}

}  // namespace jige::cluster
