#include "serve/divided_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/bytes.h"
#include "base/check.h"
#include "base/free_memory.h"
#include "model/batch_limits.h"
#include "model/inference_folder.h"
#include "serve/layer_division.h"
#include "tensor/cpu_device.h"

namespace jige::serve {
namespace {

Status check_options(const model::InferenceOptions& options) {
  if (!options.adapters.empty() || options.adapter_rooms > 0) {
    return fail(Code::kUnsupported,
                "LoRA adapters do not go with layers on other machines or GPUs; merge one into the "
                "model (jige export), or run it on one (without --layers-on)");
  }
  return {};
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

int64_t draft_bytes(const DividedOptions& divided, const model::InferenceSizes& sizes) {
  return divided.draft_model ? divided.draft_model->bytes(sizes.kv_block_count) : 0;
}

DivisionRequest division_of(const DividedFolder& folder, const model::InferenceSizes& sizes,
                            const LayerGroup& group, const DividedOptions& divided,
                            const LayerComputer& here) {
  DivisionRequest request{
      .architecture = [&folder](bool on_gpu) -> const model::Architecture& {
        return folder.architecture(on_gpu);
      },
      .sizes = sizes,
      .piece_rows_max = group.piece_rows_max(sizes.batch_tokens_max),
      .places = {{.name = "here", .memory_bytes = divided.memory_bytes, .computer = here}},
      .beside_bytes = draft_bytes(divided, sizes),
      .layers_first = divided.layers_here};
  for (const LayerGroup::Holder& holder : group.holders()) {
    request.places.push_back({.name = holder.name,
                              .memory_bytes = holder.greeting.memory_bytes,
                              .computer = holder.greeting.computer});
  }
  return request;
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
    auto counts = divide_layers(division_of(folder, *sizes, group, divided, here));
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

// Rows on their way stand in pinned memory, which the host must have.
Status check_pinned(const model::Architecture& architecture, model::InferenceSizes sizes,
                    const model::LayerRange& here) {
  sizes.layers = here;
  const int64_t pinned = model::inference_memory(architecture, sizes).host_rows_bytes;
  const int64_t there = pinned > 0 ? host_free_bytes() : 0;
  if (pinned <= there) return {};
  return fail(Code::kExhausted,
              "rows between GPUs need {} of the host's memory, pinned ({} forwards under way of up "
              "to {} rows each), and it has {} left; take fewer rows or forwards",
              format_bytes_up(pinned), sizes.forwards_max, sizes.batch_tokens_max,
              format_bytes(there));
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
  JIGE_DO(check_divisible(architecture->config()));
  JIGE_DO(check_options(options));
  JIGE_TRY(model::InferenceSizes sizes, model::inference_sizes(options, *architecture, files));
  sizes.device = device.kind();
  sizes.forwards_max = forwards_max(divided, sizes, std::ssize(group->holders()) + 1);
  JIGE_TRY(const std::vector<int64_t> counts,
           split_with_cache(opened, &sizes, options.kv_block_count > 0, *group, divided,
                            computer_here(device, *group)));
  std::vector<model::LayerRange> ranges = ranges_of(counts);
  JIGE_DO(check_pinned(*architecture, sizes, ranges.front()));
  ranges.erase(ranges.begin());
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
