// What the tests of this folder share: a small served model, requests as JSON, an answer's way back
// without a socket.
//
// Threads: one test at a time.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "api/chat_request.h"
#include "api/served_model.h"
#include "serve/serve_test_support.h"

namespace jige::api::testing {

using serve::testing::character_tokenizer;
using serve::testing::value_of;

inline constexpr int64_t kContext = 128;
inline constexpr int32_t kVocabulary = 96;

inline text::ChatTemplate test_template() {
  return value_of(text::ChatTemplate::parse(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
      "{% if shout %}!{% endif %}{% if add_generation_prompt %}<assistant>{% endif %}",
      "test template"));
}

// A model without an engine, for what happens before one is asked.
inline ServedModel test_model() {
  ServedModel model{.name = "tiny",
                    .fingerprint = "test",
                    .context_max = kContext,
                    .vocab_size = kVocabulary,
                    .chat_template = test_template(),
                    .tokenizer = character_tokenizer()};
  model.defaults.temperature = 1;
  model.constraints = std::make_shared<grammar::ConstraintCompiler>(model.tokenizer);
  return model;
}

// Means of all rows but the prompt's, up to 100 tokens.
inline ServedEmbedding test_embedding(int64_t width = 24) {
  return {.config = {.prompts = {{"query", "Query: "}, {"title", "T"}}},
          .form = {.pooling = formats::PoolingKind::kMean, .include_prompt = false},
          .width = width,
          .tokens_max = 100,
          .context_hint = " (or serve more)"};
}

inline Json json_of(const std::string& text) { return value_of(parse_json(text, "test")); }

// What differs between two answers to the same request: ids, times and how long it took.
inline std::string masked(std::string text) {
  static const std::regex ids("(cmpl-|chatcmpl-|resp_|msg_|rs_|fc_|call_|embd-|toolu_)[0-9a-f_]+");
  static const std::regex dates("\"(created|created_at|completed_at)\":[0-9]+");
  static const std::regex times("(queue|prefill|decode)_ms\":[0-9.e-]+");
  static const std::regex cached("\"?cached_tokens\":[0-9]+");
  text = std::regex_replace(text, ids, "$1");
  text = std::regex_replace(text, dates, "$1");
  text = std::regex_replace(text, times, "$1");
  return std::regex_replace(text, cached, "cached");
}

// Keeps what is answered; posted work runs when run_posted() is called.
class FakeResponder final : public Responder {
 public:
  void respond(HttpResponse response) override {
    EXPECT_FALSE(answered) << "answered twice";
    answered = true;
    head = std::move(response);
  }
  void begin(HttpResponse begun) override {
    EXPECT_FALSE(answered) << "answered twice";
    answered = streaming = true;
    head = std::move(begun);
  }
  bool write(std::string_view piece) override {
    EXPECT_TRUE(streaming && !ended);
    if (refuse_writes) return false;
    written += piece;
    return true;
  }
  void end() override {
    EXPECT_TRUE(streaming && !ended);
    ended = true;
  }
  void when_sent(std::function<void()> callback) override { sent = std::move(callback); }
  void post(std::function<void()> work) override { posted.push_back(std::move(work)); }
  void on_gone(std::function<void()> callback) override { gone = std::move(callback); }
  void on_silence(std::function<void()> callback) override { silence = std::move(callback); }

  void run_posted() {
    while (!posted.empty()) {
      const std::function<void()> work = std::move(posted.front());
      posted.pop_front();
      work();
    }
  }

  bool answered = false, streaming = false, ended = false, refuse_writes = false;
  HttpResponse head;
  std::string written;
  std::deque<std::function<void()>> posted;
  std::function<void()> gone, sent, silence;
};

// The JSON of each frame of a stream, without the last "[DONE]", which must be there.
inline std::vector<Json> frames_of(const std::string& stream, bool done = true) {
  std::vector<Json> frames;
  bool ended = false;
  for (size_t begin = 0; begin < stream.size();) {
    const size_t end = stream.find("\n\n", begin);
    EXPECT_NE(end, std::string::npos) << "an unfinished frame: " << stream.substr(begin);
    if (end == std::string::npos) break;
    const std::string frame = stream.substr(begin, end - begin);
    begin = end + 2;
    EXPECT_TRUE(frame.starts_with("data: ")) << frame;
    EXPECT_EQ(frame.find('\n'), std::string::npos) << frame;
    EXPECT_FALSE(ended) << "a frame behind the last: " << frame;
    if (frame == "data: [DONE]") {
      ended = true;
    } else {
      frames.push_back(json_of(frame.substr(6)));
    }
  }
  EXPECT_EQ(ended, done);
  return frames;
}

}  // namespace jige::api::testing
