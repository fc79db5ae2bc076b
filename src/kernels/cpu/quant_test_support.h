// What tests of quantised weights share. Threads: free functions.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/quant_gemm.h"
#include "kernels/cpu/quant_plain.h"
#include "tensor/cpu_device.h"
#include "tensor/dtype.h"

namespace jige::cpu::quant_test {

inline const char* format_name(QuantFormat format) {
  constexpr const char* kNames[kQuantFormatCount] = {"q8", "q4", "fp4", "uneven4"};
  return kNames[static_cast<size_t>(format)];
}

// The plain blocks of one block of weights, after making sure that the panels hold the same.
inline PlainWeightBlock checked_block(QuantFormat format, const std::vector<float>& values) {
  const auto blocks =
      plain_weight_blocks(format, values.data(), static_cast<int64_t>(values.size()));
  CpuDevice device({.thread_count = 1});
  const auto depth = static_cast<int64_t>(values.size());
  const int64_t bytes = quant_panels_bytes(format, 1, depth);
  std::vector<std::byte> panels(static_cast<size_t>(bytes));
  quant_pack(device, {.format = format,
                      .panels = panels.data(),
                      .columns = 1,
                      .depth = depth,
                      .part = {values.data(), ElementType::kF32, depth},
                      .part_begin = 0,
                      .part_count = 1});
  const PlainWeightBlock packed = plain_block_of_panels(format, panels.data(), bytes, 0, 0);
  EXPECT_EQ(std::memcmp(packed.values, blocks[0].values, sizeof packed.values), 0);
  EXPECT_EQ(packed.scale, blocks[0].scale);
  return blocks[0];
}

inline float weight_of(const PlainWeightBlock& block, size_t i) {
  return to_float(Float16{block.scale}) * static_cast<float>(block.values[i]);
}

inline float largest_of(const std::vector<float>& values) {
  float most = 0;
  for (const float x : values) most = std::max(most, std::fabs(x));
  return most;
}

}  // namespace jige::cpu::quant_test
