// States of recurrent layers in the serving scheduler: slots, their copies, beginning again.
#include <gtest/gtest.h>

#include <tuple>

#include "plan/serve_scheduler_test_support.h"

namespace jige::plan {
namespace {

using StateTraceCase = std::tuple<ServePolicy, Admission, int32_t, bool>;

class ServeStateTraces : public ::testing::TestWithParam<StateTraceCase> {};

TEST_P(ServeStateTraces, EverySlotHoldsItsRequestsTokens) {
  const auto [policy, admission, in_flight, fair_share] = GetParam();
  int64_t copies = 0, overwritten = 0, ahead = 0, lost = 0, restarts = 0;
  for (uint64_t seed = 0; seed < 48; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ServeSchedulerOptions options =
        options_of(policy, admission, 24 + static_cast<int32_t>(seed % 8));
    options.state_count = 3 + static_cast<int32_t>(seed % 5);
    options.batch_requests_max = 2 + static_cast<int32_t>(seed % 4);
    options.batches_in_flight_max = in_flight;
    options.fair_share = fair_share;
    options.shortest_first = !fair_share && seed % 3 == 0;
    TraceRun run(options, seed, /*priorities=*/seed % 2 == 1, /*drafts=*/seed % 4 == 0);
    run.run(60);
    if (HasFailure()) return;
    copies += run.copies;
    overwritten += run.copies_overwritten;
    ahead += run.copies_ahead;
    lost += run.copies_lost;
    restarts += run.restarts;
  }
  // The traces are worth something only if all of this happens in them.
  EXPECT_GT(restarts, 100);
  EXPECT_GT(copies, 500);
  EXPECT_GT(overwritten, 20);
  EXPECT_GT(ahead, 20);
  EXPECT_GT(lost, 10);
}

INSTANTIATE_TEST_SUITE_P(
    Policies, ServeStateTraces,
    ::testing::Combine(::testing::Values(ServePolicy::kOrca, ServePolicy::kChunked,
                                         ServePolicy::kStatic),
                       ::testing::Values(Admission::kReserve, Admission::kOptimistic),
                       ::testing::Values(1, 3), ::testing::Bool()));

}  // namespace
}  // namespace jige::plan
