// The images of a record as tokens among its ids.
//
// A chat template writes one placeholder for an image (formats::ImageConfig::placeholder_id). In
// its place come the tokens that the image takes, those of its rows being the placeholder itself:
// what stands in rows is computed while it is trained on (image_rows.h). None of them is learned.
// Files are read and decoded here, so that a bad one is known before anything starts.
// Threads: immutable; from any number of threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/image_config.h"
#include "train/image_index.h"
#include "train/image_messages.h"

namespace jige::train {

// How images in messages become tokens.
struct ImageEncoding {
  formats::ImageConfig config;  // with the ids of its tokens
  int64_t context = 0;          // inputs of a document with images, at most
};

// An image of a document; its token counts from the document's first id on.
struct EncodedImage {
  CorpusImage image;
  std::string bytes;  // of a data: URL
};

// Reads the images of messages, whose paths begin in `folder`. Fails as read_image_source and
// images::decode_image, naming the image's place behind `where`.
Result<std::vector<EncodedImage>> read_images(const ImageMessages& messages,
                                              const std::string& folder, const std::string& where);

// Puts the images' tokens in place of the placeholders and says where they are. Fails with
// kInvalidArgument where these are not as many, or the document gets too long.
Status place_images(const ImageEncoding& encoding, std::vector<EncodedImage>& images,
                    std::vector<int32_t>& ids, std::vector<uint8_t>& learned,
                    const std::string& where);

}  // namespace jige::train
