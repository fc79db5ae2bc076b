#include "text/chat_encode.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/chat_marks.h"
#include "text/jinja_text.h"

namespace jige::text {
namespace {

size_t common_prefix(std::string_view a, std::string_view b) {
  const size_t size = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(size),
                                           b.begin()).first - a.begin());
}

size_t common_suffix(std::string_view a, std::string_view b) {
  size_t size = 0;
  const size_t limit = std::min(a.size(), b.size());
  while (size < limit && a[a.size() - 1 - size] == b[b.size() - 1 - size]) ++size;
  return size;
}

bool is_assistant(const Json& message) {
  return message.is_object() && message.contains("role") && message["role"] == "assistant";
}

// Finds the answers of a conversation by rendering parts and variants of it.
class AnswerFinder {
 public:
  AnswerFinder(const ChatTemplate& chat, const Json& messages, const ChatOptions& options)
      : chat_(chat), messages_(messages), options_(options) {}

  Result<ChatRender> run() {
    JIGE_TRY(final_.text, chat_.render(messages_, options_));
    for (size_t i = 0; i < messages_.size(); ++i) {
      if (!is_assistant(messages_[i])) continue;
      JIGE_TRY(const size_t begin, answer_begin(i));
      JIGE_TRY(size_t end, answer_end(i));
      const std::string_view text = final_.text;
      end = std::min(end, text.size());
      if (begin < end) end = begin + jinja::strip_right(text.substr(begin, end - begin)).size();
      if (begin < end) final_.generated.push_back({begin, end});
    }
    return std::move(final_);
  }

 private:
  // The first `count` messages; message `count - 1` with other content if `changed`.
  Result<std::string> render_first(size_t count, bool prompt, bool changed) const {
    Json part = Json::array();
    for (size_t i = 0; i < count; ++i) part.push_back(messages_[i]);
    if (changed) change(part[count - 1]);
    ChatOptions options = options_;
    options.add_generation_prompt = prompt;
    return chat_.render(part, options);
  }

  Result<std::string> render_changed(size_t i) const {
    Json all = messages_;
    change(all[i]);
    return chat_.render(all, options_);
  }

  // Gives a message another content, which begins and ends with another letter than the old one.
  static void change(Json& message) {
    std::string_view text;
    if (message.contains("content") && message["content"].is_string()) {
      text = jinja::strip_right(
          jinja::strip_left(message["content"].get_ref<const std::string&>()));
    }
    std::string other;
    for (const char letter : {'q', 'z', '7'}) {
      if (text.empty() || (text.front() != letter && text.back() != letter)) {
        other = letter;
        break;
      }
    }
    message["content"] = other;
  }

  Result<size_t> answer_begin(size_t i) const {
    for (const bool prompt : {true, false}) {
      // Some templates refuse a conversation that ends here; then the comparison below decides.
      const auto before = render_first(i, prompt, /*changed=*/false);
      if (before && !before->empty() && final_.text.starts_with(*before)) return before->size();
    }
    JIGE_TRY(const std::string changed, render_changed(i));
    return common_prefix(final_.text, changed);
  }

  Result<size_t> answer_end(size_t i) const {
    JIGE_TRY(const std::string whole, render_first(i + 1, /*prompt=*/false, /*changed=*/false));
    if (final_.text.starts_with(whole)) return whole.size();
    // What both renders have behind the content ends with the message in one and with the
    // conversation in the other; the difference is what later messages take.
    JIGE_TRY(const std::string whole_changed, render_first(i + 1, false, /*changed=*/true));
    JIGE_TRY(const std::string final_changed, render_changed(i));
    const size_t rest = common_suffix(final_.text, final_changed);
    const std::string_view behind = std::string_view(final_.text).substr(final_.text.size() - rest);
    const size_t tail =
        std::min(common_suffix(whole, whole_changed), common_with_prompt(i, behind));
    return final_.text.size() - (rest > tail ? rest - tail : 0);
  }

  // How much of what stands behind a message's content stands there too where the next answer is
  // to begin: a template that closes every conversation with a token has it not there.
  size_t common_with_prompt(size_t i, std::string_view behind) const {
    const auto prompt = render_first(i + 1, /*prompt=*/true, /*changed=*/false);
    const auto changed = render_first(i + 1, /*prompt=*/true, /*changed=*/true);
    if (!prompt || !changed) return behind.size();
    const size_t size = common_suffix(*prompt, *changed);
    return common_prefix(behind, std::string_view(*prompt).substr(prompt->size() - size));
  }

  const ChatTemplate& chat_;
  const Json& messages_;
  const ChatOptions& options_;
  ChatRender final_;
};

ChatOptions with_tokens(const Tokenizer& tokenizer, const ChatOptions& options) {
  ChatOptions filled = options;
  if (filled.bos_token.empty()) filled.bos_token = tokenizer.special().bos_token;
  if (filled.eos_token.empty()) filled.eos_token = tokenizer.special().eos_token;
  return filled;
}

// How many of the ids of `text` lie wholly before `place`: those that its beginning alone has too.
Result<size_t> ids_before(const Tokenizer& tokenizer, const Unmarked& text, size_t place,
                          const std::vector<int32_t>& ids) {
  const auto last = std::lower_bound(text.guards.begin(), text.guards.end(), place);
  const std::vector<size_t> guards(text.guards.begin(), last);
  JIGE_TRY(const std::vector<int32_t> part,
           tokenizer.encode(std::string_view(text.text).substr(0, place),
                            {.add_special = false, .guards = guards}));
  const size_t size = std::min(part.size(), ids.size());
  size_t same = 0;
  while (same < size && part[same] == ids[same]) ++same;
  return same;
}

}  // namespace

Result<ChatRender> render_answers(const ChatTemplate& chat, const Json& messages,
                                  const ChatOptions& options) {
  if (!messages.is_array()) {
    return fail(Code::kInvalidArgument, "messages must be a list of objects");
  }
  if (chat.has_generation_blocks()) {
    JIGE_TRY(ChatRender render, chat.render_with_spans(messages, options));
    if (!render.generated.empty()) return render;
  }
  return AnswerFinder(chat, messages, options).run();
}

Result<std::vector<int32_t>> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                         const Json& messages, const ChatOptions& options) {
  const ControlTokens control(tokenizer, chat);
  JIGE_TRY(const ChatRender render, chat.render_with_spans(control.mark_messages(messages),
                                                           with_tokens(tokenizer, options)));
  const Unmarked text = remove_marks(render);
  return tokenizer.encode(text.text, {.add_special = false, .guards = text.guards});
}

Result<ChatEncoding> encode_chat_answers(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                         const Json& messages, const ChatOptions& options) {
  const ControlTokens control(tokenizer, chat);
  JIGE_TRY(const ChatRender render, render_answers(chat, control.mark_messages(messages),
                                                   with_tokens(tokenizer, options)));
  const Unmarked text = remove_marks(render);
  ChatEncoding encoding;
  JIGE_TRY(encoding.ids,
           tokenizer.encode(text.text, {.add_special = false, .guards = text.guards}));
  encoding.answer.assign(encoding.ids.size(), 0);
  for (const ChatSpan& span : text.spans) {
    JIGE_TRY(const size_t begin, ids_before(tokenizer, text, span.begin, encoding.ids));
    JIGE_TRY(const size_t end, ids_before(tokenizer, text, span.end, encoding.ids));
    for (size_t i = begin; i < end; ++i) encoding.answer[i] = 1;
  }
  return encoding;
}

}  // namespace jige::text
