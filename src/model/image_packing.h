// The rows of an image of what a tower makes of its tiles, in families that put these together
// again (ImageConfig::packs_rows): those of the whole image first; then the lines of all tiles, of
// which the layout says what is kept, and behind each line a learned row. Where lines are to be
// fewer they are made as a picture is that shrinks, by linear interpolation between the centres of
// rows, without smoothing.
//
// Threads: pure functions.
#pragma once

#include <span>
#include <vector>

#include "formats/image_config.h"

namespace jige::model {

// Of rows [tower_row_count, W], the whole image's tile first, and the row behind a line [W]: rows
// [row_count, W]. REQUIRES: a layout with packed rows.
std::vector<float> pack_image_rows(const formats::ImageLayout& layout, std::span<const float> rows,
                                   std::span<const float> line_end);

}  // namespace jige::model
