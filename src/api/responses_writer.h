// Answers of POST /v1/responses: a list of items, of reasoning, messages and calls of functions, in
// the order in which the model wrote them. A stream is a row of typed events, each with the next
// sequence_number: what begins an item, its deltas, what ends it, and the whole answer at the end.
//
// Reasoning is shown as the text it is, never as a summary. Log-probabilities, where they are
// wanted, are those of the tokens that a message's text was written by: of reasoning, its marks,
// calls and what a stop ended there are none. Threads: one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/answer_writer.h"

namespace jige::api {

class ResponsesWriter final : public AnswerWriter {
 public:
  // Both must outlive it.
  ResponsesWriter(const AnswerHead& head, const text::Tokenizer& tokenizer)
      : head_(head), tokenizer_(tokenizer) {}

  Json whole(const std::vector<ChoiceState>& choices, const serve::RequestReport& report) override;
  std::string begin(size_t choice_count) override;
  std::string reasoning(size_t choice, const TokenEvent& piece) override;
  std::string text(size_t choice, const TokenEvent& piece, int64_t offset) override;
  std::string call(size_t choice, const NamedCall& call, size_t index) override;
  std::string finish(size_t choice, const ChoiceState& state) override;
  std::string end(const serve::RequestReport& report) override;
  std::string error(const ApiError& error) override;
  size_t held_bytes() const override;

 private:
  enum class Open { kNothing, kReasoning, kMessage };

  // Adds an event to `frames`, where it is a stream.
  void tell(std::string& frames, std::string_view type, Json members);
  void tell_item(std::string& frames, std::string_view type, const Json& item);
  // Where the open item's text is, and that text as it stands.
  Json at_part() const;
  Json part() const;
  Json open_item(std::string_view status) const;
  std::string add(Open kind, const TokenEvent& piece);
  // Moves the tokens that wrote `text` to those of the open message; gives them for its delta.
  Json take_logprobs(const std::string& text);
  void open(std::string& frames, Open kind);
  void close(std::string& frames, std::string_view status);
  std::string item_id() const;
  Json answer(std::string_view status) const;
  // Ends the open item.
  Json final_answer(std::string& frames, const serve::RequestReport& report);

  const AnswerHead& head_;
  const text::Tokenizer& tokenizer_;
  bool streams_ = false;
  int64_t sequence_ = 0;
  std::vector<Json> items_;  // that have ended
  Open open_ = Open::kNothing;
  std::string open_text_;
  std::vector<TokenEvent> open_tokens_;  // that wrote it, of a message
  std::vector<TokenEvent> held_tokens_;  // whose text has not come
  std::string finish_;
};

}  // namespace jige::api
