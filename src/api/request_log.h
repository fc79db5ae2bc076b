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
// The file is bounded, as base/log_file.h has it, and written by a thread of its own: whoever notes
// a request never waits for a disk. Lines wait in a queue; where it is full, or a line cannot be
// written, that is said once, serving goes on, and the next line that is written has how many are
// missing in front of it, as "lost_before". At the end what waits is written, for flush_s at most.
//
// Invariants: at most queue_bytes_max wait. Threads: note() on any; the others on one.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "api/http_server.h"
#include "base/log_file.h"
#include "base/result.h"

namespace jige::api {

struct RequestLogOptions {
  int64_t bytes_max = int64_t{256} << 20;  // of the file
  size_t queue_bytes_max = size_t{8} << 20;
  double flush_s = 2;
};

class RequestLog {
 public:
  // Goes on behind what is there. Fails with kIo.
  static Result<std::shared_ptr<RequestLog>> open(const std::string& path,
                                                  const RequestLogOptions& options = {});
  RequestLog(LogFile file, const RequestLogOptions& options);
  ~RequestLog();

  void note(EndedRequest request);

 private:
  struct Queue;
  static void write(Queue& queue);

  // The thread's, too: one that hangs in a write is left behind.
  std::shared_ptr<Queue> queue_;
  std::thread writer_;
};

}  // namespace jige::api
