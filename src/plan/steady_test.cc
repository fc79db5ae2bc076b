#include "plan/steady.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profile/simulated_meter.h"
#include "topology/reference_topologies.h"

namespace jige::plan {
namespace {

using ::testing::HasSubstr;
using topology::Transfer;
using topology::TransferKind;

// A machine whose links train down and up again while it is measured.
class Steady : public testing::Test {
 protected:
  static topology::Topology with_links_of(double gb_per_s) {
    topology::Description d = topology::reference_topology("pcie-4gpu-2numa")->description();
    for (topology::Link& link : d.links) {
      if (link.gb_per_s == 12.5) link.gb_per_s = link.back_gb_per_s = gb_per_s;
    }
    return *topology::Topology::create(d, "box");
  }
  // As a mixture of rings is measured: by shares alone.
  Status measure_shares() {
    const Transfer set[] = {{TransferKind::kPush, 0, 1}, {TransferKind::kPush, 1, 0}};
    const double shares[] = {0.75, 0.25};
    JIGE_TRY(const profile::Measurement m, profiler_.measure_shares(set, shares));
    rates_.push_back(m.rate);
    return {};
  }

  topology::Topology box_ = with_links_of(12.5);
  profile::SimulatedMeter meter_{box_};
  profile::Profiler profiler_{box_, meter_, nullptr, {.check_every = 2}};
  Result<int32_t> attempt() {
    const int32_t epoch = profiler_.epoch();
    for (int i = 0; i < 3; ++i) JIGE_DO(measure_shares());
    return epoch;
  }
  static double much_left() { return 1; }

  std::vector<double> rates_;
};

TEST_F(Steady, WorkIsDoneAgainWhereARateChangedOnTheWay) {
  const Transfer first[] = {{TransferKind::kPush, 0, 1}};
  ASSERT_TRUE(profiler_.rate(first));
  int32_t attempts = 0;
  const auto steady = until_rates_hold(profiler_, much_left, [&] {
    if (++attempts == 1) meter_.change(with_links_of(6));
    return attempt();
  });
  ASSERT_TRUE(steady) << steady.error().message;
  EXPECT_EQ(steady->restarts, 1);
  EXPECT_TRUE(steady->held);
  EXPECT_EQ(attempts, 2);
  EXPECT_THAT(profiler_.last_change(), HasSubstr("gpu0>gpu1:push was 12.5, is 6 GB/s"));
  EXPECT_NEAR(rates_.back(), 8, 1e-9);
}

TEST_F(Steady, RatesThatKeepChangingAreTold) {
  const Transfer first[] = {{TransferKind::kPush, 0, 1}};
  ASSERT_TRUE(profiler_.rate(first));
  double next = 12.5;
  const auto steady = until_rates_hold(profiler_, much_left, [&] {
    meter_.change(with_links_of(next /= 1.5));
    return attempt();
  });
  ASSERT_TRUE(steady);
  EXPECT_EQ(steady->restarts, 3);
  EXPECT_FALSE(steady->held);
  const Error error = rates_keep_changing(profiler_).value();
  EXPECT_EQ(error.code, Code::kUnavailable);
  EXPECT_THAT(error.message, HasSubstr("rates keep changing"));
}

TEST_F(Steady, WorkThatBeganAnewByItselfIsNotRepeated) {
  const Transfer first[] = {{TransferKind::kPush, 0, 1}};
  ASSERT_TRUE(profiler_.rate(first));
  int32_t attempts = 0;
  const auto steady = until_rates_hold(profiler_, much_left, [&] {
    ++attempts;
    meter_.change(with_links_of(6));
    EXPECT_TRUE(attempt());
    return attempt();
  });
  ASSERT_TRUE(steady);
  EXPECT_EQ(attempts, 1);
  EXPECT_TRUE(steady->held);
  EXPECT_EQ(profiler_.epoch(), 1);
}

TEST_F(Steady, WorkIsDoneAgainOnceWhereTheBudgetIsSpent) {
  const Transfer first[] = {{TransferKind::kPush, 0, 1}};
  ASSERT_TRUE(profiler_.rate(first));
  double next = 12.5;
  const auto steady = until_rates_hold(
      profiler_, [] { return 0.0; },
      [&] {
        meter_.change(with_links_of(next /= 1.5));
        return attempt();
      });
  ASSERT_TRUE(steady);
  EXPECT_EQ(steady->restarts, 1);
  EXPECT_FALSE(steady->held);
}

}  // namespace
}  // namespace jige::plan
