// The certificate and key of a TLS server. Internal to the HTTP server.
//
// Threads: made before the server's thread starts, then read by it alone.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"

namespace boost::asio::ssl {
class context;
}

namespace jige::api {

struct TlsDeleter {
  void operator()(boost::asio::ssl::context* context) const;
};
using TlsContext = std::unique_ptr<boost::asio::ssl::context, TlsDeleter>;

// TLS 1.2 and later. Fails as read_file does (base/file.h) where a file cannot be read, and with
// kInvalidArgument naming the file that cannot be used.
Result<TlsContext> make_tls_context(const std::string& certificate_file,
                                    const std::string& key_file);

}  // namespace jige::api
