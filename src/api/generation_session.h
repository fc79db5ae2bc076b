// GenerationSession: one request for text on its way: from the engine's events to the client's
// bytes.
//
// The engine's thread only copies what happened and posts it to the server's thread, where all of a
// session lives. A client that goes away, or reads too slowly, cancels the engine's requests. A
// stream begins with its first token, or when the client has heard nothing for a while
// (Responder::on_silence). An error before it begins becomes a status; later, an "error" frame that
// ends the stream.
// Images of the prompt are read first, by the model's ImageReader, which is told when the client
// goes.
// Invariants: (1) after over_ no event has an effect, and nothing is written but a whole answer, or
//             the end of a stream, that is being made.
//             (2) every engine request of the session has ended, or has been cancelled, when over_.
// Threads: the server's thread; sinks run on the engine's, images are read on their reader's, and
// whole answers with
// log-probabilities, at a stream's end too, are written out by the work queue, when the session
// changes no more.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "api/answer_writer.h"
#include "api/completion_request.h"
#include "api/http_message.h"
#include "api/served_model.h"
#include "api/shown_prompt.h"
#include "api/work_queue.h"
#include "text/reasoning.h"

namespace jige::api {

class GenerationSession : public std::enable_shared_from_this<GenerationSession> {
 public:
  // `model`, its engine and `work` must outlive the session.
  GenerationSession(AnswerHead head, PreparedRequest request, const ServedModel& model,
                    WorkQueue& work, std::shared_ptr<Responder> responder);

  // Has the images read, if there are some, and hands the prompts to the engine, unless the client
  // has gone by now.
  void start();

  // The prompt with its images.
  void on_images(ApiResult<serve::ImagePrompt> prompt);

  // Events of prompt `prompt`.
  void on_prompt(size_t prompt, std::vector<ops::TokenScore> scores);
  void on_piece(size_t prompt, int32_t choice, TokenEvent piece);
  void on_choice(size_t prompt, const serve::ChoiceEnd& end);
  void on_done(const serve::RequestReport& report);
  void on_failed(const Error& error);

 private:
  void read_images();
  void submit();
  void fail_with(const ApiError& error);
  void cancel();
  void open_stream();
  void begin_stream();
  void send(const std::string& frames);
  // Log-probabilities of many tokens take seconds to write out; others are not to wait for it.
  void finish();
  void send_last(const std::string& frames);
  void finish_whole(const serve::RequestReport& report);
  size_t choice_index(size_t prompt, int32_t choice) const;
  // What stands before the first piece of a choice: the stream's head, and the prompt where it is
  // shown.
  void begin_choice(size_t choice);
  // Reasoning, text and calls of a choice, taken apart: kept, or sent where it is a stream.
  // `piece` has the text behind the reasoning, and no token more where that was shown with it.
  void add_reasoning(size_t choice, std::string reasoning, TokenEvent& piece);
  void add_content(size_t choice, TokenEvent piece);
  void add_piece(size_t choice, TokenEvent piece);
  void add_calls(size_t choice, std::vector<ToolCall> calls);

  const AnswerHead head_;
  PreparedRequest request_;
  const ServedModel& model_;
  WorkQueue& work_;
  const std::shared_ptr<Responder> responder_;
  const size_t prompt_count_;
  const size_t choices_per_prompt_;
  const std::unique_ptr<AnswerWriter> writer_;
  std::vector<serve::RequestId> ids_;
  std::vector<ChoiceState> choices_;
  std::vector<std::shared_ptr<ScoredPrompt>> prompts_;  // where something of them is shown
  std::vector<text::ReasoningParser> reasoners_;        // one a choice; none without reasoning
  std::vector<ToolCallParser> parsers_;                 // one a choice; none without tools
  std::vector<int64_t> text_offsets_;                   // characters of each choice that were sent
  std::vector<serve::RequestReport> reports_;
  // Nobody waits for the images.
  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
  bool opened_ = false;     // the client has the head of a stream
  bool streaming_ = false;  // and its first frames
  bool over_ = false;
};

}  // namespace jige::api
