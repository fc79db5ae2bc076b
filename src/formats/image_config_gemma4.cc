// Gemma 4 (model_type "gemma4", with a tower of its own inside, and "gemma4_unified", without one):
// an image gets the largest sides of its shape that are multiples of a step and make no more rows
// than "max_soft_tokens"; small ones grow, too. The rows of the language model are means of squares
// of patches; without a tower a square is one patch, which is embedded by itself. In the larger
// models they see one another in layers with a window ("use_bidirectional_attention"). In a prompt
// they stand between two tokens, in place of one that the chat template writes.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"
#include "formats/image_families.h"
#include "formats/json_file.h"
#include "text/tokenizer.h"

namespace jige::formats {
namespace {

constexpr const char* kGemma4Type = "gemma4";
constexpr const char* kGemma4Tower = "gemma4_vision";
constexpr const char* kUnifiedType = "gemma4_unified";
constexpr const char* kUnifiedEmbedder = "gemma4_unified_vision";
constexpr const char* kUnifiedTableSize = "mm_posemb_size";
constexpr const char* kPatchSize = "patch_size";
constexpr const char* kSoftTokens = "max_soft_tokens";
constexpr const char* kPooling = "pooling_kernel_size";
constexpr const char* kTableSize = "position_embedding_size";
constexpr const char* kSees = "use_bidirectional_attention";
constexpr const char* kGelu = "gelu_pytorch_tanh";
constexpr int64_t kGemma4Image = 258880;
constexpr int64_t kGemma4Opening = 255999;
constexpr int64_t kGemma4Closing = 258882;
constexpr int64_t kPositionsUsual = 10240;
constexpr int64_t kUnifiedPositionsUsual = 1120;
constexpr int64_t kUnifiedWidthUsual = 3840;
constexpr double kLayerNormEps = 1e-5;
constexpr int64_t kTablePositionsMax = int64_t{1} << 20;
constexpr int64_t kResizedSideMax = 65535;
constexpr double kTowerTheta = 100.0;
constexpr UsualPixels kGemma4Pixels = {ImageResampling::kBicubic, {0, 0, 0}, {1, 1, 1}};

bool is_unified(const Json& config) { return is_of_type(config, kUnifiedType); }

bool has_gemma4(const Json& config) {
  const Json* vision = find_field(config, "vision_config");
  if (!vision) return false;
  return is_unified(config) ? is_of_type(*vision, kUnifiedEmbedder)
                            : is_of_type(config, kGemma4Type) && is_of_type(*vision, kGemma4Tower);
}

Result<double> get_rms_eps(const Json& vision, std::string_view where) {
  JIGE_TRY(const double eps, get_number_or(vision, "rms_norm_eps", 1e-6, where));
  if (eps > 0 && eps < 1) return eps;
  return fail(Code::kCorrupt, "{}: field \"rms_norm_eps\" is {}; it must lie in (0, 1)", where,
              eps);
}

Status parse_gemma4_tower(const Json& vision, ImageConfig& out, std::string_view where) {
  ModelConfig& tower = out.tower;
  JIGE_DO(parse_tower_sizes(vision, {.width = 768, .layers = 16, .heads = 12, .ffn = 3072}, tower,
                            where));
  JIGE_TRY(const int64_t kv_heads,
           get_int_or(vision, "num_key_value_heads", tower.head_count, where));
  if (kv_heads != tower.head_count) {
    return refused_value(where, "num_key_value_heads", std::to_string(kv_heads),
                         "as many as num_attention_heads");
  }
  JIGE_TRY(const std::string activation, get_string_or(vision, "hidden_activation", kGelu, where));
  if (activation != kGelu) return refused_value(where, "hidden_activation", activation, kGelu);
  Json turning = vision;
  if (!find_field(vision, "rope_theta")) turning["rope_theta"] = kTowerTheta;
  JIGE_TRY(tower.rope.theta, get_tower_theta(turning, where));
  JIGE_TRY(tower.norm_eps, get_rms_eps(vision, where));
  tower.norm_place = NormPlace::kAround;
  tower.activation = ActivationKind::kGeGlu;
  tower.qk_norm = tower.value_norm = true;
  tower.score_scale = 1;
  tower.looks_ahead = true;
  out.halves_apart = true;
  JIGE_TRY(out.bounded_products, get_bool_or(vision, "use_clipped_linears", false, where));
  JIGE_TRY(out.standardises, get_bool_or(vision, "standardize", false, where));
  JIGE_TRY(out.patch_size, get_square(vision, kPatchSize, 16, kImagePatchSizeMax, where));
  JIGE_TRY(out.merge, get_within(vision, kPooling, 3, {1, kImageMergeMax}, where));
  JIGE_TRY(out.positions_side,
           get_within(vision, kTableSize, kPositionsUsual, {1, kTablePositionsMax}, where));
  out.projector_norm_eps = tower.norm_eps;
  return {};
}

// Patches as large as a step, whose tower has no layers.
Status parse_unified(const Json& vision, ImageConfig& out, std::string_view where) {
  ModelConfig& tower = out.tower;
  JIGE_TRY(tower.hidden_size,
           get_within(vision, "mm_embed_dim", kUnifiedWidthUsual, {1, kHiddenMax}, where));
  JIGE_TRY(const int64_t given, get_int_or(vision, "output_proj_dims", tower.hidden_size, where));
  if (given != tower.hidden_size) {
    return refused_value(where, "output_proj_dims", std::to_string(given), "what mm_embed_dim is");
  }
  tower.layer_count = 0;
  tower.position = PositionKind::kNone;
  tower.norm = NormKind::kLayer;
  tower.norm_eps = kLayerNormEps;
  JIGE_TRY(out.projector_norm_eps, get_rms_eps(vision, where));
  JIGE_TRY(const int64_t patch, get_square(vision, kPatchSize, 16, kImagePatchSizeMax, where));
  JIGE_TRY(const int64_t across, get_within(vision, kPooling, 3, {1, kImageMergeMax}, where));
  out.patch_size = patch * across;
  if (out.patch_size > kImagePatchSizeMax) {
    return fail(Code::kCorrupt, "{}: {} patches ({}) of {} pixels are more than {} pixels", where,
                across, kPooling, patch, kImagePatchSizeMax);
  }
  JIGE_TRY(out.positions_side, get_within(vision, kUnifiedTableSize, kUnifiedPositionsUsual,
                                          {1, kTablePositionsMax}, where));
  return {};
}

// What the processor takes for sizes of the model must be these.
Status check_gemma4_sizes(const Json& vision, const Json& pixels, std::string_view where) {
  for (const auto& [field, usual] : {std::pair(kPatchSize, 16), {kPooling, 3}}) {
    JIGE_TRY(const int64_t size, get_int_or(vision, field, usual, where));
    JIGE_TRY(const int64_t found, get_int_or(pixels, field, size, where));
    if (found == size) continue;
    return fail(Code::kCorrupt, "{}: field \"{}\" is {}; by config.json it is {}", where, field,
                found, size);
  }
  return {};
}

// Of the largest image.
int64_t soft_tokens(const ImageConfig& config) {
  return config.pixels_max / (config.step() * config.step());
}

Status parse_soft_tokens(const Json& pixels, ImageConfig& out, std::string_view where) {
  const int64_t squares = out.merge * out.merge;
  JIGE_TRY(const int64_t rows,
           get_within(pixels, kSoftTokens, 280, {1, kImagePatchesMax / squares}, where));
  if (rows * out.merge > out.positions_side || rows * out.step() > kResizedSideMax) {
    return fail(Code::kCorrupt,
                "{}: a line of {} rows ({}) has {} patches of {} pixels; there may be {} patches "
                "({} in config.json) and {} pixels",
                where, rows, kSoftTokens, rows * out.merge, out.patch_size, out.positions_side,
                out.tower.layer_count > 0 ? kTableSize : kUnifiedTableSize, kResizedSideMax);
  }
  out.pixels_max = rows * out.step() * out.step();
  return {};
}

Status parse_gemma4_ids(const Json& config, const ModelConfig& language, ImageConfig& out,
                        std::string_view where) {
  const auto id_of = [&](const char* field, int64_t usual) -> Result<int32_t> {
    JIGE_TRY(const int64_t id,
             get_within(config, field, usual, {0, language.vocab_size - 1}, where));
    return static_cast<int32_t>(id);
  };
  JIGE_TRY(out.placeholder_id, id_of("image_token_id", kGemma4Image));
  JIGE_TRY(out.open_id, id_of("boi_token_id", kGemma4Opening));
  JIGE_TRY(out.end_id, id_of("eoi_token_id", kGemma4Closing));
  out.image_token = "<|image|>";
  if (language.layer_inputs.size > 0) out.row_token = std::max(language.pad_id, 0);
  return {};
}

Status parse_gemma4(const ImageFiles& files, ImageConfig& out) {
  const std::string& where = files.config_path;
  const bool unified = is_unified(files.config);
  JIGE_TRY(const ModelConfig language, parse_model_config(files.config, where));
  const Json& vision = *find_field(files.config, "vision_config");
  JIGE_DO(unified ? parse_unified(vision, out, where) : parse_gemma4_tower(vision, out, where));
  const Json* text = find_field(files.config, "text_config");
  const Json& language_file = text ? *text : files.config;
  const bool usually = unified && !language_file.contains(kSees);  // null says that they do not
  JIGE_TRY(const std::string sees,
           get_string_or(language_file, kSees, usually ? "vision" : "", where));
  out.mutual_rows = sees == "vision";
  out.tower.quantised = language.quantised;
  out.text_width = language.hidden_size;
  JIGE_DO(parse_gemma4_ids(files.config, language, out, where));
  JIGE_DO(check_gemma4_sizes(vision, files.pixels, files.pixels_path));
  JIGE_DO(parse_soft_tokens(files.pixels, out, files.pixels_path));
  JIGE_DO(parse_pixels(files.pixels, kGemma4Pixels, out, files.pixels_path));
  if (unified) return {};
  // The tower multiplies what the processor gives, less a half, twice.
  for (size_t i = 0; i < out.mean.size(); ++i) {
    out.deviation[i] /= 2;
    out.mean[i] += out.deviation[i];
  }
  return {};
}

Status find_gemma4_tokens(ImageConfig& config, const text::Tokenizer& tokenizer) {
  JIGE_TRY(config.open_token, image_token_of(tokenizer, config.open_id, "boi_token_id"));
  JIGE_TRY(config.end_token, image_token_of(tokenizer, config.end_id, "eoi_token_id"));
  return {};
}

// In floats as transformers has them.
ImageLayout gemma4_layout(const ImageConfig& config, int32_t width, int32_t height) {
  const int64_t most = soft_tokens(config);
  const auto step = static_cast<double>(config.step());
  const double area = static_cast<double>(most) * step * step;
  const double factor = std::sqrt(area / (static_cast<double>(height) * width));
  auto rows = static_cast<int64_t>(std::floor(factor * height / step));
  auto columns = static_cast<int64_t>(std::floor(factor * width / step));
  if (rows == 0) {
    columns = std::min<int64_t>(width / height, most);
  } else if (columns == 0) {
    rows = std::min<int64_t>(height / width, most);
  }
  rows = std::max<int64_t>(rows, 1);
  columns = std::max<int64_t>(columns, 1);
  const auto pixels = static_cast<int32_t>(config.step());
  return {.width = static_cast<int32_t>(columns) * pixels,
          .height = static_cast<int32_t>(rows) * pixels,
          .token_rows = static_cast<int32_t>(rows),
          .token_columns = static_cast<int32_t>(columns)};
}

std::vector<int32_t> gemma4_tokens(const ImageConfig& config, const ImageLayout& layout) {
  JIGE_CHECK(config.open_id >= 0 && config.end_id >= 0, "tokens of images that nobody found");
  std::vector<int32_t> ids(static_cast<size_t>(layout.row_count() + 2), kImageRow);
  ids.front() = config.open_id;
  ids.back() = config.end_id;
  return ids;
}

int64_t gemma4_patches(const ImageConfig& config) {
  return soft_tokens(config) * config.merge * config.merge;
}

}  // namespace

const ImageFamilyRules kGemma4Images = {.family = ImageFamily::kGemma4,
                                        .has = has_gemma4,
                                        .parse = parse_gemma4,
                                        .find_tokens = find_gemma4_tokens,
                                        .layout = gemma4_layout,
                                        .tokens = gemma4_tokens,
                                        .patches_max = gemma4_patches};

}  // namespace jige::formats
