#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"
#include "base/test_path.h"
#include "profile/profiler.h"
#include "profile/simulated_meter.h"
#include "topology/fluid.h"
#include "topology/reference_topologies.h"

namespace jige::profile {
namespace {

using ::testing::HasSubstr;
using topology::Topology;
using topology::Transfer;
using topology::TransferKind;

Topology reference(std::string_view name) { return *topology::reference_topology(name); }

std::vector<Transfer> pushes(const Topology& t) {
  std::vector<Transfer> list;
  for (const int32_t a : t.of_kind(topology::ComponentKind::kDevice)) {
    for (const int32_t b : t.of_kind(topology::ComponentKind::kDevice)) {
      if (a != b) list.push_back({TransferKind::kPush, a, b});
    }
  }
  return list;
}

TEST(SimulatedMeter, WithoutNoiseReportsTheFluidRates) {
  const Topology box = reference("pcie-4gpu-2numa");
  SimulatedMeter meter(box);
  const Transfer set[] = {{TransferKind::kPush, 0, 1}, {TransferKind::kPush, 0, 2}};
  const auto m = meter.measure(set);
  ASSERT_TRUE(m);
  EXPECT_NEAR(m->rate, 6.25, 1e-9);  // both leave through one link
  EXPECT_EQ(m->repeats, 9);
  EXPECT_NEAR(m->cost_s, 10 * 32.0 * (1 << 20) / 6.25e9, 1e-9);
  EXPECT_EQ(m->deviation, 0);
}

TEST(SimulatedMeter, SharesOfAWholeAreCarriedInProportion) {
  const Topology box = *topology::reference_topology("pcie-4gpu-2numa");
  SimulatedMeter meter(box);
  // Both leave gpu0 by its link of 12.5 GB/s: it takes as long as a whole over it.
  const std::vector<Transfer> set = {{TransferKind::kPush, 0, 1}, {TransferKind::kPush, 0, 2}};
  const Measurement m = *meter.measure_shares(set, std::vector<double>{0.75, 0.25});
  EXPECT_NEAR(m.rate, 12.5, 1e-9);
  EXPECT_NEAR(m.gb_per_s[0], 0.75 * 12.5, 1e-9);
  EXPECT_NEAR(m.gb_per_s[1], 0.25 * 12.5, 1e-9);
  EXPECT_NEAR(meter.measure_shares(set, std::vector<double>{2, 2})->rate, 12.5 / 4, 1e-9);
}

// A meter of equal amounts alone serves wherever amounts are equal.
TEST(LinkMeter, WithoutSharesOfItsOwnMeasuresEqualOnes) {
  class EqualMeter final : public LinkMeter {
   public:
    explicit EqualMeter(const Topology& t) : meter_(t) {}
    Result<Measurement> measure(std::span<const Transfer> set) override {
      return meter_.measure(set);
    }
    std::string_view source() const override { return "simulated"; }

   private:
    SimulatedMeter meter_;
  };
  const Topology box = *topology::reference_topology("pcie-4gpu-2numa");
  EqualMeter meter(box);
  const std::vector<Transfer> set = {{TransferKind::kPush, 0, 1}, {TransferKind::kPush, 0, 2}};
  EXPECT_NEAR(meter.measure_shares(set, std::vector<double>{0.5, 0.5})->rate, 12.5, 1e-9);
  const auto unequal = meter.measure_shares(set, std::vector<double>{0.5, 0.25});
  EXPECT_EQ(unequal.error().code, Code::kUnsupported);
}

TEST(SimulatedMeter, RepeatsUntilTheIntervalIsNarrowAndIsReproducible) {
  const Topology box = reference("pcie-4gpu-2numa");
  const Transfer set[] = {{TransferKind::kPush, 0, 1}};
  SimulatedMeter quiet(box, {.noise = 0.005}), loud(box, {.noise = 0.08}),
      again(box, {.noise = 0.08});
  EXPECT_EQ(quiet.measure(set)->repeats, 9);
  const auto m = loud.measure(set);
  EXPECT_GT(m->repeats, 9);
  EXPECT_LE(m->half_width, 0.03);
  EXPECT_NEAR(m->rate, 12.5, 12.5 * 0.05);
  EXPECT_EQ(again.measure(set)->rate, m->rate);
}

TEST(SimulatedMeter, NineteenOfTwentyIntervalsHoldTheMean) {
  const Topology box = reference("pcie-4gpu-2numa");
  const Transfer set[] = {{TransferKind::kPush, 0, 1}};
  const double noise = 0.05;
  SimulatedMeter meter(box, {.noise = noise, .repeats_max = 9, .half_width_max = 0});
  const double mean_slowdown = std::exp(noise * noise / 2);
  const int rounds = 4000;
  int inside = 0;
  for (int round = 0; round < rounds; ++round) {
    const Measurement m = *meter.measure(set);
    const double slowdown = 12.5 / m.rate;
    inside += std::fabs(slowdown - mean_slowdown) <= m.half_width * slowdown;
  }
  EXPECT_NEAR(static_cast<double>(inside) / rounds, 0.95, 0.01);
}

TEST(MeasurementStore, KeepsAndReadsBack) {
  const Topology box = reference("pcie-4gpu-2numa");
  const std::string path = test_path("keeps");
  {
    auto store = MeasurementStore::open(path, box, "simulated");
    ASSERT_TRUE(store) << store.error().message;
    ASSERT_TRUE(
        store->append({"a", "b"}, {.gb_per_s = {1, 2}, .rate = 1, .repeats = 3, .cost_s = 4}));
    ASSERT_TRUE(store->append({"a", "b"}, {.gb_per_s = {3, 4}, .rate = 3}));
    EXPECT_THAT(MeasurementStore::open(path, box, "simulated").error().message,
                HasSubstr("another process"));
  }
  auto store = MeasurementStore::open(path, box, "simulated");
  ASSERT_TRUE(store);
  ASSERT_EQ(store->all().size(), 1u);
  EXPECT_EQ(store->all().begin()->second.rate, 3);
  EXPECT_FALSE(store->was_interrupted());
  ASSERT_TRUE(store->invalidate("x"));
  EXPECT_TRUE(store->all().empty());
}

TEST(MeasurementStore, ResumesAfterEveryInterruption) {
  const Topology box = reference("pcie-4gpu-2numa");
  const std::string path = test_path("cut");
  {
    auto store = MeasurementStore::open(path, box, "simulated");
    ASSERT_TRUE(store->append({"a"}, {.gb_per_s = {1}, .rate = 1}));
    ASSERT_TRUE(store->append({"b"}, {.gb_per_s = {2}, .rate = 2}));
  }
  const std::string whole = *read_file(path);
  for (size_t size = 0; size <= whole.size(); size += size + 40 < whole.size() ? 61 : 3) {
    ASSERT_TRUE(write_file_atomic(path, whole.substr(0, size)));
    auto store = MeasurementStore::open(path, box, "simulated");
    ASSERT_TRUE(store) << size << ": " << store.error().message;
    EXPECT_EQ(store->was_interrupted(), size > 0 && whole[size - 1] != '\n') << size;
    ASSERT_TRUE(store->append({"c"}, {.gb_per_s = {3}, .rate = 3}));
    const auto lines = std::ranges::count(whole.substr(0, size), '\n');
    EXPECT_EQ(store->all().size(), static_cast<size_t>(std::max<long>(lines - 1, 0)) + 1);
    *store = *MeasurementStore::open(test_path("other"), box, "simulated");
    EXPECT_TRUE(MeasurementStore::open(path, box, "simulated")) << size;
  }
}

TEST(MeasurementStore, RefusesAnotherFingerprintWithTheDifference) {
  const Topology box = reference("pcie-4gpu-2numa");
  const std::string path = test_path("foreign");
  { ASSERT_TRUE(MeasurementStore::open(path, box, "simulated")); }
  topology::Description d = box.description();
  d.environment["driver"] = "555.42";
  const Topology newer = *Topology::create(d, "newer");
  const auto refused = MeasurementStore::open(path, newer, "simulated");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("+ environment driver 555.42"));
  EXPECT_THAT(MeasurementStore::open(path, box, "measured").error().message,
              HasSubstr("holds simulated rates"));
}

// Access control can be read by root alone: who does not know it may go on, who knows better not.
TEST(MeasurementStore, RefusesOtherAccessControlButNotAnUnknownOne) {
  const Topology plain = reference("pcie-4gpu-2numa");
  const auto with = [&](const char* control) {
    topology::Description d = plain.description();
    d.environment["acs of 0000:18:00.0"] = control;
    return *Topology::create(d, "box");
  };
  const Topology on = with("redirects"), off = with("does-not-redirect");
  const std::string path = test_path("acs");
  { ASSERT_TRUE(MeasurementStore::open(path, on, "simulated")); }
  EXPECT_TRUE(MeasurementStore::open(path, on, "simulated"));
  EXPECT_TRUE(MeasurementStore::open(path, plain, "simulated"));
  const auto refused = MeasurementStore::open(path, off, "simulated");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              HasSubstr("- environment acs of 0000:18:00.0 redirects\n+ environment acs of "
                        "0000:18:00.0 does-not-redirect"));
}

