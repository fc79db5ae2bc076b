#include <algorithm>

#include "cluster/contention.h"
#include "cluster/fair_share.h"

namespace jige::cluster {
namespace {

// kSpread fills iterations a second up to what the job does alone; kCollide fills the speed of the
// communication itself, and an iteration then takes what the job's formula says.
struct Demand {
  std::vector<LinkLoad> loads;
  double cap = 0;    // a second
  double speed = 1;  // of filling
  double alone_s = 0;
};

class LinkContention final : public Contention {
 public:
  LinkContention(const ClusterSpec& spec, const LinkModel& model)
      : spec_(spec), model_(model), shares_(spec.capacities()) {}

  void start(JobId id, const Job& job, const Placement& placement) override {
    if (static_cast<size_t>(id) >= rates_.size()) rates_.resize(static_cast<size_t>(id) + 1);
    Entry& entry = at(id);
    Demand demand = demand_of(id, job, placement);
    entry.job = &job;
    entry.linked = !demand.loads.empty();
    entry.rate = 1 / iteration_ns(job, demand.alone_s);
    if (entry.linked) {
      shares_.add(id, std::move(demand.loads), demand.cap, demand.speed);
    } else {
      unlinked_.push_back(id);
    }
  }

  void stop(JobId id) override {
    if (at(id).linked) shares_.remove(id);
    at(id).linked = false;
  }

  std::span<const JobId> settle() override {
    changed_ = shares_.settle();
    for (const JobId id : changed_) at(id).rate = iterations_per_ns(*at(id).job, shares_.rate(id));
    changed_.insert(changed_.end(), unlinked_.begin(), unlinked_.end());
    unlinked_.clear();
    return changed_;
  }

  double rate(JobId id) const override { return rates_[static_cast<size_t>(id)].rate; }

  double rate_alone(JobId id, const Job& job, const Placement& placement) const override {
    const std::vector<LinkLoad> loads = traffic(job, id, placement, spec_);
    return 1 / iteration_ns(job, communication_s(loads, shares_.capacities()));
  }

  Forecast forecast(JobId id, const Job& job, const Placement& placement) override {
    return forecast_by(&FairShare::forecast, id, job, placement);
  }
  Forecast estimate(JobId id, const Job& job, const Placement& placement) override {
    return forecast_by(&FairShare::estimate, id, job, placement);
  }

  std::span<const LinkLoad> loads(JobId id) const override {
    if (!rates_[static_cast<size_t>(id)].linked) return {};
    return shares_.loads(id);
  }

 private:
  struct Entry {
    const Job* job = nullptr;
    double rate = 0;
    bool linked = false;
  };
  Entry& at(JobId id) { return rates_[static_cast<size_t>(id)]; }

  using ShareForecast = FairShare::Forecast (FairShare::*)(const std::vector<LinkLoad>&, double,
                                                           double);
  Forecast forecast_by(ShareForecast how, JobId id, const Job& job, const Placement& placement) {
    const Demand demand = demand_of(id, job, placement);
    Forecast forecast;
    forecast.rate = 1 / iteration_ns(job, demand.alone_s);
    if (demand.loads.empty()) return forecast;
    const FairShare::Forecast shares = (shares_.*how)(demand.loads, demand.cap, demand.speed);
    forecast.rate = iterations_per_ns(job, shares.rate);
    for (const auto& [other, rate] : shares.others) {
      forecast.others.emplace_back(other, iterations_per_ns(*at(other).job, rate));
    }
    return forecast;
  }

  Demand demand_of(JobId id, const Job& job, const Placement& placement) const {
    Demand demand{.loads = traffic(job, id, placement, spec_)};
    demand.alone_s = communication_s(demand.loads, shares_.capacities());
    if (demand.loads.empty()) return demand;
    const double iterations_s = kSecond / iteration_ns(job, demand.alone_s);
    demand.cap = model_.phases == Phases::kCollide ? 1 / demand.alone_s : iterations_s;
    if (model_.fairness == Fairness::kBytes) {
      demand.speed = 1 / std::ranges::max(demand.loads, {}, &LinkLoad::bytes).bytes;
    } else if (model_.fairness == Fairness::kProgress) {
      demand.speed = demand.cap;
    }
    return demand;
  }

  double iterations_per_ns(const Job& job, double share) const {
    if (model_.phases == Phases::kCollide) return 1 / iteration_ns(job, 1 / share);
    return share / kSecond;
  }

  ClusterSpec spec_;
  LinkModel model_;
  FairShare shares_;
  std::vector<Entry> rates_;
  std::vector<JobId> unlinked_, changed_;
};

class NoContention final : public Contention {
 public:
  explicit NoContention(const ClusterSpec& spec) : spec_(spec), capacities_(spec.capacities()) {}

  void start(JobId id, const Job& job, const Placement& placement) override {
    if (static_cast<size_t>(id) >= rates_.size()) rates_.resize(static_cast<size_t>(id) + 1);
    rates_[static_cast<size_t>(id)] = rate_alone(id, job, placement);
    started_.push_back(id);
  }
  void stop(JobId) override {}
  std::span<const JobId> settle() override {
    changed_ = std::move(started_);
    started_.clear();
    return changed_;
  }
  double rate(JobId id) const override { return rates_[static_cast<size_t>(id)]; }
  double rate_alone(JobId id, const Job& job, const Placement& placement) const override {
    const double alone_s = communication_s(traffic(job, id, placement, spec_), capacities_);
    return 1 / iteration_ns(job, alone_s);
  }
  Forecast forecast(JobId id, const Job& job, const Placement& placement) override {
    return {.rate = rate_alone(id, job, placement), .others = {}};
  }

 private:
  ClusterSpec spec_;
  std::vector<double> capacities_;
  std::vector<double> rates_;
  std::vector<JobId> started_, changed_;
};

}  // namespace

std::unique_ptr<Contention> make_link_contention(const ClusterSpec& spec, const LinkModel& model) {
  return std::make_unique<LinkContention>(spec, model);
}

std::unique_ptr<Contention> make_no_contention(const ClusterSpec& spec) {
  return std::make_unique<NoContention>(spec);
}

}  // namespace jige::cluster
