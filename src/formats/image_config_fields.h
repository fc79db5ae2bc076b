// Fields of the files that say how a model reads images, as families have them in common.
//
// Internal to the image_config*.cc files. Threads: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "formats/image_config.h"

namespace jige::formats {

// What a folder's files say, and their names in errors.
struct ImageFiles {
  const Json& config;
  const Json& processor;  // or null
  const Json& pixels;     // what an image processor is given; or null
  std::string config_path;
  std::string processor_path;
  std::string pixels_path;
};

bool is_of_type(const Json& object, const char* type);  // by "model_type"

// A whole number in [low, high]. Fails as get_int_or, and with kCorrupt.
Result<int64_t> get_within(const Json& object, const char* field, int64_t usual,
                           std::pair<int64_t, int64_t> range, std::string_view where);

// kUnsupported: what the field is, and what Jige takes.
tl::unexpected<Error> refused_value(std::string_view where, const char* field, std::string_view is,
                                    std::string_view known);

// A length, or one for either direction.
struct ImageSides {
  int64_t width = 0;
  int64_t height = 0;
};
// A number, a list of height and width, or an object with these or "longest_edge". Fails with
// kCorrupt outside [1, high].
Result<ImageSides> get_sides(const Json& object, const char* field, int64_t usual, int64_t high,
                             std::string_view where);
// The same where both must be equal; else kUnsupported.
Result<int64_t> get_square(const Json& object, const char* field, int64_t usual, int64_t high,
                           std::string_view where);

// What a processor takes of pixels that its file leaves out.
struct UsualPixels {
  ImageResampling resampling = ImageResampling::kBicubic;
  std::array<float, 3> mean = {};
  std::array<float, 3> deviation = {};
};
// As CLIP has them.
inline constexpr UsualPixels kClipPixels{.resampling = ImageResampling::kBicubic,
                                         .mean = {0.48145466f, 0.4578275f, 0.40821073f},
                                         .deviation = {0.26862954f, 0.26130258f, 0.27577711f}};
// Sets how images are resized and what becomes of bytes. Fails with kUnsupported and kCorrupt.
Status parse_pixels(const Json& fields, const UsualPixels& usual, ImageConfig& out,
                    std::string_view where);

// Fails with kCorrupt where the largest image has more patches than any.
Status check_patches(const ImageConfig& config, std::string_view where);

// Sizes of a tower's layers that its "vision_config" says, where all heads have keys of their own.
struct UsualTower {
  int64_t width = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t ffn = 0;
  int64_t patch = 0;  // of towers as SigLIP's, these three
  double norm_eps = 1e-6;
  const char* activation = "gelu_pytorch_tanh";
};
Status parse_tower_sizes(const Json& vision, const UsualTower& usual, ModelConfig& tower,
                         std::string_view where);

// What quick GELU, x σ(c x), multiplies with; as SiLU it is silu(c x) / c.
inline constexpr double kQuickGelu = 1.702;

// "vision_config", or an empty object. Fails with kCorrupt where it is none.
Result<Json> get_vision(const Json& config, std::string_view where);

// "vision_feature_layer": leaves out of the tower's layers those that nothing reads. Fails with
// kUnsupported on a list of several.
Status parse_feature_layer(const Json& config, int64_t usual, ImageConfig& out,
                           std::string_view where);

// Fails with kCorrupt where patches side by side have more columns than any row.
Status check_merged_width(const ImageConfig& config, std::string_view where);

// "projector_hidden_act".
Status parse_projector_activation(const Json& config, ImageConfig& out, std::string_view where);

// A tower as SigLIP's: sizes, norms and activation of its layers, and the pixels of a patch.
Status parse_siglip_tower(const Json& vision, const UsualTower& usual, ImageConfig& out,
                          std::string_view where);

// By which patches turn, where its "vision_config" says it. Fails with kUnsupported where they do
// in another way than by row and column, with kCorrupt.
Result<double> get_tower_theta(const Json& vision, std::string_view where);

}  // namespace jige::formats
