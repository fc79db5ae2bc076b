#include "api/route_events.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace jige::api {

size_t events_end(std::string_view text) {
  size_t end = 0;
  for (const std::string_view mark : {std::string_view("\n\n"), std::string_view("\r\n\r\n")}) {
    const size_t at = text.rfind(mark);
    if (at != std::string_view::npos) end = std::max(end, at + mark.size());
  }
  return end;
}

size_t comments_end(std::string_view text) {
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) break;
    const std::string_view line = text.substr(begin, end - begin);
    if (!line.empty() && line != "\r" && !line.starts_with(':')) break;
    begin = end + 1;
  }
  return begin;
}

int64_t count_events(std::string_view text) {
  int64_t count = 0;
  for (size_t at = text.find("data:"); at != std::string_view::npos;
       at = text.find("data:", at + 5)) {
    if (at == 0 || text[at - 1] == '\n') ++count;
  }
  return count;
}

std::string error_event(std::string_view path, const ApiError& error, int64_t events) {
  if (error_form(path) == ErrorForm::kAnthropic) {
    return "event: error\ndata: " + dump_json(error_json(error, ErrorForm::kAnthropic)) + "\n\n";
  }
  if (path == "/v1/responses") {
    const Json json{{"type", "error"},
                    {"code", "server_error"},
                    {"message", error.message},
                    {"param", nullptr},
                    {"sequence_number", events}};
    return "event: error\ndata: " + dump_json(json) + "\n\n";
  }
  return "data: " + dump_json(error_json(error)) + "\n\n";
}

ApiError error_of(const HttpResponse& answer) {
  ApiError error{.status = answer.status < 400 ? 500 : answer.status,
                 .message = fmt::format("the server gave no stream, but HTTP {}", answer.status)};
  const Result<Json> body = parse_json(answer.body, "the answer");
  const Json* told = body && body->is_object() ? find_field(*body, "error") : nullptr;
  if (!told || !told->is_object()) return error;
  const auto take = [&](const char* name, std::string& into) {
    const Json* text = find_field(*told, name);
    if (text && text->is_string()) into = text->get<std::string>();
  };
  take("message", error.message);
  take("param", error.param);
  take("code", error.code);
  return error;
}

}  // namespace jige::api
