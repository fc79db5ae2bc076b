// GIF: the first picture, at its place on the whole, which has the colour of no pixel besides.
//
//   header, screen [colours] {extension} picture [colours] least code size, blocks of codes
//
// Codes are LZW: of growing width, least bit first; a code is a run of pixels, and each one after
// the first adds to the table the run before it and the pixel that this one begins with.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "images/decode_kinds.h"

namespace jige::images {
namespace {

using GifColours = std::array<std::array<uint8_t, 3>, 256>;

// The bytes of a file in order. Behind its end come zeros, and `is_short` says so.
class GifBytes {
 public:
  explicit GifBytes(std::span<const std::byte> file) : file_(file) {}

  bool is_short() const { return is_short_; }
  uint8_t byte() {
    if (at_ == file_.size()) {
      is_short_ = true;
      return 0;
    }
    return std::to_integer<uint8_t>(file_[at_++]);
  }
  int32_t number() {
    const int32_t low = byte();
    return low | byte() << 8;
  }
  void skip(size_t count) {
    is_short_ = is_short_ || count > file_.size() - at_;
    at_ += std::min(count, file_.size() - at_);
  }
  // Blocks up to the empty one.
  void skip_blocks() {
    for (size_t size = byte(); size != 0; size = byte()) skip(size);
  }
  // The table that `flags` tell, if any.
  void read_colours(uint8_t flags, GifColours& colours) {
    if (!(flags & 0x80)) return;
    for (size_t i = 0; i < size_t{2} << (flags & 7); ++i) {
      for (uint8_t& colour : colours[i]) colour = byte();
    }
  }

 private:
  std::span<const std::byte> file_;
  size_t at_ = 0;
  bool is_short_ = false;
};

// Codes from the blocks of a picture.
class GifCodes {
 public:
  explicit GifCodes(GifBytes& bytes) : bytes_(bytes) {}

  // The next code, or -1 behind the last block.
  int next(int width) {
    for (; bit_count_ < width; bit_count_ += 8) {
      if (left_ == 0) left_ = bytes_.byte();
      if (left_ == 0 || bytes_.is_short()) return -1;
      bits_ |= static_cast<uint32_t>(bytes_.byte()) << bit_count_;
      --left_;
    }
    const int code = static_cast<int>(bits_ & ((1u << width) - 1));
    bits_ >>= width;
    bit_count_ -= width;
    return code;
  }

 private:
  GifBytes& bytes_;
  uint32_t bits_ = 0;
  int bit_count_ = 0;
  size_t left_ = 0;  // bytes of this block
};

// Runs of pixels by their codes: the run of another code and one pixel more.
class GifRuns {
 public:
  explicit GifRuns(int root_bits) : root_bits_(root_bits) { clear(); }

  int width() const { return width_; }
  bool is_clear(int code) const { return code == 1 << root_bits_; }
  bool is_end(int code) const { return code == (1 << root_bits_) + 1; }
  void clear() {
    count_ = (1 << root_bits_) + 2;
    width_ = root_bits_ + 1;
    before_ = -1;
  }
  // Appends the run of a code, at most up to `size_max` pixels in all. False: there is no such
  // code.
  bool append(int code, size_t size_max, std::vector<uint8_t>& pixels) {
    const bool is_new = before_ >= 0 && code == count_;  // which a full table has no code for
    if (code >= count_ && !is_new) return false;
    reversed_.clear();
    if (is_new) reversed_.push_back(first_);  // the run before this one and its own first pixel
    int at = is_new ? before_ : code;
    for (; at >= 1 << root_bits_; at = parents_[at]) reversed_.push_back(lasts_[at]);
    first_ = static_cast<uint8_t>(at);
    reversed_.push_back(first_);
    const size_t room = size_max - pixels.size();
    pixels.insert(pixels.end(), reversed_.rbegin(),
                  reversed_.rbegin() + static_cast<ptrdiff_t>(std::min(room, reversed_.size())));
    if (before_ >= 0 && count_ < kCodesMax) {
      parents_[count_] = before_;
      lasts_[count_] = first_;
      ++count_;
      if (count_ == 1 << width_ && width_ < kWidthMax) ++width_;
    }
    before_ = code;
    return true;
  }

