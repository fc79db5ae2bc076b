#include "model/image_packing.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/check.h"

namespace jige::model {
namespace {

// Between which two of `from` places the i-th of `to` lies, and how far behind the first.
struct LinePlace {
  int32_t first = 0;
  int32_t second = 0;
  float share = 0;
};

LinePlace line_place(int32_t i, int32_t from, int32_t to) {
  if (from == to) return {i, i, 0};
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  const float place = std::max(scale * (static_cast<float>(i) + 0.5f) - 0.5f, 0.0f);
  const int32_t first = std::min(static_cast<int32_t>(place), from - 1);
  return {first, std::min(first + 1, from - 1), place - static_cast<float>(first)};
}

// The rows of all tiles behind the whole image's, as lines of one image; of what is kept.
class Lines {
 public:
  Lines(const formats::ImageLayout& layout, std::span<const float> rows, size_t width)
      : layout_(layout), rows_(rows), width_(width) {}

  const float* at(int32_t line, int32_t column) const {
    const int32_t y = layout_.kept_top + line;
    const int32_t x = layout_.kept_left + column;
    const int64_t tile =
        1 + int64_t{y / layout_.token_rows} * layout_.tile_columns + x / layout_.token_columns;
    const int64_t row = tile * layout_.tile_row_count() +
                        int64_t{y % layout_.token_rows} * layout_.token_columns +
                        x % layout_.token_columns;
    return rows_.data() + static_cast<size_t>(row) * width_;
  }

 private:
  const formats::ImageLayout& layout_;
  std::span<const float> rows_;
  size_t width_;
};

}  // namespace

std::vector<float> pack_image_rows(const formats::ImageLayout& layout, std::span<const float> rows,
                                   std::span<const float> line_end) {
  const size_t width = line_end.size();
  JIGE_CHECK(layout.packed_rows > 0 &&
                 rows.size() == static_cast<size_t>(layout.tower_row_count()) * width,
             "{} numbers of {} rows", rows.size(), layout.tower_row_count());
  std::vector<float> packed;
  packed.reserve(static_cast<size_t>(layout.row_count()) * width);
  const auto whole = static_cast<ptrdiff_t>(static_cast<size_t>(layout.tile_row_count()) * width);
  packed.insert(packed.end(), rows.begin(), rows.begin() + whole);
  const Lines lines(layout, rows, width);
  for (int32_t line = 0; line < layout.packed_rows; ++line) {
    const LinePlace down = line_place(line, layout.kept_rows, layout.packed_rows);
    for (int32_t column = 0; column < layout.packed_columns; ++column) {
      const LinePlace across = line_place(column, layout.kept_columns, layout.packed_columns);
      const float* const a = lines.at(down.first, across.first);
      const float* const b = lines.at(down.first, across.second);
      const float* const c = lines.at(down.second, across.first);
      const float* const d = lines.at(down.second, across.second);
      for (size_t i = 0; i < width; ++i) {
        const float upper = a[i] * (1 - across.share) + b[i] * across.share;
        const float lower = c[i] * (1 - across.share) + d[i] * across.share;
        packed.push_back(upper * (1 - down.share) + lower * down.share);
      }
    }
    packed.insert(packed.end(), line_end.begin(), line_end.end());
  }
  return packed;
}

}  // namespace jige::model
