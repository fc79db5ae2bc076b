#include "formats/image_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/file_content.h"
#include "formats/json_file.h"
#include "formats/model_config_activation.h"
#include "text/tokenizer.h"

namespace jige::formats {
namespace {

constexpr const char* kMistral3 = "mistral3";
constexpr const char* kLlavaType = "llava";
constexpr const char* kTowerType = "pixtral";
constexpr double kTowerNormEps = 1e-5;
constexpr int64_t kPlaceholder = 10;  // where config.json says none
constexpr int64_t kLlavaPlaceholder = 32000;
constexpr int64_t kLongestEdge = 1024;
constexpr double kPixelNumberMax = 1e6;

// What transformers takes of a tower that config.json leaves out, or of fields that it does.
Json usual_tower() { return {{"patch_size", 14}, {"image_size", 1540}}; }

bool is_of_type(const Json& object, const char* type) {
  const Json* found = find_field(object, "model_type");
  return found && *found == type;
}

bool is_known(const Json& config) {
  return is_of_type(config, kMistral3) || is_of_type(config, kLlavaType);
}

// A whole number in [low, high].
Result<int64_t> get_within(const Json& object, const char* field, int64_t usual,
                           std::pair<int64_t, int64_t> range, std::string_view where) {
  JIGE_TRY(const int64_t value, get_int_or(object, field, usual, where));
  if (value >= range.first && value <= range.second) return value;
  return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must lie in [{}, {}]", where, field,
              value, range.first, range.second);
}

tl::unexpected<Error> refused_value(std::string_view where, const char* field, std::string_view is,
                                    std::string_view known) {
  return fail(Code::kUnsupported,
              "{}: field \"{}\" is {}, which Jige does not support; it takes {}", where, field,
              is.substr(0, 80), known);
}

// A length, or one for either direction.
struct Sides {
  int64_t width = 0;
  int64_t height = 0;
};

Result<Sides> get_sides(const Json& object, const char* field, int64_t usual, int64_t high,
                        std::string_view where) {
  const Json* found = find_field(object, field);
  if (!found) return Sides{usual, usual};
  const std::pair range{int64_t{1}, high};
  if (found->is_object()) {
    const bool longest = find_field(*found, "longest_edge");
    Sides sides;
    JIGE_TRY(sides.height, get_int(*found, longest ? "longest_edge" : "height", where));
    JIGE_TRY(sides.width, get_int(*found, longest ? "longest_edge" : "width", where));
    JIGE_TRY(sides.height, get_within({{field, sides.height}}, field, 0, range, where));
    JIGE_TRY(sides.width, get_within({{field, sides.width}}, field, 0, range, where));
    return sides;
  }
  if (found->is_array() && found->size() == 2) {
    Sides sides;
    JIGE_TRY(sides.height, get_within({{field, (*found)[0]}}, field, 0, range, where));
    JIGE_TRY(sides.width, get_within({{field, (*found)[1]}}, field, 0, range, where));
    return sides;
  }
  JIGE_TRY(const int64_t side, get_within(object, field, usual, range, where));
  return Sides{side, side};
}

Result<int64_t> get_square(const Json& object, const char* field, int64_t usual, int64_t high,
                           std::string_view where) {
  JIGE_TRY(const Sides sides, get_sides(object, field, usual, high, where));
  if (sides.width == sides.height) return sides.width;
  return refused_value(where, field, fmt::format("{} x {}", sides.width, sides.height),
                       "one length for both sides");
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

Result<double> tower_theta(const Json& vision, std::string_view where) {
  JIGE_TRY(double theta, get_number_or(vision, "rope_theta", 10000.0, where));
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const Json* rope = find_field(vision, name);
    if (!rope) continue;
    if (!rope->is_object()) {
      return fail(Code::kCorrupt, "{}: field \"{}\" must be an object", where, name);
    }
    JIGE_TRY(const std::string old_type, get_string_or(*rope, "type", "axial", where));
    JIGE_TRY(const std::string type, get_string_or(*rope, "rope_type", old_type, where));
    if (type != "axial" && type != "default") {
      return refused_value(where, "rope_type", type, "axial and default");
    }
    JIGE_TRY(theta, get_number_or(*rope, "rope_theta", theta, where));
  }
  if (theta > 1.0 && theta <= 1e15) return theta;
  return fail(Code::kCorrupt, "{}: field \"rope_theta\" is {}; it must lie in (1, 1e15]", where,
              theta);
}

Status parse_tower(const Json& vision, ImageConfig& out, std::string_view where) {
  ModelConfig& tower = out.tower;
  const std::pair widths{int64_t{1}, kHiddenMax};
  JIGE_TRY(tower.hidden_size, get_within(vision, "hidden_size", 1024, widths, where));
  JIGE_TRY(tower.layer_count, get_within(vision, "num_hidden_layers", 24, {1, kLayersMax}, where));
  JIGE_TRY(tower.head_count, get_within(vision, "num_attention_heads", 16, {1, kHeadsMax}, where));
  JIGE_TRY(tower.ffn_size, get_within(vision, "intermediate_size", 4096, {1, kFfnMax}, where));
  JIGE_TRY(const int64_t channels, get_int_or(vision, "num_channels", 3, where));
  if (channels != 3) {
    return refused_value(where, "num_channels", std::to_string(channels), "3");
  }
  tower.kv_head_count = tower.head_count;
  tower.head_dim = tower.hidden_size / tower.head_count;
  if (tower.head_dim * tower.head_count != tower.hidden_size || tower.head_dim % 4 != 0 ||
      tower.head_dim > kHeadDimMax) {
    return fail(Code::kCorrupt,
                "{}: {} heads of a tower of width {} must be of a multiple of 4 columns each, {} "
                "at most",
                where, tower.head_count, tower.hidden_size, kHeadDimMax);
  }
  JIGE_TRY(const int64_t head_dim, get_int_or(vision, "head_dim", tower.head_dim, where));
  if (head_dim != tower.head_dim) {
    return refused_value(where, "head_dim", std::to_string(head_dim),
                         fmt::format("hidden_size / num_attention_heads ({})", tower.head_dim));
  }
  JIGE_TRY(tower.activation, tower_activation(vision, where));
  JIGE_TRY(tower.rope.theta, tower_theta(vision, where));
  tower.norm_eps = kTowerNormEps;
  tower.looks_ahead = true;
  JIGE_TRY(out.patch_size, get_square(vision, "patch_size", 16, kImagePatchSizeMax, where));
  return {};
}

// Leaves out of the tower's layers those that nothing reads.
Status parse_feature_layer(const Json& config, ImageConfig& out, std::string_view where) {
  constexpr const char* kField = "vision_feature_layer";
  constexpr const char* kStrategy = "vision_feature_select_strategy";
  const bool llava = is_of_type(config, kLlavaType);
  JIGE_TRY(const std::string strategy,
           get_string_or(config, kStrategy, llava ? "default" : "full", where));
  if (llava && strategy != "full") return refused_value(where, kStrategy, strategy, "full");
  const Json usual = llava ? -2 : -1;
  const Json* found = find_field(config, kField);
  if (!found) found = &usual;
  if (found->is_array() && found->size() != 1) {
    return refused_value(where, kField, fmt::format("a list of {}", found->size()), "one layer");
  }
  const Json one = {{kField, found->is_array() ? found->front() : *found}};
  const int64_t layers = out.tower.layer_count;
  JIGE_TRY(const int64_t layer, get_within(one, kField, -1, {-layers - 1, layers}, where));
  out.tower.layer_count = layer < 0 ? layers + 1 + layer : layer;
  return {};
}

Status parse_projector(const Json& config, ImageConfig& out, std::string_view where) {
  out.merges = is_of_type(config, kMistral3);
  if (out.merges) {
    JIGE_TRY(out.merge, get_within(config, "spatial_merge_size", 2, {1, kImageMergeMax}, where));
  }
  JIGE_TRY(out.projector_bias,
           get_bool_or(config, "multimodal_projector_bias", !out.merges, where));
  Json field = {{"projector_hidden_act", "gelu"}};
  if (const Json* name = find_field(config, "projector_hidden_act")) {
    field["projector_hidden_act"] = *name;
  }
  JIGE_TRY(out.projector_activation,
           parse_plain_activation(field, "projector_hidden_act", {}, where));
  if (out.merge * out.merge * out.tower.hidden_size > kFfnMax) {
    return fail(Code::kCorrupt, "{}: {} x {} patches of width {} are more than {} columns", where,
                out.merge, out.merge, out.tower.hidden_size, kFfnMax);
  }
  return {};
}

// A number of each colour, or one for all.
Result<std::array<float, 3>> get_colours(const Json& object, const char* field,
                                         const std::array<float, 3>& usual, double low,
                                         std::string_view where) {
  const Json* found = find_field(object, field);
  if (!found) return usual;
  if (found->is_array() && found->size() != usual.size()) {
    return fail(Code::kCorrupt, "{}: field \"{}\" has {} numbers; it must have 3", where, field,
                found->size());
  }
  std::array<float, 3> colours = {};
  for (size_t i = 0; i < colours.size(); ++i) {
    const Json one = {{field, found->is_array() ? (*found)[i] : *found}};
    JIGE_TRY(const double value, get_number(one, field, where));
    if (!(value >= low && value <= kPixelNumberMax)) {
      return fail(Code::kCorrupt, "{}: field \"{}\" has {}; it must lie in [{:g}, {:g}]", where,
                  field, value, low, kPixelNumberMax);
    }
    colours[i] = static_cast<float>(value);
  }
  return colours;
}

Status parse_pixels(const Json& fields, ImageConfig& out, std::string_view where) {
  struct Switch {
    const char* field;
    bool usual;
    bool taken;  // the value without which an image is not what the model reads
  };
  for (const Switch& one : {Switch{"do_resize", true, true}, {"do_center_crop", false, false}}) {
    JIGE_TRY(const bool on, get_bool_or(fields, one.field, one.usual, where));
    if (on != one.taken) {
      return refused_value(where, one.field, on ? "true" : "false", one.taken ? "true" : "false");
    }
  }
  JIGE_TRY(const int64_t resampling, get_int_or(fields, "resample", 3, where));
  if (resampling < 0 || resampling > 3) {  // as Pillow numbers them
    return refused_value(where, "resample", std::to_string(resampling),
                         "0 (nearest), 1 (lanczos), 2 (bilinear) and 3 (bicubic)");
  }
  out.resampling = static_cast<ImageResampling>(resampling);
  JIGE_TRY(const bool rescales, get_bool_or(fields, "do_rescale", true, where));
  JIGE_TRY(const double factor, get_number_or(fields, "rescale_factor", 1.0 / 255, where));
  if (!(factor >= 1e-6 && factor <= kPixelNumberMax)) {
    return fail(Code::kCorrupt, "{}: field \"rescale_factor\" is {}; it must lie in [1e-6, {:g}]",
                where, factor, kPixelNumberMax);
  }
  out.factor = rescales ? static_cast<float>(factor) : 1.0f;
  JIGE_TRY(out.mean, get_colours(fields, "image_mean", {0.48145466f, 0.4578275f, 0.40821073f},
                                 -kPixelNumberMax, where));
  JIGE_TRY(out.deviation,
           get_colours(fields, "image_std", {0.26862954f, 0.26130258f, 0.27577711f}, 1e-6, where));
  JIGE_TRY(const bool normalises, get_bool_or(fields, "do_normalize", true, where));
  if (!normalises) {
    out.mean = {};
    out.deviation = {1, 1, 1};
  }
  return {};
}

Status check_patches(const ImageConfig& config, std::string_view where) {
  if (config.patches_max() <= kImagePatchesMax) return {};
  return fail(Code::kCorrupt, "{}: images of {} x {} pixels have {} patches; at most {}", where,
              config.width_max, config.height_max, config.patches_max(), kImagePatchesMax);
}

// What the processor takes for sizes of the model must be these.
Status check_processor(const Json& processor, const ImageConfig& out, std::string_view where) {
  JIGE_TRY(const int64_t patch,
           get_square(processor, "patch_size", out.patch_size, kImagePatchSizeMax, where));
  JIGE_TRY(const int64_t merge,
           get_within(processor, "spatial_merge_size", out.merge, {1, kImageMergeMax}, where));
  if (patch == out.patch_size && merge == out.merge) return {};
  return fail(Code::kCorrupt,
              "{}: patch_size {} and spatial_merge_size {} are not those of config.json, {} and {}",
              where, patch, merge, out.patch_size, out.merge);
}

Status parse_processor(const Json& processor, ImageConfig& out, std::string_view where) {
  JIGE_DO(check_processor(processor, out, where));
  JIGE_TRY(out.image_token, get_string_or(processor, "image_token", out.image_token, where));
  JIGE_TRY(out.break_token, get_string_or(processor, "image_break_token", out.break_token, where));
  JIGE_TRY(out.end_token, get_string_or(processor, "image_end_token", out.end_token, where));
  return {};
}

Status parse_parts(const Json& config, const Json& vision, ImageConfig& out,
                   const std::string& where) {
  JIGE_TRY(const ModelConfig language, parse_model_config(config, where));
  JIGE_DO(parse_tower(vision, out, where));
  JIGE_DO(parse_feature_layer(config, out, where));
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

// A file that need not be there: null then.
Result<Json> load_beside(const std::string& folder, const char* name) {
  Result<Json> json = load_json_object(folder + "/" + name);
  if (!json && json.error().code == Code::kNotFound) return Json();
  return json;
}

}  // namespace

int64_t ImageConfig::patches_max() const {
  const auto patches = [this](int64_t side) { return (side + step() - 1) / step() * merge; };
  return patches(width_max) * patches(height_max);
}

Result<std::optional<ImageConfig>> parse_image_config(const Json& config, const Json& processor,
                                                      const Json& preprocessor,
                                                      const std::string& folder) {
  const std::string where = folder + "/config.json";
  if (!is_known(config)) return std::nullopt;
  const Json* found = find_field(config, "vision_config");
  const Json vision = found ? *found : usual_tower();
  if ((found || is_of_type(config, kLlavaType)) && !is_of_type(vision, kTowerType))
    return std::nullopt;
  ImageConfig out;
  JIGE_DO(parse_parts(config, vision, out, where));
  const std::string processor_path = folder + "/processor_config.json";
  JIGE_DO(parse_processor(processor, out, processor_path));
  const Json* inner = find_field(processor, "image_processor");
  if (inner && !inner->is_object()) {
    return fail(Code::kCorrupt, "{}: field \"image_processor\" must be an object", processor_path);
  }
  const Json& fields = inner ? *inner : preprocessor;
  const std::string fields_path = inner ? processor_path : folder + "/preprocessor_config.json";
  if (fields.is_null()) {
    JIGE_TRY(const Sides sides,
             get_sides(vision, "image_size", kLongestEdge, kImageSideMax, where));
    out.width_max = sides.width;
    out.height_max = sides.height;
  } else {
    JIGE_TRY(const Sides sides,
             get_sides(fields, "size", kLongestEdge, kImageSideMax, fields_path));
    out.width_max = sides.width;
    out.height_max = sides.height;
  }
  JIGE_DO(parse_pixels(fields, out, fields_path));
  JIGE_DO(check_patches(out, fields_path));
  return out;
}

Result<std::optional<ImageConfig>> load_image_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  JIGE_TRY(const Json config, load_json_object(path));
  if (!is_known(config)) return std::nullopt;
  JIGE_TRY(const Json processor, load_beside(folder, "processor_config.json"));
  JIGE_TRY(const Json preprocessor, load_beside(folder, "preprocessor_config.json"));
  return as_file_content(parse_image_config(config, processor, preprocessor, folder));
}

