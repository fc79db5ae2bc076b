#include "formats/image_config_fields.h"

#include <nlohmann/json.hpp>

#include "formats/json_file.h"
#include "formats/model_config_activation.h"

namespace jige::formats {
namespace {

constexpr double kPixelNumberMax = 1e6;

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

Status parse_tower_activation(const Json& vision, const char* usual, ImageConfig& out,
                              std::string_view where) {
  JIGE_TRY(const std::string name, get_string_or(vision, "hidden_act", usual, where));
  if (name == "quick_gelu") {
    out.tower.activation = ActivationKind::kSilu;
    out.tower.mlp_gate_scale = kQuickGelu;
    out.activated_scale = 1 / kQuickGelu;
    return {};
  }
  JIGE_TRY(out.tower.activation,
           parse_plain_activation({{"hidden_act", name}}, "hidden_act", {}, where));
  return {};
}

}  // namespace

bool is_of_type(const Json& object, const char* type) {
  const Json* found = find_field(object, "model_type");
  return found && *found == type;
}

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

Result<ImageSides> get_sides(const Json& object, const char* field, int64_t usual, int64_t high,
                             std::string_view where) {
  const Json* found = find_field(object, field);
  if (!found) return ImageSides{usual, usual};
  const std::pair range{int64_t{1}, high};
  if (found->is_object()) {
    const bool longest = find_field(*found, "longest_edge");
    ImageSides sides;
    JIGE_TRY(sides.height, get_int(*found, longest ? "longest_edge" : "height", where));
    JIGE_TRY(sides.width, get_int(*found, longest ? "longest_edge" : "width", where));
    JIGE_TRY(sides.height, get_within({{field, sides.height}}, field, 0, range, where));
    JIGE_TRY(sides.width, get_within({{field, sides.width}}, field, 0, range, where));
    return sides;
  }
  if (found->is_array() && found->size() == 2) {
    ImageSides sides;
    JIGE_TRY(sides.height, get_within({{field, (*found)[0]}}, field, 0, range, where));
    JIGE_TRY(sides.width, get_within({{field, (*found)[1]}}, field, 0, range, where));
    return sides;
  }
  JIGE_TRY(const int64_t side, get_within(object, field, usual, range, where));
  return ImageSides{side, side};
}

Result<int64_t> get_square(const Json& object, const char* field, int64_t usual, int64_t high,
                           std::string_view where) {
  JIGE_TRY(const ImageSides sides, get_sides(object, field, usual, high, where));
  if (sides.width == sides.height) return sides.width;
  return refused_value(where, field, fmt::format("{} x {}", sides.width, sides.height),
                       "one length for both sides");
}

Status parse_pixels(const Json& fields, const UsualPixels& usual, ImageConfig& out,
                    std::string_view where) {
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
  JIGE_TRY(const int64_t resampling,
           get_int_or(fields, "resample", static_cast<int64_t>(usual.resampling), where));
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
  JIGE_TRY(out.mean, get_colours(fields, "image_mean", usual.mean, -kPixelNumberMax, where));
  JIGE_TRY(out.deviation, get_colours(fields, "image_std", usual.deviation, 1e-6, where));
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

Status parse_tower_sizes(const Json& vision, const UsualTower& usual, ModelConfig& tower,
                         std::string_view where) {
  const std::pair widths{int64_t{1}, kHiddenMax};
  JIGE_TRY(tower.hidden_size, get_within(vision, "hidden_size", usual.width, widths, where));
  JIGE_TRY(tower.layer_count,
           get_within(vision, "num_hidden_layers", usual.layers, {1, kLayersMax}, where));
  JIGE_TRY(tower.head_count,
           get_within(vision, "num_attention_heads", usual.heads, {1, kHeadsMax}, where));
  JIGE_TRY(tower.ffn_size, get_within(vision, "intermediate_size", usual.ffn, {1, kFfnMax}, where));
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
  return {};
}

Result<Json> get_vision(const Json& config, std::string_view where) {
  const Json* found = find_field(config, "vision_config");
  if (!found) return Json::object();
  if (found->is_object()) return *found;
  return fail(Code::kCorrupt, "{}: field \"vision_config\" must be an object", where);
}

Status parse_feature_layer(const Json& config, int64_t usual, ImageConfig& out,
                           std::string_view where) {
  constexpr const char* kField = "vision_feature_layer";
  const Json* found = find_field(config, kField);
  if (found && found->is_array() && found->size() != 1) {
    return refused_value(where, kField, fmt::format("a list of {}", found->size()), "one layer");
  }
  Json one = {{kField, usual}};
  if (found) one[kField] = found->is_array() ? found->front() : *found;
  const int64_t layers = out.tower.layer_count;
  JIGE_TRY(const int64_t layer, get_within(one, kField, usual, {-layers - 1, layers}, where));
  out.tower.layer_count = layer < 0 ? layers + 1 + layer : layer;
  return {};
}

Status check_merged_width(const ImageConfig& config, std::string_view where) {
  const int64_t merge = config.merge;
  if (merge * merge * config.tower.hidden_size <= kFfnMax) return {};
  return fail(Code::kCorrupt, "{}: {} x {} patches of width {} are more than {} columns", where,
              merge, merge, config.tower.hidden_size, kFfnMax);
}

Status parse_projector_activation(const Json& config, ImageConfig& out, std::string_view where) {
  constexpr const char* kField = "projector_hidden_act";
  Json field = {{kField, "gelu"}};
  if (const Json* name = find_field(config, kField)) field[kField] = *name;
  JIGE_TRY(out.projector_activation, parse_plain_activation(field, kField, {}, where));
  return {};
}

Status parse_siglip_tower(const Json& vision, const UsualTower& usual, ImageConfig& out,
                          std::string_view where) {
  ModelConfig& tower = out.tower;
  JIGE_DO(parse_tower_sizes(vision, usual, tower, where));
  JIGE_DO(parse_tower_activation(vision, usual.activation, out, where));
  JIGE_TRY(tower.norm_eps, get_number_or(vision, "layer_norm_eps", usual.norm_eps, where));
  if (!(tower.norm_eps > 0 && tower.norm_eps < 1)) {
    return fail(Code::kCorrupt, "{}: field \"layer_norm_eps\" is {}; it must lie in (0, 1)", where,
                tower.norm_eps);
  }
  tower.norm = NormKind::kLayer;
  tower.position = PositionKind::kNone;  // of heads; the entry adds learned ones
  tower.qkv_bias = tower.output_bias = tower.mlp_bias = true;
  tower.looks_ahead = true;
  JIGE_TRY(out.patch_size,
           get_square(vision, "patch_size", usual.patch, kImagePatchSizeMax, where));
  return {};
}

Result<double> get_tower_theta(const Json& vision, std::string_view where) {
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

}  // namespace jige::formats
