// Mistral 3 with a tower of Pixtral (model_type "mistral3" with "pixtral" inside), and Pixtral 12B
// ("llava" with "pixtral" inside), whose m is 1: an image that is larger than the longest edge
// shrinks to it, and its sides grow to the next multiples of a step. In a prompt the rows of tokens
// stand one behind the other, a token for a break behind each, and one for the end behind the last.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "formats/image_families.h"
#include "formats/json_file.h"
#include "formats/model_config_activation.h"
#include "text/tokenizer.h"

namespace jige::formats {
namespace {

constexpr const char* kMistral3 = "mistral3";
constexpr const char* kLlavaType = "llava";
constexpr const char* kPixtralTower = "pixtral";
constexpr double kPixtralNormEps = 1e-5;
constexpr int64_t kPlaceholder = 10;  // where config.json says none
constexpr int64_t kLlavaPlaceholder = 32000;
constexpr int64_t kLongestEdge = 1024;

// What transformers takes of a tower that config.json leaves out, or of fields that it does.
Json usual_tower() { return {{"patch_size", 14}, {"image_size", 1540}}; }

bool has_pixtral(const Json& config) {
  const bool llava = is_of_type(config, kLlavaType);
  if (!llava && !is_of_type(config, kMistral3)) return false;
  const Json* vision = find_field(config, "vision_config");
  return vision ? is_of_type(*vision, kPixtralTower) : !llava;
}

Result<ActivationKind> tower_activation(const Json& vision, std::string_view where) {
  Json field = {{"hidden_act", "gelu"}};
  if (const Json* name = find_field(vision, "hidden_act")) field["hidden_act"] = *name;
  JIGE_TRY(const ActivationKind plain, parse_plain_activation(field, "hidden_act", {}, where));
  if (plain == ActivationKind::kGeluErf) return ActivationKind::kGeGluErf;
  if (plain == ActivationKind::kGeluTanh) return ActivationKind::kGeGlu;
  if (plain == ActivationKind::kSilu) return ActivationKind::kSwiGlu;
  return refused_value(where, "hidden_act", dump_json(field["hidden_act"]), "gelu and silu");
}

Status parse_tower(const Json& vision, ImageConfig& out, std::string_view where) {
  ModelConfig& tower = out.tower;
  JIGE_DO(parse_tower_sizes(vision, {.width = 1024, .layers = 24, .heads = 16, .ffn = 4096}, tower,
                            where));
  JIGE_TRY(tower.activation, tower_activation(vision, where));
  JIGE_TRY(tower.rope.theta, get_tower_theta(vision, where));
  tower.norm_eps = kPixtralNormEps;
  tower.looks_ahead = true;
  JIGE_TRY(out.patch_size, get_square(vision, "patch_size", 16, kImagePatchSizeMax, where));
  return {};
}

Status parse_features(const Json& config, ImageConfig& out, std::string_view where) {
  constexpr const char* kStrategy = "vision_feature_select_strategy";
  const bool llava = is_of_type(config, kLlavaType);
  JIGE_TRY(const std::string strategy,
           get_string_or(config, kStrategy, llava ? "default" : "full", where));
  if (llava && strategy != "full") return refused_value(where, kStrategy, strategy, "full");
  return parse_feature_layer(config, llava ? -2 : -1, out, where);
}

Status parse_projector(const Json& config, ImageConfig& out, std::string_view where) {
  out.merges = is_of_type(config, kMistral3);
  if (out.merges) {
    JIGE_TRY(out.merge, get_within(config, "spatial_merge_size", 2, {1, kImageMergeMax}, where));
  }
  JIGE_TRY(out.projector_bias,
           get_bool_or(config, "multimodal_projector_bias", !out.merges, where));
  JIGE_DO(parse_projector_activation(config, out, where));
  return check_merged_width(out, where);
}

// What the processor takes for sizes of the model must be these.
Status check_pixtral_sizes(const Json& processor, const ImageConfig& out, std::string_view where) {
  JIGE_TRY(const int64_t patch,
           get_square(processor, "patch_size", out.patch_size, kImagePatchSizeMax, where));
  JIGE_TRY(const int64_t merge,
           get_within(processor, "spatial_merge_size", out.merge, {1, kImageMergeMax}, where));
  if (patch == out.patch_size && merge == out.merge) return {};
  return fail(Code::kCorrupt,
              "{}: patch_size {} and spatial_merge_size {} are not those of config.json, {} and {}",
              where, patch, merge, out.patch_size, out.merge);
}

Status parse_pixtral_processor(const Json& processor, ImageConfig& out, std::string_view where) {
  JIGE_DO(check_pixtral_sizes(processor, out, where));
  JIGE_TRY(out.image_token, get_string_or(processor, "image_token", out.image_token, where));
  JIGE_TRY(out.break_token, get_string_or(processor, "image_break_token", out.break_token, where));
  JIGE_TRY(out.end_token, get_string_or(processor, "image_end_token", out.end_token, where));
  return {};
}

Status parse_parts(const Json& config, const Json& vision, ImageConfig& out,
                   const std::string& where) {
  JIGE_TRY(const ModelConfig language, parse_model_config(config, where));
  JIGE_DO(parse_tower(vision, out, where));
  JIGE_DO(parse_features(config, out, where));
  JIGE_DO(parse_projector(config, out, where));
  out.tower.quantised = language.quantised;
  out.text_width = language.hidden_size;
  out.projector_norm_eps = language.norm_eps;
  const char* kIndex =
      find_field(config, "image_token_index") ? "image_token_index" : "image_token_id";
  JIGE_TRY(const int64_t id,
           get_within(config, kIndex, out.merges ? kPlaceholder : kLlavaPlaceholder,
                      {0, language.vocab_size - 1}, where));
  out.placeholder_id = static_cast<int32_t>(id);
  return {};
}

Status parse_pixtral(const ImageFiles& files, ImageConfig& out) {
  const Json* found = find_field(files.config, "vision_config");
  const Json vision = found ? *found : usual_tower();
  JIGE_DO(parse_parts(files.config, vision, out, files.config_path));
  JIGE_DO(parse_pixtral_processor(files.processor, out, files.processor_path));
  const bool plain = files.pixels.is_null();
  JIGE_TRY(const ImageSides sides,
           plain ? get_sides(vision, "image_size", kLongestEdge, kImageSideMax, files.config_path)
                 : get_sides(files.pixels, "size", kLongestEdge, kImageSideMax, files.pixels_path));
  out.width_max = sides.width;
  out.height_max = sides.height;
  JIGE_DO(parse_pixels(files.pixels, kClipPixels, out, files.pixels_path));
  return check_patches(out, files.pixels_path);
}

Status find_pixtral_tokens(ImageConfig& config, const text::Tokenizer& tokenizer) {
  JIGE_TRY(config.break_id, find_image_token(tokenizer, config.break_token));
  JIGE_TRY(config.end_id, find_image_token(tokenizer, config.end_token));
  return {};
}

ImageLayout pixtral_layout(const ImageConfig& config, int32_t width, int32_t height) {
  const double ratio = std::max(double(height) / static_cast<double>(config.height_max),
                                double(width) / static_cast<double>(config.width_max));
  const auto tokens = [&](int32_t side) {
    const double shrunk = ratio > 1 ? std::floor(side / ratio) : side;
    const int64_t pixels = std::max<int64_t>(1, static_cast<int64_t>(shrunk));
    return static_cast<int32_t>((pixels + config.step() - 1) / config.step());
  };
  const int32_t rows = tokens(height);
  const int32_t columns = tokens(width);
  const auto step = static_cast<int32_t>(config.step());
  return {
      .width = columns * step, .height = rows * step, .token_rows = rows, .token_columns = columns};
}

std::vector<int32_t> pixtral_tokens(const ImageConfig& config, const ImageLayout& layout) {
  JIGE_CHECK(config.break_id >= 0 && config.end_id >= 0, "tokens of images that nobody found");
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(layout.row_count() + layout.token_rows));
  for (int32_t row = 0; row < layout.token_rows; ++row) {
    ids.insert(ids.end(), static_cast<size_t>(layout.token_columns), kImageRow);
    ids.push_back(row + 1 < layout.token_rows ? config.break_id : config.end_id);
  }
  return ids;
}

}  // namespace

const ImageFamilyRules kPixtralImages = {.family = ImageFamily::kPixtral,
                                         .has = has_pixtral,
                                         .parse = parse_pixtral,
                                         .find_tokens = find_pixtral_tokens,
                                         .layout = pixtral_layout,
                                         .tokens = pixtral_tokens};

}  // namespace jige::formats
