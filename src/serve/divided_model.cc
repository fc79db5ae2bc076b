#include "serve/divided_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/check.h"
#include "model/batch_limits.h"
#include "model/inference_folder.h"
#include "plan/layer_split.h"
#include "tensor/cpu_device.h"

namespace jige::serve {
namespace {

Status check_divisible(const formats::ModelConfig& config, const model::InferenceOptions& options) {
  const std::string_view family = formats::family_name(config.family);
  if (!model::can_divide_layers(config)) {
    return fail(Code::kUnsupported,
                "layers of this {} model {}; they cannot be divided among machines or GPUs", family,
                config.looks_ahead ? "see whole texts, which do not run in pieces"
                                   : "read keys that other layers have written");
  }
  if (!options.adapters.empty() || options.adapter_rooms > 0) {
    return fail(Code::kUnsupported,
                "LoRA adapters do not go with layers on other machines or GPUs; merge one into the "
                "model (jige export), or run it on one (without --layers-on)");
  }
  return {};
}

model::InferenceMemory part_memory(const model::Architecture& architecture,
                                   model::InferenceSizes sizes, model::LayerRange part) {
  sizes.layers = part;
  if (!part.ends) sizes.logit_rows_max = sizes.forwards_max = 1;
  return model::inference_memory(architecture, sizes);
}

// A model as those see it who compute some of it: matrices are packed in one way for processors and
// in another for GPUs.
class DividedFolder {
 public:
  // `others` may compute on another kind of device.
  static Result<DividedFolder> open(const std::string& folder, bool embeds, DeviceKind here,
                                    const std::vector<LayerGroup::Holder>& others) {
    DividedFolder opened;
    JIGE_TRY(opened.here_, model::open_inference_folder(folder, embeds, here));
    opened.here_is_gpu_ = here == DeviceKind::kCuda;
    for (const LayerGroup::Holder& holder : others) {
      const bool is_gpu = holder.greeting.computer.is_gpu;
      if (is_gpu == opened.here_is_gpu_ || opened.elsewhere_) continue;
      JIGE_TRY(opened.elsewhere_,
               model::open_inference_folder(folder, embeds,
                                            is_gpu ? DeviceKind::kCuda : DeviceKind::kCpu));
    }
    return opened;
  }

  const model::InferenceFolder& here() const { return *here_; }
  const model::Architecture& architecture(bool on_gpu) const {
    return *(on_gpu == here_is_gpu_ ? here_ : elsewhere_)->architecture;
  }

 private:
  std::optional<model::InferenceFolder> here_, elsewhere_;  // none there: all are of a kind
  bool here_is_gpu_ = false;
};

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

int64_t draft_bytes(const DividedOptions& divided, const model::InferenceSizes& sizes) {
  return divided.draft_model ? divided.draft_model->bytes(sizes.kv_block_count) : 0;
}

// Layers of each machine, this one first.
Result<std::vector<int64_t>> split(const DividedFolder& folder, const model::InferenceSizes& sizes,
                                   const LayerGroup& group, const DividedOptions& divided,
                                   const LayerComputer& here) {
  std::optional<PartBytes> on_kind[2];
  const auto parts_on = [&](bool gpu) -> const PartBytes& {
    std::optional<PartBytes>& parts = on_kind[gpu ? 1 : 0];
    if (!parts) {
      parts =
          part_bytes(folder.architecture(gpu), sizes, group.piece_rows_max(sizes.batch_tokens_max));
    }
    return *parts;
  };
  const PartBytes& own = parts_on(here.is_gpu);
  std::vector<plan::LayerMachine> machines = {
      {.name = "here",
       .room_bytes =
           divided.memory_bytes - draft_bytes(divided, sizes) - own.beside_layers_and_ends,
       .speed = static_cast<double>(here.bytes_per_s),
       .beside_bytes = head_bytes(own, sizes)}};
  for (const LayerGroup::Holder& holder : group.holders()) {
    const LayerComputer& computer = holder.greeting.computer;
    const PartBytes& parts = parts_on(computer.is_gpu);
    machines.push_back({.name = holder.name,
                        .room_bytes = holder.greeting.memory_bytes - parts.beside_layers,
                        .speed = static_cast<double>(computer.bytes_per_s),
                        .layer_bytes = parts.layers});
  }
  if (!divided.layers_here) return plan::split_layers(own.layers, machines);
  const int64_t first = *divided.layers_here;
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

// With the largest cache of those that may be taken.
Result<std::vector<int64_t>> split_with_cache(const DividedFolder& folder,
                                              model::InferenceSizes* sizes, bool cache_is_given,
                                              const LayerGroup& group,
                                              const DividedOptions& divided,
                                              const LayerComputer& here) {
  int64_t contexts = cache_is_given ? 1 : std::max<int64_t>(1, divided.contexts_wanted);
  while (true) {
    if (!cache_is_given)
      sizes->kv_block_count = contexts * model::kv_blocks_for(sizes->context_max);
    auto counts = split(folder, *sizes, group, divided, here);
    if (counts || contexts == 1) return counts;
    contexts /= 2;
  }
}

LayerComputer computer_here(Device& device, const LayerGroup& group) {
  const std::optional<LayerComputer>& gpu = group.options().gpu;
  JIGE_CHECK(gpu.has_value() == (device.kind() == DeviceKind::kCuda),
             "layers on {} as on another kind of device", device.name());
  if (gpu) return *gpu;
  return processor_as_computer(dynamic_cast<CpuDevice&>(device).team().size());
}

int64_t forwards_max(const DividedOptions& divided, const model::InferenceSizes& sizes,
                     int64_t machines) {
  if (machines == 1) return 1;
  if (divided.forwards_max > 0) return divided.forwards_max;
  return sizes.state_count > 0 ? 1 : machines;
}

// Of the holders that have layers.
LastingLayers::Options lasting_options(const LayerGroupOptions& asked,
                                       const std::vector<model::LayerRange>& ranges) {
  LastingLayers::Options lasting;
  lasting.group = asked;
  lasting.group.local.clear();
  lasting.group.holders.clear();
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].begin >= ranges[i].end) continue;
    lasting.ranges.push_back(ranges[i]);
    if (i < asked.local.size()) {
      lasting.group.local.push_back(asked.local[i]);
    } else {
      lasting.group.holders.push_back(asked.holders[i - asked.local.size()]);
    }
  }
  return lasting;
}

}  // namespace

