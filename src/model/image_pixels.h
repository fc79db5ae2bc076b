// ImagePixels: an image as a tower takes it: resized as its layout says, and cut into the tiles
// that pass the tower one after the other, the last or the first of which is the whole image,
// smaller.
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
  // whole patch of a line or a column are left out.
  std::vector<float> patches(int64_t tile) const;

 private:
  ImagePixels(const formats::ImageConfig& config, const formats::ImageLayout& layout)
      : config_(&config), layout_(layout) {}

  const formats::ImageConfig* config_;
  formats::ImageLayout layout_;
  images::Image image_;  // where it is cut, as large as its tiles
  images::Image whole_;  // of one tile
};

}  // namespace jige::model
