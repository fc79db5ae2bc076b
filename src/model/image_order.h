// ImageOrder: the orders in which a tower has the patches of an image.
//
// Patches come row by row. Layers have them so, or window by window where some layers see their
// window alone; the projector has the m x m patches of a row of the language model one behind the
// other, those rows line by line. Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/image_config.h"
#include "ops/attention.h"

namespace jige::model {

struct ImageOrder {
  std::vector<int32_t> patches;            // as layers have them; empty: row by row
  std::vector<ops::SequenceSpan> windows;  // of these, what layers with a window see
  std::vector<int32_t> merged;             // as the projector has those of the layers

  // Of a row that layers have.
  int64_t patch(int64_t row) const {
    return patches.empty() ? row : patches[static_cast<size_t>(row)];
  }
};

ImageOrder image_order(const formats::ImageConfig& config, const formats::ImageLayout& layout);

}  // namespace jige::model
