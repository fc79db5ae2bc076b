#include "model/device_support.h"

#include "ops/experts.h"

namespace jige::model {
namespace {

Status refuse(const Device& device, std::string_view what, std::string_view remedy) {
  return fail(Code::kUnsupported, "{}: there are no GPU kernels for {} yet; {}", device.name(),
              what, remedy);
}

}  // namespace

Status check_device_support(const Device& device, const Architecture& architecture,
                            const DeviceUse& use) {
  if (device.kind() == DeviceKind::kCpu) return {};
  constexpr std::string_view kOnCpu = "run it with --device cpu";
  const formats::ModelConfig& config = architecture.config();
  if (config.experts.count > ops::kGpuExpertsMax) {
    return refuse(device, fmt::format("more than {} experts", ops::kGpuExpertsMax), kOnCpu);
  }
  if (use.format != ops::WeightFormat::kCompute && config.experts.count > 0) {
    return refuse(device, "experts in few bits", "leave --quantize out, or use --device cpu");
  }
  return {};
}

}  // namespace jige::model
