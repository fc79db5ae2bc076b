// Idefics3 (model_type "idefics3") and SmolVLM ("idefics3" or "smolvlm"): an image is resized so
// that its longer side is the longest edge, whatever it was, then to sides that are multiples of a
// tile's, and cut into tiles. Each passes a tower of SigLIP by itself, and so does the whole image,
// resized to one; m x m patches become one row.
//
// In a prompt a text says where a tile stands, and line feeds end a line of tiles. They are the
// processor's, and what tokens they are is the tokenizer's business: some folders have one for each
// place, in others it is text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/check.h"
#include "formats/image_families.h"
#include "formats/json_file.h"
#include "text/tokenizer.h"

namespace jige::formats {
namespace {

constexpr const char* kTileTypes[] = {"idefics3", "smolvlm"};
constexpr const char* kImageToken = "<image>";
constexpr const char* kAroundToken = "<fake_token_around_image>";
constexpr const char* kWholeText = "<global-img>";
constexpr int64_t kImageTokenId = 128257;
constexpr int64_t kUsualTile = 364;
constexpr int64_t kUsualTiles = 4;  // of the longest edge
constexpr int64_t kEdgeMax = 4096;  // above which an image shrinks, whatever its file says
constexpr int64_t kTilesSideMax = 32;
constexpr UsualPixels kIdefics3Pixels = {
    ImageResampling::kLanczos, {0.5f, 0.5f, 0.5f}, {0.5f, 0.5f, 0.5f}};

bool has_idefics3(const Json& config) {
  return std::ranges::any_of(kTileTypes,
                             [&](const char* type) { return is_of_type(config, type); });
}

// {"longest_edge": …}, which is all that these image processors go by.
Result<int64_t> get_longest_edge(const Json& object, const char* field, int64_t usual,
                                 const std::string& where) {
  const Json* found = find_field(object, field);
  if (!found) return usual;
  if (!find_field(*found, "longest_edge")) {
    return refused_value(where, field, dump_json(*found), "an object with \"longest_edge\"");
  }
  return get_within(*found, "longest_edge", usual, {1, kImageSideMax}, where);
}

// How many tiles a side of the largest image has: one that is odd may be longer by a pixel.
int64_t tiles_of_side(const ImageConfig& config) {
  const int64_t side = std::min(config.width_max + config.width_max % 2, kEdgeMax);
  return (side + config.tile_side - 1) / config.tile_side;
}

int64_t idefics3_tiles_max(const ImageConfig& config) {
  const int64_t side = config.cuts ? tiles_of_side(config) : 1;
  return side == 1 ? 1 : side * side + 1;
}

int64_t idefics3_patches_max(const ImageConfig& config) {
  const int64_t side = config.tile_side / config.patch_size;
  return idefics3_tiles_max(config) * side * side;
}

// Of tiles, whose patches must become whole rows.
Status parse_tiles(const Json& pixels, int64_t tower_side, ImageConfig& out,
                   const std::string& where) {
  const bool plain = pixels.is_null();
  const int64_t usual = plain ? tower_side : kUsualTile;
  JIGE_TRY(out.tile_side, get_longest_edge(pixels, "max_image_size", usual, where));
  const int64_t edge = std::min(kUsualTiles * usual, kImageSideMax);
  JIGE_TRY(out.width_max, get_longest_edge(pixels, "size", edge, where));
  out.height_max = out.width_max;
  JIGE_TRY(out.cuts, get_bool_or(pixels, "do_image_splitting", true, where));
  const int64_t patches = out.tile_side / out.patch_size;
  if (patches < 1 || patches % out.merge != 0) {
    return fail(
        Code::kCorrupt,
        "{}: tiles of {} pixels a side (max_image_size) have {} patches of {} there, and {} "
        "x {} of these are to become a row",
        where, out.tile_side, patches, out.patch_size, out.merge, out.merge);
  }
  if (tiles_of_side(out) > kTilesSideMax) {
    return fail(Code::kCorrupt, "{}: images of {} pixels have {} tiles of {} a side; at most {}",
                where, out.width_max, tiles_of_side(out), out.tile_side, kTilesSideMax);
  }
  return {};
}

// The processor writes as many tokens for a tile as this says.
Status check_tile_rows(const Json& processor, const ImageConfig& out, const std::string& where) {
  const int64_t side = out.tile_side / out.patch_size / out.merge;
  JIGE_TRY(const int64_t rows, get_int_or(processor, "image_seq_len", side * side, where));
  if (rows == side * side) return {};
  return fail(Code::kCorrupt, "{}: field \"image_seq_len\" is {}; by the other files it is {}",
              where, rows, side * side);
}

Status parse_idefics3(const ImageFiles& files, ImageConfig& out) {
  const std::string& where = files.config_path;
  JIGE_TRY(const ModelConfig language, parse_model_config(files.config, where));
  JIGE_TRY(const Json vision, get_vision(files.config, where));
  JIGE_DO(parse_siglip_tower(
      vision, {.width = 1152, .layers = 12, .heads = 16, .ffn = 3072, .patch = 32}, out, where));
  JIGE_TRY(const int64_t side, get_square(vision, "image_size", 224, kImageSideMax, where));
  out.positions_side = side / out.patch_size;
  if (out.positions_side < 1) {
    return fail(Code::kCorrupt, "{}: images of {} pixels a side have no patch of {}", where, side,
                out.patch_size);
  }
  JIGE_TRY(out.merge, get_within(files.config, "scale_factor", 2, {1, kImageMergeMax}, where));
  JIGE_DO(check_merged_width(out, where));
  out.tower.quantised = language.quantised;
  out.text_width = language.hidden_size;
  const std::pair ids{int64_t{0}, language.vocab_size - 1};
  JIGE_TRY(const int64_t id, get_within(files.config, "image_token_id", kImageTokenId, ids, where));
  out.placeholder_id = static_cast<int32_t>(id);
  out.image_token = kImageToken;
  JIGE_DO(parse_tiles(files.pixels, side, out, files.pixels_path));
  JIGE_DO(check_tile_rows(files.processor, out, files.processor_path));
  JIGE_DO(parse_pixels(files.pixels, kIdefics3Pixels, out, files.pixels_path));
  return check_patches(out, files.pixels_path);
}

// The tokens of a text between two that are tokens by themselves.
Result<std::vector<int32_t>> tokens_between(const text::Tokenizer& tokenizer,
                                            const std::string& left, const std::string& text,
                                            const std::string& right) {
  JIGE_TRY(std::vector<int32_t> ids, tokenizer.encode(left + text + right, {.add_special = false}));
  if (ids.size() < 2 || ids.front() != tokenizer.token_to_id(left) ||
      ids.back() != tokenizer.token_to_id(right)) {
    return fail(Code::kCorrupt,
                "the tokenizer does not keep \"{}\" and \"{}\" as tokens in a text; take the "
                "tokenizer of the model that reads images",
                left, right);
  }
  return std::vector<int32_t>(ids.begin() + 1, ids.end() - 1);
}

Status find_idefics3_tokens(ImageConfig& config, const text::Tokenizer& tokenizer) {
  JIGE_TRY(config.end_id, find_image_token(tokenizer, kAroundToken));
  const auto between = [&](const char* left, const std::string& text, const char* right) {
    return tokens_between(tokenizer, left, text, right);
  };
  TileTokens tiles{.places = {}, .side = tiles_of_side(config)};
  for (int64_t i = 0; i < tiles.side * tiles.side; ++i) {
    const std::string place =
        fmt::format("<row_{}_col_{}>", i / tiles.side + 1, i % tiles.side + 1);
    JIGE_TRY(std::vector<int32_t> ids, between(kAroundToken, place, kImageToken));
    tiles.places.push_back(std::move(ids));
  }
  JIGE_TRY(tiles.whole, between(kAroundToken, kWholeText, kImageToken));
  JIGE_TRY(tiles.line, between(kImageToken, "\n", kAroundToken));
  JIGE_TRY(tiles.last_line, between(kImageToken, "\n\n", kAroundToken));
  config.tiles = std::move(tiles);
  return {};
}

struct Sides {
  int64_t width, height;
};

int64_t whole_pixels(double side) { return std::max<int64_t>(static_cast<int64_t>(side), 1); }

// With the longer side as told. The shorter one follows in floats and is made even, as in
// transformers, also where it ends as the longer one.
Sides with_longer_side(Sides sides, int64_t edge) {
  const double ratio = double(sides.width) / double(sides.height);
  const auto even = [](double side) {
    const auto whole = static_cast<int64_t>(side);
    return std::max<int64_t>(whole + whole % 2, 1);
  };
  if (sides.width >= sides.height) return {edge, even(double(edge) / ratio)};
  return {even(double(edge) * ratio), edge};
}

Sides within(Sides sides, int64_t edge) {
  const double ratio = double(sides.width) / double(sides.height);
  if (sides.width >= sides.height && sides.width > edge) {
    return {edge, whole_pixels(double(edge) / ratio)};
  }
  if (sides.height > sides.width && sides.height > edge) {
    return {whole_pixels(double(edge) * ratio), edge};
  }
  return sides;
}

// Whole tiles: first along the longer side, then as many as the shape asks for along the other.
Sides in_tiles(const Sides& sides, int64_t tile) {
  const double ratio = double(sides.width) / double(sides.height);
  const auto rounded_up = [&](int64_t side) { return (side + tile - 1) / tile * tile; };
  if (sides.width >= sides.height) {
    const int64_t width = rounded_up(sides.width);
    return {width, rounded_up(whole_pixels(double(width) / ratio))};
  }
  const int64_t height = rounded_up(sides.height);
  return {rounded_up(whole_pixels(double(height) * ratio)), height};
}

ImageLayout idefics3_layout(const ImageConfig& config, int32_t width, int32_t height) {
  const int64_t tile = config.tile_side;
  const Sides first = within(with_longer_side({width, height}, config.width_max), kEdgeMax);
  const Sides whole = config.cuts ? in_tiles(first, tile) : Sides{tile, tile};
  const bool cut = whole.width > tile || whole.height > tile;
  const auto tokens = static_cast<int32_t>(tile / config.patch_size / config.merge);
  return {.width = static_cast<int32_t>(whole.width),
          .height = static_cast<int32_t>(whole.height),
          .token_rows = tokens,
          .token_columns = tokens,
          .tile_rows = cut ? static_cast<int32_t>(whole.height / tile) : 0,
          .tile_columns = cut ? static_cast<int32_t>(whole.width / tile) : 0,
          .first_width = static_cast<int32_t>(first.width),
          .first_height = static_cast<int32_t>(first.height)};
}

std::vector<int32_t> idefics3_tokens(const ImageConfig& config, const ImageLayout& layout) {
  const TileTokens& tiles = config.tiles;
  JIGE_CHECK(config.end_id >= 0 && std::max(layout.tile_rows, layout.tile_columns) <= tiles.side,
             "tokens of tiles that nobody found");
  std::vector<int32_t> ids;
  const auto add = [&](const std::vector<int32_t>& text) {
    ids.insert(ids.end(), text.begin(), text.end());
  };
  const auto add_tile = [&](const std::vector<int32_t>& text) {
    ids.push_back(config.end_id);
    add(text);
    ids.insert(ids.end(), static_cast<size_t>(layout.tile_row_count()), kImageRow);
  };
  for (int32_t row = 0; row < layout.tile_rows; ++row) {
    for (int32_t column = 0; column < layout.tile_columns; ++column) {
      add_tile(tiles.places[static_cast<size_t>(row * tiles.side + column)]);
    }
    add(row + 1 < layout.tile_rows ? tiles.line : tiles.last_line);
  }
  add_tile(tiles.whole);
  ids.push_back(config.end_id);
  return ids;
}

}  // namespace

const ImageFamilyRules kIdefics3Images = {.family = ImageFamily::kIdefics3,
                                          .has = has_idefics3,
                                          .parse = parse_idefics3,
                                          .find_tokens = find_idefics3_tokens,
                                          .layout = idefics3_layout,
                                          .tokens = idefics3_tokens,
                                          .patches_max = idefics3_patches_max,
                                          .tiles_max = idefics3_tiles_max};

}  // namespace jige::formats
