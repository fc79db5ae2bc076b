#include "kernels/cpu/quant_choice.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/log.h"
#include "base/rng.h"
#include "kernels/cpu/quant_gemm.h"
#include "kernels/cpu/quant_plain.h"

namespace jige::cpu {

namespace avx2 {
extern const QuantEngine kQuantAvx2;
}
namespace vnni {
extern const QuantEngine kQuantVnni;
}
namespace amx {
extern const QuantEngine kQuantTiles;
}

namespace {

// Small products with full and short calls, panels and pairs of blocks; every process that
// multiplies waits for them.
struct QuantSample {
  int64_t rows, columns, depth;
};
constexpr QuantSample kQuantSamples[] = {{1, 35, 96}, {11, 50, 70}};

// The sample's product on one thread.
std::vector<float> quant_sample_product(const QuantEngine& engine, QuantFormat format,
                                        const QuantSample& sample, const std::vector<float>& left,
                                        const std::vector<float>& right) {
  static CpuDevice device({.name = "check", .thread_count = 1});
  std::vector<std::byte> panels(
      static_cast<size_t>(quant_panels_bytes(format, sample.columns, sample.depth)));
  quant_pack(device, {.format = format,
                      .panels = panels.data(),
                      .columns = sample.columns,
                      .depth = sample.depth,
                      .part = {right.data(), ElementType::kF32, sample.depth},
                      .part_begin = 0,
                      .part_count = sample.columns});
  std::vector<float> out(static_cast<size_t>(sample.rows * sample.columns));
  quant_gemm(device, engine,
             {.rows = sample.rows,
              .columns = sample.columns,
              .depth = sample.depth,
              .left = {left.data(), ElementType::kF32, sample.depth},
              .format = format,
              .panels = panels.data(),
              .out = {out.data(), ElementType::kF32, sample.columns}});
  return out;
}

std::vector<float> plain_sample_product(QuantFormat format, const QuantSample& sample,
                                        const std::vector<float>& left,
                                        const std::vector<float>& right) {
  std::vector<std::vector<PlainWeightBlock>> weights;
  for (int64_t n = 0; n < sample.columns; ++n) {
    weights.push_back(
        plain_weight_blocks(format, &right[static_cast<size_t>(n * sample.depth)], sample.depth));
  }
  std::vector<float> out;
  for (int64_t t = 0; t < sample.rows; ++t) {
    const auto row =
        plain_row_blocks(format, &left[static_cast<size_t>(t * sample.depth)], sample.depth);
    for (const auto& column : weights) out.push_back(plain_dot(row, column));
  }
  return out;
}

bool quant_sample_agrees(const QuantEngine& engine, const QuantSample& sample, bool extreme) {
  Rng rng(20240117);
  std::vector<float> left(static_cast<size_t>(sample.rows * sample.depth));
  std::vector<float> right(static_cast<size_t>(sample.columns * sample.depth));
  const auto value = [&] {  // of extreme ones every integer is as large as can be, mostly positive
    if (extreme) return rng.below(8) == 0 ? -1.5f : 1.5f;
    return static_cast<float>(rng.uniform() - 0.5);
  };
  for (float& x : left) x = value();
  for (float& x : right) x = value();
  for (const QuantFormat format : kQuantFormats) {
    const auto product = quant_sample_product(engine, format, sample, left, right);
    const auto expected = plain_sample_product(format, sample, left, right);
    if (std::memcmp(product.data(), expected.data(), product.size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

// The engines in use for each instruction set; each falls back to the one before.
struct QuantChoice {
  const QuantEngine* engines[kIsaCount];

  QuantChoice() {
    std::fill(std::begin(engines), std::end(engines), &kQuantPlain);
    use(Isa::kAvx2, avx2::kQuantAvx2);
    if (!cpu_features().avx512_vnni) return;
    use(Isa::kAvx512, vnni::kQuantVnni);
    if (cpu_features().amx_int8) use(Isa::kAmx, amx::kQuantTiles);
  }

  // Takes an engine for an instruction set and all stronger ones, where it passes.
  void use(Isa isa, const QuantEngine& engine) {
    if (quant_engine_agrees(engine)) {
      std::fill(engines + static_cast<size_t>(isa), std::end(engines), &engine);
    } else {
      log_warn("the {} kernel computes wrong products on this machine and is not used",
               engine.name);
    }
  }
};

const QuantChoice& quant_choice() {
  static const QuantChoice instance;
  return instance;
}

}  // namespace

bool quant_engine_agrees(const QuantEngine& engine) {
  return std::all_of(std::begin(kQuantSamples), std::end(kQuantSamples),
                     [&](const QuantSample& sample) {
                       return quant_sample_agrees(engine, sample, false) &&
                              quant_sample_agrees(engine, sample, true);
                     });
}

const QuantEngine& quant_engine() {
  return *quant_choice().engines[static_cast<size_t>(active_isa())];
}

std::vector<const QuantEngine*> quant_engines() {
  std::vector<const QuantEngine*> list = {&kQuantPlain};
  for (const Isa isa : supported_isas()) {
    const QuantEngine* engine = quant_choice().engines[static_cast<size_t>(isa)];
    if (std::find(list.begin(), list.end(), engine) == list.end()) list.push_back(engine);
  }
  return list;
}

}  // namespace jige::cpu