Status find_image_tokens(ImageConfig& config, const text::Tokenizer& tokenizer) {
  const auto find = [&](const std::string& name) -> Result<int32_t> {
    const std::optional<int32_t> id = tokenizer.token_to_id(name);
    if (id) return *id;
    return fail(Code::kCorrupt,
                "the tokenizer has no token \"{}\", which stands in prompts with images; take the "
                "tokenizer of the model that reads them",
                name.substr(0, 80));
  };
  JIGE_TRY(const int32_t image, find(config.image_token));
  if (image != config.placeholder_id) {
    return fail(Code::kCorrupt,
                "the tokenizer has the id {} for \"{}\", but image_token_index in config.json is "
                "{}; one of the two is of another model",
                image, config.image_token.substr(0, 80), config.placeholder_id);
  }
  JIGE_TRY(config.break_id, find(config.break_token));
  JIGE_TRY(config.end_id, find(config.end_token));
  return {};
}

ImageLayout image_layout(const ImageConfig& config, int32_t width, int32_t height) {
  JIGE_CHECK(width > 0 && height > 0, "an image of {} x {} pixels", width, height);
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

std::vector<int32_t> image_tokens(const ImageConfig& config, const ImageLayout& layout) {
  JIGE_CHECK(config.break_id >= 0 && config.end_id >= 0, "tokens of images that nobody found");
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(layout.row_count() + layout.token_rows));
  for (int32_t row = 0; row < layout.token_rows; ++row) {
    ids.insert(ids.end(), static_cast<size_t>(layout.token_columns), kImageRow);
    ids.push_back(row + 1 < layout.token_rows ? config.break_id : config.end_id);
  }
  return ids;
}

}  // namespace jige::formats
