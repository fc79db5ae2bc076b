// What attention scores get by distance on a GPU: the bits of the CPU. What attention makes of it:
// attention_both_sides_test.cc.
#include "cuda/test_device.h"
#include "ops/distance_rows.h"
#include "ops/distance_scores.h"

namespace jige {
namespace {

class CudaDistances : public CudaTest {};

TEST_F(CudaDistances, ScoresAreThoseOfTheCpu) {
  const Pair table = random(DType::kF32, {32, 3});
  for (const int64_t tokens : {1, 2, 40, 301}) {
    const Pair scores = filled(DType::kF32, {3, ops::distance_count(tokens)});
    ops::distance_scores(*cpu_stream_, scores.host, table.host);
    ops::distance_scores(*gpu_stream_, scores.gpu, table.gpu);
    expect_equal(scores, std::to_string(tokens));
  }
}

TEST_F(CudaDistances, RowsAreThoseOfTheCpu) {
  for (const ops::DistanceTable& table : std::vector<ops::DistanceTable>{
           {.side = 7}, {.side = 8, .widens = true, .reach = 40}, {.side = 300}}) {
    for (const int64_t tokens : {1, 2, 40, 301}) {
      const Pair rows = filled(DType::kI32, Shape{2 * tokens - 1});
      ops::distance_rows(*cpu_stream_, rows.host, table);
      ops::distance_rows(*gpu_stream_, rows.gpu, table);
      expect_equal(rows, std::to_string(tokens));
    }
  }
}

}  // namespace
}  // namespace jige
