// Which layers of a model keep their weights on a device that is too small for all. Those of the
// others are with the host and come in every iteration, in order, through a few slots that they
// share, by the one engine that copies to the device.
//
// Of L layers that compute for c seconds each, m come, which takes x seconds each. An iteration
// takes at least max(L c, m x). It takes that long where the layers that come are spread evenly and
//
//   2 c + x <= K max(L c / m, x)      K slots
//
// since every cycle of "this waits for that" has stretches of a computations, over at most
// a L / m + 1 layers and their like, and of b copies, with a slot that is freed in between, which
// is K copies ahead: c (a L / m + 2) + x (b + 1) <= (a + b + K) max(L c / m, x). Where all come, c
// + x on the left will do. So two slots are enough where half of the layers stay or more, where all
// come, and where a copy takes as long as two computations, which it does many times over while
// tokens are decoded; three are always enough. With fewer, and with layers that come in a row, the
// two engines wait for one another; the test of this file tries all choices.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace jige::plan {

// Two slots: a third would take the memory of a layer, which would come then, too.
inline constexpr int64_t kStreamSlots = 2;

// The layers that come where `resident_count` of `layer_count` stay, ascending. REQUIRES:
// 0 <= resident_count <= layer_count.
std::vector<int32_t> streamed_layers(int64_t layer_count, int64_t resident_count);

}  // namespace jige::plan
