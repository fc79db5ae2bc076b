// Processes of this machine and the meter over their shared memory.
#include "profile/shm_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"
#include "base/test_path.h"
#include "profile/measurement_store.h"
#include "profile/profiler.h"

namespace jige::profile {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using topology::Transfer;
using topology::TransferKind;

ShmMeterOptions quick_shm() {
  ShmMeterOptions options{.bytes = 1 << 20, .run_timeout_s = 5};
  options.rank.buffer_bytes = 1 << 20;
  options.repeats = {.count_min = 2, .count_max = 3};
  return options;
}

// A meter over `count` processes, wherever this one may run.
struct Bench {
  std::unique_ptr<ShmMeter> meter;
  std::optional<topology::Topology> machine;

  explicit Bench(int count, const ShmMeterOptions& options = quick_shm()) {
    auto places = parse_places(std::to_string(count), usable_processors(), "test");
    EXPECT_TRUE(places) << places.error().message;
    auto started = ShmMeter::start(std::move(*places), options);
    EXPECT_TRUE(started) << started.error().message;
    meter = std::move(*started);
    machine = std::move(*topology::Topology::create(meter->description(), "test"));
    EXPECT_TRUE(meter->use(*machine));
  }
};

Transfer send_of(int32_t from, int32_t to) { return {TransferKind::kSend, from, to}; }

TEST(ShmMeter, MeasuresSetsOfTwoToFourProcesses) {
  for (const int count : {2, 3, 4}) {
    Bench bench(count);
    std::vector<Transfer> ring;
    for (int32_t i = 0; i < count; ++i) ring.push_back(send_of(i, (i + 1) % count));
    const auto m = bench.meter->measure(ring);
    ASSERT_TRUE(m) << m.error().message;
    EXPECT_EQ(m->gb_per_s.size(), ring.size());
    EXPECT_GE(m->repeats, 2);
    EXPECT_GT(m->rate, 1e-3);
    for (const double rate : m->gb_per_s) EXPECT_GE(rate, m->rate * 0.5);
    EXPECT_GT(m->cost_s, 0);
  }
}

TEST(ShmMeter, FindsHowMuchToSendAndSendsShares) {
  ShmMeterOptions options = quick_shm();
  options.bytes = 0;
  options.run_s = 0.02;
  Bench bench(3, options);
  const Transfer both[] = {send_of(0, 1), send_of(1, 2)};
  const auto m = bench.meter->measure(both);
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_GT(m->cost_s, 0.02);
  const auto shared = bench.meter->measure_shares(both, std::vector<double>{1, 0.25});
  ASSERT_TRUE(shared) << shared.error().message;
  EXPECT_GE(shared->gb_per_s[0], shared->rate * 0.5);
  EXPECT_GE(shared->gb_per_s[1], shared->rate * 0.25 * 0.5);
}

// Copies of 16 MiB within this process, the best of some, GB/s.
double copy_rate() {
  std::vector<char> from(16 << 20, 1), to(from.size());
  double best = 0;
  for (int i = 0; i < 8; ++i) {
    const StopWatch clock;
    std::memcpy(to.data(), from.data(), from.size());
    best = std::max(best, static_cast<double>(from.size()) / clock.seconds() / 1e9);
  }
  return best;
}

// Two processes copy at the same time, each once; a meter that loses bytes or counts the wrong time
// is far above that.
TEST(ShmMeter, IsNotFasterThanCopying) {
  ShmMeterOptions options = quick_shm();
  options.bytes = 64 << 20;
  options.rank.buffer_bytes = 16 << 20;
  Bench bench(2, options);
  const Transfer one[] = {send_of(0, 1)};
  const auto m = bench.meter->measure(one);
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_LT(m->rate, 2.5 * copy_rate());
  EXPECT_GT(m->rate, 0.01);
  EXPECT_NEAR(m->gb_per_s[0], m->rate, 0.5 * m->rate);
}

TEST(ShmMeter, ProcessesRunWhereTheyWerePut) {
  const std::vector<Processor> usable = usable_processors();
  ASSERT_FALSE(usable.empty());
  Bench bench(2);
  const Transfer one[] = {send_of(0, 1)};
  ASSERT_TRUE(bench.meter->measure(one));
  for (size_t i = 0; i < 2; ++i) {
    const auto status = read_file(fmt::format("/proc/{}/status", bench.meter->pid(i)), 1 << 16);
    ASSERT_TRUE(status);
    EXPECT_THAT(*status, HasSubstr(fmt::format("Cpus_allowed_list:\t{}\n",
                                               usable[i % usable.size()].number)));
  }
}

TEST(ShmMeter, AProcessThatDiesIsNamedAndStartedAgain) {
  Bench bench(3);
  const Transfer ring[] = {send_of(0, 1), send_of(1, 2), send_of(2, 0)};
  ASSERT_TRUE(bench.meter->measure(ring));
  const pid_t before = bench.meter->pid(1);
  kill(before, SIGKILL);
  const auto start = std::chrono::steady_clock::now();
  const auto gone = bench.meter->measure(ring);
  ASSERT_FALSE(gone);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3))
      << "long before the timeout";
  EXPECT_EQ(gone.error().code, Code::kUnavailable);
  EXPECT_THAT(gone.error().message,
              HasSubstr(fmt::format("rank1 (process {}) was ended by signal 9", before)));
  EXPECT_EQ(bench.meter->pid(0), -1) << "none is left";
  const auto again = bench.meter->measure(ring);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_NE(bench.meter->pid(1), before);
}

