// The meter of GPUs over a library in the place of CUDA's driver (tests/fakes/fake_cuda.cc): what
// is measured here are its scripted rates. No GPU was asked.
#include "profile/gpu_meter.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>

#include "base/clock.h"
#include "topology/machine_tree.h"

namespace jige::profile {
namespace {

using ::testing::HasSubstr;
using topology::Engine;
using topology::Topology;
using topology::Transfer;

constexpr unsigned char kAnyImage[] = {1};
constexpr const char* kThree = "gpu=0000:17:00.0,0.2 gpu=0000:18:00.0,0.2 gpu=0000:81:00.0,0.1 ";

// Two GPUs on the first node, one on the second.
topology::Description machine() {
  const auto gpu = [](const std::string& address, int32_t numa) {
    return topology::PciFunction{topology::ComponentKind::kDevice, numa, {{.address = address}}};
  };
  topology::Description d = topology::machine_description(
      {{.number = 0}, {.number = 1}},
      {gpu("0000:17:00.0", 0), gpu("0000:18:00.0", 0), gpu("0000:81:00.0", 1)});
  d.name = "box";
  return d;
}

int held() {
  void* library = dlopen(JIGE_FAKE_CUDA, RTLD_NOW);
  auto* count = reinterpret_cast<int (*)()>(dlsym(library, "fake_cuda_held"));
  return count();
}

struct GpuLab {
  std::unique_ptr<GpuMeter> meter;
  std::optional<Topology> box;
  std::string error;

