// Answers of POST /v1/messages: a list of blocks, of thinking, text and uses of tools, in the order
// in which the model wrote them. A stream is a row of named events: message_start, of every block
// its start, deltas and stop, message_delta with what ended the answer, message_stop.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/answer_writer.h"

namespace jige::api {

class MessagesWriter final : public AnswerWriter {
 public:
  // `head` must outlive it.
  explicit MessagesWriter(const AnswerHead& head) : head_(head) {}

  Json whole(const std::vector<ChoiceState>& choices, const serve::RequestReport& report) override;
  std::string begin(size_t choice_count) override;
  std::string reasoning(size_t choice, const TokenEvent& piece) override;
  std::string text(size_t choice, const TokenEvent& piece, int64_t offset) override;
  std::string call(size_t choice, const NamedCall& call, size_t index) override;
  std::string finish(size_t choice, const ChoiceState& state) override;
  std::string end(const serve::RequestReport& report) override;
  std::string error(const ApiError& error) override;
  HttpResponse refusal(const ApiError& error) override;

 private:
  // Adds a piece to the last block, or begins one of this type with it.
  std::string add(std::string_view type, const std::string& piece);
  void start(std::string& frames, Json block);
  void tell_delta(std::string& frames, Json delta);
  void stop(std::string& frames);
  Json message(Json usage) const;

  const AnswerHead& head_;
  bool streams_ = false;
  int64_t started_ = 0;
  std::string open_type_;     // of the last block; empty: it has stopped
  std::vector<Json> blocks_;  // where it is no stream
  Json stop_reason_, stop_sequence_;
};

}  // namespace jige::api
