// Meter of the GPUs of this machine, by the CUDA driver: --gpus.
#include "cli/flags.h"
#include "cli/meter_kind.h"
#include "profile/copy_kernel.h"
#include "profile/gpu_meter.h"

namespace jige::cli {
namespace {

class GpusKind final : public MeterKind {
 public:
  void declare(Flags& flags) override {
    flags.toggle("--gpus", asked_,
                 "the GPUs of this machine, by copy engines and kernels (tried without a real GPU "
                 "so far)");
    flags.integer("--kernel-blocks N", kernel_blocks_, {.min = 1, .max = 1024},
                  "of a kernel that copies: how many multiprocessors it takes (--gpus)");
  }
  std::string_view flag() const override { return "--gpus"; }
  std::vector<std::string_view> own_flags() const override { return {"--kernel-blocks"}; }
  bool takes_source() const override { return true; }

  Result<OpenedMeter> open(const TopologyFlags& source,
                           const MeterRequest& request) const override {
    JIGE_TRY(const topology::Topology machine, source.load());
    profile::GpuMeterOptions options{.run_timeout_s = request.timeout_s};
    heed(request, options);
    options.box.kernel_blocks = static_cast<int32_t>(kernel_blocks_);
    JIGE_TRY(std::unique_ptr<profile::GpuMeter> meter,
             profile::GpuMeter::start(machine.description(), options));
    topology::Description description = meter->description();
    JIGE_TRY(OpenedMeter result, opened(std::move(meter), std::move(description), flag()));
    result.copy_engines = true;
    result.kernels = !profile::copy_kernel_image().empty();
    return result;
  }

 private:
  bool asked_ = false;
  int64_t kernel_blocks_ = 16;
};

}  // namespace

std::unique_ptr<MeterKind> make_gpus_kind() { return std::make_unique<GpusKind>(); }

}  // namespace jige::cli
