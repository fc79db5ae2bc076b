// WebP by libwebp: still images, and the first picture of animations.
//
// The library is given the file piece by piece, and its pace is asked in between. What a piece
// takes depends on the file: a few bytes may be an image of one colour, which is drawn in one.
#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <memory>
#include <string>

#include "images/decode_kinds.h"
#include "images/orientation.h"

namespace jige::images {
namespace {

constexpr size_t kWebpPieces = 64;
constexpr size_t kWebpPieceMin = 256;  // bytes

struct WebpDeleter {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};

// The first chunk of a name; it points into the file.
std::span<const std::byte> webp_chunk(const WebPDemuxer* demuxer, const char* name) {
  WebPChunkIterator found;
  std::span<const std::byte> chunk;
  if (WebPDemuxGetChunk(demuxer, name, 1, &found)) {
    chunk = std::as_bytes(std::span(found.chunk.bytes, found.chunk.size));
    WebPDemuxReleaseChunkIterator(&found);
  }
  return chunk;
}

// Up to where the next piece goes. What stands before the pixels is read anew with each piece until
// there is all of it, so these grow until then.
size_t next_webp_end(size_t end, size_t size, bool has_rows) {
  const size_t part = size / kWebpPieces + kWebpPieceMin;
  return std::min(size, has_rows ? end + part : std::max(end + end / 2, part));
}

// Decodes a picture to where the decoder was told.
bool decode_webp_pieces(WebPIDecoder* decoder, const WebPData& data, Pace& pace) {
  int rows = 0;
  for (size_t end = 0; end < data.size;) {
    if (!pace.ask()) return false;
    end = next_webp_end(end, data.size, rows > 0);
    const VP8StatusCode status = WebPIUpdate(decoder, data.bytes, end);
    if (status == VP8_STATUS_OK) return true;
    if (status != VP8_STATUS_SUSPENDED) return false;
    WebPIDecGetRGB(decoder, &rows, nullptr, nullptr, nullptr);
  }
  return false;  // it ends too early
}

// The first picture at its place in `image`, which is as large as the whole; that it lies inside,
// the library has seen to.
bool decode_first_picture(const WebPDemuxer* demuxer, Image& image, Pace& pace) {
  WebPIterator picture;
  if (!WebPDemuxGetFrame(demuxer, 1, &picture)) return false;
  const size_t begin = static_cast<size_t>(picture.y_offset) * image.row_bytes() +
                       3 * static_cast<size_t>(picture.x_offset);
  WebPIDecoder* const decoder =
      WebPINewRGB(MODE_RGB, image.rgb.data() + begin, image.rgb.size() - begin,
                  static_cast<int>(image.row_bytes()));
  const bool decoded = decoder && decode_webp_pieces(decoder, picture.fragment, pace);
  WebPIDelete(decoder);
  WebPDemuxReleaseIterator(&picture);
  return decoded;
}

}  // namespace

Result<StoredImage> decode_webp(std::span<const std::byte> file, std::string_view where,
                                const DecodeLimits& limits, DecodePart part, Pace& pace) {
  const WebPData data{reinterpret_cast<const uint8_t*>(file.data()), file.size()};
  const std::unique_ptr<WebPDemuxer, WebpDeleter> demuxer(WebPDemux(&data));
  if (!demuxer) {
    return fail(Code::kCorrupt, "{}: this WebP is damaged or cut off; save the image anew", where);
  }
  const uint32_t width = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH);
  const uint32_t height = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT);
  JIGE_DO(check_size(width, height, where, limits));
  const std::span<const std::byte> xmp = webp_chunk(demuxer.get(), "XMP ");
  const int orientation = read_orientation(webp_chunk(demuxer.get(), "EXIF"),
                                           {reinterpret_cast<const char*>(xmp.data()), xmp.size()});
  if (part == DecodePart::kHead) {
    return stored_head(static_cast<int32_t>(width), static_cast<int32_t>(height), orientation);
  }
  Image image = make_image(static_cast<int32_t>(width), static_cast<int32_t>(height));
  if (!decode_first_picture(demuxer.get(), image, pace)) {
    if (!pace.status()) return tl::unexpected(pace.status().error());
    return fail(Code::kCorrupt, "{}: the pixels of this WebP are damaged; save the image anew",
                where);
  }
  return StoredImage{std::move(image), orientation};
}

}  // namespace jige::images
