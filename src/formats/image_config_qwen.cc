// Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5: an image gets sides that are multiples of a step, by
// the area that it has and may have, as near to its shape as they can be. Its rows stand in the
// prompt line by line, in place of one token that the chat template puts between two others; in the
// language model they have places by line and column (ImageConfig::pair_places).
//
// Patches have the pixels of two frames of a video; those of an image are the same. Layers of the
// tower of Qwen2.5-VL see windows of rows of the language model, but for some that see all. Those
// of Qwen3-VL have learned positions besides, and an image has rows behind some of them, too.
#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "formats/image_families.h"
#include "formats/json_file.h"
#include "formats/model_config_activation.h"

namespace jige::formats {
namespace {

constexpr const char* kQwen2Type = "qwen2_vl";
constexpr const char* kQwen25Type = "qwen2_5_vl";
constexpr const char* kQwen3Types[] = {"qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"};
constexpr int64_t kPositionsMax = int64_t{1} << 16;
constexpr double kQwenNormEps = 1e-6;
constexpr int64_t kQwenPlaceholder = 151655;
constexpr int64_t kFramesMax = 16;
constexpr int64_t kPixelsUsualMin = 56 * 56;
constexpr int64_t kPixelsUsualMax = 28 * 28 * 1280;
constexpr int64_t kPixelsMost = int64_t{1} << 24;
constexpr int32_t kSidesRatioMax = 200;
constexpr size_t kSectionsMax = 64;
constexpr const char* kSections = "mrope_section";
constexpr int64_t kMlpRatioMax = 64;

// The fields of a tower under the names that most families have for them.
Json with_usual_tower_names(const Json& vision) {
  constexpr std::pair<const char*, const char*> kNames[] = {{"depth", "num_hidden_layers"},
                                                            {"num_heads", "num_attention_heads"},
                                                            {"in_channels", "num_channels"},
                                                            {"in_chans", "num_channels"}};
  Json named = vision;
  for (const auto& [own, usual] : kNames) {
    if (const Json* found = find_field(vision, own)) named[usual] = *found;
  }
  return named;
}

Result<Json> object_of(const Json& config, const char* field, const std::string& where) {
  const Json* found = find_field(config, field);
  if (!found) return Json::object();
  if (found->is_object()) return *found;
  return fail(Code::kCorrupt, "{}: field \"{}\" must be an object", where, field);
}

// A list of whole numbers in [low, high].
Result<std::vector<int64_t>> get_numbers(const Json& object, const char* field,
                                         const std::vector<int64_t>& usual,
                                         std::pair<int64_t, int64_t> range,
                                         const std::string& where) {
  const Json* found = find_field(object, field);
  if (!found) return usual;
  if (!found->is_array()) {
    return fail(Code::kCorrupt, "{}: field \"{}\" must be a list of numbers", where, field);
  }
  std::vector<int64_t> numbers;
  for (const Json& one : *found) {
    JIGE_TRY(const int64_t number, get_within({{field, one}}, field, 0, range, where));
    numbers.push_back(number);
  }
  return numbers;
}

// Each section has pairs that turn by one of time, line and column, in turns.
std::vector<uint8_t> places_in_sections(const std::vector<int64_t>& sections) {
  std::vector<uint8_t> places;
  for (size_t i = 0; i < sections.size(); ++i) {
    places.insert(places.end(), static_cast<size_t>(sections[i]), static_cast<uint8_t>(i % 3));
  }
  return places;
}

// Pairs turn by time, line and column in turns, up to so many of a line and of a column; the others
// by time.
std::vector<uint8_t> interleaved_places(const std::vector<int64_t>& sections) {
  std::vector<uint8_t> places = places_in_sections(sections);
  for (size_t i = 0; i < places.size(); ++i) {
    const size_t by = i % 3;
    const bool within = by < sections.size() && std::cmp_less(i, 3 * sections[by]);
    places[i] = within ? static_cast<uint8_t>(by) : 0;
  }
  return places;
}

// By which of time, line and column each pair of a head turns.
// Where config.json says nothing.
std::vector<int64_t> usual_sections(const Json& config) {
  if (is_of_type(config, kQwen2Type) || is_of_type(config, kQwen25Type)) return {16, 24, 24};
  const bool newer = is_of_type(config, "qwen3_5") || is_of_type(config, "qwen3_5_moe");
  return newer ? std::vector<int64_t>{11, 11, 10} : std::vector<int64_t>{24, 20, 20};
}

Status parse_pair_places(const Json& config, const ModelConfig& language, ImageConfig& out,
                         const std::string& where) {
  JIGE_TRY(const Json inner, object_of(config, "text_config", where));
  const Json& text = inner.empty() ? config : inner;
  JIGE_TRY(const Json newer, object_of(text, "rope_parameters", where));
  JIGE_TRY(const Json older, object_of(text, "rope_scaling", where));
  const Json& rope = newer.contains(kSections) ? newer : older;
  JIGE_TRY(const std::vector<int64_t> sections,
           get_numbers(rope, kSections, usual_sections(config), {0, kHeadDimMax}, where));
  if (sections.size() > kSectionsMax) {
    return fail(Code::kCorrupt, "{}: field \"{}\" has {} numbers; at most {}", where, kSections,
                sections.size(), kSectionsMax);
  }
  out.pair_places = out.family == ImageFamily::kQwen3 ? interleaved_places(sections)
                                                      : places_in_sections(sections);
  const int64_t columns = language.rotary_dim > 0 ? language.rotary_dim : language.head_dim;
  if (std::ssize(out.pair_places) == columns / 2) return {};
  return fail(Code::kCorrupt, "{}: field \"{}\" is of {} pairs of columns; heads have {}", where,
              kSections, out.pair_places.size(), columns / 2);
}

Status parse_tower_windows(const Json& vision, ImageConfig& out, const std::string& where) {
  JIGE_TRY(const int64_t pixels, get_within(vision, "window_size", 112, {1, kImageSideMax}, where));
  out.window = pixels / out.merge / out.patch_size;
  if (out.window < 1) {
    return fail(Code::kCorrupt, "{}: field \"window_size\" is {}; it must hold a row of {} pixels",
                where, pixels, out.step());
  }
  const int64_t layers = out.tower.layer_count;
  JIGE_TRY(const std::vector<int64_t> full,
           get_numbers(vision, "fullatt_block_indexes", {7, 15, 23, 31}, {0, kLayersMax}, where));
  out.layer_has_window.assign(static_cast<size_t>(layers), 1);
  for (const int64_t layer : full) {
    if (layer < layers) out.layer_has_window[static_cast<size_t>(layer)] = 0;
  }
  return {};
}

// What a tower of Qwen3-VL has in place of windows.
Status parse_deep_layers(const Json& vision, bool has_deep_layers, ImageConfig& out,
                         const std::string& where) {
  const std::pair range{int64_t{1}, kPositionsMax};
  JIGE_TRY(const int64_t positions,
           get_within(vision, "num_position_embeddings", 2304, range, where));
  out.positions_side = static_cast<int64_t>(std::sqrt(static_cast<double>(positions)));
  if (out.positions_side * out.positions_side != positions) {
    return fail(Code::kCorrupt, "{}: field \"num_position_embeddings\" is {}, which is no square",
                where, positions);
  }
  if (!has_deep_layers) return {};
  const std::pair layers{int64_t{0}, out.tower.layer_count - 1};
  JIGE_TRY(out.deep_layers,
           get_numbers(vision, "deepstack_visual_indexes", {8, 16, 24}, layers, where));
  if (std::ranges::adjacent_find(out.deep_layers, std::greater_equal<>()) !=
      out.deep_layers.end()) {
    return fail(Code::kUnsupported, "{}: layers of \"deepstack_visual_indexes\" do not ascend",
                where);
  }
  return {};
}

// What a tower has that its config.json need not say.
struct QwenTower {
  UsualTower usual;
  int64_t patch = 14;
  NormKind norm = NormKind::kLayer;
  ActivationKind activation = ActivationKind::kSwiGlu;
  const char* activation_name = "silu";
};

QwenTower tower_of(ImageFamily family) {
  if (family == ImageFamily::kQwen2) {
    return {.usual = {.width = 1280, .layers = 32, .heads = 16, .ffn = 5120},
            .activation = ActivationKind::kSilu,
            .activation_name = "quick_gelu"};
  }
  if (family == ImageFamily::kQwen25) {
    return {.usual = {.width = 3584, .layers = 32, .heads = 16, .ffn = 3420},
            .norm = NormKind::kRms};
  }
  return {.usual = {.width = 1152, .layers = 27, .heads = 16, .ffn = 4304},
          .patch = 16,
          .activation = ActivationKind::kGeluTanh,
          .activation_name = "gelu_pytorch_tanh"};
}

// Of Qwen2-VL "hidden_size" is the language model's, and the tower's sizes have names of their own.
Result<Json> with_usual_names(const Json& vision, ImageFamily family, const std::string& where) {
  Json named = with_usual_tower_names(vision);
  if (family != ImageFamily::kQwen2) return named;
  const UsualTower usual = tower_of(family).usual;
  JIGE_TRY(const int64_t width,
           get_within(vision, "embed_dim", usual.width, {1, kHiddenMax}, where));
  JIGE_TRY(const int64_t ratio,
           get_within(vision, "mlp_ratio", usual.ffn / usual.width, {1, kMlpRatioMax}, where));
  named["hidden_size"] = width;
  named["intermediate_size"] = width * ratio;
  return named;
}

Status parse_qwen_tower(const Json& vision, ImageConfig& out, const std::string& where) {
  ModelConfig& tower = out.tower;
  const QwenTower known = tower_of(out.family);
  JIGE_TRY(const Json named, with_usual_names(vision, out.family, where));
  JIGE_DO(parse_tower_sizes(named, known.usual, tower, where));
  JIGE_TRY(tower.rope.theta, get_tower_theta(vision, where));
  tower.norm = known.norm;
  tower.norm_eps = kQwenNormEps;
  tower.looks_ahead = true;
  tower.qkv_bias = tower.output_bias = tower.mlp_bias = true;
  tower.activation = known.activation;
  JIGE_TRY(const std::string activation,
           get_string_or(vision, "hidden_act", known.activation_name, where));
  if (activation != known.activation_name) {
    return refused_value(where, "hidden_act", activation, known.activation_name);
  }
  if (out.family == ImageFamily::kQwen2) {
    tower.mlp_gate_scale = kQuickGelu;
    out.activated_scale = 1 / kQuickGelu;
  }
  JIGE_TRY(out.patch_size,
           get_square(vision, "patch_size", known.patch, kImagePatchSizeMax, where));
  JIGE_TRY(out.merge, get_within(vision, "spatial_merge_size", 2, {1, kImageMergeMax}, where));
  JIGE_TRY(out.frames, get_within(vision, "temporal_patch_size", 2, {1, kFramesMax}, where));
  return check_merged_width(out, where);
}

// What the processor takes for sizes of the model must be these.
Status check_qwen_sizes(const Json& pixels, const ImageConfig& out, const std::string& where) {
  const std::pair<const char*, int64_t> kSizes[] = {{"patch_size", out.patch_size},
                                                    {"merge_size", out.merge},
                                                    {"temporal_patch_size", out.frames}};
  for (const auto& [field, size] : kSizes) {
    JIGE_TRY(const int64_t found, get_int_or(pixels, field, size, where));
    if (found == size) continue;
    return fail(Code::kCorrupt, "{}: field \"{}\" is {}; by config.json it is {}", where, field,
                found, size);
  }
  return {};
}

// Areas, though they are called edges.
Status parse_areas(const Json& pixels, ImageConfig& out, const std::string& where) {
  JIGE_TRY(const Json size, object_of(pixels, "size", where));
  const auto area = [&](const char* edge, const char* old, int64_t usual) -> Result<int64_t> {
    const std::pair range{int64_t{1}, kPixelsMost};
    JIGE_TRY(int64_t found, get_within(size, edge, usual, range, where));
    JIGE_TRY(found, get_within(size, old, found, range, where));
    return get_within(pixels, old, found, range, where);
  };
  JIGE_TRY(out.pixels_min, area("shortest_edge", "min_pixels", kPixelsUsualMin));
  JIGE_TRY(out.pixels_max, area("longest_edge", "max_pixels", kPixelsUsualMax));
  if (out.pixels_min <= out.pixels_max) return {};
  return fail(Code::kCorrupt, "{}: images have {} pixels at least and {} at most", where,
              out.pixels_min, out.pixels_max);
}

bool has_qwen3(const Json& config) {
  const bool known =
      std::ranges::any_of(kQwen3Types, [&](const char* type) { return is_of_type(config, type); });
  return known && find_field(config, "vision_config");
}

bool has_qwen2(const Json& config) {
  return is_of_type(config, kQwen2Type) && find_field(config, "vision_config");
}

bool has_qwen25(const Json& config) {
  return is_of_type(config, kQwen25Type) && find_field(config, "vision_config");
}

Status parse_qwen(const ImageFiles& files, ImageConfig& out) {
  const std::string& where = files.config_path;
  JIGE_TRY(const ModelConfig language, parse_model_config(files.config, where));
  JIGE_TRY(const Json vision, object_of(files.config, "vision_config", where));
  JIGE_DO(parse_qwen_tower(vision, out, where));
  if (out.family == ImageFamily::kQwen3) {
    const bool deep =
        is_of_type(files.config, "qwen3_vl") || is_of_type(files.config, "qwen3_vl_moe");
    JIGE_DO(parse_deep_layers(vision, deep, out, where));
  } else if (out.family == ImageFamily::kQwen25) {
    JIGE_DO(parse_tower_windows(vision, out, where));
  }
  JIGE_DO(parse_pair_places(files.config, language, out, where));
  out.tower.quantised = language.quantised;
  const char* const width = out.family == ImageFamily::kQwen2 ? "hidden_size" : "out_hidden_size";
  JIGE_TRY(out.text_width, get_within(vision, width, language.hidden_size, {1, kHiddenMax}, where));
  if (out.text_width != language.hidden_size) {
    return fail(Code::kCorrupt, "{}: rows of images have {} numbers, those of tokens {}", where,
                out.text_width, language.hidden_size);
  }
  const std::pair ids{int64_t{0}, language.vocab_size - 1};
  JIGE_TRY(const int64_t id,
           get_within(files.config, "image_token_id", kQwenPlaceholder, ids, where));
  out.placeholder_id = static_cast<int32_t>(id);
  out.image_token = "<|image_pad|>";
  JIGE_TRY(out.image_token,
           get_string_or(files.processor, "image_token", out.image_token, files.processor_path));
  JIGE_DO(check_qwen_sizes(files.pixels, out, files.pixels_path));
  JIGE_DO(parse_areas(files.pixels, out, files.pixels_path));
  JIGE_DO(parse_pixels(files.pixels, kClipPixels, out, files.pixels_path));
  return check_patches(out, files.pixels_path);
}

Status find_qwen_tokens(ImageConfig& /*config*/, const text::Tokenizer& /*tokenizer*/) {
  return {};
}

// transformers refuses images that are more than so many times as long as wide; here they are
// widened.
void limit_ratio(int32_t& width, int32_t& height) {
  width = std::max(width, (height + kSidesRatioMax - 1) / kSidesRatioMax);
  height = std::max(height, (width + kSidesRatioMax - 1) / kSidesRatioMax);
}

// In floats as transformers has them, and halves to even numbers.
ImageLayout qwen_layout(const ImageConfig& config, int32_t width, int32_t height) {
  limit_ratio(width, height);
  const auto step = static_cast<double>(config.step());
  const auto least = static_cast<double>(config.pixels_min);
  const auto most = static_cast<double>(config.pixels_max);
  double rows = std::nearbyint(height / step);
  double columns = std::nearbyint(width / step);
  const double area = double(height) * width;
  if (rows * step * columns * step > most) {
    const double shrinks = std::sqrt(area / most);
    rows = std::max(1.0, std::floor(height / shrinks / step));
    columns = std::max(1.0, std::floor(width / shrinks / step));
  } else if (rows * step * columns * step < least) {
    const double grows = std::sqrt(least / area);
    rows = std::ceil(height * grows / step);
    columns = std::ceil(width * grows / step);
  }
  return {.width = static_cast<int32_t>(columns * step),
          .height = static_cast<int32_t>(rows * step),
          .token_rows = static_cast<int32_t>(rows),
          .token_columns = static_cast<int32_t>(columns)};
}

// What shrinks may have a side of one step beside the longest there is; what grows has up to a step
// more on either side.
int64_t qwen_patches_max(const ImageConfig& config) {
  const auto step = static_cast<double>(config.step());
  const double ratio = std::sqrt(double{kSidesRatioMax});
  const double least = std::sqrt(static_cast<double>(config.pixels_min));
  const double most = std::sqrt(static_cast<double>(config.pixels_max));
  const double grown = (least * ratio + step) * (least / ratio + step);
  const double square = (least + step) * (least + step);
  const double area = std::max({most * most, step * most * ratio, grown, square});
  return static_cast<int64_t>(area / (step * step)) * config.merge * config.merge;
}

std::vector<int32_t> qwen_tokens(const ImageConfig& /*config*/, const ImageLayout& layout) {
  return std::vector<int32_t>(static_cast<size_t>(layout.row_count()), kImageRow);
}

constexpr ImageFamilyRules qwen_rules(ImageFamily family, bool (*has)(const Json&)) {
  return {.family = family,
          .has = has,
          .parse = parse_qwen,
          .find_tokens = find_qwen_tokens,
          .layout = qwen_layout,
          .tokens = qwen_tokens,
          .patches_max = qwen_patches_max};
}

}  // namespace

const ImageFamilyRules kQwen2Images = qwen_rules(ImageFamily::kQwen2, has_qwen2);
const ImageFamilyRules kQwen25Images = qwen_rules(ImageFamily::kQwen25, has_qwen25);
const ImageFamilyRules kQwen3Images = qwen_rules(ImageFamily::kQwen3, has_qwen3);

}  // namespace jige::formats
