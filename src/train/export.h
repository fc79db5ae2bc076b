// The result of a run as Hugging Face folders.
//
//   OUT/model     config.json, weights, tokenizer files, generation_config.json; of a model that
//                 reads images what reads them, and its processor's files
//   OUT/adapter   LoRA: adapter_config.json and adapter_model.safetensors (PEFT)
// A folder appears whole or not at all, and replaces an older one in one step.
// Threads: one thread at a time.
#pragma once

#include <atomic>
#include <string>

#include "base/result.h"
#include "model/weights_save.h"
#include "text/tokenizer.h"

namespace jige::train {

struct ExportOptions {
  std::string folder;            // to be written
  std::string tokenizer_folder;  // its files are copied
  std::string image_folder;      // what the run was begun from, see SaveOptions; may be empty
  DType dtype = DType::kF32;
  const std::atomic<bool>* cancelled = nullptr;  // as of model::SaveOptions
};

// Writes trained masters as a model folder. Fails with kExhausted on a full disk.
Status export_model(const model::Masters& masters, const text::SpecialTokens& special,
                    const model::NodeStreams& streams, const ExportOptions& options);

// Writes the adapters; `base_folder` is named in their configuration.
Status export_adapter(const model::Masters& masters, const model::NodeStreams& streams,
                      const std::string& base_folder, const std::string& folder);

// Writes base and adapter as one model folder.
Status export_merged(const std::string& base_folder, const std::string& adapter_folder,
                     const text::SpecialTokens& special, const ExportOptions& options);

}  // namespace jige::train
