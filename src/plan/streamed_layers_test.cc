#include "plan/streamed_layers.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace jige::plan {
namespace {

struct StreamedIteration {
  int64_t layer_count = 0;
  std::vector<int32_t> layers = {};  // that come
  int64_t compute = 4;               // of a layer
  int64_t copy = 0;                  // of one that comes
  int64_t slots = kStreamSlots;
};

// What both engines are busy for at least.
int64_t least_time(const StreamedIteration& one) {
  return std::max(one.layer_count * one.compute, std::ssize(one.layers) * one.copy);
}

// What `kCounted` iterations take, behind as many, each event as early as what it waits for lets
// it: a copy follows the one before once its slot is free, a layer the one before and its copy.
constexpr int64_t kCounted = 24;
int64_t time_of_iterations(const StreamedIteration& one) {
  const auto count = static_cast<size_t>(std::ssize(one.layers));
  std::vector<int64_t> copied, computed;  // by turn
  int64_t copies_end = 0;
  const auto copy = [&] {
    const size_t turn = copied.size();
    const auto slots = static_cast<size_t>(one.slots);
    if (turn >= slots) copies_end = std::max(copies_end, computed[turn - slots]);
    copied.push_back(copies_end += one.copy);
  };
  for (int64_t slot = 0; slot < one.slots; ++slot) copy();
  int64_t now = 0;
  int64_t begin = 0;
  for (int64_t iteration = 0; iteration < 2 * kCounted; ++iteration) {
    if (iteration == kCounted) begin = now;
    size_t next = 0;
    for (int32_t layer = 0; layer < one.layer_count; ++layer) {
      const bool comes = next < count && one.layers[next] == layer;
      if (comes) now = std::max(now, copied[computed.size()]);
      now += one.compute;
      if (!comes) continue;
      computed.push_back(now);
      copy();
      ++next;
    }
  }
  return now - begin;
}

// All choices of so many layers.
std::vector<std::vector<int32_t>> choices(int64_t layer_count, int64_t count) {
  std::vector<std::vector<int32_t>> all;
  for (uint32_t bits = 0; bits < (1u << layer_count); ++bits) {
    std::vector<int32_t> layers;
    for (int32_t layer = 0; layer < layer_count; ++layer) {
      if ((bits >> layer & 1) != 0) layers.push_back(layer);
    }
    if (std::ssize(layers) == count) all.push_back(layers);
  }
  return all;
}

constexpr int64_t kCopies[] = {1, 3, 4, 5, 6, 7, 8, 10, 12, 20, 100};

template <typename Check>
void for_all_iterations(int64_t layers_max, const Check& check) {
  for (int64_t slots = 2; slots <= 3; ++slots) {
    for (int64_t layer_count = 1; layer_count <= layers_max; ++layer_count) {
      for (int64_t count = 1; count <= layer_count; ++count) {
        for (const int64_t copy : kCopies) {
          StreamedIteration one{.layer_count = layer_count, .copy = copy, .slots = slots};
          one.layers = streamed_layers(layer_count, layer_count - count);
          SCOPED_TRACE(testing::Message() << count << " of " << layer_count << ", " << slots
                                          << " slots, a copy takes " << copy);
          check(one);
        }
      }
    }
  }
}

TEST(StreamedLayers, ComeEvenlySpread) {
  EXPECT_EQ(streamed_layers(8, 8), std::vector<int32_t>{});
  EXPECT_EQ(streamed_layers(8, 6), (std::vector<int32_t>{2, 6}));
  EXPECT_EQ(streamed_layers(8, 4), (std::vector<int32_t>{1, 3, 5, 7}));
  EXPECT_EQ(streamed_layers(5, 0), (std::vector<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(streamed_layers(7, 4), (std::vector<int32_t>{1, 3, 5}));
}

TEST(StreamedLayers, NoOtherChoiceIsFaster) {
  for_all_iterations(7, [](const StreamedIteration& one) {
    const int64_t chosen = time_of_iterations(one);
    for (const std::vector<int32_t>& other : choices(one.layer_count, std::ssize(one.layers))) {
      StreamedIteration as_other = one;
      as_other.layers = other;
      ASSERT_LE(chosen, time_of_iterations(as_other)) << testing::PrintToString(other);
    }
  });
}

// And there are cases that the header does not promise and that take longer, so the promise is no
// empty one: layers in a row, and two slots where more than half of the layers come.
TEST(StreamedLayers, TakeTheLeastTimeWhereTheHeaderSaysSo) {
  int64_t slower = 0;
  for_all_iterations(12, [&](const StreamedIteration& one) {
    const int64_t count = std::ssize(one.layers);
    const int64_t least = least_time(one);
    const bool all = count == one.layer_count;
    const int64_t waits = (all ? 1 : 2) * one.compute + one.copy;
    const int64_t time = time_of_iterations(one);
    if (waits * count <= one.slots * least) {
      ASSERT_EQ(time, kCounted * least);
    } else {
      ASSERT_GE(time, kCounted * least);
      slower += time > kCounted * least ? 1 : 0;
    }
    if (one.slots == 3 || 2 * count <= one.layer_count || all || one.copy >= 2 * one.compute) {
      ASSERT_EQ(time, kCounted * least);
    }
  });
  EXPECT_GT(slower, 0);
  StreamedIteration row{.layer_count = 8, .layers = {4, 5, 6, 7}, .copy = 8};
  EXPECT_GT(time_of_iterations(row), kCounted * least_time(row));
}

}  // namespace
}  // namespace jige::plan
