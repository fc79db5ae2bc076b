#include "cluster/lateness.h"

#include <fmt/format.h>

#include <algorithm>

namespace jige::cluster {
namespace {

constexpr double kGpusOfANode = 8;
constexpr double kStretch = 1.3;   // of what is left, by contention
constexpr double kCapacity = 0.5;  // of the GPUs, that contention leaves

double ranking_service(const ClusterState& cluster, JobId id, double alone_ns) {
  const Job& job = cluster.job(id);
  const int32_t each = cluster.spec().gpus_per_node;
  const int32_t nodes = job.nodes > 0 ? job.nodes : (job.gpus + each - 1) / each;
  return alone_ns * (job.gpus + (nodes > 1 ? kGpusOfANode * nodes : 0));
}

}  // namespace

void Lateness::Window::add(double value) {
  if (last.size() == kSeenMax) {
    sorted.erase(std::ranges::lower_bound(sorted, last.front()));
    last.pop_front();
  }
  last.push_back(value);
  sorted.insert(std::ranges::upper_bound(sorted, value), value);
}

double Lateness::Window::quantile(double share) const {
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
}

Lateness::Known& Lateness::known(const ClusterState& cluster, JobId id) {
  const auto i = static_cast<size_t>(id);
  if (known_.size() <= i) known_.resize(i + 1);
  Known& job = known_[i];
  if (job.seen) return job;
  const double alone_ns = options_.lengths.alone_ns(cluster, id);
  job = {.seen = true, .late = false, .service = ranking_service(cluster, id, alone_ns)};
  services_.add(job.service);
  lengths_.add(alone_ns);
  return job;
}

void Lateness::came(const ClusterState& cluster, JobId id) { known(cluster, id); }

bool Lateness::giant(const Known& job) const {
  return job.service > services_.quantile(1 - options_.giants);
}

void Lateness::look(const ClusterState& cluster, std::span<const JobId> waiting) {
  double left = 0;
  const auto add = [&](JobId id) {
    if (giant(known(cluster, id))) return;
    left += options_.lengths.remaining_ns(cluster, id) * cluster.job(id).gpus;
  };
  for (const JobId id : cluster.running()) add(id);
  for (const JobId id : waiting) add(id);
  if (lengths_.last.size() < kSeenMin) return;
  const double capacity = kCapacity * std::max(1, cluster.gpus_in_service());
  deadline_ns_ = lengths_.quantile(1 - options_.giants) + options_.backlog * left / capacity;
}

bool Lateness::quick(const ClusterState& cluster, JobId id) {
  const Known& job = known(cluster, id);
  return services_.last.size() >= kSeenMin && job.service < services_.quantile(options_.quick);
}

bool Lateness::late(const ClusterState& cluster, JobId id) {
  Known& job = known(cluster, id);
  if (job.late || deadline_ns_ == 0 || giant(job)) return job.late;
  job.late = end_ns(cluster, id) > deadline_ns_;
  return job.late;
}

// After its arrival, if it ran from now on.
double Lateness::end_ns(const ClusterState& cluster, JobId id) const {
  const auto here_ns = static_cast<double>(cluster.now_ns() - cluster.job(id).arrival_ns);
  return here_ns + kStretch * options_.lengths.remaining_ns(cluster, id);
}

std::string Lateness::late_text(const ClusterState& cluster, JobId id) const {
  const double end = end_ns(cluster, id), hour_ns = 3600.0 * kSecond;
  std::string text =
      fmt::format("run from now on it would end {:.1f} h after it came; its deadline is {:.1f} h",
                  end / hour_ns, deadline_ns_ / hour_ns);
  // The backlog may have grown since, and the deadline with it.
  const double over_h = (end - deadline_ns_) / hour_ns;
  if (over_h > 0) text += fmt::format(", {:.1f} h too late", over_h);
  return text;
}

}  // namespace jige::cluster
