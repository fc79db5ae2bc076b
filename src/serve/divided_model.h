// A model whose layers are divided among this machine and holders on others, or among GPUs: what
// each gets, and loading it.
//
// This machine, or its first GPU, holds the first layers, the embedding and the head; every holder
// those behind them, in the order in which they were named (plan/layer_split.h says how many). All
// caches have the same blocks, so the cache is as large as the fullest machine allows. Threads: one
// thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/inference.h"
#include "serve/draft_model_plan.h"
#include "serve/lasting_layers.h"
#include "tensor/device.h"

namespace jige::serve {

struct DividedOptions {
  int64_t memory_bytes = 0;  // of this machine, for its part
  // Where the options name no cache blocks: so many contexts, or half as many, and so on, until
  // the model fits; one at least.
  int64_t contexts_wanted = 1;
  std::optional<int64_t> layers_here;  // none: as split_layers() finds best
  // That may be under way at once; 0: one for each machine with layers, but of a model with states
  // one alone, since no beginnings of prompts are kept with several (plan/serve_scheduler.h).
  int64_t forwards_max = 1;
  double restore_s = 0;  // how long lost layers are asked for (lasting_layers.h)
  const DraftModelPlan* draft_model = nullptr;  // that is to have room beside this machine's part
};

struct LayerShare {
  std::string name;  // "here", or the holder's
  int64_t begin = 0, end = 0;
  int64_t bytes = 0;  // of its arena
};

struct DividedModel {
  std::unique_ptr<model::InferenceModel> model;
  LastingLayers* beyond = nullptr;  // the model's; null where all layers are here
  std::vector<LayerShare> shares;   // this machine's first
};

// `device` is what the group's options say of it: a GPU or a processor. Fails as
// InferenceModel::load, split_layers and the group's calls do; with kUnsupported on models whose
// layers share keys, and on adapters; with kInvalidArgument on more layers here than there are.
Result<DividedModel> load_divided(const std::string& folder, Device& device,
                                  model::InferenceOptions options,
                                  std::unique_ptr<LayerGroup> group, const DividedOptions& divided);

// "layers 0 to 11 here (1.2 GiB), 12 to 23 on node-b:29610 (1.1 GiB)".
std::string shares_text(const std::vector<LayerShare>& shares);

}  // namespace jige::serve
