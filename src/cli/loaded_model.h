// A model folder ready to run: device, weights, tokenizer; and the flags that say how.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/result.h"
#include "cli/device_flags.h"
#include "cli/layer_flags.h"
#include "cli/layers_on_flags.h"
#include "cli/speculation_flags.h"
#include "model/inference.h"
#include "serve/draft_model.h"
#include "text/tokenizer.h"

namespace jige::cli {

struct LoadedModel {
  std::string folder;  // the model's own, see find_model_folder
  ComputeDevices devices;
  std::unique_ptr<model::InferenceModel> model;
  text::Tokenizer tokenizer;
  int32_t adapter = model::kNoAdapter;  // of the model's, that it is to run with
  std::unique_ptr<serve::DraftModel> draft_model = nullptr;  // where one was asked for

  // What a limit on memory leaves beside the model.
  int64_t memory_left(int64_t limit_bytes) const;
  // What running the model gave. An error of its data, such as weights that are not finite, is said
  // of the folder.
  template <typename T>
  Result<T> named(Result<T> result) const {
    if (result || result.error().code != Code::kCorrupt) return result;
    return with_context(std::move(result.error()), "{}", folder);
  }
};

// What a command does with the model it loads.
struct ModelUse {
  bool scores = false;                            // reads losses of texts
  int64_t images_bytes = 0;                       // of scores: what is to be left of a limit
  bool embeds = false;                            // reads rows behind the final norm, and no logits
  int32_t draft_tokens = 0;                       // verifies drafts of so many
  const SpeculationFlags* speculation = nullptr;  // names a draft model, perhaps
};

struct ModelFlags {
  ModelFlags() { device.may_be_several = true; }

  std::string folder;
  int64_t context = 0;
  std::string dtype = "auto";
  std::string quantize = "none";
  std::string kv_cache = "compute";
  std::string adapter;
  DeviceFlags device;
  LayerFlags layers;
  LayersOnFlags layers_on;

  // Declares the argument FOLDER; call it first.
  void declare_folder(Flags& flags);
  // Declares --adapter FOLDER, for commands that load().
  void declare_adapter(Flags& flags);
  // Declares the rest, in a section of their own.
  void declare(Flags& flags);
  // Says which layers stream, if any. Fails as find_model_folder, find_adapter_folder,
  // Tokenizer::load, serve::fit_layers, InferenceModel::load, LayerFlags::budget,
  // LayersOnFlags::load and SpeculationFlags::plan_draft_model do.
  Result<LoadedModel> load(const ModelUse& use) const;
};

}  // namespace jige::cli
