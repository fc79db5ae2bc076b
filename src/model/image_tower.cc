#include "model/image_tower.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "model/image_packing.h"
#include "model/image_pixels.h"
#include "model/param_loader.h"
#include "ops/attention.h"
#include "ops/elementwise.h"

namespace jige::model {
namespace {

// What is not packed has a value: norms, f32.
std::vector<TensorView> place_norms(Placement& at, std::span<const ParamSpec> specs) {
  std::vector<TensorView> values;
  for (const ParamSpec& spec : specs) {
    values.push_back(spec.packed ? TensorView{} : at.take(DType::kF32, spec.shape));
  }
  return values;
}

int64_t norms_bytes(std::span<const ParamSpec> specs) {
  Placement at;
  place_norms(at, specs);
  return at.peak_bytes();
}

// Of the table of angles; none where heads do not turn.
int64_t angle_columns(const formats::ModelConfig& tower) {
  return tower.position == formats::PositionKind::kRotary ? tower.head_dim : 0;
}

// Patches that are read at a time of the largest image of up to so many rows.
int64_t patches_at_a_time(const formats::ImageConfig& config, int64_t rows_max) {
  const int64_t merged = config.merge * config.merge;
  return std::min(config.tile_patches_max() / merged, rows_max) * merged;
}

// Patches of an image aside, beside the largest of so many.
int64_t aside_patches(int64_t patches_max) { return patches_max / 8; }

// Of the streams: those of the largest image and of one aside.
int64_t rows_of_streams(const formats::ImageConfig& config, int64_t patches_max) {
  return patches_max + aside_patches(patches_max) + 2 * config.class_rows;
}

// Rows while an image is encoded in them.
class RowsInUse {
 public:
  RowsInUse(int64_t& in_use, int64_t count) : in_use_(in_use), count_(count) { in_use_ += count_; }
  ~RowsInUse() { in_use_ -= count_; }
  RowsInUse(const RowsInUse&) = delete;
  RowsInUse& operator=(const RowsInUse&) = delete;