TEST(MeasurementStore, LeavesFilesThatAreNoProfileAlone) {
  const Topology box = reference("pcie-4gpu-2numa");
  const std::string path = test_path("notes");
  for (const std::string text :
       {"my notes", "my notes\n", "{}\n", "[1]\n", "{\"format\":\"x\",\"version\":1}\n",
        "{\"format\":\"jige.ring-plan\",\"version\":1}"}) {
    ASSERT_TRUE(write_file_atomic(path, text));
    EXPECT_FALSE(MeasurementStore::open(path, box, "simulated")) << text;
    EXPECT_EQ(*read_file(path), text);
  }
  const std::string pipe = test_path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);  // whose end it would wait for
  for (const std::string& kept_nowhere : {pipe, std::string("/dev/null")}) {
    EXPECT_EQ(MeasurementStore::open(kept_nowhere, box, "simulated").error().code,
              Code::kInvalidArgument)
        << kept_nowhere;
  }
}

TEST(MeasurementStore, KeepsMembersThatMeetNoLinkWithARate) {
  const Topology box = reference("pcie-4gpu-2numa");
  const std::string path = test_path("unlimited");
  {
    auto store = MeasurementStore::open(path, box, "simulated");
    ASSERT_TRUE(store->append({"a", "b"}, {.gb_per_s = {topology::kUnlimited, 2}, .rate = 2}));
  }
  auto store = MeasurementStore::open(path, box, "simulated");
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ(store->all().begin()->second.gb_per_s, (std::vector<double>{topology::kUnlimited, 2}));
}

