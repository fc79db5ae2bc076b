// The model that `jige bench serve`, `jige profile serve` and `jige simulate serve` measure in this
// process: a folder, or a Llama of a size with random weights and a tokenizer made up for it.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/device_flags.h"
#include "cli/layer_flags.h"
#include "model/inference.h"
#include "serve/draft_model.h"
#include "text/tokenizer.h"

namespace jige::cli {

struct BenchServeModel {
  ComputeDevices devices;
  std::unique_ptr<model::InferenceModel> model;
  std::optional<text::Tokenizer> tokenizer;
  std::unique_ptr<serve::DraftModel> draft_model;  // where one is given
  std::string text;                                // "15m, 15.2 M parameters, f32"
};

struct BenchServeModelFlags {
  std::string folder, random;
  std::string dtype = "auto";
  std::string quantize = "none";
  std::string kv_cache = "compute";
  DeviceFlags device;
  LayerFlags layers;

  // --model, --random, --dtype, --quantize, --kv-cache, --device-memory, --resident-layers;
  // device.declare() is the caller's.
  void declare(Flags& flags);
  // All of these but --model.
  void declare_form(Flags& flags);
  bool given() const { return !folder.empty() || !random.empty(); }
  // Contexts of `tokens_max`, or what the model of a folder has where that is less. Fails as
  // loading does, and with kInvalidArgument where both or neither are given.
  Result<BenchServeModel> load(int64_t tokens_max, int64_t kv_blocks, int64_t batch_tokens,
                               int64_t batch_requests) const;

 private:
  // On one device, or divided among GPUs, with one batch under way.
  Result<std::unique_ptr<model::InferenceModel>> load_model(
      const std::string& path, ComputeDevices& devices,
      const model::InferenceOptions& wanted) const;
};

// A tokenizer of `vocab_size` tokens spelled by their numbers; it decodes and cannot encode.
Result<text::Tokenizer> numbered_tokenizer(int64_t vocab_size);

}  // namespace jige::cli
