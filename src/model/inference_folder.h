// A folder whose model is to run, before memory is counted or taken for it.
//
//   JIGE_TRY(const InferenceFolder opened, open_inference_folder(folder, options.embeds, kind));
//   JIGE_TRY(auto sizes, inference_sizes(options, *opened.architecture, opened.files));
//
// Threads: pure functions.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "formats/tensor_folder.h"
#include "model/architecture.h"
#include "tensor/device.h"

namespace jige::model {

struct InferenceFolder {
  std::unique_ptr<const Architecture> architecture;
  formats::TensorFolder files;  // hold every tensor of it

  const formats::ModelConfig& config() const { return architecture->config(); }
};

// The folder's model with its language model head or, for one that `embeds`, the norm alone. Fails
// as load_model_config, Architecture::create, TensorFolder::open and check_weights do.
Result<InferenceFolder> open_inference_folder(const std::string& folder, bool embeds,
                                              DeviceKind device);

}  // namespace jige::model
