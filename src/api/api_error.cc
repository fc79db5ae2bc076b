#include "api/api_error.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace jige::api {
namespace {

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

std::string_view anthropic_type(int status) {
  switch (status) {
    case 413:
      return "request_too_large";
    case 500:
      return "api_error";
    default:
      return error_type(status);  // the others have one name in both
  }
}

// That form has no place for the field; where the message does not begin with it, it is put there.
Json anthropic_error(const ApiError& error) {
  const bool named = error.message.find(error.param) != std::string::npos;
  return {{"type", "error"},
          {"error",
           {{"type", anthropic_type(error.status)},
            {"message", named ? error.message : error.param + ": " + error.message}}}};
}

}  // namespace

ApiError unsupported_field(std::string param, std::string_view what) {
  ApiError error = bad_field(param, "{}: {} not supported", param, what);
  error.code = "unsupported_parameter";
  return error;
}

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
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 500:
      return "server_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return "invalid_request_error";
  }
}

ErrorForm error_form(std::string_view path) {
  const bool anthropic = path == "/v1/messages" || path.starts_with("/v1/messages/");
  return anthropic ? ErrorForm::kAnthropic : ErrorForm::kOpenAi;
}

Json error_json(const ApiError& error, ErrorForm form) {
  if (form == ErrorForm::kAnthropic) return anthropic_error(error);
  return {{"error",
           {{"message", error.message},
            {"type", error_type(error.status)},
            {"param", text_or_null(error.param)},
            {"code", text_or_null(error.code)}}}};
}

HttpResponse error_response(const ApiError& error, ErrorForm form) {
  HttpResponse response = json_response(error_json(error, form), error.status);
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