TEST(MeasurementStore, RefusesRatesThatNoLinkHas) {
  const Topology box = reference("pcie-4gpu-2numa");
  const std::string path = test_path("rates");
  { ASSERT_TRUE(MeasurementStore::open(path, box, "simulated")); }
  const std::string head = *read_file(path);
  for (const std::string line :
       {R"({"set":["a","b"],"gb_per_s":[1],"rate":1})", R"({"set":["a"],"gb_per_s":[],"rate":1})",
        R"({"set":["a"],"gb_per_s":[1],"rate":1e300})", R"({"set":["a"],"gb_per_s":[1],"rate":0})",
        R"({"set":["a"],"gb_per_s":[1],"rate":1e-300})", R"({"set":["a"],"gb_per_s":[0],"rate":1})",
        R"({"set":["a"],"gb_per_s":[-2],"rate":1})"}) {
    ASSERT_TRUE(write_file_atomic(path, head + line + "\n"));
    const auto store = MeasurementStore::open(path, box, "simulated");
    ASSERT_FALSE(store) << line;
    EXPECT_EQ(store.error().code, Code::kCorrupt);
    EXPECT_THAT(store.error().message, HasSubstr(path + ":2"));
  }
}

TEST(MeasurementStore, DamagedFilesAreRefusedOrHoldRates) {
  const Topology box = reference("pcie-4gpu-2numa");
  const std::string path = test_path("damaged");
  std::string lines[3];  // the head, and what stands behind it
  {
    auto store = MeasurementStore::open(path, box, "simulated");
    lines[0] = *read_file(path);
    ASSERT_TRUE(store->append({"a", "b"}, {.gb_per_s = {1.5, topology::kUnlimited},
                                           .rate = 1.25,
                                           .deviation = 0.1,
                                           .half_width = 0.2,
                                           .repeats = 9}));
    lines[1] = read_file(path)->substr(lines[0].size());
    ASSERT_TRUE(store->append({"c"}, {.gb_per_s = {2.5}, .rate = 2.5, .repeats = 3}));
    lines[2] = read_file(path)->substr(lines[0].size() + lines[1].size());
  }
  int read = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(600); ++seed) {
    const bool head = seed % 8 == 0;
    const std::string& behind = lines[1 + seed % 2];
    const std::string damaged = (head ? Mutator(seed).mutate(lines[0]) : lines[0]) +
                                (head ? behind : Mutator(seed).mutate(behind));
    ASSERT_TRUE(write_file_atomic(path, damaged));
    auto store = MeasurementStore::open(path, box, "simulated");
    if (!store) {
      ASSERT_THAT(store.error().message, HasSubstr(path)) << seed;
      continue;
    }
    ++read;
    for (const auto& [set, measured] : store->all()) {
      ASSERT_EQ(set.size(), measured.gb_per_s.size()) << seed;
      ASSERT_TRUE(measured.rate > 0 && std::isfinite(measured.rate)) << seed;
      ASSERT_GE(measured.repeats, 0) << seed;
    }
    ASSERT_TRUE(store->append({"e"}, {.gb_per_s = {1}, .rate = 1})) << seed;
    *store = *MeasurementStore::open(test_path("damaged other"), box, "simulated");
    ASSERT_TRUE(MeasurementStore::open(path, box, "simulated")) << seed << ": not what it wrote";
  }
  EXPECT_GT(read, 40);
}

