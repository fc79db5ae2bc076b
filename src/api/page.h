// The page to chat in that `jige serve` shows at "/": files of src/api/page, built into the binary
// (cmake/page.cmake).
//
// Invariants: files hold no text of a request, so that nobody can put anything into them; the page
// loads nothing but them and runs no other script, which their Content-Security-Policy tells the
// browser. Threads: constants.
#pragma once

#include <span>
#include <string_view>

#include "api/http_message.h"

namespace jige::api {

struct PageFile {
  std::string_view path;  // of a request: "/" or "/page/NAME"
  std::string_view content_type;
  std::string_view body;
  std::string_view etag;  // another one for another body, with its quotes
};

// All of them, in the order of their paths.
std::span<const PageFile> page_files();
// The file at the path of a request; nullptr where there is none.
const PageFile* find_page_file(std::string_view path);
// The answer to a request for a file of the page: 405 but for GET and HEAD, 304 where the browser
// has it already.
HttpResponse page_response(const PageFile& file, const HttpRequest& request);

}  // namespace jige::api
