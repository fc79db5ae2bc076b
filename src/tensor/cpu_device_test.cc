#include "tensor/cpu_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <thread>
#include <vector>

#include "base/rng.h"

namespace jige {
namespace {

void wait_some(uint64_t microseconds) {
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

std::unique_ptr<Stream> stream_of(CpuDevice& device) { return std::move(*device.make_stream()); }

// Both kinds of streams obey the same rules.
class CpuStreams : public testing::TestWithParam<bool> {
 protected:
  CpuDevice device_{{.name = "cpu7", .thread_count = 3, .queued_streams = GetParam()}};
};

INSTANTIATE_TEST_SUITE_P(Kinds, CpuStreams, testing::Bool(),
                         [](const auto& test) { return test.param ? "Queued" : "Inline"; });

TEST_P(CpuStreams, BelongToTheirDevice) {
  const auto stream = stream_of(device_);
  EXPECT_EQ(&stream->device(), &device_);
  EXPECT_EQ(&as_cpu(*stream).cpu(), &device_);
  EXPECT_EQ(device_.name(), "cpu7");
  EXPECT_EQ(device_.kind(), DeviceKind::kCpu);
  EXPECT_EQ(device_.team().size(), 3);
}

TEST_P(CpuStreams, RunWorkInTheOrderOfSubmission) {
  const auto stream = stream_of(device_);
  std::vector<int> order;  // touched by the stream only, until it is synchronised
  Rng rng(1);
  for (int i = 0; i < 200; ++i) {
    const uint64_t delay = rng.below(10) == 0 ? rng.below(200) : 0;
    as_cpu(*stream).submit([&order, i, delay] {
      if (delay) wait_some(delay);
      order.push_back(i);
    });
  }
  stream->synchronize();
  std::vector<int> expected(200);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
  stream->synchronize();  // with nothing to do
}

TEST_P(CpuStreams, CopyAndClearInOrder) {
  const auto stream = stream_of(device_);
  std::vector<int> a(1000, 1), b(1000, 2), c(1000, 3);
  const auto bytes = static_cast<int64_t>(a.size() * sizeof(int));
  as_cpu(*stream).submit([&] {
    wait_some(500);
    std::fill(a.begin(), a.end(), 7);
  });
  stream->copy(b.data(), a.data(), bytes, CopyKind::kHostToDevice);
  stream->fill_zero(a.data(), bytes / 2);
  stream->copy(c.data(), a.data(), bytes, CopyKind::kDeviceToHost);
  stream->copy(nullptr, nullptr, 0, CopyKind::kHostToHost);
  stream->fill_zero(nullptr, 0);
  stream->synchronize();
  EXPECT_EQ(b, std::vector<int>(1000, 7));
  EXPECT_EQ(c[499], 0);
  EXPECT_EQ(c[500], 7);
}

TEST_P(CpuStreams, AnEventCompletesAfterTheWorkBeforeIt) {
  const auto stream = stream_of(device_);
  EXPECT_TRUE(Event().complete());
  Event().wait();
  int value = 0;
  as_cpu(*stream).submit([&] {
    wait_some(2000);
    value = 1;
  });
  const Event event = stream->record();
  const Event copy = event;
  event.wait();
  EXPECT_EQ(value, 1);
  EXPECT_TRUE(event.complete());
  EXPECT_TRUE(copy.complete());
  copy.wait();
}

TEST_P(CpuStreams, AnEventOutlivesItsStream) {
  Event event;
  {
    const auto stream = stream_of(device_);
    as_cpu(*stream).submit([] { wait_some(500); });
    event = stream->record();
  }
  EXPECT_TRUE(event.complete());
}

TEST_P(CpuStreams, FinishTheirWorkBeforeTheyEnd) {
  std::atomic<int> done{0};
  {
    const auto stream = stream_of(device_);
    for (int i = 0; i < 50; ++i) {
      as_cpu(*stream).submit([&] {
        if (done.load() == 0) wait_some(1000);
        done.fetch_add(1);
      });
    }
  }
  EXPECT_EQ(done.load(), 50);
}

TEST_P(CpuStreams, RunLoopsOnTheTeamOfTheirDevice) {
  const auto one = stream_of(device_);
  const auto two = stream_of(device_);
  std::vector<int64_t> sums(2, 0);
  for (int round = 0; round < 50; ++round) {
    for (size_t i = 0; i < 2; ++i) {
      as_cpu(i ? *two : *one).submit([&, i] {
        std::atomic<int64_t> sum{0};
        device_.team().parallel_for(1000, 10, [&](int64_t begin, int64_t end, int) {
          for (int64_t k = begin; k < end; ++k) sum.fetch_add(k);
        });
        sums[i] += sum.load();
      });
    }
  }
  one->synchronize();
  two->synchronize();
  EXPECT_EQ(sums[0], 50 * 499500);
  EXPECT_EQ(sums[1], 50 * 499500);
}

// A random program over several streams: every piece of work writes a cell and reads cells written
// by other streams behind the events it waited for. With delays at random places the reads are
// right only if streams keep order and events hold back. One thread submits, as streams require.
TEST_P(CpuStreams, EventsOrderStreamsUnderRandomDelays) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    constexpr size_t kStreams = 4;
    constexpr size_t kSteps = 100;
    std::vector<std::unique_ptr<Stream>> streams;
    for (size_t i = 0; i < kStreams; ++i) streams.push_back(stream_of(device_));
    std::vector<size_t> cells(kSteps, SIZE_MAX);  // not atomic: a race would be the streams' fault
    std::vector<std::vector<size_t>> wrong(kStreams);
    struct Written {
      size_t step;
      Event event;
    };
    std::vector<Written> written;
    for (size_t step = 0; step < kSteps; ++step) {
      const size_t at = rng.below(kStreams);
      std::vector<size_t> reads;
      for (uint64_t k = rng.below(3); k > 0 && !written.empty(); --k) {
        const Written& source = written[rng.below(written.size())];
        streams[at]->wait(source.event);
        reads.push_back(source.step);
      }
      const uint64_t delay = rng.below(5) == 0 ? rng.below(300) : 0;
      as_cpu(*streams[at]).submit([&, step, at, reads, delay] {
        for (const size_t read : reads) {
          if (cells[read] != read) wrong[at].push_back(read);
        }
        if (delay) wait_some(delay);
        cells[step] = step;
      });
      written.push_back({step, streams[at]->record()});
      if (rng.below(10) == 0) wait_some(rng.below(200));
    }
    for (const auto& stream : streams) stream->synchronize();
    for (const auto& list : wrong) EXPECT_TRUE(list.empty());
    for (size_t step = 0; step < kSteps; ++step) EXPECT_EQ(cells[step], step);
    for (const Written& w : written) EXPECT_TRUE(w.event.complete());
  }
}

TEST_P(CpuStreams, WaitForEventsOfAnotherDevice) {
  CpuDevice other({.thread_count = 1, .queued_streams = true});
  const auto source = stream_of(other);
  const auto target = stream_of(device_);
  int value = 0;
  int seen = -1;
  as_cpu(*source).submit([&] {
    wait_some(1000);
    value = 5;
  });
  target->wait(source->record());
  as_cpu(*target).submit([&] { seen = value; });
  target->synchronize();
  EXPECT_EQ(seen, 5);
}

TEST(QueuedStream, ReturnsBeforeItsWorkIsDone) {
  CpuDevice device({.thread_count = 1, .queued_streams = true});
  const auto stream = stream_of(device);
  std::atomic<bool> go{false};
  as_cpu(*stream).submit([&] {
    while (!go) std::this_thread::yield();
  });
  const Event event = stream->record();
  EXPECT_FALSE(event.complete());
  go = true;
  stream->synchronize();
  EXPECT_TRUE(event.complete());
}

TEST(InlineStream, RunsWorkOnTheSubmittingThread) {
  CpuDevice device({.thread_count = 1});
  const auto stream = stream_of(device);
  std::thread::id ran_on;
  as_cpu(*stream).submit([&] { ran_on = std::this_thread::get_id(); });
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST(CpuDevice, AllocatesAlignedMemory) {
  CpuDevice device({.thread_count = 1});
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{64}, int64_t{100000},
                              (int64_t{8} << 20) + 1, int64_t{8} << 20}) {
    const auto data = device.allocate(bytes);
    ASSERT_TRUE(data.has_value());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*data) % 64, 0u);
    std::memset(*data, 0xcd, static_cast<size_t>(bytes));
    device.release(*data, bytes);
  }
}

