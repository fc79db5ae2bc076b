// Which layers of a model stay on a GPU that has no room for all; the others' weights stream from
// the host (model/layer_stream.h, plan/streamed_layers.h).
//
//   JIGE_TRY(options, fit_layers(folder, options, {.device_bytes = 8 << 30}, device.kind()));
//   JIGE_TRY(auto model, model::InferenceModel::load(folder, device, options));
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "model/inference.h"
#include "serve/draft_model_plan.h"

namespace jige::serve {

struct LayerBudget {
  // Of the GPU, that a model and its draft model may take; kUnlimitedBytes: no layer streams unless
  // it is asked for.
  int64_t device_bytes = kUnlimitedBytes;
  std::optional<int64_t> resident_layers;  // asked for; none: as many as fit
  int64_t host_bytes = kUnlimitedBytes;    // that the layers that stream may take
  const DraftModelPlan* draft_model = nullptr;

  bool may_stream() const { return device_bytes < kUnlimitedBytes || resident_layers; }
};

// Has all but `resident_count` layers stream, evenly spread. REQUIRES: no more than the model has.
void stream_layers(const model::Architecture& architecture, int64_t resident_count,
                   model::InferenceSizes& sizes);

// The sizes with the layers that stream: none where all fit, else as few as possible, or as many as
// are asked for. Fails with kExhausted, naming the numbers, where a budget does not do even if all
// stream or as asked for, and kInvalidArgument where more layers are to stay than there are.
Result<model::InferenceSizes> fit_layers(const model::Architecture& architecture,
                                         model::InferenceSizes sizes, const LayerBudget& budget);
// The same of the options that a folder will be loaded with, whose arena may take no more than the
// budget then. Fails also as loading fails.
Result<model::InferenceOptions> fit_layers(const std::string& folder,
                                           model::InferenceOptions options,
                                           const LayerBudget& budget, DeviceKind device);

}  // namespace jige::serve
