// A GGUF file as a Hugging Face folder: config.json, safetensors, tokenizer.json,
// tokenizer_config.json, generation_config.json.
//
// The folder appears whole or not at all (staged_folder.h); tensors are decoded as they are
// written, a few rows at a time.
// Threads: one thread; the flag may be set from anywhere.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/model_config.h"
#include "tensor/dtype.h"

namespace jige::formats {

struct GgufImportOptions {
  std::string file;
  std::string folder;          // to be written
  std::optional<DType> dtype;  // f32, bf16 or f16; as of GgufWeightOptions
  std::string pre;             // as of GgufTokenizerOptions
  bool replace = false;        // a folder of model files that is there already
  uint64_t shard_bytes_max = 5'000'000'000;
  const std::atomic<bool>* cancelled = nullptr;  // looked at every few rows
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> on_progress = nullptr;
};

struct GgufImport {
  ModelConfig config;
  std::map<std::string, int64_t> stored_types;  // tensors of the file by type
  std::string tokenizer;                        // its kind
  int64_t token_count = 0;
  bool chat_template = false;
};

// Fails as GgufFile::open, read_gguf_config, gguf_sources and read_gguf_tokenizer do; with
// kUnsupported where the file is no model, kInvalidArgument where the folder is there already;
// kExhausted on a full disk; kCancelled.
Result<GgufImport> import_gguf(const GgufImportOptions& options);

}  // namespace jige::formats
