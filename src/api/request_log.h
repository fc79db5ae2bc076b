// RequestLog: a line of JSON for each request whose end an HTTP server has seen, for
// `--request-log FILE` of `jige serve` and `jige route`.
//
//   {"time":"2026-11-29T14:12:00.123Z","id":"req-1f…","client":"10.0.0.7","method":"POST",
//    "path":"/v1/completions","status":200,"seconds":0.512,"bytes":1834,"whole":true}
//
// `time` is that of the end. `seconds` run from when the request had come to when all of the answer
// was handed to its connection; `bytes` are those of the answer, its head and framing included. An
// answer is not whole where the client went before, or where it was cut; without a status it had
// not begun. By the id lines of a router and its servers can be joined. What was asked and
// answered stands in no line, nor do keys or queries.
// The file is bounded, as base/log_file.h has it. Where a line cannot be written that is said once,
// and serving goes on. Threads: one at a time.
#pragma once

#include <memory>
#include <string>

#include "api/http_server.h"
#include "base/log_file.h"
#include "base/result.h"

namespace jige::api {

class RequestLog {
 public:
  static constexpr int64_t kBytesMax = int64_t{256} << 20;

  // Goes on behind what is there. Fails with kIo.
  static Result<std::shared_ptr<RequestLog>> open(const std::string& path,
                                                  int64_t bytes_max = kBytesMax);
  explicit RequestLog(LogFile file) : file_(std::move(file)) {}

  void note(const EndedRequest& request);

 private:
  LogFile file_;
  bool told_ = false;  // that lines are missing
};

}  // namespace jige::api
