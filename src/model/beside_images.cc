#include "model/beside_images.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "formats/image_model_names.h"
#include "formats/json_file.h"
#include "model/architecture.h"

namespace jige::model {
namespace {

bool is_plain(const formats::StoredTensor& tensor) {
  return tensor.dtype == DType::kF32 || tensor.dtype == DType::kBF16 || tensor.dtype == DType::kF16;
}

const char* torch_name(DType dtype) {
  return dtype == DType::kBF16 ? "bfloat16" : dtype == DType::kF16 ? "float16" : "float32";
}

// Whatever the version of transformers calls it; a new name where there is none.
void set_dtype(Json& config, DType stored) {
  const bool old_name = config.contains("torch_dtype");
  if (old_name) config["torch_dtype"] = torch_name(stored);
  if (!old_name || config.contains("dtype")) config["dtype"] = torch_name(stored);
}

}  // namespace

Result<std::optional<BesideImages>> BesideImages::open(const std::string& folder) {
  if (folder.empty()) return std::nullopt;
  std::error_code error;
  if (!std::filesystem::exists(folder + "/config.json", error)) {
    return fail(
        Code::kNotFound,
        "{}: the model that was begun from is not there any more, and what reads images is "
        "in it; put it back, or say with --from (of an export, --base) where it is now, and "
        "give the command again",
        folder);
  }
  JIGE_TRY(Json config, formats::load_json_object(folder + "/config.json"));
  JIGE_TRY(const bool with_images, formats::has_images(folder));
  if (!with_images) return std::nullopt;
  JIGE_TRY(formats::TensorFolder files, formats::TensorFolder::open(folder));
  bool any = false;
  for (const formats::StoredTensor* tensor : files.tensors()) {
    if (!formats::reads_images(tensor->name)) continue;
    if (!is_plain(*tensor) || !files.view(tensor->name)) return std::nullopt;
    any = true;
  }
  if (!any) return std::nullopt;
  return BesideImages(std::move(config), std::move(files));
}

std::string BesideImages::name_of(const std::string& tensor, const Shape& shape) const {
  for (const std::string& name : Architecture::names_in_files(tensor)) {
    if (!files_->find(name)) continue;
    const auto stored = files_->view(name);
    if (stored && stored->shape == shape) return name;
  }
  return "";
}

bool BesideImages::join(std::vector<formats::TensorSource>& sources) const {
  std::vector<std::string> names;
  for (const formats::TensorSource& source : sources) {
    names.push_back(name_of(source.name, source.shape));
    if (names.back().empty()) return false;
  }
  for (size_t i = 0; i < sources.size(); ++i) sources[i].name = std::move(names[i]);
  add_tensors(sources);
  return true;
}

void BesideImages::add_tensors(std::vector<formats::TensorSource>& sources) const {
  for (const formats::StoredTensor* tensor : files_->tensors()) {
    if (!formats::reads_images(tensor->name)) continue;
    const auto stored = files_->view(tensor->name);
    JIGE_CHECK(stored, "{} was there when the folder was opened", tensor->name);
    sources.push_back(
        {.name = tensor->name,
         .dtype = stored->dtype,
         .shape = stored->shape,
         .produce = [files = files_, name = tensor->name](const formats::RowSink& sink) -> Status {
           JIGE_TRY(const TensorView rows, files->view(name));
           return sink(rows);
         }});
  }
}

Json BesideImages::config(DType stored) const {
  Json config = config_;
  config.erase("quantization_config");
  set_dtype(config, stored);
  if (const auto text = config.find("text_config"); text != config.end() && text->is_object()) {
    text->erase("quantization_config");
    if (text->contains("dtype") || text->contains("torch_dtype")) set_dtype(*text, stored);
  }
  return config;
}

void BesideImages::warn_of_text_alone(const std::string& folder) {
  log_warn(
      "{}: reads images, but what is written of it is its language model alone: what reads images "
      "is not there or is held in few bits, or matrices of experts are stacked in another way",
      folder);
}

}  // namespace jige::model
