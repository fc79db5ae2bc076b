// Training on one device that holds everything.
//
// A step: for every micro-batch in order, its tasks (schedule_tasks.h), where the first stores
// gradients and the others add to them; AdamW; pack. With a gate (row_gate.h) of some rows of
// weights alone. Threads: one thread at a time; the device's team runs the kernels.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "train/row_gate.h"
#include "train/whole_model_engine.h"

namespace jige::train {

class OneDeviceEngine final : public WholeModelEngine {
 public:
  // The device and the architecture must outlive the engine. Fails with kExhausted.
  static Result<std::unique_ptr<StepEngine>> create(Device& device,
                                                    const model::Architecture& architecture,
                                                    const model::WeightsOptions& weights_options,
                                                    const model::TrainingMemory& memory,
                                                    const TrainOptions& options);

  Result<StepOutcome> run(const Corpus& corpus, const StepPlan& plan,
                          const StepRates& rates) override;
  RowGate* row_gate() override { return gate_ ? &*gate_ : nullptr; }

 private:
  OneDeviceEngine() = default;

  std::vector<Task> tasks_;  // of one micro-batch
  std::optional<RowGate> gate_;
};

}  // namespace jige::train
