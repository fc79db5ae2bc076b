// The images of a tokenised file: where each stands among the tokens, and where its file is.
//
// Beside the copy PATH of tokenize.h are PATH.image-list, a JSON object for each image on a line,
// in the order of their tokens,
//
//   {"token": 12, "count": 64, "width": 640, "height": 480, "digest": "<16 hex digits>",
//    "file": "/data/photos/1.jpg", "bytes": 81920, "changed_ns": …}
//
// and PATH.pictures, the bytes of those that stood in the data as data: URLs, which have "at",
// their place there, instead of "file". Digests are XXH64 of the file's bytes, by which an image
// that was changed is known. Threads: values; pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace jige::train {

// The bytes of an image, and what they are in the data.
struct ImageFile {
  std::string file;  // empty: in PATH.pictures
  int64_t at = 0;    // of these
  int64_t byte_count = 0;
  int64_t changed_ns = 0;  // when the file was last changed
  uint64_t digest = 0;
};

struct CorpusImage {
  int64_t token = 0;  // of the file, where its tokens begin
  int32_t count = 0;  // of its tokens
  int32_t width = 0;  // pixels
  int32_t height = 0;
  ImageFile source;
};

std::string image_index_path(const std::string& token_path);
std::string pictures_path(const std::string& token_path);

// The bytes of what a record names: a data: URL, or a file, whose path begins in `folder`. Sets all
// of `source` but `at`. Fails with kInvalidArgument, kUnsupported on other URLs, and as read_file.
Result<std::string> read_image_source(const std::string& named, const std::string& folder,
                                      const std::string& where, ImageFile& source);

// The same bytes again, from there or from the pictures of a copy. Fails with kUnavailable where
// they are others, and as read_file.
Result<std::string> read_image_again(const ImageFile& source, const std::string& token_path);

// Replaces PATH.image-list.
Status write_image_index(const std::string& token_path, std::span<const CorpusImage> images);
// Fails with kNotFound where it is not there, kCorrupt where it contradicts itself or a file of so
// many tokens.
Result<std::vector<CorpusImage>> read_image_index(const std::string& token_path,
                                                  int64_t token_count);

// Whether the files are those of the index, by size and time or, where these differ, by content.
bool images_unchanged(std::span<const CorpusImage> images);

// What is held of them.
int64_t image_index_bytes(std::span<const CorpusImage> images);

}  // namespace jige::train
