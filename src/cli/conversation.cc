#include "cli/conversation.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "serve/context_hint.h"
#include "text/chat_encode.h"

namespace jige::cli {

Json message_json(const Message& message) {
  Json json = {{"role", message.role}, {"content", message.content}};
  if (!message.image_files.empty()) {
    Json parts(message.image_files.size(), {{"type", "image"}});
    if (!message.content.empty()) parts.push_back({{"type", "text"}, {"text", message.content}});
    json["content"] = std::move(parts);
  }
  if (!message.reasoning.empty()) json["reasoning_content"] = message.reasoning;
  return json;
}

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

void Conversation::add(std::string content, std::vector<images::Image> images,
                       std::vector<std::string> files) {
  JIGE_CHECK(reader_ && has_template(), "{} images that nobody reads", images.size());
  JIGE_CHECK(images.size() == files.size(), "{} images, {} files", images.size(), files.size());
  messages_.push_back(
      {.role = "user", .content = std::move(content), .image_files = std::move(files)});
  std::ranges::move(images, std::back_inserter(images_));
}

void Conversation::take_back() {
  images_.resize(images_.size() - messages_.back().image_files.size());
  messages_.pop_back();
}

void Conversation::set_system(const std::string& text) {
  if (!messages_.empty() && messages_.front().role == "system") messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), {.role = "system", .content = text});
}

void Conversation::reset() {
  const bool system = !messages_.empty() && messages_.front().role == "system";
  messages_.resize(system ? 1 : 0);
  images_.clear();
}

bool Conversation::drop_oldest() {
  const size_t first = !messages_.empty() && messages_.front().role == "system" ? 1 : 0;
  size_t end = first + 1;  // up to the next question
  while (end < messages_.size() && messages_[end].role != "user") ++end;
  if (end >= messages_.size()) return false;
  for (size_t i = first; i < end; ++i) dropped_images_ += messages_[i].image_files.size();
  messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(first),
                  messages_.begin() + static_cast<std::ptrdiff_t>(end));
  dropped_count_ += static_cast<int64_t>(end - first);
  return true;
}

Result<std::vector<int32_t>> Conversation::encode(const text::Tokenizer& tokenizer) const {
  if (chat_) {
    Json list = Json::array();
    for (const Message& message : messages_) list.push_back(message_json(message));
    return text::encode_chat(tokenizer, *chat_, list,
                             {.add_generation_prompt = true,
                              .image = reader_ ? reader_->config().written : text::ImageText()});
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

Result<serve::ImagePrompt> Conversation::prompt(const text::Tokenizer& tokenizer, Limit limit,
                                                const GoOn& go_on) {
  dropped_count_ = 0;
  std::vector<Message> all = messages_;
  Result<serve::ImagePrompt> prompt = shortened(tokenizer, limit, go_on);
  if (prompt) {
    images_.erase(images_.begin(), images_.begin() + static_cast<std::ptrdiff_t>(dropped_images_));
  } else {
    messages_ = std::move(all);
    dropped_count_ = 0;
  }
  dropped_images_ = 0;
  return prompt;
}

Result<serve::ImagePrompt> Conversation::shortened(const text::Tokenizer& tokenizer, Limit limit,
                                                   const GoOn& go_on) {
  for (;;) {
    JIGE_TRY(std::vector<int32_t> ids, encode(tokenizer));
    const int64_t count = reader_ ? reader_->token_count(ids, images()) : std::ssize(ids);
    const bool last = count + limit.room <= limit.context_max || !drop_oldest();
    if (!last) continue;
    // A last message that leaves less room than wished for still gets its answer.
    if (count < limit.context_max) {
      if (reader_) return reader_->read(ids, images(), go_on);
      return serve::ImagePrompt{.ids = std::move(ids), .given = {}};
    }
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
    Json json = message_json(message);
    for (size_t i = 0; i < message.image_files.size(); ++i) {
      json["content"][i]["image"] = message.image_files[i];
    }
    list.push_back(std::move(json));
  }
  return {{"messages", std::move(list)}};
}

}  // namespace jige::cli