// A limit of file sizes stands for a disk that is full.
TEST(MeasurementStore, ALineThatDoesNotFitLeavesTheRestWhole) {
  const Topology box = reference("pcie-4gpu-2numa");
  const std::string path = test_path("full");
  auto store = MeasurementStore::open(path, box, "simulated");
  ASSERT_TRUE(store->append({"a"}, {.gb_per_s = {1}, .rate = 1}));
  const std::string before = *read_file(path);
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &usual), 0);
  const rlimit tight{before.size() + 9, usual.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const Status failed = store->append({"b"}, {.gb_per_s = {2}, .rate = 2});
  setrlimit(RLIMIT_FSIZE, &usual);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kIo);
  EXPECT_EQ(*read_file(path), before);
  ASSERT_TRUE(store->append({"c"}, {.gb_per_s = {3}, .rate = 3}));
  *store = *MeasurementStore::open(test_path("other"), box, "simulated");
  const auto again = MeasurementStore::open(path, box, "simulated");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->all().size(), 2u);
}

TEST(Profiler, RecallsSharesInTheOrderAskedFor) {
  const Topology box = reference("pcie-4gpu-2numa");
  const std::string path = test_path("shares");
  const std::vector<Transfer> set = {{TransferKind::kPush, 2, 1}, {TransferKind::kPush, 0, 1}};
  const std::vector<Transfer> turned = {set[1], set[0]};
  const std::vector<double> shares = {0.75, 0.25}, turned_shares = {0.25, 0.75};
  SimulatedMeter meter(box);
  const auto check = [&](Profiler& profiler, int64_t measured) {
    const Measurement there = *profiler.shares(set, shares);
    const Measurement back = *profiler.shares(turned, turned_shares);
    EXPECT_NEAR(there.gb_per_s[0], 3 * there.gb_per_s[1], 1e-9);
    EXPECT_EQ(back.gb_per_s, (std::vector<double>{there.gb_per_s[1], there.gb_per_s[0]}));
    EXPECT_EQ(profiler.counts().measured, measured);
  };
  {
    auto store = MeasurementStore::open(path, box, "simulated");
    Profiler profiler(box, meter, &*store);
    check(profiler, 1);
  }
  auto store = MeasurementStore::open(path, box, "simulated");
  Profiler profiler(box, meter, &*store);
  check(profiler, 0);
}

