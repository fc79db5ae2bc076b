#include "ops/distance_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "base/check.h"
#include "tensor/cpu_device.h"
#include "tensor/cuda_device.h"

namespace jige::ops {
namespace {

int64_t widening_bucket(const DistanceTable& table, int64_t distance) {
  const int64_t middle = table.side / 2;
  const int64_t magnitude = std::abs(distance);
  if (magnitude <= middle) return distance;
  const auto unit = static_cast<float>(middle);
  const auto reach =
      static_cast<float>(static_cast<double>(table.reach - 1) / static_cast<double>(middle));
  const float share = std::log(static_cast<float>(magnitude) / unit) / std::log(reach);
  const auto further = static_cast<int64_t>(std::ceil(share * static_cast<float>(middle - 1)));
  return distance > 0 ? middle + further : -middle - further;
}

// The rows of distances from 1 - n to n - 1, those of far keys behind a query last.
void set_rows(int32_t* rows, int64_t token_count, const DistanceTable& table) {
  const int64_t last = token_count - 1;
  const int64_t first = distance_rows_of(table, token_count).first;
  for (int64_t i = 0; i <= 2 * last; ++i) {
    rows[i] = static_cast<int32_t>(distance_row(table, last - i) - first);
  }
}

}  // namespace

int64_t distance_row(const DistanceTable& table, int64_t query_minus_key) {
  const int64_t bucket = table.widens ? widening_bucket(table, query_minus_key) : query_minus_key;
  return std::clamp<int64_t>(bucket + table.side, 0, 2 * table.side - 1);
}

DistanceRowRange distance_rows_of(const DistanceTable& table, int64_t token_count) {
  return {distance_row(table, 1 - token_count), distance_row(table, token_count - 1) + 1};
}

void distance_rows(Stream& stream, const TensorView& dst, const DistanceTable& table) {
  JIGE_CHECK(dst.dtype == DType::kI32 && dst.shape.rank() == 1 && dst.shape[0] % 2 == 1,
             "rows by distance in {} {}", dtype_info(dst.dtype).name, dst.shape.to_string());
  const int64_t tokens = dst.shape[0] / 2 + 1;
  if (on_cuda(stream)) {
    // From the host, whose logarithms are those of the CPU.
    std::vector<int32_t> rows(static_cast<size_t>(dst.shape[0]));
    set_rows(rows.data(), tokens, table);
    const int64_t bytes = dtype_bytes(DType::kI32, dst.shape[0]);
    return stream.copy(dst.data, as_cuda(stream).upload(rows.data(), bytes), bytes,
                       CopyKind::kDeviceToDevice);
  }
  as_cpu(stream).submit([=] { set_rows(dst.as<int32_t>(), tokens, table); });
}

}  // namespace jige::ops
