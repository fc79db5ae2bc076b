#include "model/image_places.h"

#include <algorithm>

#include "base/check.h"

namespace jige::model {

ImagePlaces::ImagePlaces(const std::vector<ImageGrid>& grids) {
  int32_t end = 0;  // of the one before
  int32_t place = 0;
  for (const ImageGrid& grid : grids) {
    JIGE_CHECK(grid.begin >= end && grid.rows > 0 && grid.columns > 0,
               "an image of {} x {} rows at {}, behind {}", grid.rows, grid.columns, grid.begin,
               end);
    place += grid.begin - end;
    const int32_t behind = place + std::max(grid.rows, grid.columns);
    images_.push_back({.grid = grid, .place = place, .behind = behind});
    place = behind;
    end = grid.end();
  }
}

TokenPlace ImagePlaces::at(int32_t index) const {
  const auto next = std::ranges::upper_bound(images_, index, {},
                                             [](const Image& image) { return image.grid.begin; });
  if (next == images_.begin()) return {index, index, index};
  const Image& image = *std::prev(next);
  if (index >= image.grid.end()) {
    const int32_t place = image.behind + index - image.grid.end();
    return {place, place, place};
  }
  const int32_t row = index - image.grid.begin;
  return {image.place, image.place + row / image.grid.columns,
          image.place + row % image.grid.columns};
}

}  // namespace jige::model
