// HttpConnection: the requests of one client connection, one after another. Internal to the HTTP
// server: includes Boost.
//
// Two coroutines serve it: the reader feeds the parser, and, while an answer is being made, notices
// that the client has gone; the writer sends what answers have put into `out_`. Deadlines are
// looked at by the server's sweep.
// Invariants: (1) at most one exchange at a time; bytes behind its request wait in buffer_.
//             (2) an exchange hears of the client's going at most once.
//             (3) body_bytes_ of the connection are counted in the server's total until the request
//             is handed on.
// Threads: the server's own.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/http_server.h"
#include "api/http_stream.h"
#include "api/request_id.h"

namespace jige::api {

class HttpConnection;
class HttpExchange;

// What connections and exchanges share with their server.
struct HttpCore {
  HttpCore(const HttpServerOptions& options_in, HttpHandler handler_in)
      : options(options_in), handler(std::move(handler_in)) {}

  const HttpServerOptions options;
  const HttpHandler handler;
  boost::asio::io_context io{1};
  std::set<std::shared_ptr<HttpConnection>> connections;
  size_t bodies_bytes = 0;
  RequestIds ids;
  bool stopping = false;  // connections end after the answer under way

  // Runs work on the server's thread, in the order of the calls; drops it once the server has
  // stopped. Bytes come and go in between: however much lies here, no client waits for all of it.
  void post(std::function<void()> work);
  void close();

  std::mutex stats_mutex;
  HttpServerStats stats;
  void count(int64_t HttpServerStats::*field, int64_t delta);

 private:
  void run_posted();

  std::mutex post_mutex_;
  std::deque<std::function<void()>> posted_;
  bool will_run_posted_ = false;
  bool closed_ = false;
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using ErrorCode = HttpStream::ErrorCode;
  using Time = std::chrono::steady_clock::time_point;

  HttpConnection(std::shared_ptr<HttpCore> core, HttpStream::Socket socket,
                 boost::asio::ssl::context* tls);

  void start();
  // Ends what has passed its deadline, and says something in a stream of events that is long
  // silent.
  void check_deadline(Time now);
  // Whether it has waited for a request since then or longer.
  bool unused_since(Time time) const;
  // When the request that is on its way began to arrive, or the handshake; no time where there is
  // none.
  Time arriving_since() const;
  // Ends the connection now if nothing is under way, else after the answer.
  void wind_down();
  // Ends it at once.
  void close();

  // For the exchange.
  void send_whole(HttpResponse response);
  void send_head(HttpResponse head);
  bool send_piece(std::string_view piece);
  void send_end();
  bool all_sent() const { return out_.empty() && sending_.empty(); }

 private:
  enum class Phase { kHandshake, kIdle, kReading, kAnswering, kLingering, kClosed };

  boost::asio::awaitable<void> read_loop(std::shared_ptr<HttpConnection> self);
  boost::asio::awaitable<void> write_loop(std::shared_ptr<HttpConnection> self);
  void pump();
  bool skip_empty_lines();
  bool parse_some();
  bool account_body();
  void begin_exchange();
  void finish_exchange();
  void refuse(int status, std::string_view message);
  // Answers what the handler need not see: pages that may not ask, and those that ask if they may.
  bool answer_origin(const HttpRequest& request);
  // What every answer to a request with this head has in its own head.
  void note_request(const boost::beast::http::request_header<>& head);
  void add_fields(HttpResponse& response);
  // The request at hand has begun to be answered; has ended.
  void begin_telling(const boost::beast::http::request_header<>& head);
  void tell_end(bool whole);
  void enter(Phase phase, int64_t timeout_ms);
  void enqueue(std::string_view bytes);
  // Whether answers wait to be read: no further request is looked at until they are.
  bool output_full() const;
  void release_body_bytes();
  void break_silence(Time now);
  void linger();
  void peer_ended();

  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  std::shared_ptr<HttpCore> core_;
  const std::string client_;  // its address
  HttpStream stream_;
  boost::asio::steady_timer read_wake_;
  boost::asio::steady_timer write_wake_;
  // Bytes go from here into buffer_: a read may be under way while buffer_ is being consumed.
  std::array<char, 16384> received_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  size_t body_bytes_ = 0;
  bool continue_sent_ = false;

  Phase phase_ = Phase::kHandshake;
  Time deadline_ = Time::max();
  Time phase_since_ = Time::max();
  std::weak_ptr<HttpExchange> exchange_;
  bool keep_alive_ = true;
  bool end_sent_ = false;
  bool peer_ended_ = false;
  bool head_only_ = false;
  bool http_1_0_ = false;
  EndedRequest at_hand_;
  Time came_ = Time::max();                // the request at hand; none: it has ended
  Time silent_since_ = Time::max();        // of an answer that is, or may become, one of events
  std::vector<HttpHeader> origin_fields_;  // of every answer to the request at hand
  std::string request_id_;
  bool client_named_ = false;  // and no other id goes out
  BodyEnd body_end_ = BodyEnd::kLength;

  std::string out_;      // to be sent
  std::string sending_;  // what the writer holds
  Time write_deadline_ = Time::max();
};

}  // namespace jige::api
