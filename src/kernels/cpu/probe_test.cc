#include "kernels/cpu/probe.h"

#include <gtest/gtest.h>

#include <vector>

namespace jige::cpu {
namespace {

TEST(Probe, ChainsConvergeToTheirFixedPoint) {
  for (const Isa isa : supported_isas()) {
    const ProbeKernels& kernels = probe_kernels(isa);
    // Every chain tends to term / (1 - factor) = 1; twelve of them are added.
    EXPECT_NEAR(kernels.fma_chain(20000), 12.0f, 0.01f) << isa_name(isa);
    EXPECT_GE(kernels.fma_chain_flops, 24 * 8);
  }
}

TEST(Probe, ReadsEveryElementOnce) {
  for (const Isa isa : supported_isas()) {
    for (const int64_t count : {0, 1, 63, 64, 65, 1000, 4097}) {
      std::vector<float> values(static_cast<size_t>(count), 1.0f);
      EXPECT_EQ(probe_kernels(isa).read_stream(values.data(), count), static_cast<float>(count));
    }
  }
}

}  // namespace
}  // namespace jige::cpu
