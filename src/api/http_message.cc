#include "api/http_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "base/ascii.h"

namespace jige::api {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = lower_ascii(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void append_clean(std::string& out, std::string_view text) {
  for (const char c : text) {
    if (c != '\r' && c != '\n' && c != '\0') out += c;
  }
}

void append_field(std::string& out, std::string_view name, std::string_view value) {
  append_clean(out, name);
  out += ": ";
  append_clean(out, value);
  out += "\r\n";
}

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower_ascii(x) == lower_ascii(y); });
}

// Takes "http://host" from the front of a target in absolute form, for the Host field. False where
// the host is missing.
bool take_authority(std::string_view& target, HttpRequest& request) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!same_name(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    const std::string host(target.substr(0, target.find_first_of("/?")));
    std::erase_if(request.headers, [](const auto& field) { return same_name(field.name, "Host"); });
    request.headers.push_back({"Host", host});
    target.remove_prefix(host.size());
    return !host.empty();
  }
  return true;
}

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[40];
  const size_t size = std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc);
  return std::string(text, size);
}

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  for (const HttpHeader& field : headers) {
    if (same_name(field.name, name)) return field.value;
  }
  return {};
}

bool split_target(std::string_view target, HttpRequest& request) {
  if (!take_authority(target, request)) return false;
  const size_t mark = std::min(target.find('?'), target.size());
  request.query = target.substr(std::min(mark + 1, target.size()));
  request.path.clear();
  for (size_t i = 0; i < mark; ++i) {
    if (target[i] != '%') {
      request.path += target[i];
      continue;
    }
    if (i + 2 >= mark) return false;
    const int high = hex_value(target[i + 1]), low = hex_value(target[i + 2]);
    if (high < 0 || low < 0) return false;
    request.path += static_cast<char>(high * 16 + low);
    i += 2;
  }
  if (request.path.empty()) request.path = "/";
  return true;
}

std::string_view status_text(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Status";
  }
}

HttpResponse event_stream_head() {
  return {.content_type = "text/event-stream; charset=utf-8",
          .headers = {{"Cache-Control", "no-cache"},
                      {"X-Accel-Buffering", "no"}}};  // a proxy must not collect events
}

std::string response_head(const HttpResponse& response, const HttpFraming& framing) {
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\n", response.status, status_text(response.status));
  append_field(head, "Date", http_date());
  append_field(head, "Server", "jige");
  append_field(head, "Content-Type", response.content_type);
  if (framing.end == BodyEnd::kChunks) {
    append_field(head, "Transfer-Encoding", "chunked");
  } else if (framing.end == BodyEnd::kLength && response.status != 304) {  // that has none
    append_field(head, "Content-Length", std::to_string(response.body.size()));
  }
  append_field(head, "Connection", framing.keep_alive ? "keep-alive" : "close");
  for (const HttpHeader& field : response.headers) append_field(head, field.name, field.value);
  return head + "\r\n";
}

std::string chunk_of(std::string_view piece) {
  if (piece.empty()) return {};  // an empty chunk would end the body
  return fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
}

}  // namespace jige::api
