// How the tokens of a step used the experts: counts of whole numbers and an exact sum, so that no
// order of micro-batches, devices or ranks changes a bit.
//
// Threads: ExpertMeter from any thread; the rest are values.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "base/exact_sum.h"
#include "model/architecture.h"
#include "tensor/device.h"

namespace jige::train {

struct ExpertUse {
  int64_t expert_count = 0;     // E; 0: the model has none
  std::vector<int64_t> counts;  // [layers with experts, E]: how many tokens chose each
  ExactSum balance;             // over tokens and layers, ops::ExpertBalance::losses

  // REQUIRES: of the same model.
  void merge(const ExpertUse& other);
};

// Of a layer the tokens of its busiest expert, over what each would have of equal use: 1 to E / k.
struct BusiestExperts {
  double most = 0;  // of the layer where that is most
  double mean = 0;  // over layers
};
// REQUIRES: experts, and tokens.
BusiestExperts busiest_experts(const ExpertUse& use);

// Adds up the use of experts over the micro-batches of a step.
class ExpertMeter {
 public:
  explicit ExpertMeter(const model::Architecture& architecture);

  // Of the block of a node whose X left its record in `saved`. Waits for the stream. Nothing where
  // the block has no experts.
  struct Record {
    size_t node = 0;
    TensorView saved;
    DType compute = DType::kF32;
  };
  void add(Stream& stream, const model::Batch& batch, const Record& record);
  // What was added since the last call.
  ExpertUse take();

 private:
  const model::Architecture& architecture_;
  std::vector<size_t> layer_of_node_;  // among those with experts
  std::mutex mutex_;
  ExpertUse use_;
};

}  // namespace jige::train
