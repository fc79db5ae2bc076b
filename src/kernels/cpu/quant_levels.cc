#include "kernels/cpu/quant_levels.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/quant_gemm.h"
#include "kernels/cpu/quant_plain.h"
#include "tensor/dtype.h"

namespace jige::cpu {
namespace {

constexpr int64_t kSampleBlocks = 64;

float number_at(const ConstRows& src, int64_t i) {
  switch (src.type) {
    case ElementType::kF32:
      break;
    case ElementType::kBf16:
      return to_float(static_cast<const BFloat16*>(src.data)[i]);
    case ElementType::kF16:
      return to_float(static_cast<const Float16*>(src.data)[i]);
  }
  return static_cast<const float*>(src.data)[i];
}

// Blocks of a row in f32, the last one padded with zeros, and the scales that are given for them.
struct LevelSample {
  std::vector<float> numbers;
  std::vector<uint16_t> scales;
  int64_t count;  // of numbers without the padding

  LevelSample(const ConstRows& src, int64_t depth, const QuantScales& given) : count(0) {
    const int64_t blocks = (depth + kQuantBlock - 1) / kQuantBlock;
    const int64_t taken = std::min(blocks, kSampleBlocks);
    numbers.resize(static_cast<size_t>(taken * kQuantBlock));
    for (int64_t i = 0; i < taken; ++i) {
      const int64_t block = i * blocks / taken;
      const int64_t end = std::min((block + 1) * kQuantBlock, depth);
      for (int64_t k = block * kQuantBlock; k < end; ++k) {
        numbers[static_cast<size_t>(i * kQuantBlock + k % kQuantBlock)] = number_at(src, k);
      }
      count = i * kQuantBlock + end - block * kQuantBlock;  // only the last one may be short
      scales.push_back(given.at(0, block));
    }
  }

  // What a format leaves of the squares. Blocks that are no numbers do not count.
  double squares_left(QuantFormat format) const {
    const auto size = static_cast<int64_t>(numbers.size());
    std::vector<std::byte> panel(static_cast<size_t>(quant_panel_bytes(format, size)));
    quant_weights({.format = format,
                   .src = {numbers.data(), ElementType::kF32, size},
                   .scales = {scales.data(), size / kQuantBlock},
                   .column_begin = 0,
                   .column_count = 1,
                   .depth = size,
                   .panels = panel.data(),
                   .panel_bytes = quant_panel_bytes(format, size)});
    double squares = 0;
    PlainWeightBlock block = {};
    for (int64_t i = 0; i < count; ++i) {
      if (i % kQuantBlock == 0) {
        block = plain_block_of_panels(format, panel.data(), 0, 0, i / kQuantBlock);
      }
      if (block.scale == kQuantScaleNan) continue;
      const float kept =
          to_float(Float16{block.scale}) * static_cast<float>(block.values[i % kQuantBlock]);
      const double rest = static_cast<double>(numbers[static_cast<size_t>(i)]) - kept;
      squares += rest * rest;
    }
    return squares;
  }
};

}  // namespace

QuantFormat quant_levels(const ConstRows& src, int64_t depth, const QuantScales& scales) {
  const LevelSample sample(src, depth, scales);
  return sample.squares_left(QuantFormat::kUneven4) <= sample.squares_left(QuantFormat::kQ4)
             ? QuantFormat::kUneven4
             : QuantFormat::kQ4;
}

}  // namespace jige::cpu
