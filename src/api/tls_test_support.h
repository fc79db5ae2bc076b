// Certificates for tests, made on the spot.
//
//   Certificate certificate;                                  // self-signed, for 127.0.0.1
//   HttpServer::listen({.tls_certificate_file = certificate.certificate_file, …
//
// Threads: one test at a time.
#pragma once

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>

namespace jige::api::testing {

template <auto release>
struct Release {
  template <typename T>
  void operator()(T* object) const {
    release(object);
  }
};
template <typename T, auto release>
using Owned = std::unique_ptr<T, Release<release>>;

struct CertificateOptions {
  std::string names = "IP:127.0.0.1";  // as OpenSSL writes subjectAltName; empty: none
  long ends_in_s = 3600;               // negative: it has ended
};

// A self-signed certificate and its key, as PEM files.
class Certificate {
 public:
  explicit Certificate(const CertificateOptions& options = {}) {
    const Owned<EVP_PKEY, EVP_PKEY_free> key(EVP_EC_gen("P-256"));
    const Owned<X509, X509_free> certificate(X509_new());
    X509_set_version(certificate.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -7200);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), options.ends_in_s);
    X509_set_pubkey(certificate.get(), key.get());
    X509_NAME* name = X509_get_subject_name(certificate.get());
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("a test"), -1, -1, 0);
    X509_set_issuer_name(certificate.get(), name);
    if (!options.names.empty()) {
      const Owned<X509_EXTENSION, X509_EXTENSION_free> names(
          X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, options.names.c_str()));
      EXPECT_EQ(X509_add_ext(certificate.get(), names.get(), -1), 1);
    }
    EXPECT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
    write(key_file, [&](FILE* file) {
      return PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    });
    write(certificate_file, [&](FILE* file) { return PEM_write_X509(file, certificate.get()); });
  }
  Certificate(const Certificate&) = delete;
  Certificate& operator=(const Certificate&) = delete;
  ~Certificate() {
    std::remove(key_file.c_str());
    std::remove(certificate_file.c_str());
  }

 private:
  static std::string next_suffix() {
    static std::atomic<int> made{0};
    return std::to_string(getpid()) + "_" + std::to_string(made++);
  }
  template <typename Body>
  static void write(const std::string& path, Body body) {
    FILE* file = std::fopen(path.c_str(), "w");
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(body(file), 1);
    std::fclose(file);
  }

  const std::string suffix_ = next_suffix();

 public:
  const std::string key_file = ::testing::TempDir() + "jige_key_" + suffix_;
  const std::string certificate_file = ::testing::TempDir() + "jige_certificate_" + suffix_;
};

}  // namespace jige::api::testing
