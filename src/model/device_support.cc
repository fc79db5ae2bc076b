#include "model/device_support.h"

#include "ops/experts.h"

namespace jige::model {

Status check_device_support(DeviceKind kind, std::string_view name,
                            const Architecture& architecture) {
  if (kind == DeviceKind::kCpu) return {};
  const formats::ModelConfig& config = architecture.config();
  if (config.mamba1.columns > 0 && formats::recurrent_layer_count(config) > 0) {
    return fail(Code::kUnsupported,
                "{}: there are no GPU kernels for layers of the first Mamba ({}) yet; run it with "
                "--device cpu",
                name, formats::family_name(config.family));
  }
  if (config.delta.by_key && formats::recurrent_layer_count(config) > 0) {
    return fail(Code::kUnsupported,
                "{}: there are no GPU kernels for delta nets with decays by key ({}) yet; run it "
                "with --device cpu",
                name, formats::family_name(config.family));
  }
  if (config.experts.count > ops::kGpuExpertsMax) {
    return fail(
        Code::kUnsupported,
        "{}: there are no GPU kernels for more than {} experts yet; run it with --device cpu", name,
        ops::kGpuExpertsMax);
  }
  return {};
}

}  // namespace jige::model
