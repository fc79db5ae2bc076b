#include "serve/layer_division.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "model/layer_range.h"
#include "plan/layer_split.h"

namespace jige::serve {
namespace {

model::InferenceMemory part_memory(const model::Architecture& architecture,
                                   model::InferenceSizes sizes, model::LayerRange part) {
  sizes.layers = part;
  if (!part.ends) sizes.logit_rows_max = sizes.forwards_max = 1;
  return model::inference_memory(architecture, sizes);
}

// What a kind of device takes for a model, in parts.
struct PartBytes {
  std::vector<int64_t> layers;
  int64_t beside_layers = 0;           // that hold none of the ends, for the largest of them
  int64_t beside_layers_and_ends = 0;  // with the ends
  double head_layers = 0;              // the head, in layers that a step reads as much of
};

PartBytes part_bytes(const model::Architecture& architecture, const model::InferenceSizes& sizes,
                     int64_t piece_rows_max) {
  const int64_t layer_count = architecture.config().layer_count;
  PartBytes parts;
  int64_t sum = 0;
  for (int64_t layer = 0; layer < layer_count; ++layer) {
    const model::InferenceMemory own =
        part_memory(architecture, sizes, {.begin = layer, .end = layer + 1, .ends = false});
    parts.layers.push_back(own.weights.values_bytes + own.weights.packed_bytes + own.kv_bytes +
                           own.states_bytes);
    sum += parts.layers.back();
  }
  const auto memory = [&](bool ends) {
    model::InferenceSizes taken = sizes;
    if (!ends) taken.batch_tokens_max = piece_rows_max;
    return part_memory(architecture, taken, {.begin = 0, .end = layer_count, .ends = ends});
  };
  parts.beside_layers = memory(false).total_bytes() - sum;
  parts.beside_layers_and_ends = memory(true).total_bytes() - sum;
  const auto head = part_memory(architecture, sizes, {.begin = 0, .end = 0}).weights.packed_bytes;
  parts.head_layers =
      static_cast<double>(head) /
      (static_cast<double>(memory(false).weights.packed_bytes) / static_cast<double>(layer_count));
  return parts;
}

// What a step reads of the head. With one batch machines wait for one another, so that it is
// nothing which of them has it; and few rows of a prompt need it. Caches count as layers' bytes,
// too, so it is counted in whole layers.
int64_t head_bytes(const PartBytes& parts, const model::InferenceSizes& sizes) {
  if (sizes.forwards_max == 1) return 0;
  const int64_t sum = std::accumulate(parts.layers.begin(), parts.layers.end(), int64_t{0});
  return static_cast<int64_t>(parts.head_layers * static_cast<double>(sum) /
                              static_cast<double>(parts.layers.size()));
}

}  // namespace

Status check_divisible(const formats::ModelConfig& config) {
  if (model::can_divide_layers(config)) return {};
  return fail(Code::kUnsupported,
              "layers of this {} model {}; they cannot be divided among machines or GPUs",
              formats::family_name(config.family),
              config.looks_ahead ? "see whole texts, which do not run in pieces"
                                 : "read keys that other layers have written");
}

Result<std::vector<int64_t>> divide_layers(const DivisionRequest& request) {
  const model::InferenceSizes& sizes = request.sizes;
  std::optional<PartBytes> on_kind[2];
  const auto parts_on = [&](bool gpu) -> const PartBytes& {
    std::optional<PartBytes>& parts = on_kind[gpu ? 1 : 0];
    if (!parts) parts = part_bytes(request.architecture(gpu), sizes, request.piece_rows_max);
    return *parts;
  };
  const LayerPlace& here = request.places.front();
  const PartBytes& own = parts_on(here.computer.is_gpu);
  std::vector<plan::LayerMachine> machines = {
      {.name = here.name,
       .room_bytes = here.memory_bytes - request.beside_bytes - own.beside_layers_and_ends,
       .speed = static_cast<double>(here.computer.bytes_per_s),
       .beside_bytes = head_bytes(own, sizes)}};
  for (const LayerPlace& place : std::span(request.places).subspan(1)) {
    const PartBytes& parts = parts_on(place.computer.is_gpu);
    machines.push_back({.name = place.name,
                        .room_bytes = place.memory_bytes - parts.beside_layers,
                        .speed = static_cast<double>(place.computer.bytes_per_s),
                        .layer_bytes = parts.layers});
  }
  if (!request.layers_first) return plan::split_layers(own.layers, machines);
  const int64_t first = *request.layers_first;
  if (first > std::ssize(own.layers)) {
    return fail(Code::kInvalidArgument, "{} layers are to be here; the model has {}", first,
                own.layers.size());
  }
  const auto behind = [&](std::span<const int64_t> layers) {
    return layers.subspan(static_cast<size_t>(first));
  };
  const std::span<plan::LayerMachine> others = std::span(machines).subspan(1);
  for (plan::LayerMachine& other : others) other.layer_bytes = behind(other.layer_bytes);
  JIGE_TRY(const auto rest, plan::split_layers(behind(own.layers), others));
  std::vector<int64_t> counts = {first};
  counts.insert(counts.end(), rest.begin(), rest.end());
  return counts;
}

std::vector<model::LayerRange> ranges_of(const std::vector<int64_t>& counts) {
  std::vector<model::LayerRange> ranges;
  int64_t end = 0;
  for (const int64_t count : counts) {
    ranges.push_back({.begin = end, .end = end + count, .ends = ranges.empty()});
    end += count;
  }
  return ranges;
}

model::InferenceMemory place_memory(const DivisionRequest& request, size_t place,
                                    const model::LayerRange& range) {
  model::InferenceSizes sizes = request.sizes;
  if (!range.ends) sizes.batch_tokens_max = request.piece_rows_max;
  return part_memory(request.architecture(request.places[place].computer.is_gpu), sizes, range);
}

}  // namespace jige::serve
