#include "api/answer_writer.h"

#include <nlohmann/json.hpp>

#include "api/messages_writer.h"
#include "api/responses_writer.h"

namespace jige::api {
namespace {

// Completions and chat completions.
class CompletionWriter final : public AnswerWriter {
 public:
  CompletionWriter(const AnswerHead& head, const text::Tokenizer& tokenizer)
      : head_(head), tokenizer_(tokenizer) {}

  Json whole(const std::vector<ChoiceState>& choices, const serve::RequestReport& report) override {
    return whole_answer(head_, choices, report, tokenizer_);
  }
  std::string begin(size_t choice_count) override {
    std::string frames;
    if (head_.endpoint != Endpoint::kChat) return frames;
    for (size_t i = 0; i < choice_count; ++i) {
      frames += role_frame(head_, static_cast<int32_t>(i));
    }
    return frames;
  }
  std::string reasoning(size_t choice, const TokenEvent& piece) override {
    return reasoning_frame(head_, static_cast<int32_t>(choice), piece, tokenizer_);
  }
  std::string text(size_t choice, const TokenEvent& piece, int64_t offset) override {
    return piece_frame(head_, static_cast<int32_t>(choice), piece, offset, tokenizer_);
  }
  std::string call(size_t choice, const NamedCall& call, size_t index) override {
    return call_frame(head_, static_cast<int32_t>(choice), call, index);
  }
  std::string finish(size_t choice, const ChoiceState& state) override {
    return finish_frame(head_, static_cast<int32_t>(choice), state);
  }
  std::string end(const serve::RequestReport& report) override {
    std::string frames;
    if (head_.include_usage) frames += usage_frame(head_, report);
    return frames.append(kDoneFrame);
  }
  std::string error(const ApiError& error) override { return sse_frame(error_json(error)); }

 private:
  const AnswerHead& head_;
  const text::Tokenizer& tokenizer_;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_answer_writer(const AnswerHead& head,
                                                 const text::Tokenizer& tokenizer) {
  switch (head.endpoint) {
    case Endpoint::kCompletions:
    case Endpoint::kChat:
      break;
    case Endpoint::kResponses:
      return std::make_unique<ResponsesWriter>(head, tokenizer);
    case Endpoint::kMessages:
      return std::make_unique<MessagesWriter>(head);
  }
  return std::make_unique<CompletionWriter>(head, tokenizer);
}

void replay(const ChoiceState& state, AnswerWriter& writer) {
  if (state.reasoning) writer.reasoning(0, {.text = *state.reasoning});
  size_t text_told = 0;
  size_t tokens_told = 0;
  const auto tell_up_to = [&](size_t text_end, size_t tokens_end) {
    if (state.tokens.empty()) {
      writer.text(0, {.text = state.text.substr(text_told, text_end - text_told)}, 0);
    }
    for (; tokens_told < tokens_end; ++tokens_told) {
      writer.text(0, state.tokens[tokens_told], 0);
    }
    text_told = text_end;
  };
  for (size_t i = 0; i < state.calls.size(); ++i) {
    tell_up_to(state.calls[i].text_before, state.calls[i].tokens_before);
    writer.call(0, state.calls[i], i);
  }
  tell_up_to(state.text.size(), state.tokens.size());
}

std::string event_frame(const Json& event) {
  return "event: " + event["type"].get<std::string>() + "\n" + sse_frame(event);
}

}  // namespace jige::api
