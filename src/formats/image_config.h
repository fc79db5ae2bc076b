// ImageConfig: how a folder's model reads images, and what becomes of one on the way into a prompt.
//
//   config.json               "vision_config", and beside it what stands between tower and language
//                             model
//   processor_config.json     names of tokens, "patch_size", "spatial_merge_size"; since
//                             transformers 5 also "image_processor", what else stands in
//   preprocessor_config.json  "size", "resample", "rescale_factor", "image_mean", "image_std"
//
// An image is resized as its family does it (image_families.h), and its patches of p x p pixels are
// the tower's tokens, of which m x m side by side become one row of the language model. In a prompt
// stand these rows, and what tokens the family puts between and around them.
// Threads: values and pure functions; load_image_config() reads files.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "formats/model_config.h"
#include "text/image_text.h"

namespace jige::text {
class Tokenizer;
}

namespace jige::formats {

// Limits far above any real model: sides of an image, its patches, and those that become one row.
inline constexpr int64_t kImageSideMax = int64_t{1} << 14;
inline constexpr int64_t kImagePatchesMax = int64_t{1} << 18;
inline constexpr int64_t kImagePatchSizeMax = 256;
inline constexpr int64_t kImageMergeMax = 16;

// kPixtral: of Mistral 3 and Pixtral 12B (image_config_pixtral.cc). kGemma3: SigLIP, whose images
// have one size and rows that see each other (image_config_gemma3.cc). kQwen2, kQwen25, kQwen3: of
// Qwen2-VL, Qwen2.5-VL and of Qwen3-VL and what came after it (image_config_qwen.cc). kIdefics3: of
// that and of SmolVLM, whose images are cut into tiles (image_config_idefics3.cc). kInternVl: of
// InternVL 3 and 3.5, with tiles, too (image_config_internvl.cc). kLlava: of LLaVA 1.5, with one
// tile, LLaVA-NeXT and LLaVA-OneVision (image_config_llava.cc). kGemma4: of images of about one
// area, also without layers (image_config_gemma4.cc).
enum class ImageFamily {
  kPixtral,
  kGemma3,
  kGemma4,
  kQwen2,
  kQwen25,
  kQwen3,
  kIdefics3,
  kInternVl,
  kLlava
};

enum class ImageResampling { kNearest, kLanczos, kBilinear, kBicubic };

// Tokens of the texts that stand between the tiles of an image.
struct TileTokens {
  std::vector<std::vector<int32_t>> places;  // in front of the rows of a tile, line by line
  int64_t side = 0;                          // so many of a line
  std::vector<int32_t> whole;                // in front of those of the whole image
  std::vector<int32_t> line, last_line;      // behind a line of tiles
  bool operator==(const TileTokens&) const = default;
};

// So many tiles down and across.
struct TileGrid {
  int32_t rows = 0;
  int32_t columns = 0;
  bool operator==(const TileGrid&) const = default;
};

struct ImageConfig {
  ImageFamily family = ImageFamily::kPixtral;
  // The layers of the tower, as many as run (which may be none), as those of a model whose tokens
  // are patches and see all of their image. Where heads turn, half of a head's pairs do by the row,
  // half by the column.
  ModelConfig tower;
  // What a layer's second product of the feed-forward part reads is multiplied with it.
  double activated_scale = 1;
  // What attention and feed-forward part give a layer is times a number of each column.
  bool column_scales = false;
  // Files hold each half of a head as a head of its own, whose own halves turn by one another: the
  // first by the column of a patch, the second by its row. Else by the row first.
  bool halves_apart = false;
  // What products of layers read and give is held within bounds that files have.
  bool bounded_products = false;
  // Rows of the tower beside those of the patches, which stand for no place (a class token): 0 or
  // 1. No row of the language model comes of them.
  int64_t class_rows = 0;
  int64_t patch_size = 0;  // p

  // From rows of the tower to those of the language model.
  int64_t merge = 1;         // m
  bool mutual_rows = false;  // rows of an image see one another in the language model
  bool merges = true;        // by a norm and a product in front of the others, even if m is 1
  int64_t text_width = 0;
  double projector_norm_eps = 1e-5;
  ActivationKind projector_activation = ActivationKind::kGeluErf;
  bool projector_bias = false;

  // Of the tower's layers those that see a window of so many rows of the language model to a side
  // alone; 0 and empty: none.
  int64_t window = 0;
  std::vector<uint8_t> layer_has_window;
  int64_t frames = 1;  // whose pixels a patch has: those of an image are the same
  // Of a square of learned positions that is stretched over an image, or a tile; of kGemma4 as many
  // for a column and for a row, which are added. 0: there are none.
  int64_t positions_side = 0;
  bool standardises = false;  // means of patches are shifted and scaled by numbers of each column
  // Pixels of a side of the square tiles that an image is cut into, each of which the tower reads
  // by itself, and behind them all of it as one more; 0: it reads an image as a whole. Without cuts
  // an image becomes one tile.
  int64_t tile_side = 0;
  bool cuts = true;
  // Of kInternVl: of how many tiles an image becomes at least and at most, without the whole one.
  int64_t tiles_low = 1;
  int64_t tiles_high = 1;
  // Of kLlava: into what an image may be cut, in order. The rows of the whole image stand in front;
  // those of its tiles become lines of all of it, without what is beside the image, and behind each
  // line stands a row that is learned. Above so many times the rows of a tile (and a fifth more)
  // lines are fewer and shorter; 0: they never are.
  std::vector<TileGrid> grids;
  int64_t packed_tiles_max = 0;
  // Layers of the tower behind which an image has rows, too, besides those at its end: they are
  // added behind the first layers of the language model.
  std::vector<int64_t> deep_layers;
  // Of each pair of columns that turn of the language model's heads: by which of time (0), line (1)
  // and column (2) it does; empty: by the index of the token.
  std::vector<uint8_t> pair_places;

