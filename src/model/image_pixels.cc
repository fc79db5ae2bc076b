#include "model/image_pixels.h"

#include "images/crop.h"
#include "images/patch_rows.h"
#include "images/resize.h"

namespace jige::model {
namespace {

images::ResizeFilter filter_of(formats::ImageResampling resampling) {
  switch (resampling) {
    case formats::ImageResampling::kNearest:
      return images::ResizeFilter::kNearest;
    case formats::ImageResampling::kLanczos:
      return images::ResizeFilter::kLanczos;
    case formats::ImageResampling::kBilinear:
      return images::ResizeFilter::kBilinear;
    case formats::ImageResampling::kBicubic:
      break;
  }
  return images::ResizeFilter::kBicubic;
}

}  // namespace

Result<ImagePixels> ImagePixels::resize(const formats::ImageConfig& config,
                                        const formats::ImageLayout& layout,
                                        const images::Image& image, const GoOn& go_on) {
  const auto resized = [&](const images::Image& from, int32_t width, int32_t height) {
    return images::resize_image(from, width, height, filter_of(config.resampling), go_on);
  };
  ImagePixels pixels(config, layout);
  const images::Image* source = &image;
  if (layout.first_width > 0) {
    JIGE_TRY(const images::Image first, resized(image, layout.first_width, layout.first_height));
    JIGE_TRY(pixels.image_, resized(first, layout.width, layout.height));
    source = &pixels.image_;
  } else {
    JIGE_TRY(pixels.image_, resized(image, layout.width, layout.height));
  }
  if (config.tile_side == 0) return pixels;
  const auto side = static_cast<int32_t>(config.tile_side);
  if (layout.tile_rows > 0) {
    JIGE_TRY(pixels.whole_, resized(*source, side, side));
    pixels.image_ =
        images::pad_image(pixels.image_, layout.tile_columns * side, layout.tile_rows * side);
    return pixels;
  }
  // One tile is the whole image, or its middle.
  if (layout.first_width > 0) {
    JIGE_TRY(pixels.whole_, resized(pixels.image_, side, side));
    return pixels;
  }
  pixels.whole_ = images::crop_image(pixels.image_, {.left = (layout.width - side) / 2,
                                                     .top = (layout.height - side) / 2,
                                                     .width = side,
                                                     .height = side});
  return pixels;
}

std::vector<float> ImagePixels::patches(int64_t tile) const {
  const auto patch = static_cast<int32_t>(config_->patch_size);
  const images::PixelScale scale{
      .mean = config_->mean, .std = config_->deviation, .factor = config_->factor};
  if (config_->tile_side == 0) return images::patch_rows(image_, patch, scale);
  const auto side = static_cast<int32_t>(config_->tile_side);
  const int32_t kept = side / patch * patch;
  const bool whole_first = config_->packs_rows();
  if (tile == (whole_first ? 0 : layout_.tile_count() - 1)) {
    return images::patch_rows(images::crop_image(whole_, {.width = kept, .height = kept}), patch,
                              scale);
  }
  const auto at = static_cast<int32_t>(tile - (whole_first ? 1 : 0));
  const images::CropRect rect{.left = at % layout_.tile_columns * side,
                              .top = at / layout_.tile_columns * side,
                              .width = kept,
                              .height = kept};
  return images::patch_rows(images::crop_image(image_, rect), patch, scale);
}

}  // namespace jige::model
