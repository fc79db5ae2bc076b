// WebP by libwebp: still images, and the first picture of animations.
#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>
#include <string>

#include "images/decode_kinds.h"
#include "images/orientation.h"

namespace jige::images {
namespace {

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

// The first picture at its place in `image`, which is as large as the whole; that it lies inside,
// the library has seen to.
bool decode_first_picture(const WebPDemuxer* demuxer, Image& image) {
  WebPIterator picture;
  if (!WebPDemuxGetFrame(demuxer, 1, &picture)) return false;
  const size_t begin = static_cast<size_t>(picture.y_offset) * image.row_bytes() +
                       3 * static_cast<size_t>(picture.x_offset);
  const uint8_t* decoded =
      WebPDecodeRGBInto(picture.fragment.bytes, picture.fragment.size, image.rgb.data() + begin,
                        image.rgb.size() - begin, static_cast<int>(image.row_bytes()));
  WebPDemuxReleaseIterator(&picture);
  return decoded != nullptr;
}

}  // namespace

Result<StoredImage> decode_webp(std::span<const std::byte> file, std::string_view where,
                                const DecodeLimits& limits, DecodePart part) {
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
  if (!decode_first_picture(demuxer.get(), image)) {
    return fail(Code::kCorrupt, "{}: the pixels of this WebP are damaged; save the image anew",
                where);
  }
  return StoredImage{std::move(image), orientation};
}

}  // namespace jige::images
