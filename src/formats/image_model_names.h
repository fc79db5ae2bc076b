// Names of tensors in folders of models that read images: their language model's parameters stand
// there under other names than in a folder of its own, beside tensors that read images.
//
// Threads: free functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/model_config.h"

namespace jige::formats {

// "model.visual.merger.norm.weight", "vision_tower. …"
bool reads_images(std::string_view tensor);

// Names of a language model's tensor in a folder with images, as versions of transformers write it:
// of "model.norm.weight" "language_model.model.norm.weight", "model.language_model.norm.weight" and
// "model.text_model.norm.weight".
std::vector<std::string> names_beside_images(std::string_view tensor);

// The other way; a name that is none of these stays as it is.
std::string name_without_images(std::string_view tensor);

// Whether a folder holds a model with images, as its config.json says; one that is not there does
// not. Fails as load_json_object does.
Result<bool> has_images(const std::string& folder);

// What a module's name begins with, in place of "model.", in the class of transformers that a
// folder's model with images is of: "model.language_model."; empty where it reads text alone. Fails
// as has_images.
Result<std::string> beginning_beside_images(const std::string& folder);

}  // namespace jige::formats
