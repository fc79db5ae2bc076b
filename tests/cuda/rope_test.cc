// Rotary embeddings on a GPU, beside those of the CPU.
#include "ops/rope.h"

#include "cuda/test_device.h"

namespace jige {
namespace {

class CudaRope : public CudaTest {};

TEST_F(CudaRope, TurnsAsTheCpuDoes) {
  struct Turn {
    int64_t heads, head_dim, rotary_dim, first;
  };
  for (const Turn& shape : {Turn{.heads = 1, .head_dim = 64, .rotary_dim = 64, .first = 0},
                            Turn{.heads = 6, .head_dim = 128, .rotary_dim = 128, .first = 0},
                            Turn{.heads = 5, .head_dim = 80, .rotary_dim = 32, .first = 48},
                            Turn{.heads = 9, .head_dim = 24, .rotary_dim = 20, .first = 3},
                            Turn{.heads = 2, .head_dim = 33, .rotary_dim = 32, .first = 0},
                            Turn{.heads = 3, .head_dim = 16, .rotary_dim = 16, .first = 0},
                            Turn{.heads = 3, .head_dim = 16, .rotary_dim = 0, .first = 0}}) {
    const Pair positions = integers({5, 0, 3, 3, 19});
    const Pair table = random(DType::kF32, {20, shape.rotary_dim + 4});
    const int64_t columns = shape.heads * shape.head_dim;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const bool inverse : {false, true}) {
        const Pair data = random(dtype, {5, columns + 8});
        const auto args = [&](auto view) {
          return ops::Rope{.data = view(data).column_range(8, 8 + columns),
                           .positions = view(positions),
                           .cos_sin = view(table).column_range(0, shape.rotary_dim),
                           .head_dim = shape.head_dim,
                           .rotary_dim = shape.rotary_dim,
                           .first = shape.first,
                           .inverse = inverse};
        };
        ops::rope(*cpu_stream_, args([](const Pair& pair) { return pair.host; }));
        ops::rope(*gpu_stream_, args([](const Pair& pair) { return pair.gpu; }));
        expect_equal(data, fmt::format("heads of {}", shape.head_dim));
      }
    }
  }
}

}  // namespace
}  // namespace jige
