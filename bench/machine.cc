#include "machine.h"

#include <vector>

#include "base/rng.h"

namespace jige::bench {

Tensor random_tensor(Machine& machine, DType dtype, Shape shape) {
  Tensor tensor = std::move(*machine.arena.make(dtype, shape));
  Rng rng(derive_key(1, "bench"));
  std::vector<float> values(4099);
  for (float& value : values) value = static_cast<float>(rng.normal());
  for (int64_t i = 0; i < shape.count(); ++i) {
    const float value = values[static_cast<size_t>(i) % values.size()];
    if (dtype == DType::kF32) {
      tensor.view().as<float>()[i] = value;
    } else {
      tensor.view().as<BFloat16>()[i] = to_bfloat16(value);
    }
  }
  return tensor;
}

}  // namespace jige::bench
