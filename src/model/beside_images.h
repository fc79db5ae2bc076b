// BesideImages: a folder with images whose language model was trained, for the folder that is
// written of it: names of tensors, the tensors that read images, and config.json, so that what is
// written is a model of the same class, which reads images as before.
//
// Threads: const; sources map the folder's files.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "formats/safetensors_writer.h"
#include "formats/tensor_folder.h"
#include "tensor/dtype.h"

namespace jige::model {

class BesideImages {
 public:
  // Nothing where the folder's model reads text alone, what reads images is not there or is held in
  // few bits, or no folder is named. Fails with kNotFound where the folder is not there any more,
  // and as has_images and TensorFolder::open.
  static Result<std::optional<BesideImages>> open(const std::string& folder);

  // Gives sources of the language model the names that the folder has for them, and adds the
  // tensors that read images, as they are stored. False, and nothing is changed, where it has one
  // of them in another form.
  bool join(std::vector<formats::TensorSource>& sources) const;
  // Adds the tensors that read images.
  void add_tensors(std::vector<formats::TensorSource>& sources) const;
  // Of the folder that is written, with weights of this type.
  Json config(DType stored) const;
  // Tells the user that what is written of this folder is its language model alone.
  static void warn_of_text_alone(const std::string& folder);

 private:
  BesideImages(Json config, formats::TensorFolder files)
      : config_(std::move(config)),
        files_(std::make_shared<const formats::TensorFolder>(std::move(files))) {}
  // The name of a tensor there, if it has one of this shape; empty: it has none.
  std::string name_of(const std::string& tensor, const Shape& shape) const;

  Json config_;
  std::shared_ptr<const formats::TensorFolder> files_;
};

}  // namespace jige::model
