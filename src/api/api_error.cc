#include "api/api_error.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace jige::api {
namespace {

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

ApiError to_api_error(const Error& error, std::string param) {
  ApiError shown{.message = error.message, .param = std::move(param)};
  switch (error.code) {
    case Code::kInvalidArgument:
    case Code::kCorrupt:
    case Code::kUnsupported:
    case Code::kNotFound:
      shown.status = 400;
      break;
    case Code::kExhausted:
      shown.status = 429;
      shown.code = "queue_full";
      break;
    case Code::kUnavailable:
    case Code::kCancelled:
      shown.status = 503;
      break;
    case Code::kInternal:
    case Code::kIo:
      shown.status = 500;
      break;
  }
  return shown;
}

ApiError to_text_error(const Error& error, std::string param) {
  return bad_field(std::move(param), "{}", error.message);
}

std::string_view error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 500:
      return "server_error";
    case 503:
      return "overloaded_error";
    default:
      return "invalid_request_error";
  }
}

Json error_json(const ApiError& error) {
  return {{"error",
           {{"message", error.message},
            {"type", error_type(error.status)},
            {"param", text_or_null(error.param)},
            {"code", text_or_null(error.code)}}}};
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response = json_response(error_json(error), error.status);
  if (error.retry_after_s >= 0) {
    const double seconds = std::clamp(std::ceil(error.retry_after_s), 1.0, 3600.0);
    response.headers.push_back({"Retry-After", std::to_string(static_cast<int>(seconds))});
  }
  if (error.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

HttpResponse json_response(const Json& json, int status) {
  return {.status = status, .body = dump_json(json)};
}

}  // namespace jige::api
