#include "formats/image_model_names.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "formats/json_file.h"
#include "formats/model_config_text_part.h"

namespace jige::formats {
namespace {

constexpr std::string_view kReadsImages[] = {
    "vision_tower.", "multi_modal_projector.", "visual.",    "embed_vision.", "audio_tower.",
    "embed_audio.",  "vision_model.",          "connector.", "image_newline", "vision_embedder."};
constexpr std::string_view kWhole = "model.";

// Beginnings of names of the language model alone, and what stands there beside images.
constexpr std::pair<std::string_view, std::string_view> kBeginnings[] = {
    {"model.", "language_model.model."},
    {"model.", "model.language_model."},
    {"model.", "model.text_model."},
    {"lm_head.", "language_model.lm_head."}};

}  // namespace

bool reads_images(std::string_view tensor) {
  if (tensor.starts_with(kWhole)) tensor.remove_prefix(kWhole.size());
  return std::any_of(std::begin(kReadsImages), std::end(kReadsImages),
                     [&](std::string_view part) { return tensor.starts_with(part); });
}

std::vector<std::string> names_beside_images(std::string_view tensor) {
  std::vector<std::string> names;
  for (const auto& [alone, beside] : kBeginnings) {
    if (!tensor.starts_with(alone)) continue;
    names.push_back(std::string(beside).append(tensor.substr(alone.size())));
  }
  return names;
}

std::string name_without_images(std::string_view tensor) {
  for (const auto& [alone, beside] : kBeginnings) {
    if (!tensor.starts_with(beside)) continue;
    return std::string(alone).append(tensor.substr(beside.size()));
  }
  return std::string(tensor);
}

Result<bool> has_images(const std::string& folder) {
  const std::string path = folder + "/config.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return false;
  JIGE_TRY(const Json config, load_json_object(path));
  return is_image_model(config);
}

Result<std::string> beginning_beside_images(const std::string& folder) {
  JIGE_TRY(const bool with_images, has_images(folder));
  if (!with_images) return std::string();
  JIGE_TRY(const Json config, load_json_object(folder + "/config.json"));
  JIGE_TRY(const std::string type, get_string(config, "model_type", folder));
  if (type == "llama4") return std::string("language_model.model.");
  const bool of_text = type == "idefics3" || type == "smolvlm";
  return std::string(of_text ? "model.text_model." : "model.language_model.");
}

}  // namespace jige::formats
