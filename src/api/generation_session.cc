#include "api/generation_session.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

namespace jige::api {
namespace {

class SessionSink final : public serve::RequestSink {
 public:
  SessionSink(std::shared_ptr<GenerationSession> session, std::shared_ptr<Responder> responder,
              size_t prompt)
      : session_(std::move(session)), responder_(std::move(responder)), prompt_(prompt) {}

  void on_prompt(std::span<const ops::TokenScore> scores) override {
    responder_->post([session = session_, prompt = prompt_,
                      told = std::vector<ops::TokenScore>(scores.begin(), scores.end())]() mutable {
      session->on_prompt(prompt, std::move(told));
    });
  }
  void on_piece(int32_t choice, const serve::AnswerPiece& piece) override {
    TokenEvent event{.token = piece.token,
                     .text = std::string(piece.text),
                     .logprob = piece.logprob,
                     .top = {piece.top.begin(), piece.top.end()}};
    responder_->post(
        [session = session_, prompt = prompt_, choice, event = std::move(event)]() mutable {
          session->on_piece(prompt, choice, std::move(event));
        });
  }
  void on_choice(const serve::ChoiceEnd& end) override {
    responder_->post(
        [session = session_, prompt = prompt_, end] { session->on_choice(prompt, end); });
  }
  void on_done(const serve::RequestReport& report) override {
    responder_->post([session = session_, report] { session->on_done(report); });
  }
  void on_failed(const Error& error) override {
    responder_->post([session = session_, error] { session->on_failed(error); });
  }

