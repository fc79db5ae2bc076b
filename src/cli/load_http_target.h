// A server with the OpenAI API as the target of a load: streamed completions.
//
//   JIGE_TRY(const ServedModelInfo served, ask_for_model(peer, key, name));
//   HttpTarget target({.peer = peer, .model = served.name, …});
//
// Prompts are lists of token ids, and ignore_eos asks for whole answers. A piece
// of the stream that has text counts as a token's arrival; how many tokens there were is what
// `usage` says, else the number of pieces. Threads: one; all connections are waited for together.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "api/http_client.h"
#include "base/clock.h"
#include "base/result.h"
#include "cli/load_driver.h"

namespace jige::cli {

struct ServedModelInfo {
  std::string name;
  int64_t context_max = 0;  // 0: the server does not say
};
// The server's first model, or the one called `name`. Fails as fetch() does, with kNotFound where
// others are there, and with kUnavailable where none is and on other answers.
Result<ServedModelInfo> ask_for_model(const api::HttpPeer& peer, const std::string& name);

struct HttpTargetOptions {
  api::HttpPeer peer;
  std::string model;
  int64_t vocab_size = 1000;
  uint64_t prompt_key = 1;
  double temperature = 0;
  double top_p = 1;
  double silence_seconds_max = 600;  // without a byte: "timeout"
};

class HttpTarget final : public LoadTarget {
 public:
  explicit HttpTarget(HttpTargetOptions options);
  ~HttpTarget() override;

  double now_s() const override { return watch_.seconds(); }
  void send(size_t index, const sim::RequestShape& shape) override;
  void wait(double seconds_max, std::vector<Finished>& finished) override;
  void cancel_all() override;

  // What the first failure said; empty while there is none.
  const std::string& first_error() const { return first_error_; }

 private:
  class Stream;
  void finish(size_t index, Stream& stream);

  const HttpTargetOptions options_;
  const StopWatch watch_;
  std::map<size_t, std::unique_ptr<Stream>> streams_;
  std::vector<Finished> ended_;  // not handed out yet
  std::string first_error_;
};

}  // namespace jige::cli
