#include "train/gradient_carrier.h"

#include <utility>
#include <vector>

#include "train/staged_gradients.h"

namespace jige::train {
namespace {

// Where the host computes: what is awaited is awaited by who needs it.
class GradientsInPlace final : public GradientCarrier {
 public:
  explicit GradientsInPlace(const model::ModelWeights& weights)
      : weights_(weights), arrivals_(weights.architecture().node_count()) {}

  std::span<std::byte> memory(size_t node) const override {
    const TensorView& memory = weights_.gradient_memory(node);
    if (!memory) return {};
    return {static_cast<std::byte*>(memory.data), static_cast<size_t>(memory.count()) * 4};
  }
  void restart() override {}
  Status fetch(Stream& compute, const NodePart&, std::function<Status()> go_on) override {
    compute.synchronize();
    return go_on();
  }
  Status await_fetched() override { return {}; }
  void store(Stream&, const NodePart&) override {}
  void expect(const NodePart& part, GradientArrival arrival) override {
    arrivals_[part.node] = std::move(arrival);
  }
  Status await_part(Stream&, size_t node, const ElementRange& elements) override {
    return arrivals_[node].part(elements);
  }
  Status await_all(Stream&, size_t node) override { return arrivals_[node].all(); }

 private:
  const model::ModelWeights& weights_;
  std::vector<GradientArrival> arrivals_;  // by node
};

}  // namespace

Result<std::unique_ptr<GradientCarrier>> GradientCarrier::make(Device& device,
                                                               const model::ModelWeights& weights) {
  if (device.kind() == DeviceKind::kCpu) return std::make_unique<GradientsInPlace>(weights);
  return StagedGradients::make(device, weights);
}

}  // namespace jige::train
