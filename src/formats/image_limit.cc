#include "formats/image_limit.h"

#include <algorithm>
#include <cmath>

namespace jige::formats {
namespace {

// Of grids of tiles, or of square images of whole tiles: others have fewer pixels.
Status limit_tiles(ImageConfig& config, int64_t pixels_max) {
  const int64_t tile = config.tile_side;
  if (pixels_max < tile * tile) {
    return fail(Code::kInvalidArgument,
                "images of up to {} pixels: a tile of this model is {} x {} of them; allow more",
                pixels_max, tile, tile);
  }
  if (config.family == ImageFamily::kInternVl) {
    config.tiles_high = std::min(config.tiles_high, pixels_max / (tile * tile));
    config.tiles_low = std::min(config.tiles_low, config.tiles_high);
    return {};
  }
  if (config.family == ImageFamily::kLlava) {
    const auto fits = [&](const TileGrid& grid) {
      return grid.rows * grid.columns * tile * tile <= pixels_max;
    };
    if (std::ranges::none_of(config.grids, fits)) {
      return fail(
          Code::kInvalidArgument,
          "images of up to {} pixels: the smallest grid of tiles of this model has more, of "
          "{} x {} pixels each; allow more",
          pixels_max, tile, tile);
    }
    std::erase_if(config.grids, [&](const TileGrid& grid) { return !fits(grid); });
    return {};
  }
  int64_t tiles = 1;  // of a side
  while ((tiles + 1) * (tiles + 1) * tile * tile <= pixels_max) ++tiles;
  if (config.tiles_max() <= tiles * tiles + 1) return {};
  // The shorter side may be longer by a pixel than an edge that is odd.
  config.width_max = config.height_max = tiles * tile / 2 * 2;
  return {};
}

}  // namespace

Status limit_image_pixels(ImageConfig& config, int64_t pixels_max) {
  if (config.tile_side > 0 && config.cuts) return limit_tiles(config, pixels_max);
  const bool by_area = config.pixels_max > 0;
  if (config.family != ImageFamily::kPixtral && !by_area) {
    return fail(Code::kUnsupported,
                "this model reads images at the size that its folder says; leave it out");
  }
  const int64_t step = config.step();
  const int64_t most =
      by_area ? config.pixels_max : config.patches_max() * config.patch_size * config.patch_size;
  if (most <= pixels_max) return {};
  if (pixels_max < step * step) {
    return fail(Code::kInvalidArgument,
                "images of up to {} pixels: a row of this model is {} x {} of them; allow more",
                pixels_max, step, step);
  }
  if (by_area) {
    config.pixels_max = pixels_max;
    config.pixels_min = std::min(config.pixels_min, pixels_max);
    return {};
  }
  const double shrink = std::sqrt(static_cast<double>(pixels_max) / static_cast<double>(most));
  const auto limited_side = [&](int64_t side) {
    // Roots are not exact, and a side that just fits is to fit.
    const double pixels = static_cast<double>(side) * shrink + 1e-6;
    return std::max(static_cast<int64_t>(pixels) / step, int64_t{1}) * step;
  };
  int64_t& longer = config.width_max > config.height_max ? config.width_max : config.height_max;
  config.width_max = limited_side(config.width_max);
  config.height_max = limited_side(config.height_max);
  // The other one may be a step already, and not shrink any further.
  const int64_t shorter = std::min(config.width_max, config.height_max);
  longer = std::min(longer, pixels_max / shorter / step * step);
  return {};
}

}  // namespace jige::formats
