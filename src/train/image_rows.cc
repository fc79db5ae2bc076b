#include "train/image_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "images/decode.h"
#include "model/image_places.h"

namespace jige::train {
namespace {

// Of the rows of a micro-batch, all levels one behind the other.
Shape rows_shape(const ImageTraining& training) {
  return Shape{training.config.levels() * training.micro_batch_tokens, training.config.text_width};
}

Shape angles_shape(const ImageTraining& training) {
  return Shape{training.micro_batch_tokens, 2 * std::ssize(training.config.pair_places)};
}

Status check_model(const ImageTraining& training, const model::Architecture& architecture) {
  const formats::ModelConfig& config = architecture.config();
  const formats::ImageConfig& images = training.config;
  if (images.text_width != config.hidden_size || images.levels() - 1 > config.layer_count) {
    return fail(Code::kInvalidArgument,
                "{}: rows of images have {} numbers and {} levels, and the language model is {} "
                "wide, of {} layers",
                training.folder, images.text_width, images.levels(), config.hidden_size,
                config.layer_count);
  }
  if (images.mutual_rows) JIGE_DO(model::check_mutual_attention(config));
  return images.pair_places.empty() ? Status()
                                    : model::PlaceAngles::check(config, images.pair_places);
}

}  // namespace

Result<ImageRowsMemory> image_rows_memory(const ImageTraining& training,
                                          const model::Architecture& architecture) {
  JIGE_DO(check_model(training, architecture));
  JIGE_TRY(const auto parts, model::ImageParts::create(training.config));
  ImageRowsMemory memory;
  memory.tower = model::image_tower_memory(*parts, training.compute, training.context);
  memory.rows_bytes = arena_bytes(DType::kF32, rows_shape(training));
  if (!training.config.pair_places.empty()) {
    memory.angles_bytes = arena_bytes(DType::kF32, angles_shape(training));
  }
  return memory;
}

int64_t image_reading_bytes(const formats::ImageConfig& config,
                            std::span<const CorpusImage> images) {
  int64_t largest = 0;
  for (const CorpusImage& image : images) {
    const auto layout = formats::image_layout(config, image.width, image.height);
    const int64_t pixels = int64_t{image.width} * image.height;
    const int64_t canvas =
        int64_t{layout.tile_rows} * layout.tile_columns * config.tile_side * config.tile_side;
    const int64_t resized = int64_t{layout.width} * layout.height +
                            int64_t{layout.first_width} * layout.first_height + canvas +
                            config.tile_side * config.tile_side;
    // Decoders have the pixels once more; patches are f32, and so are the rows that come of them.
    const int64_t patches = layout.tile_row_count() * config.step() * config.step();
    const int64_t packed = layout.packed_rows > 0 ? layout.row_count() : 0;
    const int64_t rows = config.levels() * (layout.tower_row_count() + packed) * config.text_width;
    largest = std::max(largest, image.source.byte_count + 2 * 3 * pixels + 2 * 3 * resized +
                                    4 * (3 * patches + rows));
  }
  return largest;
}

ImageRows::ImageRows(const ImageTraining& training, const model::Architecture& architecture,
                     Device& device)
    : training_(training),
      width_(architecture.config().hidden_size),
      arena_(device, device.name() + " rows of images", kUnlimitedBytes),
      places_(training.config.pair_places) {}

Result<std::unique_ptr<ImageRows>> ImageRows::load(const ImageTraining& training,
                                                   const model::Architecture& architecture,
                                                   Device& device) {
  JIGE_TRY(const ImageRowsMemory needed, image_rows_memory(training, architecture));
  std::unique_ptr<ImageRows> rows(new ImageRows(training, architecture, device));
  JIGE_TRY(rows->tower_, model::ImageTower::load(training.folder, training.config, device,
                                                 {.compute = training.compute,
                                                  .memory_bytes_max = needed.tower.total_bytes(),
                                                  .rows_max = training.context}));
  JIGE_TRY(rows->rows_, rows->arena_.make(DType::kF32, rows_shape(training)));
  if (!rows->places_.empty()) {
    JIGE_TRY(rows->angles_, rows->arena_.make(DType::kF32, angles_shape(training)));
  }
  return rows;
}

Status ImageRows::encode(const BatchImage& image, int64_t taken, int64_t row_count) {
  const ImageFile& source = image.image->source;
  const std::string name = source.file.empty() ? *image.path : source.file;
  JIGE_TRY(const std::string bytes, read_image_again(source, *image.path));
  JIGE_TRY(const images::Image pixels, images::decode_image(std::as_bytes(std::span(bytes)), name));
  auto encoded = tower_->encode(pixels);
  if (!encoded) return with_context(std::move(encoded.error()), "{}", name);
  const std::vector<float>& values = *encoded;
  const int64_t level = row_count * width_;
  JIGE_CHECK(std::ssize(values) == training_.config.levels() * level,
             "{} numbers of an image of {} rows", values.size(), row_count);
  ++encoded_count_;
  for (int64_t i = 0; i < training_.config.levels(); ++i) {
    const int64_t row = i * training_.micro_batch_tokens + taken;
    std::memcpy(rows_.view().row_range(row, row + row_count).as<float>(), values.data() + i * level,
                static_cast<size_t>(level) * sizeof(float));
  }
  return {};
}

void ImageRows::give(const BatchImage& image, const formats::ImageLayout& layout, int64_t taken,
                     HostBatch& batch) const {
  const auto* values = rows_.view().row_range(taken, taken + 1).as<float>();
  const std::vector<int32_t> tokens = formats::image_tokens(training_.config, layout);
  int64_t row_in_image = 0;
  const auto first = std::ssize(batch.given);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] != formats::kImageRow) continue;
    batch.given.push_back(
        {.row = image.row + static_cast<int32_t>(i), .values = values + row_in_image * width_});
    if (training_.config.levels() > 1) {
      model::GivenRow& given = batch.given.back();
      given.deep_stride = training_.micro_batch_tokens * width_;
      given.deep = given.values + given.deep_stride;
      given.deep_count = static_cast<int32_t>(training_.config.levels()) - 1;
    }
    ++row_in_image;
  }
  if (!training_.config.mutual_rows) return;
  const int64_t begin = batch.given[static_cast<size_t>(first)].row;
  batch.mutual.push_back({begin, begin + row_in_image});
}

