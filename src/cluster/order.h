// Order: which job comes first. A key for each job, the lowest first; equal keys go by arrival.
//
//   fifo      arrival
//   sjf       length of the whole job alone
//   srtf      what is left of it
//   srsf      what is left of it times its GPUs
//   las       GPU-time it has had, in queues with limits, by arrival inside a queue (Tiresias)
//   gittins   Gittins index of that GPU-time, from the lengths of a history (Tiresias)
//   max-min   the share of its time here in which it had GPUs (Gavel's max-min fairness; with one
//             kind of GPU its water-filling gives every job the same target share)
//   ftf       finish-time fairness: (time here + what is left) / length alone, the worst first
//             (Themis)
//
// sjf, srtf, srsf and ftf know lengths, as they are estimated.
// Threads: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "cluster/cluster_state.h"
#include "cluster/length_estimates.h"

namespace jige::cluster {

enum class OrderKind : uint8_t { kFifo, kSjf, kSrtf, kSrsf, kLas, kGittins, kMaxMin, kFinishTime };
inline constexpr int kOrderKindCount = 8;
std::string_view order_name(OrderKind kind);

struct OrderOptions {
  OrderKind kind = OrderKind::kFifo;
  LengthEstimates lengths = {};
  std::vector<double> las_limits_gpu_s = {3250, 7200, 18000};
  std::vector<double> history_gpu_s;  // lengths times GPUs of jobs seen before, for gittins
};

class Order {
 public:
  virtual ~Order() = default;
  virtual double key(const ClusterState& cluster, JobId id) const = 0;
  // Whether the key of a job that waits changes with time.
  virtual bool ages() const { return false; }
};

std::unique_ptr<Order> make_order(const OrderOptions& options);

// G(a) = max over d of P(S - a <= d | S > a) / E[min(S - a, d) | S > a]: the best rate of endings
// for the service spent on a job that has had `a`, where S is drawn from the history.
class GittinsIndex {
 public:
  // An empty history gives index 0 everywhere.
  explicit GittinsIndex(std::vector<double> history);
  double at(double attained) const;

 private:
  std::vector<double> points_, index_;
};

}  // namespace jige::cluster
