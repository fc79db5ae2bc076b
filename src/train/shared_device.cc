#include "train/shared_device.h"

#include <algorithm>
#include <vector>

#include "tensor/cuda_device.h"
#include "train/rank_exchange.h"

namespace jige::train {
namespace {

constexpr int64_t kNoGpu = -1;

// What a rank says of where it computes.
struct Seat {
  int64_t host = 0;
  int64_t gpu = kNoGpu;

  bool operator==(const Seat&) const = default;
};

}  // namespace

Status share_device(TrainOptions& options) {
  if (!options.ranks || !options.ranks->group || options.ranks->size == 1) return {};
  RankOptions& ranks = *options.ranks;
  comm::AsyncGroup& group = *ranks.group;
  const Seat own{ranks.host, options.on_gpu() ? int64_t{options.gpus.front()} : kNoGpu};
  // A process takes some of the GPU's memory by being there: first all of them are, then it is
  // measured, and nobody goes on before it was.
  if (options.on_gpu()) JIGE_DO(cuda_free_bytes(options.gpus.front()));
  JIGE_TRY(const auto seats, gather(group, std::vector<int64_t>{own.host, own.gpu}));
  int64_t free_bytes = 0;
  if (options.on_gpu()) {
    JIGE_TRY(free_bytes, cuda_free_bytes(options.gpus.front()));
  }
  JIGE_TRY(const auto frees, gather(group, std::vector<int64_t>{free_bytes}));
  ranks.on_device = 0;
  for (size_t r = 0; r < frees.size(); ++r) {
    const Seat other{seats[2 * r], seats[2 * r + 1]};
    if ((other.gpu == kNoGpu) != (own.gpu == kNoGpu)) {
      const int odd = static_cast<int>(r);
      return fail(Code::kInvalidArgument,
                  "{} and {} do not compute on the same kind of device: give all ranks a GPU, or "
                  "none of them",
                  group.name(std::min(odd, group.rank())), group.name(std::max(odd, group.rank())));
    }
    if (!(other == own)) continue;
    ++ranks.on_device;
    free_bytes = std::min(free_bytes, frees[r]);
  }
  if (options.on_gpu() && options.memory_limit_bytes == 0) options.memory_limit_bytes = free_bytes;
  return {};
}

}  // namespace jige::train
