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
  if (layout.first_width == 0) {
    JIGE_TRY(pixels.image_, resized(image, layout.width, layout.height));
    return pixels;
  }
  JIGE_TRY(const images::Image first, resized(image, layout.first_width, layout.first_height));
  JIGE_TRY(pixels.image_, resized(first, layout.width, layout.height));
  return pixels;
}

Result<std::vector<float>> ImagePixels::patches(int64_t tile, const GoOn& go_on) const {
  const auto patch = static_cast<int32_t>(config_->patch_size);
  const images::PixelScale scale{
      .mean = config_->mean, .std = config_->deviation, .factor = config_->factor};
  if (config_->tile_side == 0) return images::patch_rows(image_, patch, scale);
  const auto side = static_cast<int32_t>(config_->tile_side);
  const int32_t kept = side / patch * patch;
  if (tile + 1 == layout_.tile_count()) {
    JIGE_TRY(const images::Image whole,
             images::resize_image(image_, side, side, filter_of(config_->resampling), go_on));
    return images::patch_rows(images::crop_image(whole, {.width = kept, .height = kept}), patch,
                              scale);
  }
  const auto at = static_cast<int32_t>(tile);
  const images::CropRect rect{.left = at % layout_.tile_columns * side,
                              .top = at / layout_.tile_columns * side,
                              .width = kept,
                              .height = kept};
  return images::patch_rows(images::crop_image(image_, rect), patch, scale);
}

}  // namespace jige::model
