#include "api/request_images.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "images/data_url.h"

namespace jige::api {
namespace {

constexpr std::string_view kExampleUrl = "\"data:image/png;base64,…\"";

ApiError no_data_url(std::string_view url, const std::string& where) {
  if (images::has_scheme(url, "http:") || images::has_scheme(url, "https:")) {
    return bad_field(where,
                     "{}: nothing is downloaded; send the image itself, as a data: URL such as {}",
                     where, kExampleUrl);
  }
  return bad_field(where, "{} must be a data: URL such as {}, found {}", where, kExampleUrl,
                   shown_value(Json(std::string(url.substr(0, 1000)))));
}

}  // namespace

ApiResult<std::string> data_url_bytes(std::string_view url, const std::string& where) {
  auto bytes = images::data_url_bytes(url);
  if (bytes) return std::move(*bytes);
  switch (bytes.error()) {
    case images::DataUrlFault::kOtherUrl:
      return tl::unexpected(no_data_url(url, where));
    case images::DataUrlFault::kOtherForm:
      return tl::unexpected(bad_field(
          where, "{} must name the type of an image and be in base64, as {} does, found {}", where,
          kExampleUrl,
          shown_value(Json(std::string(url.substr(0, url.find(',')).substr(0, 1000))))));
    case images::DataUrlFault::kNoBase64:
      break;
  }
  return tl::unexpected(bad_field(where,
                                  "{} is not base64: letters, digits, + and / alone, padded with "
                                  "=, without spaces and line ends",
                                  where));
}

std::optional<ApiError> RequestImages::add(const Json& part, const std::string& where,
                                           std::string_view role) {
  if (!model_.images) {
    const std::string param = where + ".type";
    ApiError error = bad_field(param,
                               "{}: the model \"{}\" reads text alone; leave images out, or serve "
                               "a model that reads them",
                               param, model_.name);
    error.code = "no_images";
    return error;
  }
  if (role != "user" && role != "tool") {
    return unsupported_field(where + ".type",
                             fmt::format("images in messages of the role \"{}\" are", role));
  }
  const Json* image = find_field(part, "image_url");
  const Json* url = image ? find_field(*image, "url") : nullptr;
  const std::string place = where + ".image_url.url";
  if (!url || !url->is_string()) {
    return bad_field(place, "{} must be a data: URL such as {}, found {}", place, kExampleUrl,
                     url ? shown_value(*url) : "nothing");
  }
  if (std::ssize(files_) >= limits_.images_max) {
    return bad_field(place, "{}: a request has at most {} images; send fewer", place,
                     limits_.images_max);
  }
  auto bytes = data_url_bytes(url->get_ref<const std::string&>(), place);
  if (!bytes) return std::move(bytes.error());
  return add_file(std::move(*bytes), place);
}

std::optional<ApiError> RequestImages::add_file(std::string bytes, const std::string& where) {
  const auto size = images::image_size(std::as_bytes(std::span(bytes)), where);
  if (!size) return to_text_error(size.error(), where);
  pixel_count_ += int64_t{size->width} * size->height;
  if (pixel_count_ > limits_.image_pixels_max) {
    return bad_field(where,
                     "{}: the images of the request have more than {} pixels up to here; send "
                     "smaller ones",
                     where, limits_.image_pixels_max);
  }
  token_count_ += model_.images->token_count(*size);
  files_.push_back({.bytes = std::move(bytes), .where = where, .size = *size});
  return std::nullopt;
}

std::optional<ApiError> RequestImages::check_places(std::span<const int32_t> prompt) const {
  if (!model_.images) return std::nullopt;
  const auto places = std::ranges::count(prompt, model_.images->placeholder_id());
  if (places == std::ssize(files_)) return std::nullopt;
  return bad_field("messages",
                   "messages: the chat template of \"{}\" writes {} places for images where {} "
                   "were sent; it may not show those of some roles, or write places of its own",
                   model_.name, places, files_.size());
}

}  // namespace jige::api