 private:
  const std::shared_ptr<GenerationSession> session_;
  const std::shared_ptr<Responder> responder_;
  const size_t prompt_;
};

}  // namespace

GenerationSession::GenerationSession(AnswerHead head, PreparedRequest request,
                                     const ServedModel& model, WorkQueue& work,
                                     std::shared_ptr<Responder> responder)
    : head_(std::move(head)),
      request_(std::move(request)),
      model_(model),
      work_(work),
      responder_(std::move(responder)),
      prompt_count_(request_.engine.size()),
      choices_per_prompt_(static_cast<size_t>(request_.choice_count())),
      writer_(make_answer_writer(head_, model_.tokenizer)),
      choices_(prompt_count_ * choices_per_prompt_),
      text_offsets_(choices_.size()) {
  if (head_.reasoning) {
    reasoners_.assign(choices_.size(), text::ReasoningParser(request_.engine.front().reasoning));
    if (request_.include_reasoning) {
      for (ChoiceState& choice : choices_) choice.reasoning.emplace();
    }
  }
  for (size_t i = 0; i < prompt_count_ && request_.prompt.any(); ++i) {
    prompts_.push_back(std::make_shared<ScoredPrompt>(
        ScoredPrompt{.wishes = request_.prompt, .ids = request_.engine[i].prompt}));
    if (request_.prompt.echo) prompts_.back()->text = std::move(request_.prompt_texts[i]);
  }
  if (request_.tools.format == ToolFormat::kNone) return;
  parsers_.assign(choices_.size(), ToolCallParser(request_.tools.format, request_.tools.names));
}

size_t GenerationSession::choice_index(size_t prompt, int32_t choice) const {
  return prompt * choices_per_prompt_ + static_cast<size_t>(choice);
}

void GenerationSession::start() {
  responder_->on_gone([weak = weak_from_this()] {
    if (const auto session = weak.lock()) session->cancel();
  });
  if (request_.stream) {
    responder_->on_silence([weak = weak_from_this()] {
      if (const auto session = weak.lock()) session->open_stream();
    });
  }
  if (over_) return;
  if (request_.images.empty()) return submit();
  read_images();
}

void GenerationSession::read_images() {
  ImageReader::Job job{.prompt = std::move(request_.engine.front().prompt),
                       .files = std::move(request_.images),
                       .cancelled = cancelled_,
                       .done = [self = shared_from_this()](ApiResult<serve::ImagePrompt> prompt) {
                         self->responder_->post([self, prompt = std::move(prompt)]() mutable {
                           self->on_images(std::move(prompt));
                         });
                       }};
  if (const auto refusal = model_.images->read(std::move(job))) fail_with(*refusal);
}

void GenerationSession::on_images(ApiResult<serve::ImagePrompt> prompt) {
  if (over_) return;
  if (!prompt) return fail_with(prompt.error());
  serve::EngineRequest& request = request_.engine.front();
  request.prompt = std::move(prompt->ids);
  request.given = std::move(prompt->given);
  request.cache_salt ^= prompt->cache_salt;
  submit();
}

void GenerationSession::submit() {
  for (size_t i = 0; i < prompt_count_ && !over_; ++i) {
    auto sink = std::make_shared<SessionSink>(shared_from_this(), responder_, i);
    const auto id = model_.engine->submit(std::move(request_.engine[i]), std::move(sink));
    if (id) {
      ids_.push_back(*id);
      continue;
    }
    ApiError error =
        to_api_error(id.error(), std::string(wire_field(id.error().field, head_.endpoint)));
    if (error.status == 429 || error.status == 503) {
      error.retry_after_s = model_.engine->retry_after_seconds();
    }
    fail_with(error);
  }
}

void GenerationSession::on_prompt(size_t prompt, std::vector<ops::TokenScore> scores) {
  if (!over_) prompts_[prompt]->scores = std::move(scores);
}

void GenerationSession::begin_choice(size_t choice) {
  if (request_.stream) begin_stream();
  if (prompts_.empty() || choices_[choice].prompt) return;
  const std::shared_ptr<ScoredPrompt>& prompt = prompts_[choice / choices_per_prompt_];
  choices_[choice].prompt = prompt;
  if (!request_.stream || !prompt->wishes.echo) return;
  const EchoedPrompt echo = echo_prompt(*prompt, model_.tokenizer);
  text_offsets_[choice] = character_count(echo.text);
  send(echo_frame(head_, static_cast<int32_t>(choice), echo.text, echo.tokens, model_.tokenizer));
}

void GenerationSession::on_piece(size_t prompt, int32_t choice, TokenEvent piece) {
  if (over_) return;
  const size_t index = choice_index(prompt, choice);
  begin_choice(index);
  if (!reasoners_.empty()) {
    text::ReasoningPiece parsed = reasoners_[index].push(piece.text);
    piece.text = std::move(parsed.content);
    add_reasoning(index, std::move(parsed.reasoning), piece);
  }
  add_content(index, std::move(piece));
}

void GenerationSession::add_reasoning(size_t choice, std::string reasoning, TokenEvent& piece) {
  std::optional<std::string>& known = choices_[choice].reasoning;
  if (!known || reasoning.empty()) return;
  if (!request_.stream) {
    *known += reasoning;
    return;
  }
  std::swap(piece.text, reasoning);
  send(writer_->reasoning(choice, piece));
  piece = {.text = std::move(reasoning)};  // the content; its token is shown
}

void GenerationSession::add_content(size_t choice, TokenEvent piece) {
  std::vector<ToolCall> calls;
  if (!parsers_.empty()) {
    ParsedPiece parsed = parsers_[choice].push(piece.text);
    piece.text = std::move(parsed.content);
    calls = std::move(parsed.calls);
  }
  add_piece(choice, std::move(piece));
  add_calls(choice, std::move(calls));
}

void GenerationSession::add_piece(size_t choice, TokenEvent piece) {
  if (!request_.stream) {
    ChoiceState& state = choices_[choice];
    state.text += piece.text;
    if (head_.logprobs) state.tokens.push_back(std::move(piece));
    return;
  }
  const bool shows_token = head_.logprobs && piece.token >= 0;
  if (piece.text.empty() && !shows_token) return;
  const int64_t offset = text_offsets_[choice];
  text_offsets_[choice] += character_count(piece.text);
  send(writer_->text(choice, piece, offset));
}

void GenerationSession::add_calls(size_t choice, std::vector<ToolCall> calls) {
  std::vector<NamedCall>& known = choices_[choice].calls;
  for (ToolCall& call : calls) {
    if (!request_.tools.parallel && !known.empty()) return;
    known.push_back({.id = tool_call_id(request_.tools.format, head_.id, choice, known.size()),
                     .call = std::move(call),
                     .text_before = choices_[choice].text.size(),
                     .tokens_before = choices_[choice].tokens.size()});
    if (!request_.stream) continue;
    send(writer_->call(choice, known.back(), known.size() - 1));
  }
}

void GenerationSession::on_choice(size_t prompt, const serve::ChoiceEnd& end) {
  if (over_) return;
  const size_t index = choice_index(prompt, end.choice);
  ChoiceState& state = choices_[index];
  begin_choice(index);
  if (!reasoners_.empty()) {
    text::ReasoningPiece rest = reasoners_[index].finish();
    TokenEvent piece{.text = std::move(rest.content)};
    add_reasoning(index, std::move(rest.reasoning), piece);
    add_content(index, std::move(piece));
  }
  if (!parsers_.empty()) add_piece(index, {.text = parsers_[index].finish().content});
  // Who asks for the prompt's tokens takes the last one for the answer's (lm-evaluation-harness).
  if (request_.prompt.echo && head_.logprobs && end.stop_id >= 0) {
    add_piece(index, {.token = end.stop_id, .logprob = end.stop_logprob, .top = end.stop_top});
  }
  state.finish = wire_finish_reason(end.finish);
  const bool chose_calls = !state.calls.empty() && !request_.tools.named;
  if (chose_calls && state.finish == "stop") state.finish = "tool_calls";
  state.stop_string = end.stop_string;
  if (!request_.stream) return;
  send(writer_->finish(index, state));
}

void GenerationSession::on_done(const serve::RequestReport& report) {
  if (over_) return;
  reports_.push_back(report);
  if (reports_.size() == prompt_count_) finish();
}

void GenerationSession::on_failed(const Error& error) {
  if (!over_) fail_with(to_api_error(error));
}

void GenerationSession::finish() {
  const serve::RequestReport report = merge_reports(reports_);
  if (!request_.stream) return finish_whole(report);
  begin_stream();
  if (over_) return;
  over_ = true;
  std::function<void()> job = [self = shared_from_this(), report] {
    self->responder_->post(
        [self, frames = self->writer_->end(report)] { self->send_last(frames); });
  };
  const size_t held_bytes = writer_->held_bytes();
  if (held_bytes > 0 && work_.try_push(job, held_bytes)) return;
  send_last(writer_->end(report));
}

void GenerationSession::send_last(const std::string& frames) {
  if (responder_->write(frames)) responder_->end();
}

void GenerationSession::finish_whole(const serve::RequestReport& report) {
  over_ = true;
  const auto write_out = [self = shared_from_this(), report] {
    HttpResponse response = json_response(self->writer_->whole(self->choices_, report));
    response.headers.push_back({"x-request-id", self->head_.id});
    response.headers.push_back({"x-jige-timing", timing_header(report)});
    return response;
  };
  if (head_.logprobs || !prompts_.empty()) {
    size_t bytes = 0;
    for (const ChoiceState& choice : choices_) {
      for (const TokenEvent& event : choice.tokens) {
        bytes += sizeof event + event.top.size() * sizeof event.top[0];
      }
    }
    for (const auto& prompt : prompts_) {
      for (const ops::TokenScore& score : prompt->scores) {
        bytes += sizeof score + score.top.size() * sizeof score.top[0];
      }
    }
    std::function<void()> job = [write_out, responder = responder_] {
      responder->post([responder, response = write_out()] { responder->respond(response); });
    };
    if (work_.try_push(job, bytes)) return;
  }
  responder_->respond(write_out());
}

void GenerationSession::fail_with(const ApiError& error) {
  cancel();
  if (!opened_) return responder_->respond(writer_->refusal(error));
  const std::string begun = streaming_ ? "" : writer_->begin(choices_.size());
  responder_->write(begun + writer_->error(error));
  responder_->end();
}

void GenerationSession::cancel() {
  over_ = *cancelled_ = true;
  for (const serve::RequestId id : ids_) model_.engine->cancel(id);
}

void GenerationSession::open_stream() {
  if (over_ || std::exchange(opened_, true)) return;
  HttpResponse head = event_stream_head();
  head.headers.push_back({"x-request-id", head_.id});
  responder_->begin(std::move(head));
}

void GenerationSession::begin_stream() {
  if (std::exchange(streaming_, true)) return;
  open_stream();
  send(writer_->begin(choices_.size()));
}

void GenerationSession::send(const std::string& frames) {
  if (!over_ && !frames.empty() && !responder_->write(frames)) cancel();
}

}  // namespace jige::api
