// A Hugging Face folder as a GGUF file, as llama.cpp and others load it; gguf_import.h is the way
// back.
//
// Vectors, biases, norms, routers, convolutions and learned positions are F32, as readers of the
// format want them; other tensors have the type that is asked for, but for experts that the folder
// has in MXFP4, which stay in it. Of quantised types, the token table and the head are Q8_0, which
// decide every token; rows that are no whole number of blocks are F32.
//
// The file appears whole or not at all; tensors are written a few rows at a time.
// Threads: one thread; the flag may be set from anywhere.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/gguf_tokenizer_writer.h"
#include "formats/model_config.h"

namespace jige::formats {

// Writes blocks of numbers. REQUIRES: count is a multiple of the block.
using GgufEncoder = std::function<void(const float* values, int64_t count, std::byte* blocks)>;

struct GgufExportOptions {
  std::string folder;
  std::string file;  // to be written
  std::optional<uint32_t>
      type;  // F32, F16, BF16, Q8_0 or Q4_0; none: as the folder has each tensor
  std::map<uint32_t, GgufEncoder> encoders;      // of the quantised types
  std::string name;                              // of the model; empty: none
  bool replace = false;                          // a file that is there already
  const std::atomic<bool>* cancelled = nullptr;  // looked at every few rows
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> on_progress = nullptr;
};

struct GgufExport {
  ModelConfig config;
  std::map<std::string, int64_t> types;  // tensors by type
  GgufTokenizerSummary tokenizer;
  uint64_t bytes = 0;
};

// Fails as load_model_config, TensorFolder::open, add_gguf_config and add_gguf_tokenizer do; with
// kCorrupt where a tensor is missing or has another shape than the configuration says;
// kUnsupported where a value does not fit f16; kInvalidArgument where the file is there already;
// kExhausted on a full disk; kCancelled.
Result<GgufExport> export_gguf(const GgufExportOptions& options);

}  // namespace jige::formats
