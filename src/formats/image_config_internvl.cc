// InternVL 3 and 3.5 (model_type "internvl"): an image becomes a grid of square tiles, of that
// shape among those of up to max_patches tiles that is nearest to its own, whatever its size; each
// passes the tower by itself, and so does the whole image, resized to one. Where the grid is one
// tile, that is all. m x m patches become one row.
//
// In a prompt the rows of all tiles stand one behind the other, between two tokens.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"
#include "formats/image_families.h"
#include "formats/json_file.h"
#include "text/tokenizer.h"

namespace jige::formats {
namespace {

constexpr const char* kInternVlType = "internvl";
constexpr int64_t kContextTokenId = 151667;
constexpr int64_t kUsualPixels = 448;  // of a side of a tile
constexpr int64_t kTilesMost = 256;
constexpr double kEpsOfHeads = 1e-6;
constexpr UsualPixels kInternVlPixels = kClipPixels;

bool has_internvl(const Json& config) { return is_of_type(config, kInternVlType); }

Status check_switch(const Json& object, const char* field, bool usual, bool taken,
                    std::string_view where) {
  JIGE_TRY(const bool on, get_bool_or(object, field, usual, where));
  if (on == taken) return {};
  return refused_value(where, field, on ? "true" : "false", taken ? "true" : "false");
}

Status parse_norms(const Json& vision, ImageConfig& out, std::string_view where) {
  JIGE_TRY(const std::string norm, get_string_or(vision, "norm_type", "layer_norm", where));
  if (norm != "layer_norm" && norm != "rms_norm") {
    return refused_value(where, "norm_type", norm, "layer_norm and rms_norm");
  }
  JIGE_TRY(const bool of_heads, get_bool_or(vision, "use_qk_norm", false, where));
  if (norm == "rms_norm") out.tower.norm = NormKind::kRms;
  if (of_heads && out.tower.norm != NormKind::kRms) {
    return refused_value(where, "use_qk_norm", "true with a layer_norm", "it with rms_norm alone");
  }
  // Those of heads have this one whatever the others have.
  if (of_heads && out.tower.norm_eps != kEpsOfHeads) {
    return refused_value(where, "layer_norm_eps", fmt::format("{:g}", out.tower.norm_eps),
                         "1e-06 with use_qk_norm");
  }
  out.tower.qk_norm = out.tower.qk_norm_whole = of_heads;
  return {};
}

Status parse_internvl_tower(const Json& vision, ImageConfig& out, std::string_view where) {
  JIGE_DO(parse_siglip_tower(vision,
                             {.width = 1024,
                              .layers = 24,
                              .heads = 16,
                              .ffn = 4096,
                              .patch = 14,
                              .norm_eps = 1e-6,
                              .activation = "gelu"},
                             out, where));
  JIGE_TRY(out.tower.qkv_bias, get_bool_or(vision, "attention_bias", false, where));
  JIGE_DO(parse_norms(vision, out, where));
  JIGE_DO(check_switch(vision, "use_mean_pooling", true, true, where));
  JIGE_DO(check_switch(vision, "use_absolute_position_embeddings", true, true, where));
  JIGE_TRY(out.tile_side, get_square(vision, "image_size", kUsualPixels, kImageSideMax, where));
  out.positions_side = out.tile_side / out.patch_size;
  out.class_rows = 1;
  out.column_scales = true;
  return {};
}

// How many patches a side become one row, as the share of a side that is left of them.
Status parse_merge(const Json& config, ImageConfig& out, std::string_view where) {
  constexpr const char* kField = "downsample_ratio";
  JIGE_TRY(const double ratio, get_number_or(config, kField, 0.5, where));
  out.merge = ratio > 0 && ratio <= 1 ? std::lround(1 / ratio) : 0;
  if (out.merge < 1 || out.merge > kImageMergeMax || 1 / static_cast<double>(out.merge) != ratio ||
      out.positions_side % out.merge != 0 || out.positions_side < 1) {
    return fail(Code::kCorrupt,
                "{}: field \"{}\" is {}; so much of {} patches a side (image_size {}, patch_size "
                "{}) must be a whole number, and a whole number of them one",
                where, kField, ratio, out.positions_side, out.tile_side, out.patch_size);
  }
  return check_merged_width(out, where);
}

// Its class cuts images whatever "crop_to_patches" of the image processor's file says.
Status parse_internvl_tiles(const Json& pixels, ImageConfig& out, const std::string& where) {
  JIGE_TRY(const int64_t side, get_square(pixels, "size", out.tile_side, kImageSideMax, where));
  if (side != out.tile_side) {
    return fail(Code::kCorrupt,
                "{}: tiles are resized to {} pixels a side, but the tower's positions in "
                "config.json (image_size) are those of {}",
                where, side, out.tile_side);
  }
  JIGE_TRY(out.tiles_low, get_within(pixels, "min_patches", 1, {1, kTilesMost}, where));
  JIGE_TRY(out.tiles_high,
           get_within(pixels, "max_patches", 12, {out.tiles_low, kTilesMost}, where));
  out.width_max = out.height_max = out.tiles_high * out.tile_side;
  return {};
}

Status check_image_rows(const Json& object, const char* field, const ImageConfig& out,
                        const std::string& where) {
  const int64_t rows = out.tile_patches_max() / (out.merge * out.merge);
  JIGE_TRY(const int64_t said, get_int_or(object, field, rows, where));
  if (said == rows) return {};
  return fail(Code::kCorrupt, "{}: field \"{}\" is {}; by the other files it is {}", where, field,
              said, rows);
}

Status parse_internvl(const ImageFiles& files, ImageConfig& out) {
  const std::string& where = files.config_path;
  JIGE_TRY(const ModelConfig language, parse_model_config(files.config, where));
  JIGE_TRY(const Json vision, get_vision(files.config, where));
  JIGE_DO(parse_internvl_tower(vision, out, where));
  JIGE_DO(parse_merge(files.config, out, where));
  JIGE_DO(parse_feature_layer(files.config, -1, out, where));
  JIGE_TRY(const std::string strategy,
           get_string_or(files.config, "vision_feature_select_strategy", "default", where));
  if (strategy != "default") {
    return refused_value(where, "vision_feature_select_strategy", strategy, "default");
  }
  JIGE_DO(parse_projector_activation(files.config, out, where));
  out.tower.quantised = language.quantised;
  out.text_width = language.hidden_size;
  const std::pair ids{int64_t{0}, language.vocab_size - 1};
  JIGE_TRY(const int64_t id,
           get_within(files.config, "image_token_id", kContextTokenId, ids, where));
  out.placeholder_id = static_cast<int32_t>(id);
  out.image_token = "<IMG_CONTEXT>";
  out.open_token = "<img>";
  out.end_token = "</img>";
  JIGE_DO(parse_internvl_tiles(files.pixels, out, files.pixels_path));
  JIGE_DO(check_image_rows(files.processor, "image_seq_length", out, files.processor_path));
  JIGE_DO(parse_pixels(files.pixels, kInternVlPixels, out, files.pixels_path));
  return check_patches(out, files.pixels_path);
}

Status find_internvl_tokens(ImageConfig& config, const text::Tokenizer& tokenizer) {
  JIGE_TRY(config.open_id, find_image_token(tokenizer, config.open_token));
  JIGE_TRY(config.end_id, find_image_token(tokenizer, config.end_token));
  return {};
}

// Of the grids with a number of tiles in the range, by that number and then by columns, the first
// whose shape is nearest; of several that are, the last whose tiles' area the image's is more than
// half of.
TileGrid nearest_grid(const ImageConfig& config, int32_t width, int32_t height) {
  const double shape = double(width) / double(height);
  const double area = double(width) * double(height);
  const double tile_area = static_cast<double>(config.tile_side * config.tile_side);
  TileGrid best{1, 1};
  double least = INFINITY;
  for (int64_t tiles = config.tiles_low; tiles <= config.tiles_high; ++tiles) {
    for (int64_t columns = 1; columns <= tiles; ++columns) {
      if (tiles % columns != 0) continue;
      const int64_t rows = tiles / columns;
      const double away =
          std::abs(shape - static_cast<double>(columns) / static_cast<double>(rows));
      const bool larger = away == least && area > 0.5 * tile_area * static_cast<double>(tiles);
      if (away >= least && !larger) continue;
      least = away;
      best = {static_cast<int32_t>(rows), static_cast<int32_t>(columns)};
    }
  }
  return best;
}

ImageLayout internvl_layout(const ImageConfig& config, int32_t width, int32_t height) {
  const TileGrid grid = nearest_grid(config, width, height);
  const bool cut = grid.rows * grid.columns > 1;
  const auto side = static_cast<int32_t>(config.tile_side);
  const auto tokens = static_cast<int32_t>(config.positions_side / config.merge);
  return {.width = grid.columns * side,
          .height = grid.rows * side,
          .token_rows = tokens,
          .token_columns = tokens,
          .tile_rows = cut ? grid.rows : 0,
          .tile_columns = cut ? grid.columns : 0};
}

std::vector<int32_t> internvl_tokens(const ImageConfig& config, const ImageLayout& layout) {
  JIGE_CHECK(config.open_id >= 0 && config.end_id >= 0, "tokens of images that nobody found");
  std::vector<int32_t> ids = {config.open_id};
  ids.insert(ids.end(), static_cast<size_t>(layout.row_count()), kImageRow);
  ids.push_back(config.end_id);
  return ids;
}

int64_t internvl_tiles_max(const ImageConfig& config) {
  return config.tiles_high == 1 ? 1 : config.tiles_high + 1;
}

int64_t internvl_patches_max(const ImageConfig& config) {
  return internvl_tiles_max(config) * config.positions_side * config.positions_side;
}

}  // namespace

const ImageFamilyRules kInternVlImages = {.family = ImageFamily::kInternVl,
                                          .has = has_internvl,
                                          .parse = parse_internvl,
                                          .find_tokens = find_internvl_tokens,
                                          .layout = internvl_layout,
                                          .tokens = internvl_tokens,
                                          .patches_max = internvl_patches_max,
                                          .tiles_max = internvl_tiles_max};

}  // namespace jige::formats
