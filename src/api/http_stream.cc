#include "api/http_stream.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "api/tls_context.h"
#include "base/file.h"

namespace jige::api {

namespace asio = boost::asio;

namespace {

constexpr size_t kPemBytesMax = size_t{16} << 20;

}  // namespace

struct HttpStream::Tls {
  Tls(Socket socket, asio::ssl::context& context) : stream(std::move(socket), context) {}
  asio::ssl::stream<Socket> stream;
  bool may_tell_end = false;  // after the handshake, outside writes, once
};

HttpStream::HttpStream(Socket socket, asio::ssl::context* tls)
    : plain_(tls ? Socket(socket.get_executor()) : std::move(socket)) {
  if (tls) tls_ = std::make_shared<Tls>(std::move(socket), *tls);
}

HttpStream::~HttpStream() = default;

HttpStream::Socket& HttpStream::socket() { return tls_ ? tls_->stream.next_layer() : plain_; }

asio::awaitable<void> HttpStream::handshake(ErrorCode& error) {
  if (!tls_) co_return;
  co_await tls_->stream.async_handshake(asio::ssl::stream_base::server,
                                        asio::redirect_error(asio::use_awaitable, error));
  tls_->may_tell_end = !error;
}

asio::awaitable<size_t> HttpStream::read_some(asio::mutable_buffer into, ErrorCode& error) {
  if (tls_) {
    const size_t count = co_await tls_->stream.async_read_some(
        into, asio::redirect_error(asio::use_awaitable, error));
    co_return count;
  }
  const size_t count =
      co_await plain_.async_read_some(into, asio::redirect_error(asio::use_awaitable, error));
  co_return count;
}

asio::awaitable<size_t> HttpStream::write_some(asio::const_buffer from, ErrorCode& error) {
  if (tls_) {
    tls_->may_tell_end = false;
    const size_t count = co_await tls_->stream.async_write_some(
        from, asio::redirect_error(asio::use_awaitable, error));
    tls_->may_tell_end = !error;
    co_return count;
  }
  const size_t count =
      co_await plain_.async_write_some(from, asio::redirect_error(asio::use_awaitable, error));
  co_return count;
}

asio::awaitable<void> HttpStream::shutdown_send() {
  ErrorCode ignored;
  if (tls_) {
    tls_->may_tell_end = false;
    co_await tls_->stream.async_shutdown(asio::redirect_error(asio::use_awaitable, ignored));
  }
  socket().shutdown(Socket::shutdown_send, ignored);
}

void HttpStream::close() {
  ErrorCode ignored;
  if (tls_ && std::exchange(tls_->may_tell_end, false)) {
    // The first step of a shutdown writes to the socket before this returns; the others end with
    // it.
    tls_->stream.async_shutdown([keep = tls_](const ErrorCode&) {});
  }
  socket().close(ignored);
}

void TlsDeleter::operator()(asio::ssl::context* context) const { delete context; }

Result<TlsContext> make_tls_context(const std::string& certificate_file,
                                    const std::string& key_file) {
  // The library says no more than that it could not.
  for (const std::string& file : {certificate_file, key_file}) {
    JIGE_TRY([[maybe_unused]] const std::string text, read_file(file, kPemBytesMax));
  }
  HttpStream::ErrorCode error;
  TlsContext context(new asio::ssl::context(asio::ssl::context::tls_server));
  context->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                           asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                           asio::ssl::context::no_tlsv1_1 | asio::ssl::context::no_compression |
                           SSL_OP_NO_RENEGOTIATION,
                       error);
  if (!error) context->use_certificate_chain_file(certificate_file, error);
  if (error) {
    return fail(Code::kInvalidArgument, "{}: cannot be used as a PEM certificate chain: {}",
                certificate_file, error.message());
  }
  context->use_private_key_file(key_file, asio::ssl::context::pem, error);
  if (error) {
    return fail(Code::kInvalidArgument, "{}: cannot be used as the PEM private key of {}: {}",
                key_file, certificate_file, error.message());
  }
  return context;
}

}  // namespace jige::api
