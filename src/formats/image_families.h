// What is different from family to family of models that read images, behind image_config.h: a row
// of functions for each.
//
// Internal to the image_*.cc files. Threads: constants.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/image_config.h"
#include "formats/image_config_fields.h"

namespace jige::formats {

// Of an image as large as width_max and height_max allow.
int64_t patches_of_sides(const ImageConfig& config);
inline int64_t one_tile(const ImageConfig& /*config*/) { return 1; }
// As many as patches of the largest image make.
int64_t merged_rows(const ImageConfig& config);

struct ImageFamilyRules {
  ImageFamily family;
  // Whether a folder's model is of the family, as its config.json says.
  bool (*has)(const Json& config);
  // Sets all but the family. Fails as parse_image_config.
  Status (*parse)(const ImageFiles& files, ImageConfig& out);
  // As in image_config.h.
  Status (*find_tokens)(ImageConfig& config, const text::Tokenizer& tokenizer);
  ImageLayout (*layout)(const ImageConfig& config, int32_t width, int32_t height);
  std::vector<int32_t> (*tokens)(const ImageConfig& config, const ImageLayout& layout);
  int64_t (*patches_max)(const ImageConfig& config) = patches_of_sides;
  int64_t (*tiles_max)(const ImageConfig& config) = one_tile;
  int64_t (*rows_max)(const ImageConfig& config) = merged_rows;
};

extern const ImageFamilyRules kPixtralImages;   // image_config_pixtral.cc
extern const ImageFamilyRules kGemma3Images;    // image_config_gemma3.cc
extern const ImageFamilyRules kGemma4Images;    // image_config_gemma4.cc
extern const ImageFamilyRules kQwen2Images;     // image_config_qwen.cc
extern const ImageFamilyRules kQwen25Images;    // the same
extern const ImageFamilyRules kQwen3Images;     // the same
extern const ImageFamilyRules kIdefics3Images;  // image_config_idefics3.cc
extern const ImageFamilyRules kInternVlImages;  // image_config_internvl.cc
extern const ImageFamilyRules kLlavaImages;     // image_config_llava.cc

// The id of a token by its name. Fails with kCorrupt where the tokenizer has none.
Result<int32_t> find_image_token(const text::Tokenizer& tokenizer, const std::string& name);

// The spelling of a token whose id a field of config.json says. Fails likewise.
Result<std::string> image_token_of(const text::Tokenizer& tokenizer, int32_t id, const char* field);

}  // namespace jige::formats
