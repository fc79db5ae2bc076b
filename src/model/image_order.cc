#include "model/image_order.h"

#include <algorithm>

namespace jige::model {
namespace {

struct Rows {
  int64_t begin, end;
};

// The patches of rows of the language model, m x m of each one behind the other.
void add_patches(std::vector<int32_t>& order, Rows lines, Rows columns, int64_t merge,
                 int64_t width) {
  for (int64_t line = lines.begin; line < lines.end; ++line) {
    for (int64_t column = columns.begin; column < columns.end; ++column) {
      for (int64_t y = line * merge; y < (line + 1) * merge; ++y) {
        for (int64_t x = column * merge; x < (column + 1) * merge; ++x) {
          order.push_back(static_cast<int32_t>(y * width + x));
        }
      }
    }
  }
}

}  // namespace

ImageOrder image_order(const formats::ImageConfig& config, const formats::ImageLayout& layout) {
  const int64_t merge = config.merge;
  const int64_t lines = layout.token_rows;
  const int64_t columns = layout.token_columns;
  const int64_t width = columns * merge;
  ImageOrder order;
  add_patches(order.merged, {0, lines}, {0, columns}, merge, width);
  if (config.window == 0) return order;
  for (int64_t line = 0; line < lines; line += config.window) {
    for (int64_t column = 0; column < columns; column += config.window) {
      const auto begin = static_cast<int32_t>(order.patches.size());
      add_patches(order.patches, {line, std::min(line + config.window, lines)},
                  {column, std::min(column + config.window, columns)}, merge, width);
      const auto end = static_cast<int32_t>(order.patches.size());
      order.windows.push_back({.row_begin = begin, .row_count = end - begin});
    }
  }
  std::vector<int32_t> places(order.patches.size());
  for (size_t row = 0; row < places.size(); ++row) {
    places[static_cast<size_t>(order.patches[row])] = static_cast<int32_t>(row);
  }
  for (int32_t& patch : order.merged) patch = places[static_cast<size_t>(patch)];
  return order;
}

}  // namespace jige::model
