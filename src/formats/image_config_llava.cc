// LLaVA with a tower of CLIP or SigLIP. Of LLaVA 1.5 (model_type "llava") an image is resized so
// that its shorter side is a tile's, and its middle is read. Of LLaVA-NeXT ("llava_next") and
// LLaVA-OneVision ("llava_onevision") it is read as a whole, resized to one tile, and beside it cut
// into tiles of the best of some grids, into which it is fitted: the rows of these make lines
// again, without those beside the image, and of very large grids fewer ones (image_packing.h of
// model).
//
// In a prompt stand rows alone.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "formats/image_families.h"
#include "formats/json_file.h"
#include "text/tokenizer.h"

namespace jige::formats {
namespace {

constexpr const char* kPlainLlava = "llava";
constexpr const char* kNextLlava = "llava_next";
constexpr const char* kOneVision = "llava_onevision";
constexpr const char* kClipTower = "clip_vision_model";
constexpr const char* kSiglipOfLlava = "siglip_vision_model";
constexpr const char* kPinpoints = "image_grid_pinpoints";
constexpr const char* kAspect = "vision_aspect_ratio";
constexpr int64_t kTilesOfSideMax = 32;
constexpr size_t kGridsMax = 256;
constexpr double kPackedMore = 1.1;  // by which the root of areas may be larger

bool has_llava(const Json& config) {
  const Json* vision = find_field(config, "vision_config");
  if (!vision || !(is_of_type(*vision, kClipTower) || is_of_type(*vision, kSiglipOfLlava))) {
    return false;
  }
  return is_of_type(config, kPlainLlava) || is_of_type(config, kNextLlava) ||
         is_of_type(config, kOneVision);
}

Status parse_llava_tower(const Json& vision, ImageConfig& out, std::string_view where) {
  const bool clip = is_of_type(vision, kClipTower);
  const UsualTower usual = {.width = 768,
                            .layers = 12,
                            .heads = 12,
                            .ffn = 3072,
                            .patch = clip ? 32 : 16,
                            .norm_eps = clip ? 1e-5 : 1e-6,
                            .activation = clip ? "quick_gelu" : "gelu_pytorch_tanh"};
  JIGE_DO(parse_siglip_tower(vision, usual, out, where));
  JIGE_TRY(out.tile_side, get_square(vision, "image_size", 224, kImageSideMax, where));
  out.positions_side = out.tile_side / out.patch_size;
  if (out.positions_side < 1) {
    return fail(Code::kCorrupt, "{}: images of {} pixels a side have no patch of {}", where,
                out.tile_side, out.patch_size);
  }
  out.class_rows = clip ? 1 : 0;
  return {};
}

// The class token has no place, so it must be left out; and where there is none, nothing.
Status parse_llava_features(const Json& config, ImageConfig& out, std::string_view where) {
  constexpr const char* kStrategy = "vision_feature_select_strategy";
  const bool one_vision = is_of_type(config, kOneVision);
  JIGE_TRY(const std::string strategy,
           get_string_or(config, kStrategy, one_vision ? "full" : "default", where));
  const char* const taken = out.class_rows > 0 ? "default" : "full";
  if (strategy != taken) return refused_value(where, kStrategy, strategy, taken);
  return parse_feature_layer(config, one_vision ? -1 : -2, out, where);
}

Json usual_pinpoints(const Json& config) {
  if (is_of_type(config, kNextLlava)) {
    return {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}};
  }
  Json all = Json::array();
  for (int height = 384; height <= 2304; height += 384) {
    for (int width = 384; width <= 2304; width += 384) all.push_back(Json::array({height, width}));
  }
  return all;
}

Result<std::vector<TileGrid>> parse_grids(const Json& object, const Json& usual, int64_t tile,
                                          std::string_view where) {
  const Json* found = find_field(object, kPinpoints);
  const Json& pinpoints = found ? *found : usual;
  if (!pinpoints.is_array() || pinpoints.empty() || pinpoints.size() > kGridsMax) {
    return fail(Code::kCorrupt, "{}: field \"{}\" must be a list of up to {} heights and widths",
                where, kPinpoints, kGridsMax);
  }
  std::vector<TileGrid> grids;
  for (const Json& one : pinpoints) {
    JIGE_TRY(const ImageSides sides,
             get_sides({{kPinpoints, one}}, kPinpoints, 0, kImageSideMax, where));
    const int64_t rows = sides.height / tile;
    const int64_t columns = sides.width / tile;
    if (rows * tile != sides.height || columns * tile != sides.width || rows > kTilesOfSideMax ||
        columns > kTilesOfSideMax) {
      return fail(Code::kUnsupported,
                  "{}: field \"{}\" has {} x {} pixels, which are no whole tiles of {} a side, or "
                  "more than {} of them; Jige takes those that are",
                  where, kPinpoints, sides.height, sides.width, tile, kTilesOfSideMax);
    }
    grids.push_back({static_cast<int32_t>(rows), static_cast<int32_t>(columns)});
  }
  return grids;
}

// "anyres_max_9"
Result<int64_t> parse_aspect(const Json& object, int64_t usual, std::string_view where) {
  constexpr std::string_view kBeginning = "anyres_max_";
  JIGE_TRY(const std::string text,
           get_string_or(object, kAspect, fmt::format("{}{}", kBeginning, usual), where));
  int64_t tiles = 0;
  const char* const end = text.data() + text.size();
  if (text.starts_with(kBeginning)) {
    const auto read = std::from_chars(text.data() + kBeginning.size(), end, tiles);
    if (read.ec == std::errc() && read.ptr == end && tiles >= 1 && tiles <= kImagePatchesMax) {
      return tiles;
    }
  }
  return refused_value(where, kAspect, text, "anyres_max_ and a number of tiles");
}

tl::unexpected<Error> other_value(std::string_view where, const char* field) {
  return fail(Code::kCorrupt, "{}: field \"{}\" is not that of config.json", where, field);
}

Status parse_cuts(const ImageFiles& files, ImageConfig& out) {
  out.cuts = !is_of_type(files.config, kPlainLlava);
  out.width_max = out.height_max = out.tile_side;
  if (!out.cuts) return {};
  const int64_t tile = out.tile_side;
  const Json usual = usual_pinpoints(files.config);
  JIGE_TRY(out.grids, parse_grids(files.config, usual, tile, files.config_path));
  JIGE_TRY(const auto others, parse_grids(files.pixels, usual, tile, files.pixels_path));
  if (others != out.grids) return other_value(files.pixels_path, kPinpoints);
  for (const TileGrid& grid : out.grids) {
    out.width_max = std::max(out.width_max, grid.columns * tile);
    out.height_max = std::max(out.height_max, grid.rows * tile);
  }
  if (!is_of_type(files.config, kOneVision)) return {};
  JIGE_TRY(out.packed_tiles_max, parse_aspect(files.config, 9, files.config_path));
  JIGE_TRY(const int64_t other,
           parse_aspect(files.processor, out.packed_tiles_max, files.processor_path));
  return other == out.packed_tiles_max ? Status() : other_value(files.processor_path, kAspect);
}

// That image processors resize to a tile of the tower, and cut off what is beyond it.
Status check_tile(const ImageFiles& files, const ImageConfig& out) {
  const std::string& where = files.pixels_path;
  const Json* size = find_field(files.pixels, "size");
  Json sides = {{"size", out.tile_side}};
  if (size) sides["size"] = *size;
  if (size && size->is_object() && find_field(*size, "shortest_edge")) {
    sides["size"] = *find_field(*size, "shortest_edge");
  } else if (size && !out.cuts) {
    return refused_value(where, "size", dump_json(*size), "an object with \"shortest_edge\"");
  }
  JIGE_TRY(const int64_t side, get_square(sides, "size", out.tile_side, kImageSideMax, where));
  JIGE_TRY(const int64_t crop,
           get_square(files.pixels, "crop_size", out.tile_side, kImageSideMax, where));
  if (side != out.tile_side || crop != out.tile_side) {
    return fail(Code::kCorrupt,
                "{}: images are resized to {} pixels a side and cut to {}, but the tower's "
                "positions in config.json (image_size) are those of {}",
                where, side, crop, out.tile_side);
  }
  if (out.cuts) return {};
  JIGE_TRY(const bool crops, get_bool_or(files.pixels, "do_center_crop", true, where));
  if (!crops) return refused_value(where, "do_center_crop", "false", "true");
  JIGE_TRY(const bool pads, get_bool_or(files.pixels, "do_pad", false, where));
  if (pads) return refused_value(where, "do_pad", "true", "false");
  return {};
}

// What the processor counts rows by.
Status check_llava_processor(const ImageFiles& files, const ImageConfig& out) {
  const std::string& where = files.processor_path;
  const int64_t rows = out.positions_side * out.positions_side;
  const std::array<std::pair<const char*, int64_t>, 3> known = {
      {{"patch_size", out.patch_size},
       {"num_image_tokens", rows},
       {"num_additional_image_tokens", out.class_rows}}};
  for (const auto& [field, value] : known) {
    JIGE_TRY(const int64_t said, get_int_or(files.processor, field, value, where));
    if (said == value) continue;
    return fail(Code::kCorrupt, "{}: field \"{}\" is {}; by config.json it is {}", where, field,
                said, value);
  }
  return {};
}

Status parse_llava(const ImageFiles& files, ImageConfig& out) {
  const std::string& where = files.config_path;
  JIGE_TRY(const ModelConfig language, parse_model_config(files.config, where));
  JIGE_TRY(const Json vision, get_vision(files.config, where));
  JIGE_DO(parse_llava_tower(vision, out, where));
  JIGE_DO(parse_llava_features(files.config, out, where));
  JIGE_DO(parse_projector_activation(files.config, out, where));
  out.merges = false;
  JIGE_TRY(out.projector_bias, get_bool_or(files.config, "multimodal_projector_bias", true, where));
  out.tower.quantised = language.quantised;
  out.text_width = language.hidden_size;
  const char* const index =
      find_field(files.config, "image_token_index") ? "image_token_index" : "image_token_id";
  JIGE_TRY(const int64_t id,
           get_within(files.config, index, is_of_type(files.config, kOneVision) ? 151646 : 32000,
                      {0, language.vocab_size - 1}, where));
  out.placeholder_id = static_cast<int32_t>(id);
  JIGE_TRY(out.image_token,
           get_string_or(files.processor, "image_token", "<image>", files.processor_path));
  JIGE_DO(parse_cuts(files, out));
  JIGE_DO(check_tile(files, out));
  JIGE_DO(check_llava_processor(files, out));
  Json pixels = files.pixels;
  if (pixels.is_object()) pixels.erase("do_center_crop");
  JIGE_DO(parse_pixels(pixels, kClipPixels, out, files.pixels_path));
  return check_patches(out, files.pixels_path);
}

Status find_llava_tokens(ImageConfig& /*config*/, const text::Tokenizer& /*tokenizer*/) {
  return {};
}

struct Pixels {
  int64_t width, height;
};

// Into which most of the image's pixels go, and of such grids the one with the fewest others.
TileGrid best_grid(const ImageConfig& config, const Pixels& image) {
  TileGrid best = config.grids.front();
  int64_t most = 0;
  int64_t least_waste = INT64_MAX;
  for (const TileGrid& grid : config.grids) {
    const int64_t width = grid.columns * config.tile_side;
    const int64_t height = grid.rows * config.tile_side;
    const double scale =
        std::min(double(width) / double(image.width), double(height) / double(image.height));
    const auto scaled = [&](int64_t side) { return static_cast<int64_t>(double(side) * scale); };
    const int64_t used =
        std::min(scaled(image.width) * scaled(image.height), image.width * image.height);
    const int64_t waste = width * height - used;
    if (used < most || (used == most && waste >= least_waste)) continue;
    most = used;
    least_waste = waste;
    best = grid;
  }
  return best;
}

// As large as it fits.
Pixels fitted(const Pixels& image, const Pixels& room) {
  const double across = double(room.width) / double(image.width);
  const double down = double(room.height) / double(image.height);
  const auto scaled = [](int64_t side, double by, int64_t most) {
    return std::min(static_cast<int64_t>(std::ceil(double(side) * by)), most);
  };
  if (across < down) return {room.width, scaled(image.height, across, room.height)};
  return {scaled(image.width, down, room.width), room.height};
}

// The lines and columns that the image's rows have, of those of its grid: as transformers rounds,
// to 7 digits first. Of those that are much longer than wide, or the other way, some are kept,
// where transformers keeps none.
void keep_rows(const ImageConfig& config, const Pixels& image, ImageLayout& layout) {
  const int32_t lines = layout.tile_rows * layout.token_rows;
  const int32_t columns = layout.tile_columns * layout.token_columns;
  const auto beside = [](int32_t whole, int64_t side, double scale) {
    const double rounded = std::round(double(side) * scale * 1e7) / 1e7;
    return std::min((whole - static_cast<int32_t>(rounded)) / 2, (whole - 1) / 2);
  };
  if (double(image.width) / double(image.height) > double(columns) / double(lines)) {
    layout.kept_top = beside(lines, image.height, double(columns) / double(image.width));
  } else {
    layout.kept_left = beside(columns, image.width, double(lines) / double(image.height));
  }
  layout.packed_rows = layout.kept_rows = lines - 2 * layout.kept_top;
  layout.packed_columns = layout.kept_columns = columns - 2 * layout.kept_left;
  if (config.packed_tiles_max == 0) return;
  const double most =
      static_cast<double>(config.packed_tiles_max) * layout.token_rows * layout.token_rows;
  const double ratio = std::sqrt(double(layout.kept_rows) * layout.kept_columns / most);
  if (ratio <= kPackedMore) return;
  // Lines that are much shorter than others are long would be none.
  const auto fewer = [&](int32_t count) {
    return std::max(static_cast<int32_t>(std::floor(double(count) / ratio)), 1);
  };
  layout.packed_rows = fewer(layout.kept_rows);
  layout.packed_columns = fewer(layout.kept_columns);
}

ImageLayout llava_layout(const ImageConfig& config, int32_t width, int32_t height) {
  const auto side = static_cast<int32_t>(config.tile_side);
  const auto tokens = static_cast<int32_t>(config.positions_side);
  ImageLayout layout{.width = side, .height = side, .token_rows = tokens, .token_columns = tokens};
  const Pixels image{width, height};
  if (!config.cuts) {
    // The longer side of an image that is very long is cut before there are too many pixels.
    const auto longer = [&](int64_t a, int64_t b) {
      const double scaled = double(side) * double(a) / double(b);
      return static_cast<int32_t>(std::min(scaled, double(kImageSideMax)));
    };
    if (width > height) layout.width = longer(width, height);
    if (height > width) layout.height = longer(height, width);
    return layout;
  }
  const TileGrid grid = best_grid(config, image);
  const Pixels resized = fitted(image, {int64_t{grid.columns} * side, int64_t{grid.rows} * side});
  layout.width = static_cast<int32_t>(resized.width);
  layout.height = static_cast<int32_t>(resized.height);
  layout.tile_rows = grid.rows;
  layout.tile_columns = grid.columns;
  keep_rows(config, image, layout);
  return layout;
}

std::vector<int32_t> llava_tokens(const ImageConfig& /*config*/, const ImageLayout& layout) {
  return std::vector<int32_t>(static_cast<size_t>(layout.row_count()), kImageRow);
}

int64_t llava_tiles_max(const ImageConfig& config) {
  int64_t most = 0;
  for (const TileGrid& grid : config.grids) {
    most = std::max(most, int64_t{grid.rows} * grid.columns);
  }
  return most + 1;
}

int64_t llava_patches_max(const ImageConfig& config) {
  return llava_tiles_max(config) * config.positions_side * config.positions_side;
}

// Those of all tiles, and one behind each line.
int64_t llava_rows_max(const ImageConfig& config) {
  const int64_t side = config.positions_side;
  const double packed =
      kPackedMore * kPackedMore * static_cast<double>(config.packed_tiles_max * side * side);
  int64_t most = 0;
  for (const TileGrid& grid : config.grids) {
    int64_t rows = grid.rows * grid.columns * side * side;
    if (config.packed_tiles_max > 0) rows = std::min(rows, static_cast<int64_t>(packed));
    most = std::max(most, rows + grid.rows * side);
  }
  return most + side * side;
}

}  // namespace

const ImageFamilyRules kLlavaImages = {.family = ImageFamily::kLlava,
                                       .has = has_llava,
                                       .parse = parse_llava,
                                       .find_tokens = find_llava_tokens,
                                       .layout = llava_layout,
                                       .tokens = llava_tokens,
                                       .patches_max = llava_patches_max,
                                       .tiles_max = llava_tiles_max,
                                       .rows_max = llava_rows_max};

}  // namespace jige::formats
