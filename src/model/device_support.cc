#include "model/device_support.h"

#include "ops/experts.h"

namespace jige::model {
namespace {

Status refuse(std::string_view name, std::string_view what, std::string_view remedy) {
  return fail(Code::kUnsupported, "{}: there are no GPU kernels for {} yet; {}", name, what,
              remedy);
}

}  // namespace

Status check_device_support(DeviceKind kind, std::string_view name,
                            const Architecture& architecture, const DeviceUse& use) {
  if (kind == DeviceKind::kCpu) return {};
  constexpr std::string_view kOnCpu = "run it with --device cpu";
  const formats::ModelConfig& config = architecture.config();
  if (config.experts.count > ops::kGpuExpertsMax) {
    return refuse(name, fmt::format("more than {} experts", ops::kGpuExpertsMax), kOnCpu);
  }
  if (use.format != ops::WeightFormat::kCompute && config.experts.count > 0) {
    return refuse(name, "experts in few bits", "leave --quantize out, or use --device cpu");
  }
  return {};
}

}  // namespace jige::model
