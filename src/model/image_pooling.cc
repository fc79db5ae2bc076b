#include "model/image_pooling.h"

#include "ops/elementwise.h"

namespace jige::model {

void pool_patches(Stream& stream, const TensorView& dst, const TensorView& src, int64_t merged,
                  float factor) {
  const int64_t width = dst.columns();
  // As columns of one row.
  const TensorView joined =
      TensorView::of(src.data, DType::kF32, Shape{dst.rows(), merged * width});
  const auto patch = [&](int64_t i) { return joined.column_range(i * width, (i + 1) * width); };
  ops::scale(stream, dst, patch(0), 1.0f);
  for (int64_t i = 1; i < merged; ++i) ops::add(stream, dst, dst, patch(i));
  ops::scale(stream, dst, dst, factor / static_cast<float>(merged));
}

}  // namespace jige::model
