#include "kernels/cpu/gemm_choice.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/log.h"
#include "base/rng.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_plain.h"

namespace jige::cpu {

namespace avx2 {
extern const GemmEngine kGemmChainF32;
extern const GemmEngine kGemmChainBF16;
}  // namespace avx2
namespace avx512 {
extern const GemmEngine kGemmChainF32;
extern const GemmEngine kGemmChainBF16;
}  // namespace avx512
namespace bf16 {
extern const GemmEngine kGemmPairs;
}  // namespace bf16
namespace amx {
extern const GemmEngine kGemmTile;
}  // namespace amx

namespace {

// Small products that exercise full and short blocks in every direction, and the last one stretches
// of the depth; no larger than that takes, since every process that multiplies waits for them.
struct Sample {
  int64_t rows, columns, depth;
};
constexpr Sample kSamples[] = {{1, 160, 96}, {37, 83, 70}, {50, 40, 2080}};

// The sample's product on one thread.
std::vector<float> sample_product(CpuDevice& device, const GemmEngine& engine, const Sample& sample,
                                  const std::vector<float>& left, const std::vector<float>& right) {
  const bool round = engine.layout != GemmLayout::kChainF32;
  std::vector<float> out(static_cast<size_t>(sample.rows * sample.columns));
  const int64_t bytes = gemm_panels_bytes(engine, sample.columns, sample.depth);
  const auto panels = device.allocate(bytes);
  JIGE_CHECK(panels.has_value(), "no memory for the check of a kernel");
  const GemmOperand weight = {.data = right.data(),
                              .row_stride = sample.columns,
                              .depth_across = true,
                              .round_to_bf16 = round};
  gemm_pack_panels(device, engine, {*panels, sample.columns, sample.depth}, weight,
                   {0, sample.columns, 0, sample.depth});
  GemmProduct product;
  product.rows = sample.rows;
  product.columns = sample.columns;
  product.depth = sample.depth;
  product.left = {.data = left.data(), .row_stride = sample.depth, .round_to_bf16 = round};
  product.right_panels = *panels;
  product.out = out.data();
  product.out_stride = sample.columns;
  gemm(device, engine, product);
  device.release(*panels, bytes);
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

bool close(const std::vector<float>& a, const std::vector<float>& b, double tolerance) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(std::fabs(a[i] - b[i]) <= tolerance)) return false;
  }
  return true;
}

// Each from 16 bits, four from a draw: drawing is to take less than multiplying.
template <typename Value>
void fill_sample(std::vector<float>& values, Rng& rng, Value value) {
  uint64_t drawn = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    drawn = i % 4 == 0 ? rng.next_u64() : drawn >> 16;
    values[i] = value(static_cast<uint16_t>(drawn));
  }
}

bool sample_agrees(CpuDevice& device, const GemmEngine& engine, const GemmEngine& measure,
                   const Sample& sample) {
  Rng rng(20240117);
  std::vector<float> left(static_cast<size_t>(sample.rows * sample.depth));
  std::vector<float> right(static_cast<size_t>(sample.columns * sample.depth));
  for (auto* values : {&left, &right}) {
    fill_sample(*values, rng, [](uint16_t bits) { return static_cast<float>(bits % 17) - 8.0f; });
  }
  if (!same_bits(sample_product(device, engine, sample, left, right),
                 sample_product(device, measure, sample, left, right))) {
    return false;
  }
  for (auto* values : {&left, &right}) {
    fill_sample(*values, rng,
                [](uint16_t bits) { return static_cast<float>(bits) * 0x1p-16f - 0.5f; });
  }
  const std::vector<float> product = sample_product(device, engine, sample, left, right);
  const std::vector<float> expected = sample_product(device, measure, sample, left, right);
  if (!gemm_flushes(engine)) return same_bits(product, expected);
  if (!same_bits(product, expected)) {
    log_debug("{} and {} round differently", engine.name, measure.name);
  }
  return close(product, expected, 1e-6 * static_cast<double>(sample.depth));
}

// The engine, if it passes its check.
const GemmEngine* proved(const GemmEngine& engine, const GemmEngine& measure) {
  if (gemm_engine_agrees(engine, measure)) return &engine;
  log_warn("the {} kernel computes wrong products on this machine and is not used", engine.name);
  return nullptr;
}

// The engines in use for each instruction set, strongest last; each falls back to the one before.
struct Choice {
  const GemmEngine* f32[kIsaCount];
  const GemmEngine* bf16[kIsaCount];

  Choice() {
    std::fill(std::begin(f32), std::end(f32), &avx2::kGemmChainF32);
    std::fill(std::begin(bf16), std::end(bf16), &avx2::kGemmChainBF16);
    use(f32, Isa::kAvx512, avx512::kGemmChainF32, avx2::kGemmChainF32);
    use(bf16, Isa::kAvx512, avx512::kGemmChainBF16, avx2::kGemmChainBF16);
    use(bf16, Isa::kAvx512Bf16, bf16::kGemmPairs, kGemmPairPlain);
    use(bf16, Isa::kAmx, amx::kGemmTile, kGemmTilePlain);
  }

  // Takes an engine for an instruction set and all stronger ones, where it is here and passes.
  static void use(const GemmEngine* (&engines)[kIsaCount], Isa isa, const GemmEngine& engine,
                  const GemmEngine& measure) {
    const auto supported = supported_isas();
    if (std::find(supported.begin(), supported.end(), isa) == supported.end()) return;
    if (const GemmEngine* passed = proved(engine, measure)) {
      std::fill(engines + static_cast<size_t>(isa), std::end(engines), passed);
    }
  }
};

const Choice& choice() {
  static const Choice instance;
  return instance;
}

}  // namespace

bool gemm_engine_agrees(const GemmEngine& engine, const GemmEngine& measure) {
  CpuDevice device({.name = "check", .thread_count = 1});  // whose scratch goes with it
  return std::all_of(std::begin(kSamples), std::end(kSamples), [&](const Sample& sample) {
    return sample_agrees(device, engine, measure, sample);
  });
}

const GemmEngine& gemm_engine(DType compute) {
  JIGE_CHECK(compute == DType::kF32 || compute == DType::kBF16, "no products in {}",
             dtype_info(compute).name);
  const auto isa = static_cast<size_t>(active_isa());
  return compute == DType::kF32 ? *choice().f32[isa] : *choice().bf16[isa];
}

const GemmEngine& gemm_engine_unpacked(DType compute) {
  const GemmEngine& engine = gemm_engine(compute);
  return engine.layout == GemmLayout::kChainBF16 ? gemm_engine(DType::kF32) : engine;
}

const std::vector<const GemmEngine*>& gemm_engines() {
  static const std::vector<const GemmEngine*> engines = [] {
    std::vector<const GemmEngine*> list;
    const auto add = [&list](const GemmEngine* engine) {
      if (std::find(list.begin(), list.end(), engine) == list.end()) list.push_back(engine);
    };
    for (size_t isa = 0; isa < kIsaCount; ++isa) {
      add(choice().f32[isa]);
      add(choice().bf16[isa]);
    }
    add(&kGemmPairPlain);
    add(&kGemmTilePlain);
    return list;
  }();
  return engines;
}

}  // namespace jige::cpu
