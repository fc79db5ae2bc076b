#include "model/device_support.h"

#include "ops/experts.h"

namespace jige::model {

Status check_device_support(DeviceKind kind, std::string_view name,
                            const Architecture& architecture) {
  if (kind == DeviceKind::kCpu) return {};
  if (architecture.config().experts.count > ops::kGpuExpertsMax) {
    return fail(
        Code::kUnsupported,
        "{}: there are no GPU kernels for more than {} experts yet; run it with --device cpu", name,
        ops::kGpuExpertsMax);
  }
  return {};
}

}  // namespace jige::model
