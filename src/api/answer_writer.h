// AnswerWriter: what one answer looks like on the wire of the API that it was asked by.
//
// A session tells it what comes, in this order: begin(), then for each choice reasoning(), text()
// and call() as they come and finish(), and end(); each gives the frames to send. Or it asks for
// the whole() answer, once. Whatever comes, what failed ends with error(), or with refusal() where
// nothing was sent. Deltas of a stream add up to the whole answer of the same events.
// Threads: one at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/answer_format.h"

namespace jige::api {

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  virtual Json whole(const std::vector<ChoiceState>& choices,
                     const serve::RequestReport& report) = 0;

  virtual std::string begin(size_t choice_count) = 0;
  virtual std::string reasoning(size_t choice, const TokenEvent& piece) = 0;
  // `offset`: characters of the choice's text before this piece.
  virtual std::string text(size_t choice, const TokenEvent& piece, int64_t offset) = 0;
  // `index`: of the call within its choice.
  virtual std::string call(size_t choice, const NamedCall& call, size_t index) = 0;
  virtual std::string finish(size_t choice, const ChoiceState& state) = 0;
  virtual std::string end(const serve::RequestReport& report) = 0;
  virtual std::string error(const ApiError& error) = 0;

  // Bytes of log-probabilities that end() is to write out, where there are any.
  virtual size_t held_bytes() const { return 0; }

  virtual HttpResponse refusal(const ApiError& error) { return error_response(error); }
};

// The writer for head.endpoint. Both must outlive it.
std::unique_ptr<AnswerWriter> make_answer_writer(const AnswerHead& head,
                                                 const text::Tokenizer& tokenizer);

// Tells the writer of a choice that is there whole, token by token where those are kept, but not of
// its end.
void replay(const ChoiceState& state, AnswerWriter& writer);

// A frame with the name of its event, which is the member "type".
std::string event_frame(const Json& event);

}  // namespace jige::api
