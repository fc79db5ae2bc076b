#include "train/sharded_update.h"

#include "base/check.h"
#include "base/clock.h"

namespace jige::train {

ShardedUpdate::ShardedUpdate(comm::AsyncGroup& group, GradientCarrier& carrier,
                             model::ModelWeights& weights, Optimizer& optimizer)
    : group_(group),
      carrier_(carrier),
      weights_(weights),
      optimizer_(optimizer),
      params_(weights.architecture().node_count()),
      gathering_(params_.size()) {
  JIGE_CHECK(optimizer.shares() && optimizer.shares()->ranks() == group.size(),
             "a divided update without shares for {} ranks", group.size());
  for (size_t i = 0; i < optimizer.params().size(); ++i) {
    const model::NamedParam& param = optimizer.params()[i];
    const auto* memory = static_cast<const float*>(weights.gradient_memory(param.node).data);
    const int64_t begin = static_cast<const float*>(param.grad.data) - memory;
    JIGE_CHECK(begin == optimizer.shares()->begin_of(i), "{} begins at {} of its node's gradients",
               param.spec->name, begin);
    params_[param.node].push_back(i);
  }
}

void ShardedUpdate::take_masters(Stream& stream) {
  for (size_t i = 0; i < optimizer_.params().size(); ++i) {
    if (!optimizer_.master_is_apart(i)) continue;
    const TensorView master = optimizer_.master(i);
    const auto* value = static_cast<const float*>(optimizer_.params()[i].value.data);
    stream.copy(master.data, value + optimizer_.held(i).begin, master.count() * 4,
                CopyKind::kDeviceToDevice);
  }
  stream.synchronize();
}

Status ShardedUpdate::update_node(Stream& stream, size_t node, const OptimizerReport& report,
                                  double learning_rate) {
  for (const size_t i : params_[node]) {
    const ElementRange& held = optimizer_.held(i);
    if (held.count == 0) continue;
    const TensorView& grad = optimizer_.params()[i].grad;
    if (report.applied) {
      optimizer_.update(stream, i, grad,
                        {.learning_rate = learning_rate,
                         .grad_scale = report.grad_scale,
                         .update = optimizer_.update_count()});
    }
    stream.copy(static_cast<float*>(grad.data) + held.begin, optimizer_.master(i).data,
                held.count * 4, CopyKind::kDeviceToDevice);
  }
  const ElementRange own = optimizer_.shares()->of_node(node, group_.rank());
  return carrier_.fetch(stream, {node, own}, [this, node]() -> Status {
    start_gathering(node);
    return {};
  });
}

void ShardedUpdate::start_gathering(size_t node) {
  gathering_[node].clear();
  for (int rank = 0; rank < group_.size(); ++rank) {
    const ElementRange range = optimizer_.shares()->of_node(node, rank);
    if (range.count == 0) continue;
    std::byte* const part = carrier_.memory(node).data() + range.begin * 4;
    gathering_[node].push_back(group_.start({.collective = comm::Collective::kBroadcast,
                                             .count = range.count,
                                             .root = rank,
                                             .src = part,
                                             .dst = part}));
    const comm::Ring& ring = group_.plan().rings.front();
    const bool forwards = ring.at(ring.position_of(group_.rank()) + 1) != rank;
    if (forwards) sent_bytes_ += range.count * 4;
  }
}

void ShardedUpdate::take_values(Stream& stream, size_t node) {
  for (const size_t i : params_[node]) {
    const model::NamedParam& param = optimizer_.params()[i];
    if (param.value.data == param.grad.data) continue;
    stream.copy(param.value.data, param.grad.data, param.value.count() * 4,
                CopyKind::kDeviceToDevice);
  }
  weights_.pack(stream, node);
}

Status ShardedUpdate::run(Stream& stream, const OptimizerReport& report, double learning_rate) {
  wait_s_ = 0;
  if (report.applied) optimizer_.set_update_count(optimizer_.update_count() + 1);
  for (size_t node = 0; node < params_.size(); ++node) {
    JIGE_DO(update_node(stream, node, report, learning_rate));
  }
  JIGE_DO(carrier_.await_fetched());
  // The head comes last: a tied one is packed from the embedding's table.
  for (size_t node = 0; node < params_.size(); ++node) {
    const StopWatch watch;
    for (const comm::Pending& part : gathering_[node]) JIGE_DO(part.wait());
    wait_s_ += watch.seconds();
    const auto all = static_cast<int64_t>(carrier_.memory(node).size() / 4);
    carrier_.store(stream, {node, {0, all}});
    take_values(stream, node);
  }
  stream.synchronize();
  return {};
}

}  // namespace jige::train
