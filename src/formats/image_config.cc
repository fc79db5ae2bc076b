#include "formats/image_config.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/check.h"
#include "base/file_content.h"
#include "formats/image_families.h"
#include "formats/json_file.h"
#include "text/tokenizer.h"

namespace jige::formats {
namespace {

constexpr const ImageFamilyRules* kImageFamilies[] = {
    &kPixtralImages, &kGemma3Images,   &kGemma4Images,   &kQwen2Images, &kQwen25Images,
    &kQwen3Images,   &kIdefics3Images, &kInternVlImages, &kLlavaImages};

const ImageFamilyRules* find_rules(const Json& config) {
  const auto* const found = std::ranges::find_if(
      kImageFamilies, [&](const ImageFamilyRules* rules) { return rules->has(config); });
  return found == std::end(kImageFamilies) ? nullptr : *found;
}

const ImageFamilyRules& rules_of(const ImageConfig& config) {
  const auto* const found = std::ranges::find(kImageFamilies, config.family,
                                              [](const auto* rules) { return rules->family; });
  JIGE_CHECK(found != std::end(kImageFamilies), "a family of images without rules");
  return **found;
}

// A file that need not be there: null then.
Result<Json> load_beside(const std::string& folder, const char* name) {
  Result<Json> json = load_json_object(folder + "/" + name);
  if (!json && json.error().code == Code::kNotFound) return Json();
  return json;
}

}  // namespace

int64_t patches_of_sides(const ImageConfig& config) {
  const int64_t step = config.step();
  const auto patches = [&](int64_t side) { return (side + step - 1) / step * config.merge; };
  return patches(config.width_max) * patches(config.height_max);
}

int64_t ImageConfig::patches_max() const { return rules_of(*this).patches_max(*this); }

int64_t ImageConfig::tiles_max() const { return rules_of(*this).tiles_max(*this); }

int64_t merged_rows(const ImageConfig& config) {
  return config.patches_max() / (config.merge * config.merge);
}

int64_t ImageConfig::rows_max() const { return rules_of(*this).rows_max(*this); }

Result<std::optional<ImageConfig>> parse_image_config(const Json& config, const Json& processor,
                                                      const Json& preprocessor,
                                                      const std::string& folder) {
  const ImageFamilyRules* const rules = find_rules(config);
  if (!rules) return std::nullopt;
  const std::string processor_path = folder + "/processor_config.json";
  const Json* inner = find_field(processor, "image_processor");
  if (inner && !inner->is_object()) {
    return fail(Code::kCorrupt, "{}: field \"image_processor\" must be an object", processor_path);
  }
  ImageConfig out{.family = rules->family, .tower = {}};
  JIGE_DO(
      rules->parse({.config = config,
                    .processor = processor,
                    .pixels = inner ? *inner : preprocessor,
                    .config_path = folder + "/config.json",
                    .processor_path = processor_path,
                    .pixels_path = inner ? processor_path : folder + "/preprocessor_config.json"},
                   out));
  return out;
}

Result<std::optional<ImageConfig>> load_image_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  JIGE_TRY(const Json config, load_json_object(path));
  if (!find_rules(config)) return std::nullopt;
  JIGE_TRY(const Json processor, load_beside(folder, "processor_config.json"));
  JIGE_TRY(const Json preprocessor, load_beside(folder, "preprocessor_config.json"));
  return as_file_content(parse_image_config(config, processor, preprocessor, folder));
}

Result<int32_t> find_image_token(const text::Tokenizer& tokenizer, const std::string& name) {
  const std::optional<int32_t> id = tokenizer.token_to_id(name);
  if (id) return *id;
  return fail(Code::kCorrupt,
              "the tokenizer has no token \"{}\", which stands in prompts with images; take the "
              "tokenizer of the model that reads them",
              name.substr(0, 80));
}

Result<std::string> image_token_of(const text::Tokenizer& tokenizer, int32_t id,
                                   const char* field) {
  std::optional<std::string> found = tokenizer.id_to_token(id);
  if (found) return std::move(*found);
  return fail(Code::kCorrupt,
              "the tokenizer has no token of the id {}, which is {} in config.json; one of the two "
              "is of another model",
              id, field);
}

Status find_image_tokens(ImageConfig& config, const text::Tokenizer& tokenizer) {
  JIGE_TRY(const int32_t image, find_image_token(tokenizer, config.image_token));
  if (image != config.placeholder_id) {
    return fail(Code::kCorrupt,
                "the tokenizer has the id {} for \"{}\", but image_token_index in config.json is "
                "{}; one of the two is of another model",
                image, config.image_token.substr(0, 80), config.placeholder_id);
  }
  return rules_of(config).find_tokens(config, tokenizer);
}

ImageLayout image_layout(const ImageConfig& config, int32_t width, int32_t height) {
  JIGE_CHECK(width > 0 && height > 0, "an image of {} x {} pixels", width, height);
  return rules_of(config).layout(config, width, height);
}

std::vector<int32_t> image_tokens(const ImageConfig& config, const ImageLayout& layout) {
  return rules_of(config).tokens(config, layout);
}

}  // namespace jige::formats
