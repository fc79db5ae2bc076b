// Weights -> Hugging Face folders: a whole model, an adapter, or a base folder with an adapter
// merged into it.
//
// Of a model that reads images, what reads them goes along unchanged.
// Only weights and their configuration are written (config.json, or adapter_config.json); tokenizer
// files are the caller's to copy. Nothing good is replaced before the new weights are complete on
// disk (formats/tensor_folder.h).
// Threads: free functions.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "formats/lora_config.h"
#include "model/weights.h"

namespace jige::model {

struct SaveOptions {
  DType dtype = DType::kF32;  // f32, bf16 or f16
  uint64_t shard_bytes_max = 5'000'000'000;
  const std::atomic<bool>* cancelled = nullptr;  // looked at before every tensor
  // The model that the weights were begun from: where it reads images, what is written does, too,
  // as far as its folder has the language model's tensors in the form that they are written in
  // (beside_images.h). Of a merge it is the base.
  std::string image_folder = {};
};

// What is saved: a model's description and the f32 values of what is trained, in graph order, in
// memory that the streams of their nodes can read. Both must outlive it.
struct Masters {
  const Architecture& architecture;
  std::span<const NamedParam> params;

  static Masters of(const ModelWeights& weights) {
    return {.architecture = weights.architecture(), .params = weights.trainable()};
  }
};

// Writes the masters as a model folder. Fails with kInvalidArgument for a model with adapters (save
// the adapter, then merge) and one that holds no masters, kExhausted on a full disk, kIo,
// kCancelled.
Status save_model(const std::string& folder, const Masters& masters, const NodeStreams& streams,
                  const SaveOptions& options = {});

// Writes the adapters as a PEFT folder, f32. `base_model` names the base in its configuration;
// where that is a folder of a model with images, modules have the names of its class in
// transformers. Fails with kInvalidArgument for a model without adapters.
Status save_adapter(const std::string& folder, const Masters& masters, const NodeStreams& streams,
                    const std::string& base_model);

// Reads adapters of the same rank and targets back and packs them. Fails as load_weights does.
Status load_adapter(ModelWeights& weights, Stream& stream, const std::string& folder);

// Writes to `folder` the base with W + scale · B A in place of every adapted W. Fails where a part
// of the adapter fits no tensor of the base, and with kCancelled.
Status merge_adapter(const std::string& base_folder, const std::string& adapter_folder,
                     const std::string& folder, const SaveOptions& options = {});

}  // namespace jige::model
