#include "cli/plan_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <span>
#include <thread>

#include "profile/simulated_meter.h"
#include "topology/reference_topologies.h"

namespace jige::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Has nothing but collectives, of ten milliseconds.
class SlowCollectives final : public profile::CollectiveMeter {
 public:
  Result<profile::Measurement> measure(std::span<const topology::Transfer>) override {
    return fail(Code::kUnsupported, "no sets");
  }
  Result<profile::Measurement> measure_shares(std::span<const topology::Transfer>,
                                              std::span<const double>) override {
    return fail(Code::kUnsupported, "no sets");
  }
  std::string_view source() const override { return "measured"; }
  Result<profile::CollectiveTimes> collective(const profile::CollectiveTask&) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return profile::CollectiveTimes{};
  }
};

struct Measured {
  SlowCollectives collectives;
  topology::Topology network = *topology::reference_topology("trunk-4host");
  profile::SimulatedMeter meter{network};
  profile::Profiler profiler{network, meter};
  topology::Transfer one{topology::TransferKind::kSend, 0, 1};
};

TEST(PlanProgress, SaysWhatIsMeasured) {
  Measured m;
  testing::internal::CaptureStderr();
  {
    PlanProgress progress(m.profiler, 1000, 0, false);
    ASSERT_TRUE(m.profiler.measure({&m.one, 1}));
  }
  ASSERT_TRUE(m.profiler.measure({&m.one, 1})) << "nobody listens any more";
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("planning"), HasSubstr("sets measured: 1")));
}

TEST(PlanProgress, SaysNothingOfWhatIsOverAtOnce) {
  Measured m;
  testing::internal::CaptureStderr();
  {
    PlanProgress progress(m.profiler, 1000, 60, false);
    ASSERT_TRUE(m.profiler.measure({&m.one, 1}));
    progress.finish();
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
}

TEST(PlanProgress, CountsCollectivesAndIsQuietWhenAsked) {
  Measured m;
  testing::internal::CaptureStderr();
  {
    PlanProgress progress(m.profiler, 1000, 0, false);
    ASSERT_TRUE(progress.collective(m.collectives, {}));
    ASSERT_TRUE(progress.collective(m.collectives, {}));
    progress.finish();
  }
  EXPECT_GE(m.profiler.counts().cost_s, 0.02) << "their time is that of the budget";
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("collectives: 1"), HasSubstr("planning done in"),
                    HasSubstr("collectives: 2")));
  testing::internal::CaptureStderr();
  PlanProgress quiet(m.profiler, 1000, 0, true);
  ASSERT_TRUE(quiet.collective(m.collectives, {}));
  ASSERT_TRUE(m.profiler.measure({&m.one, 1}));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
}

}  // namespace
}  // namespace jige::cli