 private:
  int64_t& in_use_;
  const int64_t count_;
};

Result<DType> choose_compute(const std::optional<DType>& asked, const ImageParts& parts,
                             const formats::TensorFolder& files) {
  if (asked && *asked != DType::kF32 && *asked != DType::kBF16) {
    return fail(Code::kInvalidArgument, "compute type {} is not supported; use f32 or bf16",
                dtype_info(*asked).name);
  }
  if (asked) return *asked;
  return image_tower_dtype(parts, files);
}

}  // namespace

ImageParts::ImageParts(const formats::ImageConfig& config)
    : config_(config), entry_(make_image_entry(config)), projector_(make_image_projector(config)) {
  for (int64_t i = 0; i < config.tower.layer_count; ++i) {
    layers_.push_back(std::make_unique<TransformerLayer>(
        config.tower, LayerOptions{.index = i,
                                   .names = image_layer_names(config, i),
                                   .activated_scale = config.activated_scale,
                                   .column_scales = config.column_scales,
                                   .halves_apart = config.halves_apart,
                                   .bounded = config.bounded_products,
                                   .lora = {}}));
  }
}

Result<std::unique_ptr<const ImageParts>> ImageParts::create(const formats::ImageConfig& config) {
  if (config.tower.head_dim > ops::kAttentionDimMax) {
    return fail(Code::kUnsupported,
                "config.json: heads of {} columns in \"vision_config\" are not supported; "
                "attention takes up to {}",
                config.tower.head_dim, ops::kAttentionDimMax);
  }
  return std::unique_ptr<const ImageParts>(new ImageParts(config));
}

std::span<const ParamSpec> ImageParts::params(size_t part) const {
  if (part == 0) return entry_->params();
  return part > layers_.size() ? projector_->params() : layers_[part - 1]->params();
}

int64_t ImageParts::packed_bytes(size_t part, DType compute) const {
  if (part == 0) return entry_->packed_bytes(compute);
  if (part > layers_.size()) return projector_->packed_bytes(compute);
  return layers_[part - 1]->packed_bytes(compute, PackFor::kInference, ops::WeightFormat::kCompute);
}

void ImageParts::pack(size_t part, Stream& stream, const BlockWeights& weights,
                      DType compute) const {
  if (part == 0) return entry_->pack(stream, weights, compute);
  if (part > layers_.size()) return projector_->pack(stream, weights, compute);
  layers_[part - 1]->pack(stream, weights, compute, PackFor::kInference);
}

int64_t ImageParts::parameter_count() const {
  int64_t total = 0;
  for (size_t part = 0; part < count(); ++part) {
    for (const ParamSpec& spec : params(part)) total += spec.shape.count();
  }
  return total;
}

int64_t ImageParts::workspace_bytes(int64_t patch_count, DType compute) const {
  int64_t bytes = std::max(entry_->workspace_bytes(patch_count, compute),
                           projector_->workspace_bytes(patch_count, compute));
  for (const auto& layer : layers_) {
    bytes = std::max(bytes, layer->workspace_bytes(patch_count + config_.class_rows, compute,
                                                   PackFor::kInference));
  }
  return bytes;
}

double ImageParts::encode_flops(int64_t patch_count) const {
  const auto patches = static_cast<double>(patch_count);
  double flops = entry_->forward_flops(patches) + projector_->forward_flops(patches);
  // Every patch sees all of its tile, or of its window: both sides of a mean of half of them.
  const auto side = static_cast<double>(config_.window * config_.merge);
  const double seen = config_.tile_side == 0
                          ? patches
                          : std::min(patches, static_cast<double>(config_.tile_patches_max()));
  for (size_t i = 0; i < layers_.size(); ++i) {
    const bool all = config_.layer_has_window.empty() || config_.layer_has_window[i] == 0;
    flops += layers_[i]->forward_flops(patches, (all ? seen : std::min(patches, side * side)) / 2);
  }
  return flops;
}

Status check_image_weights(const ImageParts& parts, const formats::TensorFolder& files) {
  for (size_t part = 0; part < parts.count(); ++part) {
    JIGE_DO(check_params(parts.config().tower, parts.params(part), files));
  }
  return {};
}

Result<DType> image_tower_dtype(const ImageParts& parts, const formats::TensorFolder& files) {
  JIGE_TRY(const TensorView stored, find_checked(files, parts.entry().params().front()));
  return stored.dtype == DType::kF32 ? DType::kF32 : DType::kBF16;
}

ImageTowerMemory image_tower_memory(const ImageParts& parts, DType compute, int64_t rows_max) {
  const auto bytes_of = [](int64_t bytes) { return arena_bytes(DType::kU8, Shape{bytes}); };
  const formats::ModelConfig& tower = parts.config().tower;
  const int64_t patches = patches_at_a_time(parts.config(), rows_max);
  ImageTowerMemory memory;
  for (size_t part = 0; part < parts.count(); ++part) {
    memory.weights_bytes +=
        bytes_of(norms_bytes(parts.params(part))) + bytes_of(parts.packed_bytes(part, compute));
  }
  const int64_t rows = rows_of_streams(parts.config(), patches);
  memory.encoding_bytes = 2 * arena_bytes(DType::kF32, Shape{rows, tower.hidden_size}) +
                          bytes_of(parts.workspace_bytes(patches, compute)) +
                          arena_bytes(DType::kF32, Shape{rows, angle_columns(tower)}) +
                          arena_bytes(DType::kI32, Shape{rows});
  return memory;
}

Result<std::unique_ptr<ImageTower>> ImageTower::load(const std::string& folder,
                                                     const formats::ImageConfig& config,
                                                     Device& device,
                                                     const ImageTowerOptions& options) {
  if (device.kind() != DeviceKind::kCpu) {
    return fail(Code::kUnsupported,
                "{}: images are read on a CPU, {} is none; give the tower one, whatever device the "
                "language model has",
                folder, device.name());
  }
  JIGE_TRY(auto parts, ImageParts::create(config));
  JIGE_TRY(const auto files, formats::TensorFolder::open(folder));
  JIGE_DO(check_image_weights(*parts, files));
  JIGE_TRY(const DType compute, choose_compute(options.compute, *parts, files));
  const ImageTowerMemory needed = image_tower_memory(*parts, compute, options.rows_max);
  if (needed.total_bytes() > options.memory_bytes_max) {
    // What is read at a time has one size in some families.
    const bool one_size = config.family == formats::ImageFamily::kGemma3 || config.tile_side > 0;
    const bool one_area = config.family == formats::ImageFamily::kGemma4;
    const std::string smaller =
        one_size ? ""
                 : fmt::format(
                       ", or let images be smaller: by --image-pixels, a shorter context, "
                       "or a smaller {} in the folder's preprocessor_config.json",
                       one_area ? "max_soft_tokens" : "longest_edge");
    return fail(Code::kExhausted,
                "{}: to read images takes {} (weights {}, one of up to {} patches {}), the memory "
                "limit is {}; raise it{}",
                folder, format_bytes_up(needed.total_bytes()), format_bytes(needed.weights_bytes),
                patches_at_a_time(config, options.rows_max), format_bytes(needed.encoding_bytes),
                format_bytes(options.memory_bytes_max), smaller);
  }
  std::unique_ptr<ImageTower> tower(new ImageTower(device, std::move(parts), compute, options));
  JIGE_TRY(tower->stream_, device.make_stream());
  JIGE_DO(tower->allocate());
  JIGE_DO(tower->load_weights(files));
  return tower;
}

ImageTower::ImageTower(Device& device, std::unique_ptr<const ImageParts> parts, DType compute,
                       const ImageTowerOptions& options)
    : parts_(std::move(parts)),
      compute_(compute),
      rows_max_(std::min(parts_->config().rows_max(), options.rows_max)),
      arena_(device, device.name() + " images", options.memory_bytes_max) {}

int64_t ImageTower::patches_max() const { return patches_at_a_time(config(), rows_max_); }

int64_t ImageTower::aside_patches_max() const { return aside_patches(patches_max()); }

int64_t ImageTower::stream_rows() const { return rows_of_streams(config(), patches_max()); }

Status ImageTower::allocate() {
  const formats::ModelConfig& tower = config().tower;
  const int64_t rows = stream_rows();
  const auto make_bytes = [&](int64_t bytes) { return arena_.make(DType::kU8, Shape{bytes}); };
  for (Tensor& stream : streams_) {
    JIGE_TRY(stream, arena_.make(DType::kF32, Shape{rows, tower.hidden_size}));
  }
  JIGE_TRY(workspace_, make_bytes(parts_->workspace_bytes(patches_max(), compute_)));
  JIGE_TRY(angles_, arena_.make(DType::kF32, Shape{rows, angle_columns(tower)}));
  JIGE_TRY(positions_, arena_.make(DType::kI32, Shape{rows}));
  std::iota(positions_.view().as<int32_t>(), positions_.view().as<int32_t>() + rows, 0);
  for (size_t part = 0; part < parts_->count(); ++part) {
    const auto specs = parts_->params(part);
    JIGE_TRY(Tensor norms, make_bytes(norms_bytes(specs)));
    JIGE_TRY(Tensor packed, make_bytes(parts_->packed_bytes(part, compute_)));
    BlockWeights weights{.packed = packed.view(), .rope_table = angles_.view()};
    Placement at(norms.view());
    for (const TensorView& value : place_norms(at, specs)) {
      weights.params.push_back({.value = value, .grad = {}});
    }
    weights_.push_back(std::move(weights));
    weight_memory_.push_back(std::move(norms));
    weight_memory_.push_back(std::move(packed));
  }
  return {};
}

Status ImageTower::load_weights(const formats::TensorFolder& files) {
  ParamLoader loader(config().tower, files, *stream_, compute_);
  for (size_t part = 0; part < parts_->count(); ++part) {
    JIGE_DO(loader.load({.specs = parts_->params(part),
                         .weights = weights_[part],
                         .pack = [&](const BlockWeights& source) {
                           parts_->pack(part, *stream_, source, compute_);
                         }}));
  }
  stream_->synchronize();
  for (size_t i = 0; i < parts_->layers().size(); ++i) {
    for (const Projection* projection : parts_->layers()[i]->projections()) {
      if (Status same = projection->check_bounds(weights_[i + 1]); !same) {
        return with_context(std::move(same.error()), "{}", files.folder());
      }
    }
  }
  return {};
}

Result<std::vector<float>> ImageTower::encode(const images::Image& image, const GoOn& go_on) {
  if (image.width < 1 || image.height < 1 ||
      image.rgb.size() != image.row_bytes() * static_cast<size_t>(image.height)) {
    return fail(Code::kInvalidArgument, "an image of {} x {} pixels has {} bytes", image.width,
                image.height, image.rgb.size());
  }
  const formats::ImageLayout layout = formats::image_layout(config(), image.width, image.height);
  JIGE_TRY(const ImagePixels pixels, ImagePixels::resize(config(), layout, image, go_on));
  return encode_tiles(
      layout, [&](int64_t tile) { return pixels.patches(tile); }, go_on);
}

Result<std::vector<float>> ImageTower::encode_patches(std::span<const float> patches,
                                                      const formats::ImageLayout& layout,
                                                      const GoOn& go_on) {
  const int64_t patch = 3 * config().patch_size * config().patch_size;
  const int64_t numbers = layout.tile_row_count() * config().merge * config().merge * patch;
  if (numbers < 0 || std::ssize(patches) != numbers * layout.tile_count()) {
    return fail(Code::kInvalidArgument,
                "{} numbers of patches for {} x {} rows of each of {} tiles", patches.size(),
                layout.token_rows, layout.token_columns, layout.tile_count());
  }
  const auto tile_patches = [&](int64_t tile) -> Result<std::vector<float>> {
    const auto part =
        patches.subspan(static_cast<size_t>(tile * numbers), static_cast<size_t>(numbers));
    return std::vector<float>(part.begin(), part.end());
  };
  return encode_tiles(layout, tile_patches, go_on);
}

Status ImageTower::check_layout(const formats::ImageLayout& layout) const {
  const int64_t merged = config().merge * config().merge;
  const int64_t room = stream_rows() - rows_in_use_ - config().class_rows;
  const int64_t tile_max = std::min(patches_max(), room) / merged;
  if (layout.token_rows >= 1 && layout.token_columns >= 1 && layout.row_count() <= rows_max_ &&
      layout.tile_row_count() <= tile_max) {
    return {};
  }
  return fail(Code::kInvalidArgument,
              "an image of {} tiles of {} x {} rows; {} rows at most, of a tile {} at most now",
              layout.tile_count(), layout.token_rows, layout.token_columns, rows_max_, tile_max);
}

void ImageTower::put_angles(int64_t begin, int64_t patch_columns, const ImageOrder& order) {
  if (angle_columns(config().tower) == 0) return;
  const std::vector<double> frequencies = image_frequencies(config());
  const auto half = std::ssize(frequencies);
  auto* to = angles_.view().as<float>() + begin * 2 * half;
  for (int64_t row = 0; row < std::ssize(order.merged); ++row, to += 2 * half) {
    const int64_t patch = order.patch(row);
    for (int64_t i = 0; i < half; ++i) {
      const bool by_row = (i < half / 2) != config().halves_apart;
      const int64_t place = by_row ? patch / patch_columns : patch % patch_columns;
      const double angle = static_cast<double>(place) * frequencies[static_cast<size_t>(i)];
      to[i] = static_cast<float>(std::cos(angle));
      to[half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

Status ImageTower::run_layers(TensorView src, const Reading& reading) {
  const int64_t patch_count = src.rows();
  Batch batch;
  batch.tokens = batch.positions =
      positions_.view().row_range(reading.begin, reading.begin + patch_count);
  const BlockContext context{
      .stream = *stream_, .compute = compute_, .workspace = workspace_.view()};
  const std::vector<int64_t>& deep = config().deep_layers;
  for (size_t i = 0; i < parts_->layers().size(); ++i) {
    if (config().layer_has_window.empty() || config().layer_has_window[i] == 0) {
      batch.sequences = {{.row_begin = 0, .row_count = static_cast<int32_t>(patch_count)}};
    } else {
      batch.sequences = reading.order.windows;
    }
    const TensorView dst = other_stream(src, reading.begin);
    parts_->layers()[i]->forward(context, weights_[i + 1], batch, src, dst, {});
    const auto level = std::ranges::find(deep, static_cast<int64_t>(i));
    if (level != deep.end()) {
      project(dst, static_cast<size_t>(level - deep.begin()) + 1, reading);
    }
    stream_->synchronize();
    JIGE_DO(may_go_on(reading.go_on));
    src = dst;
  }
  project(src, 0, reading);
  stream_->synchronize();
  return {};
}

void ImageTower::project(const TensorView& src, size_t level, const Reading& reading) {
  const auto patch_count = std::ssize(reading.order.merged);
  const TensorView ordered = other_stream(src, reading.begin).row_range(0, patch_count);
  ops::select_rows(*stream_, ordered, src, reading.order.merged);
  ImageTask task = reading.task;
  task.level = level;
  const int64_t row_count = patch_count / (config().merge * config().merge);
  const int64_t first = static_cast<int64_t>(level) * reading.row_count + reading.first_row;
  float* const to = reading.rows.data() + first * width();
  parts_->projector().forward(task, weights_.back(), ordered,
                              TensorView::of(to, DType::kF32, Shape{row_count, width()}));
}

TensorView ImageTower::other_stream(const TensorView& rows, int64_t begin) const {
  const auto in_stream = [&](int i) {
    return streams_[i].view().row_range(begin, begin + rows.rows());
  };
  return in_stream(rows.data == in_stream(0).data ? 1 : 0);
}

Result<std::vector<float>> ImageTower::encode_tiles(const formats::ImageLayout& layout,
                                                    const TilePatches& patches, const GoOn& go_on) {
  JIGE_DO(may_go_on(go_on));
  JIGE_DO(check_layout(layout));
  const ImageOrder order = image_order(config(), layout);
  const int64_t row_count = layout.tower_row_count();
  std::vector<float> rows(static_cast<size_t>(config().levels() * row_count * width()));
  const int64_t begin = rows_in_use_;
  const RowsInUse in_use(rows_in_use_, layout.tile_row_count() * config().merge * config().merge +
                                           config().class_rows);
  for (int64_t tile = 0; tile < layout.tile_count(); ++tile) {
    JIGE_TRY(const std::vector<float> numbers, patches(tile));
    const ImageTask task{.stream = *stream_,
                         .compute = compute_,
                         .workspace = workspace_.view(),
                         .patch_columns = layout.token_columns * config().merge};
    JIGE_DO(encode_tile(numbers, {.begin = begin,
                                  .order = order,
                                  .task = task,
                                  .rows = rows,
                                  .first_row = tile * layout.tile_row_count(),
                                  .row_count = row_count,
                                  .go_on = go_on}));
  }
  if (layout.packed_rows == 0) return rows;
  const TensorView line_end = weights_.back().params.back().value;
  return pack_image_rows(layout, rows, std::span(line_end.as<float>(), line_end.count()));
}

Status ImageTower::encode_tile(const std::vector<float>& patches, const Reading& reading) {
  const auto patch_count = std::ssize(reading.order.merged);
  const int64_t end = reading.begin + patch_count + config().class_rows;
  put_angles(reading.begin, reading.task.patch_columns, reading.order);
  const TensorView src = TensorView::of(const_cast<float*>(patches.data()), DType::kF32,
                                        Shape{patch_count, std::ssize(patches) / patch_count});
  TensorView first = streams_[0].view().row_range(reading.begin, end);
  parts_->entry().forward(reading.task, weights_.front(), src, first);
  if (!reading.order.patches.empty()) {
    const TensorView ordered = other_stream(first, reading.begin);
    ops::select_rows(*stream_, ordered, first, reading.order.patches);
    first = ordered;
  }
  return run_layers(first, reading);
}

}  // namespace jige::model
