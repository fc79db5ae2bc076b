#include <algorithm>

#include "cluster/contention.h"

namespace jige::cluster {
namespace {

class TableContention final : public Contention {
 public:
  TableContention(const ClusterSpec& spec, SlowdownTable table, std::vector<std::string> models)
      : spec_(spec),
        table_(std::move(table)),
        models_(std::move(models)),
        on_node_(static_cast<size_t>(spec.node_count())) {}

  void start(JobId id, const Job& job, const Placement& placement) override {
    if (static_cast<size_t>(id) >= entries_.size()) entries_.resize(static_cast<size_t>(id) + 1);
    at(id) = {.type = type_of(job, placement),
              .ideal = 1 / ideal_iteration_ns(job, spec_),
              .placement = placement,
              .running = true};
    dirty_.push_back(id);
    if (placement.size() < 2) return;
    for (const NodeShare& share : placement) {
      for (const JobId other : on(share)) dirty_.push_back(other);
      on(share).push_back(id);
    }
  }

  void stop(JobId id) override {
    at(id).running = false;
    if (at(id).placement.size() < 2) return;
    for (const NodeShare& share : at(id).placement) {
      std::erase(on(share), id);
      for (const JobId other : on(share)) dirty_.push_back(other);
    }
  }

  std::span<const JobId> settle() override {
    std::ranges::sort(dirty_);
    dirty_.erase(std::unique(dirty_.begin(), dirty_.end()), dirty_.end());
    std::erase_if(dirty_, [&](JobId id) { return !at(id).running; });
    changed_ = std::move(dirty_);
    dirty_.clear();
    for (const JobId id : changed_) {
      at(id).share = share_of(at(id).type, at(id).placement, id);
    }
    return changed_;
  }

  double rate(JobId id) const override {
    const Entry& entry = entries_[static_cast<size_t>(id)];
    return entry.ideal * entry.share;
  }

  double rate_alone(JobId, const Job& job, const Placement&) const override {
    return 1 / ideal_iteration_ns(job, spec_);
  }

  Forecast forecast(JobId id, const Job& job, const Placement& placement) override {
    const int32_t type = type_of(job, placement);
    Forecast forecast;
    forecast.rate = share_of(type, placement, id) / ideal_iteration_ns(job, spec_);
    if (placement.size() < 2) return forecast;
    std::vector<JobId> others;
    for (const NodeShare& share : placement) {
      others.insert(others.end(), on(share).begin(), on(share).end());
    }
    std::ranges::sort(others);
    others.erase(std::unique(others.begin(), others.end()), others.end());
    for (const JobId other : others) {
      const Entry& entry = at(other);
      const double share = std::min(entry.share, pair_share(entry.type, type));
      forecast.others.emplace_back(other, entry.ideal * share);
    }
    return forecast;
  }

 private:
  struct Entry {
    int32_t type = -1;
    double ideal = 0;
    double share = 1;
    Placement placement = {};
    bool running = false;
  };
  Entry& at(JobId id) { return entries_[static_cast<size_t>(id)]; }
  std::vector<JobId>& on(const NodeShare& share) {
    return on_node_[static_cast<size_t>(share.node)];
  }

  int32_t type_of(const Job& job, const Placement& placement) const {
    return table_.type_of(models_[static_cast<size_t>(job.model)], job.gpus,
                          static_cast<int32_t>(placement.size()));
  }

  // Types that were not measured disturb nobody and are not disturbed.
  double pair_share(int32_t type, int32_t beside) const {
    if (type < 0 || beside < 0) return 1;
    return std::clamp(table_.share(type, beside), table_.floor, 1.0);
  }

  double share_of(int32_t type, const Placement& placement, JobId self) {
    double least = 1;
    if (placement.size() < 2) return least;
    for (const NodeShare& share : placement) {
      for (const JobId other : on(share)) {
        if (other != self) least = std::min(least, pair_share(type, at(other).type));
      }
    }
    return least;
  }

  ClusterSpec spec_;
  SlowdownTable table_;
  std::vector<std::string> models_;
  std::vector<Entry> entries_;
  std::vector<std::vector<JobId>> on_node_;  // those on several nodes
  std::vector<JobId> dirty_, changed_;
};

}  // namespace

std::unique_ptr<Contention> make_table_contention(const ClusterSpec& spec, SlowdownTable table,
                                                  std::vector<std::string> models) {
  return std::make_unique<TableContention>(spec, std::move(table), std::move(models));
}

}  // namespace jige::cluster