TEST(Symmetry, FindsWhatCanBeSwapped) {
  // Two GPUs on each of two nodes: either pair swaps, and the nodes do.
  const Symmetry four = find_symmetry(reference("pcie-4gpu-2numa"));
  EXPECT_EQ(four.permutations.size(), 8u);
  EXPECT_TRUE(four.complete);
  EXPECT_EQ(find_symmetry(reference("pcie-8gpu-2numa")).permutations.size(), 1152u);  // 4! 4! 2
  EXPECT_EQ(find_symmetry(reference("pcie-8gpu-4numa")).permutations.size(), 384u);   // 2!^4 4!
  topology::Description d = reference("pcie-4gpu-2numa").description();
  d.components[0].copy_engine_gb_per_s = 7;
  EXPECT_EQ(find_symmetry(*Topology::create(d, "odd")).permutations.size(), 2u);
}

TEST(Symmetry, SwapsNobodyWhoHasNoPeerAccessWithOneWhoHas) {
  topology::Description d = reference("pcie-4gpu-2numa").description();
  const auto count = [&] { return find_symmetry(*Topology::create(d, "box")).permutations.size(); };
  const size_t all = count();
  d.no_peer = {{0, 1}};
  const size_t one = count();
  EXPECT_LT(one, all);
  d.no_peer = {{0, 1}, {1, 0}, {2, 3}, {3, 2}};
  EXPECT_EQ(count(), all);
}

TEST(Symmetry, EveryPermutationKeepsFluidRatesOfRandomSets) {
  for (const char* name :
       {"pcie-8gpu-2numa", "pcie-8gpu-4numa", "dual-trunk-8host", "switch-8gpu-2numa"}) {
    const Topology t = reference(name);
    const Symmetry symmetry = find_symmetry(t);
    EXPECT_GT(symmetry.permutations.size(), 1u) << name;
    Rng rng(derive_key(3, name));
    const auto ends = t.of_kind(t.find("gpu0") >= 0 ? topology::ComponentKind::kDevice
                                                    : topology::ComponentKind::kHost);
    const auto memories = t.of_kind(topology::ComponentKind::kMemory);
    for (int round = 0; round < 200; ++round) {
      std::vector<Transfer> set;
      while (set.size() < 4) {
        const int32_t a = ends[rng.below(ends.size())], b = ends[rng.below(ends.size())];
        if (a == b) continue;
        set.push_back(memories.empty() ? Transfer{TransferKind::kSend, a, b}
                                       : Transfer{TransferKind::kStaged, a, b,
                                                  memories[rng.below(memories.size())]});
      }
      const auto& p = symmetry.permutations[rng.below(symmetry.permutations.size())];
      std::vector<topology::Flow> here, there;
      std::vector<Transfer> images;
      for (const Transfer& transfer : set) {
        images.push_back(image(p, transfer));
        here.push_back({*t.usage(transfer)});
        there.push_back({*t.usage(images.back())});
      }
      const auto a = topology::max_min_rates(t.resources(), here);
      const auto b = topology::max_min_rates(t.resources(), there);
      for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-9) << name;
      ASSERT_EQ(symmetry.canonical(set), symmetry.canonical(images)) << name;
    }
  }
}

TEST(Profiler, MeasuresOnceAndReusesConfirmedSymmetries) {
  const Topology box = reference("pcie-4gpu-2numa");
  SimulatedMeter meter(box);
  Profiler profiler(box, meter);
  const std::vector<Transfer> solos = pushes(box);
  ASSERT_TRUE(profiler.use_symmetry(find_symmetry(box), solos, {}));
  EXPECT_EQ(profiler.symmetry().permutations.size(), 8u);
  const int64_t before = profiler.counts().measured;
  const Transfer set[] = {solos[0], {TransferKind::kPush, 1, 2}, {TransferKind::kPush, 2, 0}};
  const Transfer same[] = {
      {TransferKind::kPush, 1, 0}, {TransferKind::kPush, 0, 3}, {TransferKind::kPush, 3, 1}};
  EXPECT_EQ(*profiler.rate(set), *profiler.rate(same));
  EXPECT_EQ(profiler.counts().measured, before + 2);  // the set, and one look at its image
  EXPECT_EQ(profiler.counts().by_symmetry, 1);
}

