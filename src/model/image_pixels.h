// ImagePixels: an image as a tower takes it: resized as its layout says, and cut into the tiles
// that pass the tower one after the other, the last of which is the whole image, smaller.
//
// Threads: const.
#pragma once

#include <cstdint>
#include <vector>

#include "base/go_on.h"
#include "base/result.h"
#include "formats/image_config.h"
#include "images/image.h"

namespace jige::model {

class ImagePixels {
 public:
  // Resizes the image. Fails with what `go_on` gives. REQUIRES: the layout is that of its size, and
  // the configuration outlives the result.
  static Result<ImagePixels> resize(const formats::ImageConfig& config,
                                    const formats::ImageLayout& layout, const images::Image& image,
                                    const GoOn& go_on);

  // The patches of a tile, [patches, 3 p²] as images::patch_rows gives them; pixels behind the last
  // whole patch of a line or a column are left out. Fails with what `go_on` gives.
  Result<std::vector<float>> patches(int64_t tile, const GoOn& go_on) const;

 private:
  ImagePixels(const formats::ImageConfig& config, const formats::ImageLayout& layout)
      : config_(&config), layout_(layout) {}

  const formats::ImageConfig* config_;
  formats::ImageLayout layout_;
  images::Image image_;
};

}  // namespace jige::model