  int64_t width_max = 0;  // above which an image shrinks
  int64_t height_max = 0;
  int64_t pixels_min = 0;  // or by its area, below which one grows
  int64_t pixels_max = 0;
  ImageResampling resampling = ImageResampling::kBicubic;
  float factor = 1.0f / 255;  // of bytes; then minus the mean, by the deviation
  std::array<float, 3> mean = {};
  std::array<float, 3> deviation = {};

  std::string image_token = "[IMG]";
  std::string break_token = "[IMG_BREAK]";
  std::string end_token = "[IMG_END]";
  std::string open_token = {};  // of Gemma 3 and 4, which have no breaks
  int32_t placeholder_id = 0;   // of image_token, which stands once for an image
  // The token whose inputs of layers (LayerInputConfig) rows have; -1: that of image_token.
  int32_t row_token = -1;
  // What stands in place of another token, which the chat template writes then; it has image_token.
  text::ImageText written = {};
  int32_t break_id = -1;  // of the others, where find_image_tokens() found them
  int32_t end_id = -1;
  int32_t open_id = -1;
  TileTokens tiles = {};

  int64_t step() const { return patch_size * merge; }
  // Of the vocabulary, for a row that is given.
  int32_t token_of_row() const { return row_token >= 0 ? row_token : placeholder_id; }
  // How many rows of the language model's width each row of an image has.
  int64_t levels() const { return 1 + std::ssize(deep_layers); }
  // Of the largest image, and so many of them that the tower reads at a time.
  int64_t patches_max() const;
  int64_t tile_patches_max() const { return patches_max() / tiles_max(); }
  int64_t tiles_max() const;
  int64_t rows_max() const;
  // Whether rows of a tile are not yet those of an image.
  bool packs_rows() const { return !grids.empty(); }
  bool operator==(const ImageConfig&) const = default;
};

// Nothing where the folder's model reads text alone, or images in a way that Jige does not know.
// Fails as load_model_config, naming file, field and value.
Result<std::optional<ImageConfig>> load_image_config(const std::string& folder);

// The same of what the files say; `processor` and `preprocessor` may be null. Files that are not
// there say what the model's own sizes are. REQUIRES: `config` is an object.
Result<std::optional<ImageConfig>> parse_image_config(const Json& config, const Json& processor,
                                                      const Json& preprocessor,
                                                      const std::string& folder);

// Sets the ids of the tokens by their names. Fails with kCorrupt where the tokenizer has none of
// them, or another id for the placeholder.
Status find_image_tokens(ImageConfig& config, const text::Tokenizer& tokenizer);

// What becomes of an image of a size: its size once it has been resized, and the rows that stand in
// a prompt. One that is cut has those of its tiles, line by line, and last those of the whole, or
// these first (ImageConfig::grids). It stands in the middle of its tiles where it is smaller than
// they are, and is cut to its middle where it is larger than the one.
struct ImageLayout {
  int32_t width = 0;
  int32_t height = 0;
  int32_t token_rows = 0;  // of a tile, where it is cut into some
  int32_t token_columns = 0;
  int32_t tile_rows = 0;  // 0: it is not cut
  int32_t tile_columns = 0;
  int32_t first_width = 0;  // to which it is resized before; 0: it is not
  int32_t first_height = 0;
  // Where ImageConfig::packs_rows(): of the rows of all tiles, as lines, those that are kept, and
  // into how many lines and columns these are made; 0: they stand as the tower gives them.
  int32_t kept_top = 0;
  int32_t kept_left = 0;
  int32_t kept_rows = 0;
  int32_t kept_columns = 0;
  int32_t packed_rows = 0;
  int32_t packed_columns = 0;

  int64_t tile_count() const { return int64_t{tile_rows} * tile_columns + 1; }
  int64_t tile_row_count() const { return int64_t{token_rows} * token_columns; }
  // As the tower gives them.
  int64_t tower_row_count() const { return tile_count() * tile_row_count(); }
  int64_t row_count() const {
    if (packed_rows == 0) return tower_row_count();
    return tile_row_count() + packed_rows * (int64_t{packed_columns} + 1);
  }
  bool operator==(const ImageLayout&) const = default;
};
// REQUIRES: both sides are positive.
ImageLayout image_layout(const ImageConfig& config, int32_t width, int32_t height);

// In image_tokens(): here stands a row of the tower, in their order.
inline constexpr int32_t kImageRow = -1;

// The tokens of one image in a prompt. REQUIRES: find_image_tokens().
std::vector<int32_t> image_tokens(const ImageConfig& config, const ImageLayout& layout);

}  // namespace jige::formats
