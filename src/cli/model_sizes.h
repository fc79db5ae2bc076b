// Llama shapes by name, for models trained from nothing and for benchmarks.
//
// All have tied embeddings, RMS norm with 1e-5, rotary positions with theta 10000. The number in a
// name is the parameters with a vocabulary of 32000.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/model_config.h"

namespace jige::cli {

struct ModelSize {
  const char* name;
  int64_t width;
  int64_t layers;
  int64_t heads;
  int64_t ffn;
  int64_t context;
  int64_t vocab_size;  // of the tokenizer that is trained with it
};

// "tiny", "small", "15m", "42m", "110m".
const std::vector<ModelSize>& model_sizes();
std::vector<std::string> model_size_names();

// Departures from a size; 0 keeps the size's own.
struct ModelShape {
  std::string size = "tiny";
  int64_t width = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t ffn = 0;
  int64_t context = 0;
};

// The size a shape starts from. REQUIRES: shape.size is one of model_size_names().
const ModelSize& base_size(const ModelShape& shape);

// The whole configuration. Fails with kInvalidArgument naming the flag where the numbers do not fit
// each other.
Result<formats::ModelConfig> make_llama_config(const ModelShape& shape, int64_t vocab_size);

}  // namespace jige::cli
