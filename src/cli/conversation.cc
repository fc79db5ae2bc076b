#include "cli/conversation.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "serve/context_hint.h"
#include "text/chat_encode.h"

namespace jige::cli {

Result<Conversation> Conversation::create(const text::Tokenizer& tokenizer,
                                          const std::string& where,
                                          const ReasoningFlag& reasoning) {
  Conversation conversation;
  if (!tokenizer.chat_template().empty()) {
    JIGE_TRY(conversation.chat_,
             text::ChatTemplate::parse(tokenizer.chat_template(), where + ": chat template"));
  }
  conversation.has_reasoning_ =
      reasoning.is_expected(conversation.chat_ ? &*conversation.chat_ : nullptr);
  return conversation;
}

std::vector<std::string> Conversation::stop_strings() const {
  if (has_template()) return {};
  return {"\nUser:", "\nAssistant:"};
}

std::vector<int32_t> Conversation::shown_ids(const text::Tokenizer& tokenizer) const {
  return has_reasoning_ ? text::reasoning_mark_ids(tokenizer) : std::vector<int32_t>();
}

void Conversation::set_system(const std::string& text) {
  if (!messages_.empty() && messages_.front().role == "system") messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), {.role = "system", .content = text});
}

void Conversation::reset() {
  const bool system = !messages_.empty() && messages_.front().role == "system";
  messages_.resize(system ? 1 : 0);
}

bool Conversation::drop_oldest() {
  const size_t first = !messages_.empty() && messages_.front().role == "system" ? 1 : 0;
  size_t end = first + 1;  // up to the next question
  while (end < messages_.size() && messages_[end].role != "user") ++end;
  if (end >= messages_.size()) return false;
  messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(first),
                  messages_.begin() + static_cast<std::ptrdiff_t>(end));
  dropped_count_ += static_cast<int64_t>(end - first);
  return true;
}

Result<std::vector<int32_t>> Conversation::encode(const text::Tokenizer& tokenizer) const {
  if (chat_) {
    return text::encode_chat(tokenizer, *chat_, to_json()["messages"],
                             {.add_generation_prompt = true});
  }
  std::string transcript;
  for (const Message& message : messages_) {
    if (message.role == "system") {
      transcript += message.content + "\n\n";
    } else {
      transcript += (message.role == "user" ? "User: " : "Assistant: ") + message.content + "\n";
    }
  }
  return tokenizer.encode(transcript + "Assistant:", {.allow_special = false});
}

Result<std::vector<int32_t>> Conversation::prompt(const text::Tokenizer& tokenizer, Limit limit) {
  dropped_count_ = 0;
  std::vector<Message> all = messages_;
  Result<std::vector<int32_t>> ids = shortened(tokenizer, limit);
  if (!ids) {
    messages_ = std::move(all);
    dropped_count_ = 0;
  }
  return ids;
}

Result<std::vector<int32_t>> Conversation::shortened(const text::Tokenizer& tokenizer,
                                                     Limit limit) {
  for (;;) {
    JIGE_TRY(std::vector<int32_t> ids, encode(tokenizer));
    const auto count = static_cast<int64_t>(ids.size());
    if (count + limit.room <= limit.context_max) return ids;
    if (drop_oldest()) continue;
    // A last message that leaves less room than wished for still gets its answer.
    if (count < limit.context_max) return ids;
    return fail(Code::kInvalidArgument,
                "the message makes a prompt of {} tokens, and the context "
                "holds {}; shorten it{}",
                count, limit.context_max,
                serve::context_hint(limit.context_max, limit.model_context_max));
  }
}

text::ReasoningStart Conversation::reasoning_start(const text::Tokenizer& tokenizer,
                                                   std::span<const int32_t> prompt) const {
  if (!has_reasoning_) return text::ReasoningStart::kNone;
  return text::reasoning_start(tokenizer, prompt);
}

Json Conversation::to_json() const {
  Json list = Json::array();
  for (const Message& message : messages_) {
    list.push_back({{"role", message.role}, {"content", message.content}});
    if (!message.reasoning.empty()) list.back()["reasoning_content"] = message.reasoning;
  }
  return {{"messages", std::move(list)}};
}

}  // namespace jige::cli
