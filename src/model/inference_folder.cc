#include "model/inference_folder.h"

#include <utility>

#include "formats/model_config.h"
#include "model/weights.h"

namespace jige::model {

Result<InferenceFolder> open_inference_folder(const std::string& folder, bool embeds,
                                              DeviceKind device) {
  JIGE_TRY(const formats::ModelConfig config, formats::load_model_config(folder));
  const HeadKind head = embeds ? HeadKind::kNormAlone : HeadKind::kLanguageModel;
  JIGE_TRY(auto architecture, Architecture::create(config, {}, head, device));
  JIGE_TRY(auto files, formats::TensorFolder::open(folder));
  JIGE_DO(check_weights(*architecture, files));
  return InferenceFolder{.architecture = std::move(architecture), .files = std::move(files)};
}

}  // namespace jige::model
