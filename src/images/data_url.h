// The bytes of an image that stand in a URL, "data:image/png;base64,…".
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace jige::images {

enum class DataUrlFault {
  kOtherUrl,   // of another scheme, or no URL
  kOtherForm,  // names no type of an image, or is not in base64
  kNoBase64,   // says so and is not
};

// Whatever type of image it names.
tl::expected<std::string, DataUrlFault> data_url_bytes(std::string_view url);

// Whether a URL is of this scheme, "data:", in letters of either case.
bool has_scheme(std::string_view url, std::string_view scheme);

}  // namespace jige::images
