// Errors as the OpenAI API shows them,
//
//   {"error":{"message":"temperature must be from 0 to 2, found 7","type":"invalid_request_error",
//             "param":"temperature","code":null}}
//
// and as the Anthropic API does:
//
//   {"type":"error","error":{"type":"invalid_request_error","message":"temperature must be …"}}
//
// Threads: values.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

#include "api/http_message.h"
#include "base/json.h"
#include "base/result.h"

namespace jige::api {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param;          // the field that is wrong; empty: null
  std::string code;           // for programs; empty: null
  double retry_after_s = -1;  // >= 0: when to come again
};

template <typename T>
using ApiResult = tl::expected<T, ApiError>;

// A 400 that names a field.
template <typename... Args>
ApiError bad_field(std::string param, fmt::format_string<Args...> format, Args&&... args) {
  return {.message = fmt::format(format, std::forward<Args>(args)...), .param = std::move(param)};
}

// A 400 for what is known and not served: "`param`: `what` not supported".
ApiError unsupported_field(std::string param, std::string_view what);

// What an error of the engine means to the client: the status by its code.
ApiError to_api_error(const Error& error, std::string param = {});
// What an error of the text layer means: 400, whatever the code, as another text would do.
ApiError to_text_error(const Error& error, std::string param);

// "invalid_request_error", "rate_limit_error" and so on, by the status.
std::string_view error_type(int status);
// Of which API an error has the form.
enum class ErrorForm { kOpenAi, kAnthropic };
// The form of the errors of a route.
ErrorForm error_form(std::string_view path);
Json error_json(const ApiError& error, ErrorForm form = ErrorForm::kOpenAi);
HttpResponse error_response(const ApiError& error, ErrorForm form = ErrorForm::kOpenAi);
HttpResponse json_response(const Json& json, int status = 200);

}  // namespace jige::api