TEST(Profiler, DropsSymmetriesThatMeasurementDenies) {
  const Topology believed = reference("pcie-4gpu-2numa");
  topology::Description d = believed.description();
  for (topology::Link& link : d.links) {
    if (link.name == "gpu1-port1") link.gb_per_s = link.back_gb_per_s = 6;  // trained down
  }
  const Topology truth = *Topology::create(d, "truth");
  SimulatedMeter meter(truth, {.noise = 0.01});
  Profiler profiler(believed, meter);
  ASSERT_TRUE(profiler.use_symmetry(find_symmetry(believed), pushes(believed), {}));
  EXPECT_TRUE(profiler.symmetry().complete);
  // What is left: the identity and the swap of gpu2 with gpu3.
  EXPECT_EQ(profiler.symmetry().permutations.size(), 2u);
  EXPECT_LT(*profiler.rate(std::vector<Transfer>{{TransferKind::kPush, 1, 0}}), 7);
}

// Alone and in pairs all looks alike; three through one bridge do not.
TEST(Profiler, AnAuditEndsASymmetryThatOnlyLargerSetsDeny) {
  const Topology believed = reference("pcie-8gpu-2numa");
  topology::Description d = believed.description();
  d.components[static_cast<size_t>(believed.find("bridge1"))].gb_per_s = 26;
  const Topology truth = *Topology::create(d, "truth");
  SimulatedMeter meter(truth);
  Profiler profiler(believed, meter, nullptr, {.audit_every = 1});
  ASSERT_TRUE(profiler.use_symmetry(find_symmetry(believed), pushes(believed), {}));
  EXPECT_EQ(profiler.symmetry().permutations.size(), 1152u);
  const auto triple = [](int32_t first) {
    return std::vector<Transfer>{{TransferKind::kPush, first, first + 1},
                                 {TransferKind::kPush, first + 1, first + 2},
                                 {TransferKind::kPush, first + 2, first}};
  };
  EXPECT_NEAR(*profiler.rate(triple(0)), 12.5, 1e-9);
  EXPECT_NEAR(*profiler.rate(triple(4)), 26.0 / 3, 1e-9);
  EXPECT_TRUE(profiler.symmetry_failed());
  EXPECT_EQ(profiler.epoch(), 1);
  EXPECT_EQ(profiler.symmetry().permutations.size(), 1u);
}

TEST(Symmetry, GeneratorsGiveBackTheGroup) {
  const Symmetry whole = find_symmetry(reference("pcie-8gpu-4numa"));
  Symmetry built = no_symmetry(reference("pcie-8gpu-4numa"));
  int32_t generators = 0;
  for (const Permutation& p : whole.permutations) {
    if (built.contains(p)) continue;
    built.extend(p, 5000);
    ++generators;
  }
  EXPECT_EQ(built.permutations.size(), whole.permutations.size());
  EXPECT_LT(generators, 12);
}

TEST(Profiler, SeesAChangeAndMeasuresAnew) {
  const Topology box = reference("pcie-4gpu-2numa");
  topology::Description slow = box.description();
  for (topology::Link& link : slow.links) {
    if (link.gb_per_s == 12.5) link.gb_per_s = link.back_gb_per_s = 6;
  }
  const std::string path = test_path("change");
  SimulatedMeter meter(box, {.noise = 0.01});
  auto store = MeasurementStore::open(path, box, "simulated");
  Profiler profiler(box, meter, &*store, {.check_every = 4});
  const std::vector<Transfer> solos = pushes(box);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(*profiler.rate(std::span(&solos[i], 1)), 12.5, 0.6);
  meter.change(*Topology::create(slow, "slow"));
  for (size_t i = 4; i < 10; ++i) EXPECT_NEAR(*profiler.rate(std::span(&solos[i], 1)), 6, 0.3) << i;
  EXPECT_EQ(profiler.epoch(), 1);
  EXPECT_THAT(profiler.last_change(), HasSubstr("gpu0>gpu1:push was 12."));
  EXPECT_NEAR(*profiler.rate(std::span(&solos[0], 1)), 6, 0.3);
  for (const auto& [set, m] : store->all()) EXPECT_LT(m.rate, 7) << set[0];
}

