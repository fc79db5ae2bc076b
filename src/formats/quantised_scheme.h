// QuantisedScheme: how the matrices of a Hugging Face folder are stored in few bits, as the
// "quantization_config" of its config.json says.
//
//   quant_method        what it holds of a matrix X.weight [N, K]
//   fp8                 weight F8_E4M3, weight_scale_inv for blocks, or one scale
//   compressed-tensors  float-quantized: weight F8_E4M3, weight_scale
//                       int-quantized: weight I8, weight_scale, weight_zero_point
//                       pack-quantized: weight_packed, weight_scale, weight_shape,
//                       weight_zero_point, weight_g_idx
//   gptq                qweight, qzeros, scales, g_idx
//   awq                 qweight, qzeros, scales
// quantised_matrix.h has shapes and values. What is said about activations and the key/value cache
// is passed over: Jige computes with activations of its own. Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "formats/module_patterns.h"

namespace jige::formats {

inline constexpr int64_t kQuantisedBlockMax = int64_t{1} << 20;

enum class QuantisedLayout { kFloat8, kInt8, kPacked, kGptq, kAwq };

// How one group of modules is stored.
struct QuantisedWeights {
  QuantisedLayout layout = QuantisedLayout::kFloat8;
  int bits = 8;
  // One scale is for so many rows and columns of a matrix; 0: for all of them.
  int64_t block_rows = 1;
  int64_t block_columns = 0;
  bool one_scale = false;       // a scale for the whole matrix will do as well
  bool zero_points = false;     // stored ones; otherwise numbers are around zero
  bool zeros_less_one = false;  // stored zero points are one less
  bool ordered = false;         // columns have their group by g_idx

  bool operator==(const QuantisedWeights&) const = default;
};

struct QuantisedGroup {
  ModulePatterns targets;
  QuantisedWeights weights;
  bool operator==(const QuantisedGroup&) const = default;
};

struct QuantisedScheme {
  std::string method;  // quant_method
  std::string format;  // of compressed-tensors and GPTQ; empty: the method has one
  std::vector<QuantisedGroup> groups;
  ModulePatterns ignored;

  // How a matrix is stored if it is quantised; nullptr: it is to be in floating point. Fails with
  // kExhausted where a pattern takes too long.
  Result<const QuantisedWeights*> find(std::string_view module) const;
  bool operator==(const QuantisedScheme&) const = default;
};

// Reads a quantization_config. Fails with kUnsupported naming field and value of what Jige does not
// read, with kCorrupt on what contradicts itself.
Result<QuantisedScheme> parse_quantised_scheme(const Json& config, std::string_view where);

// "4 bits in groups of 128", for people.
std::string quantised_text(const QuantisedWeights& weights);
// "compressed-tensors, pack-quantized: 4 bits in groups of 128".
std::string quantised_text(const QuantisedScheme& scheme);

}  // namespace jige::formats
