// HttpStream: one accepted connection as bytes, plain or TLS. Internal to the HTTP server: includes
// Boost.
//
// One read and one write may be under way at a time. close() ends both with an error. With TLS it
// says before that this is the end, where that needs no waiting: no write is under way, and the
// kernel takes the few bytes at once.
// Threads: the server's own.
#pragma once

// Boost.Asio 1.74 uses std::exchange without including it.
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>

// Boost.Asio's TLS headers are large; only http_stream.cc sees them.
namespace boost::asio::ssl {
class context;
}

namespace jige::api {

class HttpStream {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using ErrorCode = boost::system::error_code;

  // `tls` may be null: plain TCP. It must outlive the stream.
  HttpStream(Socket socket, boost::asio::ssl::context* tls);
  ~HttpStream();
  HttpStream(const HttpStream&) = delete;
  HttpStream& operator=(const HttpStream&) = delete;

  boost::asio::awaitable<void> handshake(ErrorCode& error);
  boost::asio::awaitable<size_t> read_some(boost::asio::mutable_buffer into, ErrorCode& error);
  boost::asio::awaitable<size_t> write_some(boost::asio::const_buffer from, ErrorCode& error);
  // Tells the client that nothing more comes; what it still sends can be read. With TLS it ends
  // when the client has said the same, so that neither takes the end for an attack.
  boost::asio::awaitable<void> shutdown_send();
  void close();

 private:
  struct Tls;
  Socket& socket();

  std::shared_ptr<Tls> tls_;  // an end that is being told of keeps it, too
  Socket plain_;
};

}  // namespace jige::api
