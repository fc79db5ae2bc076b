// The images of a record's messages: where each stands, and where it comes from.
//
//   {"messages": [{"role": "user", "content": [{"type": "image", "image": "photos/1.jpg"},
//                                              {"type": "text", "text": …}]}, …]}
//   {"type": "image_url", "image_url": {"url": …}}   the same
//   {"messages": …, "images": ["photos/1.jpg", …]}   in the order of parts {"type": "image"} that
//                                                    name none, or of texts "<image>"; where there
//                                                    are neither, all before the first user's text
//   {"conversations": …, "image": "photos/1.jpg"}    the same of one
//
// A source is the path of a file, from the folder of the data on, or a data: URL. Nothing is
// downloaded. Threads: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace jige::train {

// Far above any conversation that a context holds.
inline constexpr size_t kRecordImagesMax = 4096;

struct ImageMessages {
  // As chat templates take them: a content is a text or, with images, a list of {"type": "text",
  // "text": …} and {"type": "image"}.
  Json messages;
  std::vector<std::string> sources;  // of these images, in their order
  std::vector<std::string> places;   // "messages[0].content[1]", for errors
};

// Of a record with "messages". Where `refusal` says why none are read, an image is refused with it.
// Fails with kInvalidArgument or kUnsupported, naming the place behind `where`.
Result<ImageMessages> read_image_messages(const Json& object, const std::string& refusal,
                                          const std::string& where);

// That a record of other texts names no images beside them, which nothing would read; `refusal` as
// above. Fails with kUnsupported.
Status check_no_images(const Json& object, const std::string& refusal, const std::string& where);

}  // namespace jige::train