TEST(CpuDevice, GivesEveryWorkerItsOwnScratch) {
  CpuDevice device({.thread_count = 3});
  EXPECT_EQ(device.scratch_bytes(), 0);
  std::map<int, void*> first;
  for (int worker = 0; worker < 3; ++worker) {
    void* data = device.scratch(worker, 1000);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
    std::memset(data, worker, 1000);
    first[worker] = data;
  }
  EXPECT_NE(first[0], first[1]);
  for (int worker = 0; worker < 3; ++worker) {
    const auto* data = static_cast<unsigned char*>(device.scratch(worker, 500));  // kept
    EXPECT_EQ(data, first[worker]);
    EXPECT_EQ(data[999], worker);
  }
  void* grown = device.scratch(1, 1 << 20);
  std::memset(grown, 9, 1 << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(grown) % CpuDevice::kScratchUnitBytes, 0u);
  EXPECT_GE(device.scratch_bytes(), (1 << 20) + 2000);
  EXPECT_LE(device.scratch_bytes(), CpuDevice::kScratchUnitBytes + 2 * 4096);
}

TEST(CpuDevice, UsesAllProcessorsUnlessTold) {
  EXPECT_GE(CpuDevice().team().size(), 1);
  EXPECT_EQ(CpuDevice({.thread_count = 5}).team().size(), 5);
}

}  // namespace
}  // namespace jige
