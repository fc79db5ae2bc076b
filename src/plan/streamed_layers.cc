#include "plan/streamed_layers.h"

#include "base/check.h"

namespace jige::plan {

std::vector<int32_t> streamed_layers(int64_t layer_count, int64_t resident_count) {
  JIGE_CHECK(0 <= resident_count && resident_count <= layer_count, "{} of {} layers stay",
             resident_count, layer_count);
  const int64_t count = layer_count - resident_count;
  std::vector<int32_t> layers;
  // In the middle of each of as many equal parts.
  for (int64_t i = 0; i < count; ++i) {
    layers.push_back(static_cast<int32_t>((2 * i + 1) * layer_count / (2 * count)));
  }
  return layers;
}

}  // namespace jige::plan
