#include "model/image_parts_class.h"

#include "model/image_parts_internvl.h"
#include "model/image_parts_siglip.h"
#include "ops/add_blended_rows.h"
#include "ops/elementwise.h"

namespace jige::model {
namespace {

// Names of the parameters, and the shapes that files have of these.
struct ClassEntryFiles {
  std::string patches, token, positions;
  Shape token_shape, positions_shape;
};

bool is_clip(const formats::ImageConfig& config) {
  return config.family != formats::ImageFamily::kInternVl;
}

// Of the class token and the patches.
int64_t place_count(const formats::ImageConfig& config) {
  return config.positions_side * config.positions_side + 1;
}

ClassEntryFiles class_entry_files(const formats::ImageConfig& config) {
  const int64_t width = config.tower.hidden_size;
  const int64_t places = place_count(config);
  if (!is_clip(config)) {
    const std::string at = kInternVlTower + "embeddings.";
    return {.patches = at + "patch_embeddings.projection",
            .token = at + "cls_token",
            .positions = at + "position_embeddings",
            .token_shape = Shape{1, 1, width},
            .positions_shape = Shape{1, places, width}};
  }
  const std::string at = kGemma3Tower + "embeddings.";
  return {.patches = at + "patch_embedding",
          .token = at + "class_embedding",
          .positions = at + "position_embedding.weight",
          .token_shape = Shape{width},
          .positions_shape = Shape{places, width}};
}

// Rows of a table from this one on, each once.
std::vector<ops::Blend> rows_from(int32_t first, int64_t count) {
  std::vector<ops::Blend> rows;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t row = first + static_cast<int32_t>(i);
    rows.push_back({.rows = {row, row, row, row}, .weights = {1, 0, 0, 0}});
  }
  return rows;
}

}  // namespace

ClassEntry::ClassEntry(const formats::ImageConfig& config)
    : PatchEntry(config, class_entry_files(config).patches, !is_clip(config)) {
  const int64_t width = config.tower.hidden_size;
  const ClassEntryFiles files = class_entry_files(config);
  class_ = params_.size();
  params_.push_back(
      {.name = files.token, .shape = Shape{1, width}, .as_kernels = files.token_shape});
  params_.push_back({.name = files.positions,
                     .shape = Shape{place_count(config), width},
                     .as_kernels = files.positions_shape});
  if (is_clip(config)) {
    norm_ = NormLayer(config.tower, kGemma3Tower + "pre_layrnorm", width, true, params_);
  }
}

void ClassEntry::forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
                         const TensorView& dst) const {
  const int64_t count = src.rows();
  const TensorView patches = dst.row_range(0, count);
  const TensorView token = dst.row_range(count, count + 1);
  const TensorView& positions = weights.params[class_ + 1].value;
  multiply(task, weights, src, patches);
  ops::add_blended_rows(task.stream, patches, positions, rows_from(1, count));
  ops::scale(task.stream, token, weights.params[class_].value, 1.0f);
  ops::add_blended_rows(task.stream, token, positions, rows_from(0, 1));
  if (norm_.exists()) norm_.forward(task.stream, weights, dst, dst, {});
}

}  // namespace jige::model
