// ApiKeys: who may use the server.
//
// A key comes as "Authorization: Bearer KEY", or as "x-api-key: KEY". It is compared in a time that
// does not tell how much of it was right. Threads: immutable after loading.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/http_message.h"
#include "base/result.h"

namespace jige::api {

class ApiKeys {
 public:
  // Without keys everybody may.
  ApiKeys() = default;
  explicit ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {}

  // One key a line, without the spaces around it; empty lines and lines that begin with # are
  // passed over. Fails with kInvalidArgument on a text without keys or with keys shorter than 8
  // characters; `where` names it.
  static Result<ApiKeys> parse(std::string_view text, std::string_view where);
  // The keys of a file. Fails also as read_file does.
  static Result<ApiKeys> load(const std::string& file);

  bool empty() const { return keys_.empty(); }
  bool admits(const HttpRequest& request) const;

 private:
  bool holds(std::string_view given) const;

  std::vector<std::string> keys_;
};

// The key that a client sends: that of the environment variable JIGE_API_KEY, without the spaces
// around it; empty where there is none.
std::string client_key();

// Whether two texts are equal; the time depends on the length of `given` alone.
bool equal_in_constant_time(std::string_view given, std::string_view secret);

}  // namespace jige::api