void ImageRows::put_angles(HostBatch& batch, const TensorView& rope_table) {
  if (places_.empty()) return;
  auto* to = angles_.view().as<float>();
  auto image = batch.images.begin();
  int32_t row = 0;
  for (size_t s = 0; s < batch.counts.size(); ++s) {
    std::vector<model::ImageGrid> grids;
    for (; image != batch.images.end() && std::cmp_equal(image->sequence, s); ++image) {
      const auto layout =
          formats::image_layout(training_.config, image->image->width, image->image->height);
      grids.push_back({image->row - row, layout.token_rows, layout.token_columns});
    }
    const model::ImagePlaces places(grids);
    for (int32_t i = 0; i < batch.counts[s]; ++i, to += places_.columns()) {
      places_.write(rope_table, places.at(i), to);
      batch.positions[static_cast<size_t>(row + i)] = row + i;
    }
    row += batch.counts[s];
  }
  batch.angles = angles_.view().row_range(0, row);
}

Status ImageRows::read(HostBatch& batch, const TensorView& rope_table) {
  if (batch.images.empty()) return {};
  int64_t taken = 0;
  for (const BatchImage& image : batch.images) {
    const auto layout =
        formats::image_layout(training_.config, image.image->width, image.image->height);
    const int64_t count = layout.row_count();
    if (std::ssize(formats::image_tokens(training_.config, layout)) != image.image->count) {
      return fail(Code::kCorrupt, "{}: has {} tokens for an image of {} x {}; remove it",
                  *image.path, image.image->count, image.image->width, image.image->height);
    }
    JIGE_CHECK(taken + count <= training_.micro_batch_tokens, "{} rows of images for {} tokens",
               taken + count, training_.micro_batch_tokens);
    JIGE_DO(encode(image, taken, count));
    give(image, layout, taken, batch);
    taken += count;
  }
  put_angles(batch, rope_table);
  return {};
}

}  // namespace jige::train