TEST(Profiler, SeesAChangeThatOnlyLargeSetsMeet) {
  const Topology box = reference("pcie-4gpu-2numa");
  topology::Description slow = box.description();
  for (topology::Link& link : slow.links) {
    if (link.kind == topology::LinkKind::kSocket) link.gb_per_s = link.back_gb_per_s = 4;
  }
  SimulatedMeter meter(box);
  Profiler profiler(box, meter, nullptr, {.check_every = 3});
  const Transfer solo[] = {{TransferKind::kPush, 0, 1}};  // within one NUMA node
  const Transfer cross[] = {{TransferKind::kPush, 0, 2}, {TransferKind::kPush, 1, 3}};
  const Transfer more[] = {{TransferKind::kPush, 1, 0}}, last[] = {{TransferKind::kPush, 2, 3}};
  ASSERT_TRUE(profiler.rate(solo));
  EXPECT_NEAR(*profiler.rate(cross), 9, 1e-9);
  meter.change(*Topology::create(slow, "slow"));
  for (const auto& set : {more, last, solo}) ASSERT_TRUE(profiler.rate(std::span(set, 1)));
  EXPECT_EQ(profiler.epoch(), 1);
  EXPECT_THAT(profiler.last_change(), HasSubstr("gpu0>gpu2:push,gpu1>gpu3:push was 9, is 2 GB/s"));
  EXPECT_NEAR(*profiler.rate(cross), 2, 1e-9);
}

TEST(Profiler, AStoreWhoseRatesHoldNoMoreIsTakenBack) {
  const Topology box = reference("pcie-4gpu-2numa");
  topology::Description slow = box.description();
  for (topology::Link& link : slow.links) {
    if (link.gb_per_s == 12.5) link.gb_per_s = link.back_gb_per_s = 6;
  }
  const std::string path = test_path("stale");
  const std::vector<Transfer> solos = pushes(box);
  for (const bool changed : {false, false, true}) {
    SimulatedMeter meter(changed ? *Topology::create(slow, "slow") : box);
    auto store = MeasurementStore::open(path, box, "simulated");
    Profiler profiler(box, meter, &*store, {.check_stored = true});
    const bool first = store->all().empty();
    for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(profiler.rate(std::span(&solos[i], 1)));
    EXPECT_EQ(profiler.counts().measured, first ? 3 : 0) << "what is known is not looked at";
    EXPECT_NEAR(*profiler.rate(std::span(&solos[changed ? 5 : 3], 1)), changed ? 6 : 12.5, 1e-9);
    EXPECT_EQ(profiler.epoch(), changed ? 1 : 0);
    EXPECT_NEAR(*profiler.rate(std::span(&solos[0], 1)), changed ? 6 : 12.5, 1e-9);
  }
}

TEST(Profiler, ResumesFromTheStore) {
  const Topology box = reference("pcie-4gpu-2numa");
  const std::string path = test_path("resume");
  const std::vector<Transfer> solos = pushes(box);
  for (const int64_t expected : {7, 5}) {
    SimulatedMeter meter(box);
    auto store = MeasurementStore::open(path, box, "simulated");
    Profiler profiler(box, meter, &*store);
    for (size_t i = 0; i < (expected == 7 ? 7u : 12u); ++i)
      ASSERT_TRUE(profiler.rate(std::span(&solos[i], 1)));
    EXPECT_EQ(profiler.counts().measured, expected);
  }
}

}  // namespace
}  // namespace jige::profile
