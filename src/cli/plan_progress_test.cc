#include "cli/plan_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profile/simulated_meter.h"
#include "topology/reference_topologies.h"

namespace jige::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Measured {
  topology::Topology network = *topology::reference_topology("trunk-4host");
  profile::SimulatedMeter meter{network};
  profile::Profiler profiler{network, meter};
  topology::Transfer one{topology::TransferKind::kSend, 0, 1};
};

TEST(PlanProgress, SaysWhatIsMeasured) {
  Measured m;
  testing::internal::CaptureStderr();
  {
    PlanProgress progress(m.profiler, 1000, false);
    ASSERT_TRUE(m.profiler.measure({&m.one, 1}));
  }
  ASSERT_TRUE(m.profiler.measure({&m.one, 1})) << "nobody listens any more";
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("planning"), HasSubstr("sets measured: 1")));
}

TEST(PlanProgress, CountsCollectivesAndIsQuietWhenAsked) {
  Measured m;
  testing::internal::CaptureStderr();
  {
    PlanProgress progress(m.profiler, 1000, false);
    progress.collective();
    progress.collective();
    progress.finish();
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("collectives: 1"), HasSubstr("planning done in"),
                    HasSubstr("collectives: 2")));
  testing::internal::CaptureStderr();
  PlanProgress quiet(m.profiler, 1000, true);
  quiet.collective();
  ASSERT_TRUE(m.profiler.measure({&m.one, 1}));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
}

}  // namespace
}  // namespace jige::cli
