#include "api/http_tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/file.h"

namespace jige::api {
namespace {

constexpr size_t kAuthoritiesBytesMax = size_t{16} << 20;

// A descriptor as OpenSSL sees it. Its own way to write raises SIGPIPE where a server is gone.
int descriptor_of(BIO* bio) {
  return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
}

int note_outcome(BIO* bio, ssize_t count, int retry) {
  BIO_clear_retry_flags(bio);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
  }
  return static_cast<int>(count);
}

int send_bytes(BIO* bio, const char* bytes, int size) {
  const ssize_t count = send(descriptor_of(bio), bytes, static_cast<size_t>(size), MSG_NOSIGNAL);
  return note_outcome(bio, count, BIO_FLAGS_WRITE);
}

int receive_bytes(BIO* bio, char* bytes, int size) {
  const ssize_t count = recv(descriptor_of(bio), bytes, static_cast<size_t>(size), 0);
  return note_outcome(bio, count, BIO_FLAGS_READ);
}

// Nothing is buffered here: there is nothing to flush.
long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

const BIO_METHOD* descriptor_method() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "descriptor");
    if (!made) return made;
    BIO_meth_set_write(made, send_bytes);
    BIO_meth_set_read(made, receive_bytes);
    BIO_meth_set_ctrl(made, control);
    return made;
  }();
  return method;
}

BIO* bio_of(int fd) {
  BIO* bio = descriptor_method() ? BIO_new(descriptor_method()) : nullptr;
  if (!bio) return nullptr;
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(fd)));
  BIO_set_init(bio, 1);
  return bio;
}

// What OpenSSL said last on this thread, in its words.
std::string last_reason() {
  const unsigned long error = ERR_peek_last_error();
  const char* reason = error ? ERR_reason_error_string(error) : nullptr;
  return reason ? reason : "the connection broke";
}

// Whether the certificate must be for a name or for an address. Names are also told to the server,
// which may have several.
bool expect_name(SSL* ssl, const std::string& name) {
  X509_VERIFY_PARAM* wanted = SSL_get0_param(ssl);
  if (X509_VERIFY_PARAM_set1_ip_asc(wanted, name.c_str()) == 1) return true;
  X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  return X509_VERIFY_PARAM_set1_host(wanted, name.c_str(), name.size()) == 1 &&
         SSL_set_tlsext_host_name(ssl, name.c_str()) == 1;
}

}  // namespace

Result<std::shared_ptr<const TlsTrust>> TlsTrust::load(const std::string& ca_file) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  if (!context) return fail(Code::kExhausted, "TLS: {}", last_reason());
  const std::shared_ptr<const TlsTrust> trust(new TlsTrust(context));
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  if (ca_file.empty()) {
    if (SSL_CTX_set_default_verify_paths(context) == 1) return trust;
    return fail(Code::kUnavailable, "the system's authorities of certificates: {}", last_reason());
  }
  // The library says no more than that it could not.
  JIGE_TRY([[maybe_unused]] const std::string text, read_file(ca_file, kAuthoritiesBytesMax));
  ERR_clear_error();
  if (SSL_CTX_load_verify_file(context, ca_file.c_str()) == 1) return trust;
  return fail(Code::kInvalidArgument,
              "{}: cannot be used as authorities of certificates: {}; it must have them as PEM",
              ca_file, last_reason());
}

TlsTrust::~TlsTrust() { SSL_CTX_free(context_); }

Result<std::unique_ptr<TlsStream>> TlsStream::begin(const TlsTrust& trust, int fd,
                                                    const std::string& name) {
  ERR_clear_error();
  SSL* ssl = SSL_new(trust.context_);
  if (!ssl) return fail(Code::kExhausted, "TLS: {}", last_reason());
  std::unique_ptr<TlsStream> stream(new TlsStream(ssl));
  BIO* bio = bio_of(fd);
  if (!bio) return fail(Code::kExhausted, "TLS: {}", last_reason());
  SSL_set_bio(ssl, bio, bio);
  if (!expect_name(ssl, name)) return fail(Code::kExhausted, "TLS: {}", last_reason());
  SSL_set_connect_state(ssl);
  return stream;
}

TlsStream::~TlsStream() { SSL_free(ssl_); }

Result<std::optional<size_t>> TlsStream::outcome(int returned, const char* what) {
  const int system_error = errno;
  const int error = SSL_get_error(ssl_, returned);
  wants_to_write_ = error == SSL_ERROR_WANT_WRITE;
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return std::nullopt;
  if (error == SSL_ERROR_ZERO_RETURN) return 0;
  const long verdict = SSL_get_verify_result(ssl_);
  if (verdict != X509_V_OK) {
    return fail(Code::kUnavailable,
                "its certificate is not accepted: {}; --server-ca FILE names other authorities",
                X509_verify_cert_error_string(verdict));
  }
  if (error == SSL_ERROR_SYSCALL && ERR_peek_error() == 0 && system_error != 0) {
    return fail(Code::kUnavailable, "{}: {}", what, std::strerror(system_error));
  }
  return fail(Code::kUnavailable, "{}: {}", what, last_reason());
}

Result<bool> TlsStream::handshake() {
  ERR_clear_error();
  errno = 0;
  const int returned = SSL_do_handshake(ssl_);
  if (returned == 1) {
    // It has been looked at; once more, as nothing else stands between a client and a stranger.
    const bool shown = SSL_get0_peer_certificate(ssl_) != nullptr;
    if (shown && SSL_get_verify_result(ssl_) == X509_V_OK) return true;
    return fail(Code::kUnavailable, "its certificate is not accepted: there is none");
  }
  JIGE_TRY(const std::optional<size_t> end, outcome(returned, "no TLS there"));
  if (end) return fail(Code::kUnavailable, "no TLS there: the server ended it");
  return false;
}

Result<std::optional<size_t>> TlsStream::write(std::string_view bytes) {
  ERR_clear_error();
  errno = 0;
  const int size = static_cast<int>(std::min<size_t>(bytes.size(), INT_MAX));
  const int count = SSL_write(ssl_, bytes.data(), size);
  if (count > 0) return static_cast<size_t>(count);
  JIGE_TRY(const std::optional<size_t> end, outcome(count, "the connection broke"));
  if (end) return fail(Code::kUnavailable, "the connection broke: the server ended it");
  return std::nullopt;
}

Result<std::optional<size_t>> TlsStream::read(char* into, size_t size) {
  JIGE_DCHECK(size >= kReadBytesMin, "a part of a record would stay behind");
  ERR_clear_error();
  errno = 0;
  const int count = SSL_read(ssl_, into, static_cast<int>(std::min<size_t>(size, INT_MAX)));
  if (count > 0) return static_cast<size_t>(count);
  return outcome(count, "the connection broke");
}

}  // namespace jige::api
