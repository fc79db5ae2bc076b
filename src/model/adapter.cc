#include "model/adapter.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "formats/model_config.h"
#include "model/device_copies.h"
#include "model/placement.h"
#include "model/tensor_convert.h"
#include "tensor/cpu_device.h"

namespace jige::model {
namespace {

ops::PackedWeight packed_at(void* data, DType compute, int64_t n, int64_t k) {
  return {.data = data, .compute = compute, .use = ops::PackUse::kForward, .n = n, .k = k};
}

}  // namespace

std::string AdapterSource::flag() const {
  return name.empty() ? "--adapter " + folder : "--adapter " + name + "=" + folder;
}

Result<Adapter> Adapter::open(const AdapterSource& source, const Architecture& architecture) {
  Adapter adapter(source);
  if (Status status = adapter.read(architecture); !status) {
    return with_context(std::move(status.error()), "{}", source.flag());
  }
  return adapter;
}

Status Adapter::read(const Architecture& architecture) {
  JIGE_DO(check_adapts(architecture.config()));
  JIGE_TRY(config_, formats::load_lora_config(source_.folder));
  JIGE_TRY(files_, formats::TensorFolder::open(source_.folder, kAdapterStem));
  JIGE_TRY(const AdapterTensors tensors, read_adapter_tensors(*files_, config_));
  architecture_ = &architecture;
  return add_targets(architecture, tensors);
}

Status Adapter::add_targets(const Architecture& architecture, const AdapterTensors& tensors) {
  std::set<std::string, std::less<>> used;
  for (const auto& layer : architecture.layers()) {
    for (const Projection* projection : layer->projections()) {
      Target target{.projection = projection, .parts = {}};
      int64_t column = 0;
      for (const ProjectionOptions::Part& part : projection->parts()) {
        if (const auto pair =
                find_adapter_pair(tensors.pairs, part.name, architecture.config().family);
            pair != tensors.pairs.end()) {
          JIGE_TRY(Target::Part made,
                   make_part(*layer, *projection, part, pair->first, pair->second));
          made.column = column;
          target.parts.push_back(std::move(made));
          used.insert(pair->first);
        }
        column += part.outputs;
      }
      if (!target.parts.empty()) targets_.push_back(std::move(target));
    }
  }
  for (const auto& [module, pair] : tensors.pairs) {
    if (!used.contains(module)) JIGE_DO(refuse_module(module));
  }
  if (!tensors.saved.empty()) {
    return fail(Code::kUnsupported,
                "{}: has \"{}\" in place of the base's (modules_to_save, or bias \"all\"), which "
                "cannot run beside it; merge the two: jige export BASE OUT --merge {}",
                source_.folder, tensors.saved.begin()->first, source_.folder);
  }
  if (!targets_.empty()) return {};
  return fail(Code::kCorrupt, "{}: adapts nothing", source_.folder);
}

Result<Adapter::Target::Part> Adapter::make_part(const TransformerLayer& layer,
                                                 const Projection& projection,
                                                 const ProjectionOptions::Part& part,
                                                 const std::string& module,
                                                 const AdapterPair& pair) const {
  JIGE_DO(check_adapter_pair(source_.folder, module, pair,
                             {.outputs = part.outputs, .inputs = projection.inputs()}, config_));
  const auto find_param = [&](std::string_view suffix) -> const ParamSpec* {
    const auto params = layer.params();
    const auto found = std::ranges::find(params, part.name + std::string(suffix), &ParamSpec::name);
    return found == params.end() ? nullptr : &*found;
  };
  Target::Part made{.pair = pair,
                    .stored_rows = part.stored_rows,
                    .weight = find_param(".weight"),
                    .bias = find_param(".bias")};
  JIGE_CHECK(made.weight, "{} has no weight", part.name);
  if (!made.bias && (pair.bias || pair.bias_of_b)) {
    return fail(Code::kCorrupt, "{}: has a bias for module \"{}\", which has none in this base",
                source_.folder, module);
  }
  const AdaptedPart adapted{.pair = made.pair, .weight = *made.weight, .bias = made.bias};
  made.has_factors = model::has_factors(adapted);
  made.has_addends = model::has_addends(adapted);
  if (!projection.by_head() || !(made.has_factors || made.has_addends)) return made;
  return fail(
      Code::kUnsupported,
      "{}: module \"{}\" has {}, and is computed head by head here, where there is room for "
      "A and B alone; merge the two: jige export BASE OUT --merge {}",
      source_.folder, module, made.has_factors ? "a lora_magnitude_vector (DoRA)" : "a bias",
      source_.folder);
}

Status Adapter::refuse_module(const std::string& module) const {
  if (module.find("expert") != std::string::npos) {
    return fail(Code::kUnsupported,
                "{}: module \"{}\" is of experts, which run without adapters; train one on "
                "attention alone (target_modules of its config)",
                source_.folder, module);
  }
  const formats::ModelConfig& config = architecture_->config();
  return fail(Code::kCorrupt,
              "{}: module \"{}\" is no linear layer of this base, a {} model of {} layers{}",
              source_.folder, module, formats::family_name(config.family), config.layer_count,
              config_.base_model.empty() ? "; give the adapter with the base it was made for"
                                         : "; it was made for " + config_.base_model);
}

ops::LowRankWeight Adapter::place(const Target& target, DType compute, std::byte* memory,
                                  int64_t& at) const {
  Placement places;
  places.take_bytes(at);
  const auto take = [&](int64_t n, int64_t k) {
    const int64_t offset =
        places.take_bytes(ops::packed_weight_bytes(compute, ops::PackUse::kForward, n, k));
    return packed_at(memory ? memory + offset : nullptr, compute, n, k);
  };
  const auto take_columns = [&](bool wanted, int64_t count) {
    if (!wanted) return TensorView{};
    const int64_t offset = places.take_bytes(dtype_bytes(DType::kF32, count));
    return TensorView::of(memory ? memory + offset : nullptr, DType::kF32, Shape{count});
  };
  ops::LowRankWeight weight{.a = take(rank_of(target), target.projection->inputs()), .parts = {}};
  int64_t row = 0;
  for (const Target::Part& part : target.parts) {
    const int64_t outputs = part.pair.b.rows();
    const ops::PackedWeight b = take(outputs, part.pair.rank);
    weight.parts.push_back({.column = part.column,
                            .a_row = row,
                            .b = b,
                            .scale = part.pair.scale,
                            .factor = take_columns(part.has_factors, outputs),
                            .addend = take_columns(part.has_addends, outputs)});
    row += part.pair.rank;
  }
  at = places.offset();
  return weight;
}

HeadLowRank Adapter::place_heads(const Target& target, DType compute, std::byte* memory,
                                 int64_t& at) const {
  const AdapterPair& pair = target.parts.front().pair;
  return HeadLowRank::place(*target.projection->by_head(), target.projection->inputs(), pair.rank,
                            pair.scale, compute, memory, at);
}

int64_t Adapter::packed_bytes(DType compute) const {
  int64_t bytes = 0;
  for (const Target& target : targets_) {
    if (target.projection->by_head()) {
      place_heads(target, compute, nullptr, bytes);
    } else {
      place(target, compute, nullptr, bytes);
    }
  }
  return bytes;
}

int64_t Adapter::product_columns() const {
  int64_t columns = 0;
  for (const Target& target : targets_) {
    columns = std::max(columns, rank_of(target));
  }
  return columns;
}

int64_t Adapter::rank_of(const Target& target) {
  int64_t rank = 0;
  for (const Target::Part& part : target.parts) rank += part.pair.rank;
  return rank;
}

int64_t Adapter::rank_max() const {
  int64_t rank = 0;
  for (const Target& target : targets_) {
    for (const Target::Part& part : target.parts) rank = std::max(rank, part.pair.rank);
  }
  return rank;
}

int64_t Adapter::part_outputs() const {
  int64_t outputs = 0;
  for (const Target& target : targets_) {
    for (const Target::Part& part : target.parts) {
      outputs = std::max(outputs, part.pair.b.rows());
    }
    // Whose queries get as many as there are inputs.
    if (target.projection->by_head()) outputs = std::max(outputs, target.projection->inputs());
  }
  return outputs;
}

AdapterRoom Adapter::room(const Architecture& architecture, int64_t rank_max, DType compute) {
  Adapter largest{AdapterSource{}};
  for (const auto& layer : architecture.layers()) {
    for (const Projection* projection : layer->projections()) {
      Target& target = largest.targets_.emplace_back(Target{.projection = projection, .parts = {}});
      for (const ProjectionOptions::Part& part : projection->parts()) {
        const TensorView b = TensorView::of(nullptr, DType::kF32, Shape{part.outputs, rank_max});
        target.parts.push_back(
            {.pair = {.b = b, .rank = rank_max}, .has_factors = true, .has_addends = true});
      }
    }
  }
  return {.packed_bytes = largest.packed_bytes(compute),
          .product_columns = largest.product_columns(),
          .part_outputs = largest.part_outputs()};
}

Status Adapter::load(Arena& arena, Stream& stream, DType compute, const std::string& base_folder) {
  JIGE_TRY(memory_, arena.make(DType::kU8, Shape{packed_bytes(compute)}));
  return load(memory_.view(), stream, compute, base_folder);
}

TensorView Adapter::b_rows(const Target::Part& part, std::vector<std::byte>& memory) {
  const TensorView& stored = part.pair.b;
  if (!part.stored_rows) return stored;
  memory.resize(static_cast<size_t>(dtype_bytes(stored.dtype, stored.count())));
  const TensorView own = TensorView::of(memory.data(), stored.dtype, stored.shape);
  rows_from_files(own, stored, *part.stored_rows);
  return own;
}

AdaptedPart Adapter::adapted_part(const Target& target, const Target::Part& part) {
  return {.pair = part.pair,
          .weight = *part.weight,
          .bias = part.bias,
          .bias_scale = target.projection->bias_scale()};
}

Status Adapter::pack_target(const Target& target, const ops::LowRankWeight& weight, Stream& stream,
                            DeviceCopies& copies) const {
  std::vector<std::vector<std::byte>> changed(target.parts.size());
  for (size_t i = 0; i < target.parts.size(); ++i) {
    const TensorView& stored_a = target.parts[i].pair.a;
    const TensorView stored_b = b_rows(target.parts[i], changed[i]);
    JIGE_TRY(const TensorView a, copies.of(stored_a, stored_a.dtype));
    JIGE_TRY(const TensorView b, copies.of(stored_b, stored_b.dtype));
    ops::pack_weight(stream, weight.a, a, weight.parts[i].a_row);
    ops::pack_weight(stream, weight.parts[i].b, b);
  }
  copies.clear();
  return {};
}

Status Adapter::put_columns(const Target& target, const ops::LowRankWeight& weight, Stream& stream,
                            BaseNumbers& base) const {
  for (size_t i = 0; i < target.parts.size(); ++i) {
    const ops::LowRankWeight::Part& place = weight.parts[i];
    if (!place.factor && !place.addend) continue;
    JIGE_TRY(ColumnChange change, column_change(base, adapted_part(target, target.parts[i])));
    const auto put = [&](const TensorView& to, std::vector<float>& numbers) -> Status {
      if (!to) return {};
      return copy_converted(stream, to, TensorView::of(numbers.data(), DType::kF32, to.shape));
    };
    JIGE_DO(put(place.factor, change.factors));
    JIGE_DO(put(place.addend, change.addends));
    stream.synchronize();
  }
  return {};
}

Status Adapter::load(const TensorView& memory, Stream& stream, DType compute,
                     const std::string& base_folder) {
  JIGE_CHECK(files_, "{} is loaded twice", source_.flag());
  auto* const bytes = static_cast<std::byte*>(memory.data);
  int64_t at = 0;
  DeviceCopies copies(stream, "adapter");
  const bool on_cpu = stream.device().kind() == DeviceKind::kCpu;
  const int threads = on_cpu ? as_cpu(stream).cpu().team().size() : 0;
  BaseNumbers base(architecture_->config(), base_folder, threads);
  for (const Target& target : targets_) {
    if (target.projection->by_head()) {
      HeadLowRank heads = place_heads(target, compute, bytes, at);
      const AdapterPair& pair = target.parts.front().pair;
      JIGE_DO(heads.pack(stream, *target.projection->by_head(), pair.a, pair.b, copies));
      heads_.emplace(target.projection, std::move(heads));
      continue;
    }
    auto weight = std::make_shared<const ops::LowRankWeight>(place(target, compute, bytes, at));
    JIGE_DO(pack_target(target, *weight, stream, copies));
    JIGE_DO(put_columns(target, *weight, stream, base));
    weights_.emplace(target.projection, std::move(weight));
  }
  for (Target& target : targets_) {
    for (Target::Part& part : target.parts) {
      part.pair = {.b = part.pair.b, .rank = part.pair.rank, .scale = part.pair.scale};
      part.pair.b.data = nullptr;
    }
  }
  files_.reset();
  return {};
}

std::shared_ptr<const ops::LowRankWeight> Adapter::find(const Projection& projection) const {
  const auto found = weights_.find(&projection);
  return found == weights_.end() ? nullptr : found->second;
}

const HeadLowRank* Adapter::find_heads(const Projection& projection) const {
  const auto found = heads_.find(&projection);
  return found == heads_.end() ? nullptr : &found->second;
}

AdapterSizes adapter_sizes(const std::vector<Adapter>& adapters, DType compute) {
  AdapterSizes sizes;
  for (const Adapter& adapter : adapters) {
    sizes.packed_bytes.push_back(adapter.packed_bytes(compute));
    sizes.product_columns = std::max(sizes.product_columns, adapter.product_columns());
    sizes.part_outputs = std::max(sizes.part_outputs, adapter.part_outputs());
  }
  return sizes;
}

Result<std::vector<Adapter>> open_adapters(const std::vector<AdapterSource>& sources,
                                           const Architecture& architecture) {
  std::vector<Adapter> adapters;
  for (const AdapterSource& source : sources) {
    JIGE_TRY(Adapter adapter, Adapter::open(source, architecture));
    adapters.push_back(std::move(adapter));
  }
  return adapters;
}

}  // namespace jige::model