 private:
  static constexpr int kWidthMax = 12;
  static constexpr int kCodesMax = 1 << kWidthMax;
  int root_bits_;
  int count_ = 0;
  int width_ = 0;
  int before_ = -1;    // the code before, -1 behind a clear
  uint8_t first_ = 0;  // the pixel that its run begins with
  std::array<int, kCodesMax> parents_{};
  std::array<uint8_t, kCodesMax> lasts_{};
  std::vector<uint8_t> reversed_;
};

// The pixels of a picture, as numbers of colours. Nothing where there are not as many, or its pace
// ends it.
std::vector<uint8_t> read_gif_pixels(GifBytes& bytes, size_t count, Pace& pace) {
  constexpr int kRootBitsMax = 8;
  const int root_bits = bytes.byte();
  if (root_bits < 1 || root_bits > kRootBitsMax) return {};
  GifRuns runs(root_bits);
  GifCodes codes(bytes);
  std::vector<uint8_t> pixels;
  while (pixels.size() < count) {
    const size_t before = pixels.size();
    const int code = codes.next(runs.width());
    if (code < 0 || runs.is_end(code)) return {};
    if (runs.is_clear(code)) {
      runs.clear();
    } else if (!runs.append(code, count, pixels)) {
      return {};
    }
    // A code that gives no pixel takes time, too.
    if (!pace.step(static_cast<int64_t>(pixels.size() - before) + 1)) return {};
  }
  return pixels;
}

// Where the i-th stored row of an interlaced picture stands, for all of them.
std::vector<int32_t> gif_rows(int32_t height, bool is_interlaced) {
  constexpr std::pair<int32_t, int32_t> kPasses[] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}};
  std::vector<int32_t> rows;
  if (!is_interlaced) {
    for (int32_t y = 0; y < height; ++y) rows.push_back(y);
    return rows;
  }
  for (const auto& [begin, step] : kPasses) {
    for (int32_t y = begin; y < height; y += step) rows.push_back(y);
  }
  return rows;
}

struct GifPicture {
  int32_t left = 0;
  int32_t top = 0;
  int32_t width = 0;
  int32_t height = 0;
  uint8_t flags = 0;
  uint8_t clear_colour = 0;
};

// Goes to the first picture, past extensions. False: there is none.
bool find_gif_picture(GifBytes& bytes, GifPicture& picture) {
  constexpr uint8_t kExtension = 0x21;
  constexpr uint8_t kPicture = 0x2C;
  constexpr uint8_t kGraphics = 0xF9;
  for (uint8_t mark = bytes.byte(); mark != kPicture; mark = bytes.byte()) {
    if (mark != kExtension || bytes.is_short()) return false;
    if (bytes.byte() == kGraphics) {
      const size_t size = bytes.byte();
      if (size < 4) return false;
      const uint8_t flags = bytes.byte();
      bytes.skip(2);
      const uint8_t colour = bytes.byte();
      if (flags & 1) picture.clear_colour = colour;
      bytes.skip(size - 4);
    }
    bytes.skip_blocks();
  }
  picture.left = bytes.number();
  picture.top = bytes.number();
  picture.width = bytes.number();
  picture.height = bytes.number();
  picture.flags = bytes.byte();
  return !bytes.is_short();
}

// The picture at its place, on the colour that what is beside it has. False: its pace ends it.
bool draw_gif(const GifPicture& picture, const GifColours& colours,
              const std::vector<uint8_t>& pixels, Image& image, Pace& pace) {
  for (size_t i = 0; i < image.rgb.size(); ++i) {
    if (i % image.row_bytes() == 0 && !pace.step(image.width)) return false;
    image.rgb[i] = colours[picture.clear_colour][i % 3];
  }
  const uint8_t* src = pixels.data();
  for (const int32_t row : gif_rows(picture.height, picture.flags & 0x40)) {
    if (!pace.step(picture.width)) return false;
    uint8_t* dst = image.rgb.data() + static_cast<size_t>(picture.top + row) * image.row_bytes() +
                   3 * static_cast<size_t>(picture.left);
    for (int32_t x = 0; x < picture.width; ++x, dst += 3) std::ranges::copy(colours[*src++], dst);
  }
  return true;
}

}  // namespace

Result<StoredImage> decode_gif(std::span<const std::byte> file, std::string_view where,
                               const DecodeLimits& limits, DecodePart part, Pace& pace) {
  GifBytes bytes(file);
  bytes.skip(6);  // which decode.cc looked at
  int32_t width = bytes.number();
  int32_t height = bytes.number();
  const uint8_t flags = bytes.byte();
  bytes.skip(2);
  GifColours colours{};
  bytes.read_colours(flags, colours);
  GifPicture picture;
  if (!find_gif_picture(bytes, picture)) {
    return fail(Code::kCorrupt, "{}: this GIF is damaged or cut off before its first picture",
                where);
  }
  if (!((flags | picture.flags) & 0x80)) {  // no table: greys
    for (size_t i = 0; i < colours.size(); ++i) colours[i].fill(static_cast<uint8_t>(i));
  }
  bytes.read_colours(picture.flags, colours);
  width = std::max(width, picture.left + picture.width);
  height = std::max(height, picture.top + picture.height);
  JIGE_DO(check_size(width, height, where, limits));
  JIGE_DO(check_size(picture.width, picture.height, where, limits));
  if (part == DecodePart::kHead) return stored_head(width, height, 1);
  const std::vector<uint8_t> pixels = read_gif_pixels(
      bytes, static_cast<size_t>(picture.width) * static_cast<size_t>(picture.height), pace);
  if (!pace.status()) return tl::unexpected(pace.status().error());
  if (pixels.empty()) {
    return fail(Code::kCorrupt, "{}: the pixels of this GIF are damaged or cut off", where);
  }
  Image image = make_image(width, height);
  if (!draw_gif(picture, colours, pixels, image, pace)) {
    return tl::unexpected(pace.status().error());
  }
  return StoredImage{std::move(image), 1};
}

}  // namespace jige::images
