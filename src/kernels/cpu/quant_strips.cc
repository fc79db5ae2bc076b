#include "kernels/cpu/quant_strips.h"

#include <algorithm>

#include "kernels/cpu/quant_gemm.h"
#include "kernels/cpu/quant_unpack.h"

namespace jige::cpu {
namespace {

// A strip has this many bytes, but this many lanes at least.
constexpr int64_t kStripBytes = int64_t{16} << 20;
constexpr int64_t kStripLanesMin = 64;
// What is turned back at a time: its numbers stay in a first-level cache until they are packed.
constexpr int64_t kPieceLanes = kQuantBlock;
constexpr int64_t kPieceDepth = 4 * kQuantBlock;
constexpr int64_t kPiecesPerRange = 8;
static_assert(kQuantBlock == kQuantColumns);

int64_t lanes_of(const StripProduct& product) {
  return product.use == StripUse::kForward ? product.n : product.k;
}
int64_t depth_of(const StripProduct& product) {
  return product.use == StripUse::kForward ? product.k : product.n;
}

// Lanes of all strips but the last: equal shares, whole blocks and panels.
int64_t strip_lanes(const GemmEngine& engine, int64_t lanes, int64_t depth) {
  const int64_t lane_bytes = std::max<int64_t>(gemm_panel_bytes(engine, depth) / engine.columns, 1);
  const int64_t most = std::max(kStripBytes / lane_bytes, kStripLanesMin);
  const int64_t strips = std::max<int64_t>(gemm_divide_up(lanes, most), 1);
  return gemm_round_up(gemm_divide_up(lanes, strips), kQuantBlock);
}

// The product of one strip; of its operands only the right is set where there are none.
GemmProduct product_of_strip(const StripProduct& product, int64_t lane, int64_t lane_count) {
  GemmProduct strip;
  strip.rows = product.rows;
  strip.columns = lane_count;
  strip.depth = depth_of(product);
  strip.left = product.left;
  strip.right_panels = product.strip;
  strip.out_dtype = product.out_dtype;
  strip.out_stride = product.out_stride;
  strip.out_past_caches = product.out_past_caches;
  if (product.out) {
    strip.out = static_cast<std::byte*>(product.out) + dtype_bytes(product.out_dtype, lane);
  }
  if (product.bias) strip.bias = product.bias + lane;
  return strip;
}

// Turns the lanes of one strip back into numbers, in panels.
class StripPacking {
 public:
  StripPacking(const GemmEngine& engine, const StripProduct& product, int64_t lane_begin,
               int64_t lane_count)
      : engine_(engine),
        product_(product),
        lane_begin_(lane_begin),
        lane_count_(lane_count),
        depth_(depth_of(product)),
        depth_pieces_(gemm_divide_up(depth_, kPieceDepth)) {
    const bool forward = product.use == StripUse::kForward;
    const int64_t block_bytes = quant_panel_bytes(product.format, kQuantBlock);
    const int64_t panel_bytes = quant_panel_bytes(product.format, product.k);
    lane_bytes_ = forward ? panel_bytes : block_bytes;
    depth_bytes_ = forward ? block_bytes : panel_bytes;
  }

  int64_t pieces() const { return gemm_divide_up(lane_count_, kPieceLanes) * depth_pieces_; }

  void pack(int64_t piece) const {
    const int64_t lane = piece / depth_pieces_ * kPieceLanes;
    const int64_t depth = piece % depth_pieces_ * kPieceDepth;
    const int64_t depth_count = std::min(kPieceDepth, depth_ - depth);
    const GemmPackRange range = {0, std::min(kPieceLanes, lane_count_ - lane), 0, depth_count};
    const int64_t panel_bytes = gemm_panel_bytes(engine_, depth_);
    std::byte* dst = static_cast<std::byte*>(product_.strip) +
                     lane / engine_.columns * panel_bytes + gemm_panel_bytes(engine_, depth);
    alignas(64) float numbers[kPieceLanes * kPieceDepth];  // or as many bf16
    gemm_pack_right(engine_, turn_back(lane, depth, depth_count, numbers), range, panel_bytes, dst);
  }

 private:
  // Memory rows are indices of k: forward depths, else lanes.
  GemmOperand turn_back(int64_t lane, int64_t depth, int64_t depth_count, void* numbers) const {
    const bool forward = product_.use == StripUse::kForward;
    const bool to_bf16 = engine_.layout != GemmLayout::kChainF32;
    const int64_t blocks = gemm_divide_up(depth_count, kQuantBlock);
    const int64_t stride = forward ? kQuantColumns : kPieceDepth;
    const std::byte* at = product_.blocks + (lane_begin_ + lane) / kQuantBlock * lane_bytes_ +
                          depth / kQuantBlock * depth_bytes_;
    const DType dtype = to_bf16 ? DType::kBF16 : DType::kF32;
    for (int64_t i = 0; i < (forward ? 1 : blocks); ++i) {
      quant_unpack({.format = product_.format,
                    .blocks = at + i * depth_bytes_,
                    .block_count = forward ? blocks : 1,
                    .to_bf16 = to_bf16,
                    .dst = static_cast<std::byte*>(numbers) + dtype_bytes(dtype, i * kQuantColumns),
                    .dst_stride = stride});
    }
    return {.data = numbers, .dtype = dtype, .row_stride = stride, .depth_across = forward};
  }

  const GemmEngine& engine_;
  const StripProduct& product_;
  const int64_t lane_begin_;
  const int64_t lane_count_;
  const int64_t depth_;
  const int64_t depth_pieces_;
  int64_t lane_bytes_;   // from a block of lanes to the next
  int64_t depth_bytes_;  // from a block of depths to the next
};

}  // namespace

void strip_gemm(CpuDevice& device, const GemmEngine& engine, const StripProduct& product) {
  if (product.rows <= 0) return;
  const int64_t lanes = lanes_of(product);
  const int64_t step = strip_lanes(engine, lanes, depth_of(product));
  for (int64_t lane = 0; lane < lanes; lane += step) {
    const int64_t count = std::min(step, lanes - lane);
    const StripPacking packing(engine, product, lane, count);
    device.team().parallel_for(packing.pieces(), kPiecesPerRange,
                               [&](int64_t begin, int64_t end, int) {
                                 for (; begin < end; ++begin) packing.pack(begin);
                               });
    gemm(device, engine, product_of_strip(product, lane, count));
  }
}

int64_t strip_bytes(const GemmEngine& engine, int64_t n, int64_t k) {
  const auto bytes = [&](int64_t lanes, int64_t depth) {
    return gemm_panels_bytes(engine, std::min(lanes, strip_lanes(engine, lanes, depth)), depth);
  };
  return std::max(bytes(n, k), bytes(k, n));
}

int64_t strip_thread_scratch_bytes(const GemmEngine& engine, const StripProduct& product,
                                   int threads) {
  const int64_t lanes = lanes_of(product);
  const int64_t step = strip_lanes(engine, lanes, depth_of(product));
  const int64_t last = lanes - (gemm_divide_up(lanes, step) - 1) * step;
  int64_t bytes = 0;
  for (const int64_t count : {std::min(step, lanes), last}) {
    GemmProduct strip = product_of_strip(product, 0, count);
    strip.right_panels = &engine;  // some address: nothing is read
    bytes = std::max(bytes, gemm_thread_scratch_bytes(engine, strip, threads));
  }
  return bytes;
}

}  // namespace jige::cpu
