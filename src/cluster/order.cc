#include "cluster/order.h"

#include <algorithm>

namespace jige::cluster {
namespace {

constexpr size_t kGittinsPointsMax = 256;

double attained_gpu_s(const ClusterState& cluster, JobId id) {
  return static_cast<double>(cluster.held_ns(id)) / kSecond * cluster.job(id).gpus;
}

double time_here_ns(const ClusterState& cluster, JobId id) {
  return static_cast<double>(cluster.now_ns() - cluster.job(id).arrival_ns);
}

class FifoOrder final : public Order {
 public:
  double key(const ClusterState&, JobId) const override { return 0; }
};

// sjf, srtf, srsf.
class LengthOrder final : public Order {
 public:
  explicit LengthOrder(OrderOptions options) : options_(std::move(options)) {}
  double key(const ClusterState& cluster, JobId id) const override {
    if (options_.kind == OrderKind::kSjf) return options_.lengths.alone_ns(cluster, id);
    const double left_ns = options_.lengths.remaining_ns(cluster, id);
    return options_.kind == OrderKind::kSrtf ? left_ns : left_ns * cluster.job(id).gpus;
  }

 private:
  OrderOptions options_;
};

class LasOrder final : public Order {
 public:
  explicit LasOrder(std::vector<double> limits_gpu_s) : limits_(std::move(limits_gpu_s)) {
    std::ranges::sort(limits_);
  }
  double key(const ClusterState& cluster, JobId id) const override {
    const auto limit = std::ranges::upper_bound(limits_, attained_gpu_s(cluster, id));
    return static_cast<double>(limit - limits_.begin());
  }

 private:
  std::vector<double> limits_;
};

class GittinsOrder final : public Order {
 public:
  explicit GittinsOrder(std::vector<double> history) : index_(std::move(history)) {}
  double key(const ClusterState& cluster, JobId id) const override {
    return -index_.at(attained_gpu_s(cluster, id));
  }

 private:
  GittinsIndex index_;
};

class MaxMinOrder final : public Order {
 public:
  double key(const ClusterState& cluster, JobId id) const override {
    return static_cast<double>(cluster.held_ns(id)) / (time_here_ns(cluster, id) + 1);
  }
  bool ages() const override { return true; }
};

class FinishTimeOrder final : public Order {
 public:
  explicit FinishTimeOrder(OrderOptions options) : options_(std::move(options)) {}
  double key(const ClusterState& cluster, JobId id) const override {
    const double left_ns = options_.lengths.remaining_ns(cluster, id);
    return -(time_here_ns(cluster, id) + left_ns) / options_.lengths.alone_ns(cluster, id);
  }
  bool ages() const override { return true; }

 private:
  OrderOptions options_;
};

}  // namespace

std::string_view order_name(OrderKind kind) {
  static constexpr std::string_view kNames[kOrderKindCount] = {"fifo", "sjf",     "srtf",    "srsf",
                                                               "las",  "gittins", "max-min", "ftf"};
  return kNames[static_cast<size_t>(kind)];
}

std::unique_ptr<Order> make_order(const OrderOptions& options) {
  switch (options.kind) {
    case OrderKind::kFifo:
      return std::make_unique<FifoOrder>();
    case OrderKind::kSjf:
    case OrderKind::kSrtf:
    case OrderKind::kSrsf:
      return std::make_unique<LengthOrder>(options);
    case OrderKind::kLas:
      return std::make_unique<LasOrder>(options.las_limits_gpu_s);
    case OrderKind::kGittins:
      return std::make_unique<GittinsOrder>(options.history_gpu_s);
    case OrderKind::kMaxMin:
      return std::make_unique<MaxMinOrder>();
    case OrderKind::kFinishTime:
      return std::make_unique<FinishTimeOrder>(options);
  }
  return std::make_unique<FifoOrder>();
}

GittinsIndex::GittinsIndex(std::vector<double> history) {
  std::erase_if(history, [](double length) { return !(length > 0); });
  std::ranges::sort(history);
  if (history.empty()) return;
  // Long histories are thinned to quantiles, each for an equal part of the jobs.
  const size_t count = std::min(history.size(), kGittinsPointsMax);
  std::vector<double> lengths(count);
  for (size_t i = 0; i < count; ++i) {
    lengths[i] = history[(2 * i + 1) * history.size() / (2 * count)];
  }
  points_.push_back(0);
  points_.insert(points_.end(), lengths.begin(), lengths.end());
  points_.erase(std::unique(points_.begin(), points_.end()), points_.end());
  for (const double attained : points_) {
    const auto first = std::ranges::upper_bound(lengths, attained) - lengths.begin();
    double best = 0, spent = 0;  // spent: service of those that end by then
    for (size_t k = static_cast<size_t>(first); k < count; ++k) {
      spent += lengths[k] - attained;
      const auto ended = static_cast<double>(k + 1 - static_cast<size_t>(first));
      const auto others = static_cast<double>(count - 1 - k);
      best = std::max(best, ended / (spent + others * (lengths[k] - attained)));
    }
    index_.push_back(best);
  }
}

double GittinsIndex::at(double attained) const {
  if (points_.empty()) return 0;
  const auto above = std::ranges::upper_bound(points_, attained) - points_.begin();
  return index_[static_cast<size_t>(std::max<std::ptrdiff_t>(above - 1, 0))];
}

}  // namespace jige::cluster