  explicit GpuLab(const std::string& script, double timeout_s = 5,
                  std::span<const unsigned char> image = kAnyImage) {
    setenv("JIGE_FAKE_CUDA", script.c_str(), 1);
    GpuMeterOptions options{.box = {.library = JIGE_FAKE_CUDA, .buffer_bytes = 1 << 20},
                            .bytes = 2 << 20,
                            .run_timeout_s = timeout_s};
    options.box.kernel_image = image;
    options.repeats = {.count_min = 2, .count_max = 3};
    auto started = GpuMeter::start(machine(), options);
    unsetenv("JIGE_FAKE_CUDA");
    if (!started) {
      error = started.error().message;
      return;
    }
    meter = std::move(*started);
    box = std::move(*Topology::create(meter->description(), "test"));
    EXPECT_TRUE(meter->use(*box));
  }
  Result<Measurement> measure(const std::string& set) {
    JIGE_TRY(const std::vector<Transfer> transfers, topology::parse_transfers(*box, set));
    return meter->measure(transfers);
  }
  // What load on this machine only lowers: the best of some, until it is as good as it should be.
  // Eight at least, and for as long as a busy machine may need.
  double rate(const std::string& set, double wanted) {
    const StopWatch watch;
    double best = 0;
    for (int i = 0; best < 0.8 * wanted && (i < 8 || watch.seconds() < 20); ++i) {
      const auto m = measure(set);
      EXPECT_TRUE(m) << set << ": " << m.error().message;
      best = std::max(best, m ? m->rate : 0);
    }
    return best;
  }
  void expect_rate(const std::string& set, double wanted) {
    EXPECT_NEAR(rate(set, wanted), wanted, 0.2 * wanted) << set;
  }
  std::string error_of(const std::string& set) {
    const auto m = measure(set);
    return m ? "measured" : m.error().message;
  }
};

TEST(GpuMeter, EveryPathRunsAtTheRateOfItsEngine) {
  const int before = held();
  {
    GpuLab lab(kThree);
    ASSERT_TRUE(lab.meter) << lab.error;
    for (const char* text :
         {"gpu0>gpu1:push+copy", "gpu0>gpu1:pull+copy", "gpu0>gpu1:via-numa1+copy",
          "gpu0>numa0:push+copy", "numa1>gpu1:pull+copy", "gpu0>gpu2:push+copy"}) {
      lab.expect_rate(text, 0.2);
    }
    // The slower engine shows where it is the one at work.
    lab.expect_rate("gpu2>gpu0:push+copy", 0.1);
    lab.expect_rate("gpu0>gpu2:pull+copy", 0.1);
    EXPECT_EQ(lab.meter->source(), "measured");
    EXPECT_EQ(lab.meter->description().environment.at("cuda"), "12.4");
  }
  EXPECT_EQ(held(), before) << "everything is given back";
}

TEST(GpuMeter, KernelsRunOnTheGpuThatPushesOrPulls) {
  const int before = held();
  {
    // Kernels of the first are slow, those of the others faster than any engine.
    GpuLab lab("gpu=0000:17:00.0,0.1,0.025 gpu=0000:18:00.0,0.1,0.2 gpu=0000:81:00.0,0.05,0.2");
    ASSERT_TRUE(lab.meter) << lab.error;
    lab.expect_rate("gpu0>gpu1:push", 0.025);
    lab.expect_rate("gpu0>gpu1:pull", 0.2);
    lab.expect_rate("gpu1>gpu2:push", 0.2);
    lab.expect_rate("gpu0>numa1:push", 0.025);
    lab.expect_rate("numa1>gpu0:pull", 0.025);
    lab.expect_rate("gpu1>gpu2:via-numa1", 0.2);
    lab.expect_rate("gpu2>gpu0:via-numa0", 0.025);
    // An engine and the kernels of one GPU do not wait for one another.
    lab.expect_rate("gpu2>gpu1:push+copy,gpu2>gpu0:push", 0.05);
    EXPECT_EQ(lab.meter->description().environment.at("copy kernel"), "16 blocks of 512 threads");
  }
  EXPECT_EQ(held(), before) << "modules are given back";
}

TEST(GpuMeter, KernelsAreCheckedAndTheirFailuresNamed) {
  GpuLab lab(std::string(kThree) + "flip=1");
  ASSERT_TRUE(lab.meter) << lab.error;
  EXPECT_THAT(lab.error_of("gpu0>gpu1:push"),
              HasSubstr("came wrong from the GPU at 0000:17:00.0 to the GPU at 0000:18:00.0, by "
                        "kernel; the link is not safe"));
  lab.expect_rate("gpu0>gpu1:push", 0.2);
  const int before = held();
  const auto measured = [](const std::string& words) {
    GpuLab one(std::string(kThree) + words);
    return one.meter ? one.error_of("gpu0>gpu1:pull") : one.error;
  };
  EXPECT_THAT(measured("fail=cuModuleLoadData,209"),
              HasSubstr("cuModuleLoadData for the GPU at 0000:17:00.0 failed"));
  EXPECT_THAT(measured("fail=cuModuleGetFunction,500"), HasSubstr("cuModuleGetFunction failed"));
  EXPECT_THAT(measured("fail=cuLaunchKernel,701"), HasSubstr("cuLaunchKernel failed"));
  EXPECT_THAT(measured("nopeer=1,0"), HasSubstr("no access to the one at"));
  EXPECT_EQ(held(), before);
}

TEST(GpuMeter, BuildsWithoutAKernelSaySo) {
  GpuLab lab(kThree, 5, {});
  ASSERT_TRUE(lab.meter) << lab.error;
  EXPECT_THAT(lab.error_of("gpu0>gpu1:push"), HasSubstr("this build found no nvcc; install it"));
  lab.expect_rate("gpu0>gpu1:push+copy", 0.2);
  EXPECT_FALSE(lab.meter->description().environment.contains("copy kernel"));
}

TEST(CopyKernel, IsInTheImageOfBuildsWithNvcc) {
  const std::span<const unsigned char> image = copy_kernel_image();
  if (image.empty()) GTEST_SKIP() << "this build found no nvcc";
  const std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
  EXPECT_NE(text.find(kCopyKernelName), std::string_view::npos);
}

TEST(GpuMeter, WhatIsSharedShowsInSets) {
  GpuLab lab(kThree);
  ASSERT_TRUE(lab.meter) << lab.error;
  lab.expect_rate("gpu0>gpu1:push+copy,gpu1>gpu0:push+copy", 0.2);  // two engines
  lab.expect_rate("gpu0>gpu1:push+copy,gpu0>gpu2:push+copy", 0.1);  // one engine for both
  GpuLab narrow(std::string(kThree) + "bridge=0.2");
  ASSERT_TRUE(narrow.meter) << narrow.error;
  narrow.expect_rate("gpu0>gpu1:push+copy", 0.2);
  narrow.expect_rate("gpu0>gpu1:push+copy,gpu1>gpu0:push+copy", 0.1);
  const auto m = narrow.measure("gpu0>gpu1:push+copy,gpu1>gpu0:push+copy");
  ASSERT_TRUE(m);
  EXPECT_EQ(m->gb_per_s.size(), 2u);
}

TEST(GpuMeter, SendsShares) {
  GpuLab lab(kThree);
  ASSERT_TRUE(lab.meter) << lab.error;
  const auto set = topology::parse_transfers(*lab.box, "gpu0>gpu1:push+copy,gpu1>gpu0:push+copy");
  // A quarter of the bytes at the same rate: its own, not its share of the makespan, unless load
  // holds it up.
  const StopWatch watch;
  double best = 0;
  while (best <= 0.4 && watch.seconds() < 20) {
    const auto m = lab.meter->measure_shares(*set, std::vector<double>{1, 0.25});
    ASSERT_TRUE(m) << m.error().message;
    EXPECT_LT(m->rate, 0.24);
    best = std::max(best, m->gb_per_s[1] / m->rate);
  }
  EXPECT_GT(best, 0.4);
}

TEST(GpuMeter, WrongContentIsFoundBeforeAnythingIsTimed) {
  // The first copy of a push; of what is staged, the second slot's way in.
  GpuLab lab(std::string(kThree) + "flip=1");
  ASSERT_TRUE(lab.meter) << lab.error;
  EXPECT_THAT(lab.error_of("gpu0>gpu1:push+copy"),
              HasSubstr("byte 524288 came wrong from the GPU at 0000:17:00.0 to the GPU at "
                        "0000:18:00.0; the link is not safe"));
  lab.expect_rate("gpu0>gpu1:push+copy", 0.2);
  GpuLab staged(std::string(kThree) + "flip=4");
  ASSERT_TRUE(staged.meter);
  EXPECT_THAT(staged.error_of("gpu0>gpu1:via-numa1+copy"),
              HasSubstr("through the memory of NUMA node 1"));
}

TEST(GpuMeter, ATransferThatStallsIsNamedAndNothingWaitsForIt) {
  const auto start = std::chrono::steady_clock::now();
  {
    GpuLab lab(std::string(kThree) + "stall=1", 0.3);
    ASSERT_TRUE(lab.meter) << lab.error;
    EXPECT_THAT(lab.error_of("gpu0>gpu1:pull+copy"),
                HasSubstr("from the GPU at 0000:17:00.0 to the GPU at 0000:18:00.0 does not end"));
    EXPECT_THAT(lab.error_of("gpu1>gpu0:push+copy"), HasSubstr("run this again"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
}

TEST(GpuMeter, FailuresOfTheDriverAreNamed) {
  const int before = held();
  const auto started = [](const std::string& failing) {
    return GpuLab(std::string(kThree) + "fail=" + failing).error;
  };
  EXPECT_THAT(started("cuInit,100"), HasSubstr("cuInit failed: CUDA_ERROR_NO_DEVICE (100)"));
  EXPECT_THAT(started("cuDeviceGetCount,3"), HasSubstr("cuDeviceGetCount failed: error (3)"));
  EXPECT_THAT(started("cuMemAlloc,2"), HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
  EXPECT_THAT(GpuLab("").error, HasSubstr("the driver shows no GPU"));
  EXPECT_THAT(GpuLab("gpu=0000:17:00.0,1 gpu=0000:18:00.0,1").error,
              HasSubstr("no GPU at \"0000:81:00.0\", where gpu2 should be"));
  const auto measured = [](const std::string& failing, const std::string& set) {
    GpuLab lab(std::string(kThree) + "fail=" + failing);
    return lab.meter ? lab.error_of(set) : lab.error;
  };
  const std::string push = "gpu0>gpu1:push+copy";
  EXPECT_THAT(measured("cuCtxEnablePeerAccess,217", push), HasSubstr("cuCtxEnablePeerAccess"));
  EXPECT_EQ(measured("cuCtxEnablePeerAccess,704", push), "measured") << "enabled already";
  EXPECT_THAT(measured("cuEventQuery,700", push), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_THAT(measured("cuEventRecord,999", push), HasSubstr("cuEventRecord failed"));
  EXPECT_THAT(measured("cuMemHostAlloc,2", "gpu0>gpu1:via-numa0+copy"),
              HasSubstr("cuMemHostAlloc failed: CUDA_ERROR_OUT_OF_MEMORY"));
  EXPECT_EQ(held(), before) << "failures give back what they took";
}

TEST(GpuMeter, AbsentAndForeignLibrariesAreNamed) {
  GpuMeterOptions options;
  options.box.library = "libjige-no-such-library.so.1";
  EXPECT_EQ(GpuMeter::start(machine(), options).error().code, Code::kNotFound);
  options.box.library = "libm.so.6";
  const auto other = GpuMeter::start(machine(), options);
  EXPECT_EQ(other.error().code, Code::kUnsupported);
  EXPECT_THAT(other.error().message, HasSubstr("libm.so.6 has no cuInit"));
}

TEST(GpuMeter, RefusesWhatItCannotMeasure) {
  GpuLab lab(std::string(kThree) + "nopeer=0,1");
  ASSERT_TRUE(lab.meter) << lab.error;
  EXPECT_THAT(lab.error_of("gpu0>gpu1:push+copy"), HasSubstr("no access to the one at"));
  // The description says so, for those who plan.
  ASSERT_EQ(lab.meter->description().no_peer.size(), 1u);
  EXPECT_TRUE(lab.meter->description().refuses_peer(lab.box->description().find("gpu0"),
                                                    lab.box->description().find("gpu1")));
  lab.expect_rate("gpu0>gpu1:pull+copy", 0.2);
  lab.expect_rate("gpu0>gpu1:via-numa0+copy", 0.2);
  EXPECT_THAT(lab.error_of("numa0>gpu1:push+copy"), HasSubstr("only transfers between GPUs"));
  EXPECT_THAT(lab.error_of("numa0>numa1:push+copy"), HasSubstr("only transfers between GPUs"));
}

}  // namespace
}  // namespace jige::profile
