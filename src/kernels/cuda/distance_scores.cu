#include "kernels/cuda/distance_scores.h"

#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {
namespace {

struct PickScore {
  DistanceScores args;

  template <int W>
  __device__ void at(int64_t head, int64_t column) const {
    float score[W];
    for (int i = 0; i < W; ++i) {
      const int64_t bucket = args.buckets[column + i];
      score[i] = load_element(args.table.data, args.table.type, bucket * args.table.stride + head);
    }
    store_vector(args.dst, head, column, score);
  }
};

}  // namespace

void distance_scores(const LaunchStream& stream, const DistanceScores& args) {
  launch_elementwise(stream, {args.heads, args.count}, aligned(args.heads, args.dst),
                     PickScore{args});
}

}  // namespace jige::cuda
