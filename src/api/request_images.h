// The images of a request: the files that it brings as data: URLs, and what they take of its
// prompt. Nothing is fetched from anywhere.
//
// Sizes are read from the heads of the files, so that a request is known to fit before one of them
// is decoded, which ImageReader does. Invariants: as many files as RequestLimits::images_max at
// most, of image_pixels_max together; nothing of a model that reads text alone.
// Threads: one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/field_reader.h"
#include "api/image_reader.h"
#include "api/served_model.h"

namespace jige::api {

class RequestImages {
 public:
  RequestImages(const ServedModel& model, const RequestLimits& limits)
      : model_(model), limits_(limits) {}

  // Takes the image of a part {"type": "image_url", "image_url": {"url": "data:…"}} of a message of
  // this role. Fails with 400 and the field inside `where`, the part.
  std::optional<ApiError> add(const Json& part, const std::string& where, std::string_view role);

  // 400 unless a prompt has as many places for images as there are.
  std::optional<ApiError> check_places(std::span<const int32_t> prompt) const;
  // Tokens that they take in a prompt beside their placeholders.
  int64_t more_tokens() const { return token_count_ - std::ssize(files_); }
  std::vector<ImageFile> take() && { return std::move(files_); }

 private:
  std::optional<ApiError> add_file(std::string bytes, const std::string& where);

  const ServedModel& model_;
  const RequestLimits& limits_;
  std::vector<ImageFile> files_;
  int64_t token_count_ = 0;
  int64_t pixel_count_ = 0;
};

// The bytes in a URL such as "data:image/png;base64,…", whatever type of image it names. Errors
// name `where`.
ApiResult<std::string> data_url_bytes(std::string_view url, const std::string& where);

}  // namespace jige::api