TEST(ShmMeter, DeathInTheMiddleOfATransferIsNoticed) {
  ShmMeterOptions options = quick_shm();
  options.bytes = int64_t{1} << 36;  // far more than the time until the signal
  options.run_timeout_s = 20;
  Bench bench(2, options);
  std::thread killer([pid = bench.meter->pid(1)] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    kill(pid, SIGKILL);
  });
  const Transfer one[] = {send_of(0, 1)};
  const auto start = std::chrono::steady_clock::now();
  const auto gone = bench.meter->measure(one);
  killer.join();
  ASSERT_FALSE(gone);
  EXPECT_THAT(gone.error().message, HasSubstr("was ended by signal 9"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(ShmMeter, IsCancelledInTheMiddleOfATransfer) {
  std::atomic<bool> cancelled = false;
  ShmMeterOptions options = quick_shm();
  options.bytes = int64_t{1} << 36;
  options.run_timeout_s = 20;
  options.cancelled = &cancelled;
  Bench bench(2, options);
  const pid_t rank = bench.meter->pid(1);
  const std::jthread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    cancelled = true;
  });
  const Transfer one[] = {send_of(0, 1)};
  const StopWatch clock;
  EXPECT_EQ(bench.meter->measure(one).error().code, Code::kCancelled);
  EXPECT_LT(clock.seconds(), 5);
  EXPECT_NE(kill(rank, 0), 0) << "none is left";
}

TEST(ShmMeter, AProcessThatStallsIsNamed) {
  ShmMeterOptions options = quick_shm();
  options.run_timeout_s = 0.5;
  Bench bench(3, options);
  const Transfer pair[] = {send_of(0, 1)};
  ASSERT_TRUE(bench.meter->measure(pair));
  const pid_t stalled = bench.meter->pid(1);
  kill(stalled, SIGSTOP);
  const auto silent = bench.meter->measure(pair);
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().code, Code::kUnavailable);
  EXPECT_THAT(silent.error().message, HasSubstr("nothing was heard of rank 1 (rank1)"));
  EXPECT_NE(kill(stalled, 0), 0) << "a stopped process is ended as well";
  EXPECT_TRUE(bench.meter->measure(pair));
}

TEST(ShmMeter, WrongContentIsFoundBeforeAnythingIsTimed) {
  ShmMeterOptions options = quick_shm();
  options.rank.spoil = [](int rank, std::span<std::byte> bytes) {
    if (rank == 1) bytes[17] ^= std::byte{4};
  };
  Bench bench(3, options);
  const Transfer good[] = {send_of(0, 1)}, set[] = {send_of(0, 1), send_of(1, 2)};
  EXPECT_TRUE(bench.meter->measure(good));
  const auto wrong = bench.meter->measure(set);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, Code::kCorrupt);
  EXPECT_THAT(wrong.error().message,
              HasSubstr("byte 17 of the data from rank 1 (rank1) came wrong"));
  // Rank 1 hears of it as well, and may be read first.
  EXPECT_THAT(wrong.error().message,
              AnyOf(HasSubstr("rank2 (process "), HasSubstr("rank 2 (rank2) reports")));
}

