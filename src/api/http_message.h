// HTTP as the API sees it: a request, a response, and the way an answer goes back. Nothing of the
// network is in here, so that routes and handlers are tested without a socket.
//
// Responder's rules: exactly one of
//   respond(response)
//   begin(head), write(piece)…, end()
// When the client goes away before the end, on_gone's callback runs once and all later calls have
// no effect. A Responder that is dropped unanswered answers 500.
// Threads: post() from any thread; everything else, and what post() runs, on the server's own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace jige::api {

struct HttpHeader {
  std::string name;
  std::string value;
};

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // of the target, before "?", percent escapes resolved
  std::string query;   // behind "?", as sent
  std::vector<HttpHeader> headers;
  std::string body;
  std::string id;  // by which it is known elsewhere (api/request_id.h)

  // The value of the first header of that name, in any case of letters; empty where there is none.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<HttpHeader> headers;  // besides type, length and connection
  std::string body;
};

class Responder {
 public:
  virtual ~Responder() = default;
  // The whole answer.
  virtual void respond(HttpResponse response) = 0;
  // An answer in pieces: its head (the body is ignored), then each piece, then the end.
  virtual void begin(HttpResponse head) = 0;
  // False when the client is gone, or read so slowly that it was given up.
  virtual bool write(std::string_view piece) = 0;
  virtual void end() = 0;
  // Runs once when all that was written so far has been handed to the system, at once where it has
  // been: who writes more only then holds no more for a client than that. Not at all when the
  // client goes before; with end() behind it, it need not run.
  virtual void when_sent(std::function<void()> callback) = 0;
  // Runs `work` later on the server's thread, in the order of the calls. Not at all once the
  // server has stopped.
  virtual void post(std::function<void()> work) = 0;
  // At once where the client has gone already.
  virtual void on_gone(std::function<void()> callback) = 0;
  // Runs once where nothing of the answer has been said for as long as streams may be silent
  // (HttpServerOptions::event_pause_ms), so that who is to stream begins: a comment goes out behind
  // the head, and on as in any stream. Not at all where the server is not alive, or says no
  // comments.
  virtual void on_silence(std::function<void()> callback) = 0;
};

// The head of a stream of events.
HttpResponse event_stream_head();
// An event of none, which clients pass over.
inline constexpr std::string_view kEventComment = ":\n\n";

using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<Responder>)>;

// Splits a request target into path and query and resolves percent escapes of the path. Of a target
// in absolute form (http://host/path) the host replaces the request's own Host field. False on
// escapes that are not two hexadecimal digits and on an absolute form without a host.
bool split_target(std::string_view target, HttpRequest& request);

// "Not Found" for 404; "Status" for codes without a name here.
std::string_view status_text(int status);

// How the end of a body is known.
enum class BodyEnd { kLength, kChunks, kConnection };

struct HttpFraming {
  bool keep_alive = true;
  BodyEnd end = BodyEnd::kLength;
};

// Status line and header fields of a response, the empty line included. Line breaks in names and
// values, which would forge fields, are left out.
std::string response_head(const HttpResponse& response, const HttpFraming& framing);

// One piece of a chunked body.
std::string chunk_of(std::string_view piece);

}  // namespace jige::api
