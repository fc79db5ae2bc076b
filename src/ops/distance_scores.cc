#include "ops/distance_scores.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/check.h"
#include "tensor/cpu_device.h"

namespace jige::ops {

int64_t distance_bucket(int64_t distance, int64_t buckets) {
  const int64_t side = buckets / 2;
  const int64_t exact = side / 2;
  const int64_t first = distance > 0 ? side : 0;
  const int64_t magnitude = std::abs(distance);
  if (magnitude < exact) return first + magnitude;
  const auto start = static_cast<float>(exact);
  const float share = std::log(static_cast<float>(magnitude) / start) /
                      std::log(static_cast<float>(kFarDistance) / start);
  const auto further = static_cast<int64_t>(share * static_cast<float>(side - exact));
  return first + std::min(exact + further, side - 1);
}

void distance_scores(Stream& stream, const TensorView& dst, const TensorView& table) {
  JIGE_CHECK(dst.dtype == DType::kF32 && table.dtype == DType::kF32, "scores are {} and {}",
             dtype_info(dst.dtype).name, dtype_info(table.dtype).name);
  JIGE_CHECK(dst.rows() == table.columns() && table.rows() % 4 == 0 && table.rows() > 0,
             "scores of {} heads by a table {}", dst.rows(), table.shape.to_string());
  as_cpu(stream).submit([=] {
    const int64_t tokens = (dst.columns() - kDistancesBeyond) / 2;
    for (int64_t i = 0; i < dst.columns(); ++i) {
      const int64_t bucket = distance_bucket(i + 1 - tokens, table.rows());
      const float* scores = table.as<float>() + bucket * table.row_stride;
      for (int64_t head = 0; head < dst.rows(); ++head) {
        dst.as<float>()[head * dst.row_stride + i] = scores[head];
      }
    }
  });
}

}  // namespace jige::ops
