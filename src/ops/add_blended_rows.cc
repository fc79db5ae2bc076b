#include "ops/add_blended_rows.h"

#include <utility>

#include "base/check.h"
#include "tensor/cpu_device.h"

namespace jige::ops {

void add_blended_rows(Stream& stream, const TensorView& dst, const TensorView& table,
                      std::vector<Blend> blends) {
  JIGE_CHECK(dst.dtype == DType::kF32 && table.dtype == DType::kF32 &&
                 dst.columns() == table.columns() && dst.rows() == std::ssize(blends),
             "{} blends of rows of {} for {} rows of {}", blends.size(), table.columns(),
             dst.rows(), dst.columns());
  for (const Blend& blend : blends) {
    for (const int32_t row : blend.rows) {
      JIGE_CHECK(0 <= row && row < table.rows(), "row {} of {}", row, table.rows());
    }
  }
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([=, blends = std::move(blends), &device = cpu_stream.cpu()] {
    constexpr int64_t kRowsAtOnce = 16;
    device.team().parallel_for(dst.rows(), kRowsAtOnce, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        const auto& [rows, weights] = blends[static_cast<size_t>(t)];
        float* const to = dst.as<float>() + t * dst.row_stride;
        const float* from[4] = {};
        for (size_t i = 0; i < 4; ++i) from[i] = table.as<float>() + rows[i] * table.row_stride;
        for (int64_t j = 0; j < dst.columns(); ++j) {
          float sum = weights[0] * from[0][j];
          for (size_t i = 1; i < 4; ++i) sum += weights[i] * from[i][j];
          to[j] += sum;
        }
      }
    });
  });
}

}  // namespace jige::ops
