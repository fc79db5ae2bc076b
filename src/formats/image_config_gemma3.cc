// Gemma 3 (model_type "gemma3", with a tower of SigLIP inside): every image is resized to the
// square that the tower has learned positions for, whatever its own sides are. The rows of the
// language model are means of squares of patches; mm_tokens_per_image of them see one another. In a
// prompt the processor puts "\n\n" around the tokens that open and close an image, as text, before
// it becomes tokens.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"
#include "formats/image_families.h"
#include "formats/json_file.h"
#include "text/tokenizer.h"

namespace jige::formats {
namespace {

constexpr const char* kSiglipTower = "siglip_vision_model";
constexpr const char* kTokensField = "mm_tokens_per_image";
constexpr int64_t kSoftTokenId = 262144;
constexpr int64_t kOpeningId = 255999;
constexpr int64_t kClosingId = 256000;
constexpr UsualPixels kGemma3Pixels = {
    ImageResampling::kBilinear, {0.5f, 0.5f, 0.5f}, {0.5f, 0.5f, 0.5f}};

bool has_gemma3(const Json& config) {
  if (!is_of_type(config, "gemma3")) return false;
  const Json* vision = find_field(config, "vision_config");
  return vision && is_of_type(*vision, kSiglipTower);
}

Status parse_siglip(const Json& vision, ImageConfig& out, std::string_view where) {
  JIGE_DO(parse_siglip_tower(
      vision, {.width = 768, .layers = 12, .heads = 12, .ffn = 3072, .patch = 16}, out, where));
  JIGE_TRY(out.width_max, get_square(vision, "image_size", 224, kImageSideMax, where));
  out.height_max = out.width_max;
  return {};
}

// Squares of patches become rows.
Status parse_pooling(const Json& config, ImageConfig& out, std::string_view where) {
  const int64_t patches = out.width_max / out.patch_size;  // of a side
  JIGE_TRY(const int64_t rows, get_within(config, kTokensField, 256, {1, kImagePatchesMax}, where));
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(rows)));
  if (patches * out.patch_size != out.width_max || side * side != rows || patches % side != 0 ||
      patches / side > kImageMergeMax) {
    return fail(
        Code::kCorrupt,
        "{}: images of {} pixels a side with patches of {} do not become {} rows ({}): these "
        "must be a square number of equal squares of at most {} x {} patches",
        where, out.width_max, out.patch_size, rows, kTokensField, kImageMergeMax, kImageMergeMax);
  }
  out.merge = patches / side;
  out.positions_side = patches;
  out.projector_norm_eps = out.tower.norm_eps;
  return {};
}

Status check_size(const ImageConfig& out, const Json& pixels, std::string_view where) {
  JIGE_TRY(const ImageSides sides, get_sides(pixels, "size", out.width_max, kImageSideMax, where));
  if (sides.width == out.width_max && sides.height == out.height_max) return {};
  return fail(Code::kCorrupt,
              "{}: images are resized to {} x {} pixels, but the tower's positions in config.json "
              "(image_size) are those of {} x {}",
              where, sides.width, sides.height, out.width_max, out.height_max);
}

Status check_crops(const Json& pixels, std::string_view where) {
  JIGE_TRY(const bool crops, get_bool_or(pixels, "do_pan_and_scan", false, where));
  if (crops) return refused_value(where, "do_pan_and_scan", "true", "false");
  return {};
}

Status parse_gemma3(const ImageFiles& files, ImageConfig& out) {
  const std::string& where = files.config_path;
  JIGE_TRY(const ModelConfig language, parse_model_config(files.config, where));
  JIGE_DO(parse_siglip(*find_field(files.config, "vision_config"), out, where));
  JIGE_DO(parse_pooling(files.config, out, where));
  out.mutual_rows = true;
  out.tower.quantised = language.quantised;
  out.text_width = language.hidden_size;
  const auto id_of = [&](const char* field, int64_t usual) -> Result<int32_t> {
    JIGE_TRY(const int64_t id,
             get_within(files.config, field, usual, {0, language.vocab_size - 1}, where));
    return static_cast<int32_t>(id);
  };
  const char* const index =
      find_field(files.config, "image_token_id") ? "image_token_id" : "image_token_index";
  JIGE_TRY(out.placeholder_id, id_of(index, kSoftTokenId));
  JIGE_TRY(out.open_id, id_of("boi_token_index", kOpeningId));
  JIGE_TRY(out.end_id, id_of("eoi_token_index", kClosingId));
  out.image_token = "<image_soft_token>";
  out.open_token = "<start_of_image>";
  out.end_token = "<end_of_image>";
  JIGE_DO(check_size(out, files.pixels, files.pixels_path));
  JIGE_DO(check_crops(files.pixels, files.pixels_path));
  JIGE_DO(parse_pixels(files.pixels, kGemma3Pixels, out, files.pixels_path));
  return check_patches(out, where);
}

Status find_gemma3_tokens(ImageConfig& config, const text::Tokenizer& tokenizer) {
  JIGE_TRY(config.open_token, image_token_of(tokenizer, config.open_id, "boi_token_index"));
  JIGE_TRY(config.end_token, image_token_of(tokenizer, config.end_id, "eoi_token_index"));
  config.written = {
      .token = config.open_token,
      .text = "\n\n" + config.open_token + config.image_token + config.end_token + "\n\n"};
  return {};
}

ImageLayout gemma3_layout(const ImageConfig& config, int32_t, int32_t) {
  const auto rows = static_cast<int32_t>(config.width_max / config.step());
  return {.width = static_cast<int32_t>(config.width_max),
          .height = static_cast<int32_t>(config.height_max),
          .token_rows = rows,
          .token_columns = rows};
}

std::vector<int32_t> gemma3_tokens(const ImageConfig&, const ImageLayout& layout) {
  return std::vector<int32_t>(static_cast<size_t>(layout.row_count()), kImageRow);
}

}  // namespace

const ImageFamilyRules kGemma3Images = {.family = ImageFamily::kGemma3,
                                        .has = has_gemma3,
                                        .parse = parse_gemma3,
                                        .find_tokens = find_gemma3_tokens,
                                        .layout = gemma3_layout,
                                        .tokens = gemma3_tokens};

}  // namespace jige::formats
