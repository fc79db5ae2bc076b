#include "api/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "api/api_error.h"

namespace jige::api {
namespace {

// 'self' are the files of the page alone; img-src: the icon, which is written out in its address.
// With require-trusted-types-for no text becomes markup, whatever a script does.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

// Whether the browser has this file, by the tags of If-None-Match.
bool has_tag(std::string_view tags, std::string_view etag) {
  return tags == "*" || (!tags.empty() && tags.find(etag) != std::string_view::npos);
}

}  // namespace

const PageFile* find_page_file(std::string_view path) {
  const auto files = page_files();
  const auto found =
      std::ranges::find_if(files, [&](const PageFile& file) { return file.path == path; });
  return found == files.end() ? nullptr : &*found;
}

HttpResponse page_response(const PageFile& file, const HttpRequest& request) {
  if (request.method != "GET") {
    HttpResponse response =
        error_response({.status = 405,
                        .message = fmt::format("\"{}\" takes GET and HEAD alone", file.path),
                        .code = "method_not_allowed"});
    response.headers = {{"Allow", "GET, HEAD"}};
    return response;
  }
  HttpResponse response{.content_type = std::string(file.content_type), .headers = {}, .body = {}};
  response.headers = {{"ETag", std::string(file.etag)},
                      {"Cache-Control", "no-cache"},
                      {"Content-Security-Policy", std::string(kPolicy)},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cross-Origin-Resource-Policy", "same-origin"}};
  if (has_tag(request.header("If-None-Match"), file.etag)) {
    response.status = 304;
  } else {
    response.body = std::string(file.body);
  }
  return response;
}

}  // namespace jige::api