Result<DividedModel> load_divided(const std::string& folder, Device& device,
                                  model::InferenceOptions options,
                                  std::unique_ptr<LayerGroup> group,
                                  const DividedOptions& divided) {
  JIGE_TRY(const DividedFolder opened,
           DividedFolder::open(folder, options.embeds, device.kind(), group->holders()));
  const auto& [architecture, files] = opened.here();
  JIGE_DO(check_divisible(architecture->config(), options));
  JIGE_TRY(model::InferenceSizes sizes, model::inference_sizes(options, *architecture, files));
  sizes.device = device.kind();
  sizes.forwards_max = forwards_max(divided, sizes, std::ssize(group->holders()) + 1);
  JIGE_TRY(const std::vector<int64_t> counts,
           split_with_cache(opened, &sizes, options.kv_block_count > 0, *group, divided,
                            computer_here(device, *group)));
  std::vector<model::LayerRange> ranges;
  int64_t end = counts.front();
  for (size_t i = 1; i < counts.size(); ++i) {
    ranges.push_back({.begin = end, .end = end + counts[i], .ends = false});
    end += counts[i];
  }
  JIGE_DO(group->ask(sizes, ranges));
  options.compute = sizes.compute;
  options.kv_block_count = sizes.kv_block_count;
  options.layers = {.begin = 0, .end = counts.front()};
  const int64_t machines =
      1 + std::ranges::count_if(ranges, [](const auto& range) { return range.begin < range.end; });
  options.forwards_max = forwards_max(divided, sizes, machines);
  options.memory_bytes_max = divided.memory_bytes - draft_bytes(divided, sizes);
  DividedModel result;
  JIGE_TRY(result.model, model::InferenceModel::load(folder, device, options));
  JIGE_TRY(const std::vector<int64_t> held, group->wait_until_held());
  result.shares.push_back(
      {.name = "here", .begin = 0, .end = counts.front(), .bytes = result.model->peak_bytes()});
  LastingLayers::Options lasting = lasting_options(group->options(), ranges);
  if (lasting.ranges.empty()) return result;
  lasting.folder = folder;
  lasting.sizes = sizes;
  lasting.restore_s = divided.restore_s;
  for (size_t i = 0; i < held.size(); ++i) {
    result.shares.push_back({.name = group->holders()[i].name,
                             .begin = lasting.ranges[i].begin,
                             .end = lasting.ranges[i].end,
                             .bytes = held[i]});
  }
  auto beyond = std::make_unique<LastingLayers>(std::move(group), std::move(lasting));
  result.beyond = beyond.get();
  result.model->set_beyond(std::move(beyond));
  return result;
}

std::string shares_text(const std::vector<LayerShare>& shares) {
  std::string text = "layers";
  for (const LayerShare& share : shares) {
    const bool here = share.name == "here";
    text += text == "layers" ? " " : ", ";
    text += share.end == share.begin       ? "none"
            : share.end == share.begin + 1 ? fmt::format("{}", share.begin)
                                           : fmt::format("{} to {}", share.begin, share.end - 1);
    text += fmt::format(" {}{} ({})", here ? "" : "on ", share.name, format_bytes(share.bytes));
  }
  return text;
}

}  // namespace jige::serve