TEST(ShmMeter, RunsAllReducesOverRings) {
  Bench bench(3);
  const int32_t order[] = {2, 0, 1};
  const auto once = bench.meter->all_reduce(order, 300'001);
  ASSERT_TRUE(once) << once.error().message;
  EXPECT_EQ(once->seconds.size(), 3u);
  EXPECT_GT(once->edge_gb_per_s, 1e-4);
  const WeightedOrder rings[] = {{{0, 1, 2}, 0.75}, {{0, 2, 1}, 0.25}};
  ASSERT_TRUE(bench.meter->all_reduce(rings));
  const int32_t pair[] = {2, 1};
  ASSERT_TRUE(bench.meter->all_reduce(pair, 1 << 20)) << "some of them";
  const Transfer one[] = {send_of(0, 1)};
  EXPECT_TRUE(bench.meter->measure(one)) << "sets and collectives take turns";
  const int32_t router[] = {0, 3};
  EXPECT_EQ(bench.meter->all_reduce(router).error().code, Code::kInvalidArgument);
  const WeightedOrder odd[] = {{{0, 1, 2}, 1}, {{0, 1}, 1}};
  EXPECT_THAT(bench.meter->all_reduce(odd, 1000).error().message, HasSubstr("of the same ranks"));
}

TEST(ShmMeter, DeathInAnAllReduceIsNoticed) {
  ShmMeterOptions options = quick_shm();
  options.run_timeout_s = 20;
  Bench bench(3, options);
  const int32_t order[] = {0, 1, 2};
  ASSERT_TRUE(bench.meter->all_reduce(order));
  kill(bench.meter->pid(2), SIGKILL);
  const auto start = std::chrono::steady_clock::now();
  const auto gone = bench.meter->all_reduce(order);
  ASSERT_FALSE(gone);
  EXPECT_THAT(gone.error().message, HasSubstr("was ended by signal 9"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_TRUE(bench.meter->all_reduce(order));
}

TEST(ShmMeter, RefusesWhatItCannotMeasure) {
  Bench bench(2);
  const Transfer pushed[] = {{TransferKind::kPush, 0, 1}}, router[] = {send_of(0, 2)};
  EXPECT_EQ(bench.meter->measure(pushed).error().code, Code::kInvalidArgument);
  EXPECT_EQ(bench.meter->measure(router).error().code, Code::kInvalidArgument);
  topology::Description wider = bench.meter->description();
  const int32_t d = wider.add({.name = "d", .kind = topology::ComponentKind::kHost});
  wider.join({.from = d, .to = wider.find("memory")});
  EXPECT_THAT(bench.meter->use(*topology::Topology::create(wider, "wide")).error().message,
              HasSubstr("host \"d\" is none of --shm; name it there"));
}

TEST(ShmMeter, AnInterruptedProfileGoesOnFromItsStore) {
  const std::string path = test_path("store");
  std::atomic<bool> cancelled = false;
  ShmMeterOptions options = quick_shm();
  options.cancelled = &cancelled;
  Bench bench(3, options);
  const Transfer all[] = {send_of(0, 1), send_of(1, 2)};
  {
    auto store = MeasurementStore::open(path, *bench.machine, "measured");
    ASSERT_TRUE(store) << store.error().message;
    Profiler profiler(*bench.machine, *bench.meter, &*store);
    ASSERT_TRUE(profiler.rate(std::span(all).first(1)));
    cancelled = true;
    EXPECT_EQ(profiler.rate(std::span(all).last(1)).error().code, Code::kCancelled);
  }
  cancelled = false;
  auto store = MeasurementStore::open(path, *bench.machine, "measured");
  ASSERT_TRUE(store) << store.error().message;
  Profiler profiler(*bench.machine, *bench.meter, &*store);
  for (const Transfer& transfer : all) ASSERT_TRUE(profiler.rate(std::span(&transfer, 1)));
  EXPECT_EQ(profiler.counts().recalled, 1);
  Bench other(2);
  EXPECT_THAT(MeasurementStore::open(path, *other.machine, "measured").error().message,
              AnyOf(HasSubstr("another process"), HasSubstr("- component rank2")));
}

constexpr Processor kBoard[] = {{0, 0}, {1, 0}, {2, 0}, {8, 1}, {9, 1}};

std::string places_text(const std::string& text) {
  const auto places = parse_places(text, kBoard, "--shm");
  if (!places) return places.error().message;
  std::string line;
  for (const LocalPlace& place : *places) line += place.name + ": " + place.text() + "; ";
  return line;
}

TEST(LocalPlaces, AreReadAndSpread) {
  EXPECT_EQ(places_text("a=cpu1,numa1"),
            "a: processor 1, NUMA node 0; numa1: processor 8 9, NUMA node 1; ");
  EXPECT_EQ(places_text("3"),
            "rank0: processor 0, NUMA node 0; rank1: processor 8, NUMA node 1; rank2: processor 1, "
            "NUMA node 0; ");
  EXPECT_THAT(places_text("7"), HasSubstr("rank4: processor 2, NUMA node 0; rank5: processor 0"));
}

TEST(LocalPlaces, MistakesAreNamed) {
  EXPECT_THAT(places_text("1"), HasSubstr("--shm: places must be 2 to 64, not 1"));
  EXPECT_THAT(places_text("65"), HasSubstr("places must be 2 to 64"));
  EXPECT_THAT(places_text("cpu0"), HasSubstr("must be 2 to 64, not 1"));
  EXPECT_THAT(places_text(""), HasSubstr("\"\" is no [NAME=]cpuN"));
  EXPECT_THAT(places_text("cpu0,core1"), HasSubstr("\"core1\" is no [NAME=]cpuN"));
  EXPECT_THAT(places_text("cpu0,=cpu1"), HasSubstr("\"=cpu1\" is no [NAME=]cpuN"));
  EXPECT_THAT(places_text("cpu0,cpu"), HasSubstr("\"cpu\" is no"));
  EXPECT_THAT(places_text("cpu0,cpu-1"), HasSubstr("\"cpu-1\" is no"));
  EXPECT_THAT(places_text("cpu0,cpu99999999999"), HasSubstr("is no [NAME=]cpuN"));
  EXPECT_THAT(places_text("cpu0,cpu5"), HasSubstr("\"cpu5\" is no place this process may run on"));
  EXPECT_THAT(places_text("cpu0,cpu0"), HasSubstr("\"cpu0\" is there twice"));
  EXPECT_EQ(parse_places("2", {}, "--shm").error().code, Code::kUnsupported);
}

TEST(LocalPlaces, DamagedListsAreRefusedOrNamePlaces) {
  int read = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(2000); ++seed) {
    const std::string text = Mutator(seed).mutate("a=cpu1,numa1,b=cpu8,cpu0,cpu2");
    const auto places = parse_places(text, kBoard, "--shm");
    if (!places) {
      ASSERT_THAT(places.error().message, HasSubstr("--shm")) << seed;
      continue;
    }
    ++read;
    for (const LocalPlace& place : *places) ASSERT_FALSE(place.processors.empty()) << seed;
    // Names are looked at there.
    const auto machine = topology::Topology::create(places_description(*places, {}), "places");
    ASSERT_TRUE(machine || machine.error().message.starts_with("places: ")) << seed;
  }
  EXPECT_GT(read, 30);
}

TEST(LocalPlaces, NodesComeFromSysfs) {
  const std::string root = test_path("sysfs");
  std::filesystem::create_directories(root + "/devices/system/node/node0");
  std::filesystem::create_directories(root + "/devices/system/node/node2");
  const std::vector<Processor> here = usable_processors("/nowhere");
  ASSERT_FALSE(here.empty());
  for (const Processor& p : here) EXPECT_EQ(p.numa, 0);
  const int last = here.back().number;
  ASSERT_TRUE(write_file_atomic(root + "/devices/system/node/node0/cpulist", "4000-4001,x\n"));
  ASSERT_TRUE(write_file_atomic(root + "/devices/system/node/node2/cpulist",
                                fmt::format("{}-{},5000-\n", last, last)));
  const std::vector<Processor> told = usable_processors(root);
  EXPECT_EQ(told.back().numa, 2);
  EXPECT_EQ(told.front().numa, told.size() > 1 ? 0 : 2);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace jige::profile
