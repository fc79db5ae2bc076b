#include "ops/distance_scores.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/distance_scores.h"
#include "ops/kernel_rows.h"

namespace jige::ops {
namespace {

// The bucket of every column of scores.
std::vector<int32_t> buckets_of(int64_t columns, int64_t bucket_count) {
  const int64_t tokens = (columns - kDistancesBeyond) / 2;
  std::vector<int32_t> buckets;
  buckets.reserve(static_cast<size_t>(columns));
  for (int64_t i = 0; i < columns; ++i) {
    buckets.push_back(static_cast<int32_t>(distance_bucket(i + 1 - tokens, bucket_count)));
  }
  return buckets;
}

// Buckets come from the host, whose logarithms are those of the CPU.
void distance_scores_on_gpu(Stream& stream, const TensorView& dst, const TensorView& table) {
  const std::vector<int32_t> buckets = buckets_of(dst.columns(), table.rows());
  const auto bytes = std::ssize(buckets) * static_cast<int64_t>(sizeof(int32_t));
  cuda::distance_scores(
      launch_stream(stream),
      {.dst = rows_of(dst),
       .table = const_rows_of(table),
       .buckets = static_cast<const int32_t*>(as_cuda(stream).upload(buckets.data(), bytes)),
       .heads = dst.rows(),
       .count = dst.columns()});
}

}  // namespace

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
  if (on_cuda(stream)) return distance_scores_on_gpu(stream, dst, table);
  as_cpu(stream).submit([=] {
    const std::vector<int32_t> buckets = buckets_of(dst.columns(), table.rows());
    for (int64_t i = 0; i < dst.columns(); ++i) {
      const float* scores = table.as<float>() + buckets[static_cast<size_t>(i)] * table.row_stride;
      for (int64_t head = 0; head < dst.rows(); ++head) {
        dst.as<float>()[head * dst.row_stride + i] = scores[head];
      }
    }
  });
}

}  // namespace jige::ops
