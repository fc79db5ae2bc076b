#include "serve/divided_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "model/batch_limits.h"
#include "model/inference_folder.h"
#include "plan/layer_split.h"

namespace jige::serve {
namespace {

Status check_divisible(const formats::ModelConfig& config, const model::InferenceOptions& options) {
  const std::string_view family = formats::family_name(config.family);
  if (!model::can_divide_layers(config)) {
    return fail(Code::kUnsupported,
                "layers of this {} model {}; they cannot be divided among machines", family,
                config.looks_ahead ? "see whole texts, which do not run in pieces"
                                   : "read keys that other layers have written");
  }
  if (!options.adapters.empty() || options.adapter_rooms > 0) {
    return fail(Code::kUnsupported,
                "LoRA adapters do not go with layers on other machines; merge one into the model "
                "(jige export), or leave --layers-on out");
  }
  return {};
}

model::InferenceMemory part_memory(const model::Architecture& architecture,
                                   model::InferenceSizes sizes, model::LayerRange part) {
  sizes.layers = part;
  if (!part.ends) sizes.logit_rows_max = sizes.forwards_max = 1;
  return model::inference_memory(architecture, sizes);
}

// The head, in layers that a step reads as much of. With one batch machines wait for one another,
// so that it is nothing which of them has it; and few rows of a prompt need it.
double head_layers(const model::Architecture& architecture, const model::InferenceSizes& sizes) {
  if (sizes.forwards_max == 1) return 0;
  const auto matrices = [&](model::LayerRange part) {
    return static_cast<double>(part_memory(architecture, sizes, part).weights.packed_bytes);
  };
  const int64_t layer_count = architecture.config().layer_count;
  return matrices({.begin = 0, .end = 0}) /
         (matrices({.begin = 0, .end = layer_count, .ends = false}) /
          static_cast<double>(layer_count));
}

// Layers of each machine, this one first.
Result<std::vector<int64_t>> split(const model::Architecture& architecture,
                                   const model::InferenceSizes& sizes,
                                   const std::vector<LayerGroup::Holder>& holders,
                                   const DividedOptions& divided, int threads) {
  const int64_t layer_count = architecture.config().layer_count;
  std::vector<int64_t> layer_bytes;
  int64_t sum = 0;
  for (int64_t layer = 0; layer < layer_count; ++layer) {
    const model::InferenceMemory own =
        part_memory(architecture, sizes, {.begin = layer, .end = layer + 1, .ends = false});
    layer_bytes.push_back(own.weights.values_bytes + own.weights.packed_bytes + own.kv_bytes +
                          own.states_bytes);
    sum += layer_bytes.back();
  }
  // What a machine takes beside its layers, for the largest of them.
  const auto beside = [&](bool ends) {
    return part_memory(architecture, sizes, {.begin = 0, .end = layer_count, .ends = ends})
               .total_bytes() -
           sum;
  };
  // Caches count as layers' bytes, too, so the head is counted in whole layers.
  const double head_bytes = head_layers(architecture, sizes) * static_cast<double>(sum) /
                            static_cast<double>(layer_count);
  std::vector<plan::LayerMachine> machines = {{.name = "here",
                                               .room_bytes = divided.memory_bytes - beside(true),
                                               .speed = static_cast<double>(threads),
                                               .beside_bytes = static_cast<int64_t>(head_bytes)}};
  for (const LayerGroup::Holder& holder : holders) {
    machines.push_back({.name = holder.name,
                        .room_bytes = holder.greeting.memory_bytes - beside(false),
                        .speed = static_cast<double>(holder.greeting.threads)});
  }
  if (!divided.layers_here) return plan::split_layers(layer_bytes, machines);
  const int64_t here = *divided.layers_here;
  if (here > layer_count) {
    return fail(Code::kInvalidArgument, "{} layers are to be here; the model has {}", here,
                layer_count);
  }
  JIGE_TRY(const auto others, plan::split_layers(std::span(layer_bytes).subspan(here),
                                                 std::span(machines).subspan(1)));
  std::vector<int64_t> counts = {here};
  counts.insert(counts.end(), others.begin(), others.end());
  return counts;
}

// With the largest cache of those that may be taken.
Result<std::vector<int64_t>> split_with_cache(const model::Architecture& architecture,
                                              model::InferenceSizes* sizes, bool cache_is_given,
                                              const std::vector<LayerGroup::Holder>& holders,
                                              const DividedOptions& divided, int threads) {
  int64_t contexts = cache_is_given ? 1 : std::max<int64_t>(1, divided.contexts_wanted);
  while (true) {
    if (!cache_is_given)
      sizes->kv_block_count = contexts * model::kv_blocks_for(sizes->context_max);
    auto counts = split(architecture, *sizes, holders, divided, threads);
    if (counts || contexts == 1) return counts;
    contexts /= 2;
  }
}

int64_t forwards_max(const DividedOptions& divided, const model::InferenceSizes& sizes,
                     int64_t machines) {
  if (machines == 1) return 1;
  if (divided.forwards_max > 0) return divided.forwards_max;
  return sizes.state_count > 0 ? 1 : machines;
}

}  // namespace

Result<DividedModel> load_divided(const std::string& folder, CpuDevice& device,
                                  model::InferenceOptions options,
                                  std::unique_ptr<LayerGroup> group,
                                  const DividedOptions& divided) {
  JIGE_TRY(const model::InferenceFolder opened,
           model::open_inference_folder(folder, options.embeds, DeviceKind::kCpu));
  const auto& [architecture, files] = opened;
  JIGE_DO(check_divisible(opened.config(), options));
  JIGE_TRY(model::InferenceSizes sizes, model::inference_sizes(options, *architecture, files));
  sizes.forwards_max = forwards_max(divided, sizes, std::ssize(group->holders()) + 1);
  JIGE_TRY(const std::vector<int64_t> counts,
           split_with_cache(*architecture, &sizes, options.kv_block_count > 0, group->holders(),
                            divided, device.team().size()));
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
  options.memory_bytes_max = divided.memory_bytes;
  DividedModel result;
  JIGE_TRY(result.model, model::InferenceModel::load(folder, device, options));
  JIGE_TRY(const std::vector<int64_t> held, group->wait_until_held());
  result.shares.push_back(
      {.name = "here", .begin = 0, .end = counts.front(), .bytes = result.model->peak_bytes()});
  LastingLayers::Options lasting{.folder = folder,
                                 .group = {.connect_s = group->options().connect_s},
                                 .sizes = sizes,
                                 .restore_s = divided.restore_s};
  size_t holder = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const model::LayerRange& range = ranges[i];
    if (range.begin >= range.end) continue;
    result.shares.push_back({.name = group->holders()[holder].name,
                             .begin = range.begin,
                             .end = range.end,
                             .bytes = held[holder]});
    ++holder;
    lasting.group.holders.push_back(group->options().holders[i]);
    lasting.ranges.push_back(range);
  }
  if (holder == 0) return result;
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
