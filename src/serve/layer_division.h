// What each of several machines or GPUs gets of a model's layers, before anything is loaded: by the
// memory of each and by how fast it reads it (plan/layer_split.h).
//
// The first computes the ends besides: embedding, head, and what is drawn from. Caches have the
// same blocks everywhere. Threads: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/model_config.h"
#include "model/architecture.h"
#include "model/memory_plan.h"
#include "serve/layer_computer.h"

namespace jige::serve {

// Rows of a piece of a forward where a GPU computes some of the layers.
inline constexpr int64_t kGpuPieceRows = 512;

// Who may hold layers.
struct LayerPlace {
  std::string name;
  int64_t memory_bytes = 0;
  LayerComputer computer;
};

struct DivisionRequest {
  // The model as GPUs (true) or processors see it, which pack matrices in different ways.
  std::function<const model::Architecture&(bool on_gpu)> architecture;
  model::InferenceSizes sizes;          // but for the layers
  int64_t piece_rows_max = 0;           // of those who hold none of the ends
  std::vector<LayerPlace> places;       // the one with the ends first
  int64_t beside_bytes = 0;             // that the first has to keep for others
  std::optional<int64_t> layers_first;  // of the first; none: as is best
};

// Fails with kUnsupported where layers of such a model run together alone.
Status check_divisible(const formats::ModelConfig& config);

// Layers of each place, which may be none. Fails as plan::split_layers, with kInvalidArgument on
// more layers for the first than there are.
Result<std::vector<int64_t>> divide_layers(const DivisionRequest& request);

// The ranges of such counts; the first has the ends.
std::vector<model::LayerRange> ranges_of(const std::vector<int64_t>& counts);

// What a place with these layers takes, and what is pinned of the host for it.
model::InferenceMemory place_memory(const DivisionRequest& request, size_t place,
                                    const model::LayerRange& range);

}  // namespace jige::serve
