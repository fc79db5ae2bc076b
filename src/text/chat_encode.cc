#include "text/chat_encode.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/chat_marks.h"
#include "text/chat_prefixes.h"
#include "text/jinja_text.h"
#include "text/tokenizer_core.h"

namespace jige::text {
namespace {

size_t common_prefix(std::string_view a, std::string_view b) {
  const size_t size = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(size), b.begin()).first -
      a.begin());
}

bool is_assistant(const Json& message) {
  return message.is_object() && message.contains("role") && message["role"] == "assistant";
}

// Finds the answers of a conversation by rendering parts and variants of it.
class AnswerFinder {
 public:
  AnswerFinder(ChatPrefixes renders, const Json& messages, const ChatOptions& options)
      : renders_(std::move(renders)), messages_(messages), options_(options) {}

  Result<ChatRender> run() {
    ChatRender found{.text = renders_.text(), .generated = {}};
    const std::string_view text = found.text;
    for (size_t i = 0; i < messages_.size(); ++i) {
      if (!is_assistant(messages_[i])) continue;
      JIGE_TRY(const size_t begin, answer_begin(i));
      JIGE_TRY(size_t end, answer_end(i));
      end = std::min(end, text.size());
      if (begin < end) end = begin + jinja::strip_right(text.substr(begin, end - begin)).size();
      if (begin < end) found.generated.push_back({begin, end});
    }
    found.steps = renders_.steps();
    return found;
  }

 private:
  using Text = ChatVariantText;

  // The first `count` messages; message `count - 1` with other content if `changed`.
  Result<Text> render_first(size_t count, bool prompt, bool changed) {
    ChatVariant variant{.count = count, .prompt = prompt, .changed_at = {}, .changed = {}};
    if (changed) change(variant, count - 1);
    return renders_.render(variant);
  }

  Result<Text> render_changed(size_t i) {
    ChatVariant variant{.count = messages_.size(),
                        .prompt = options_.add_generation_prompt,
                        .changed_at = {},
                        .changed = {}};
    change(variant, i);
    return renders_.render(variant);
  }

  // Gives a message another content, which begins and ends with another letter than the old one.
  void change(ChatVariant& variant, size_t i) const {
    Json message = messages_[i];
    std::string_view text;
    if (message.contains("content") && message["content"].is_string()) {
      text =
          jinja::strip_right(jinja::strip_left(message["content"].get_ref<const std::string&>()));
    }
    std::string other;
    for (const char letter : {'q', 'z', '7'}) {
      if (text.empty() || (text.front() != letter && text.back() != letter)) {
        other = letter;
        break;
      }
    }
    message["content"] = other;
    variant.changed_at = i;
    variant.changed = std::move(message);
  }

  Result<size_t> answer_begin(size_t i) {
    const std::string_view final = renders_.text();
    for (const bool prompt : {true, false}) {
      // Some templates refuse a conversation that ends here; then the comparison below decides.
      const auto before = render_first(i, prompt, /*changed=*/false);
      if (before && before->size() > 0 && final.substr(before->shared).starts_with(before->rest)) {
        return before->size();
      }
    }
    JIGE_TRY(const Text changed, render_changed(i));
    const size_t begin = changed.shared + common_prefix(final.substr(changed.shared), changed.rest);
    if (begin < changed.shared + changed.rest.size()) return begin;
    return begin + common_prefix(final.substr(begin), final.substr(final.size() - changed.tail));
  }

  Result<size_t> answer_end(size_t i) {
    const std::string_view final = renders_.text();
    JIGE_TRY(const Text whole, render_first(i + 1, /*prompt=*/false, /*changed=*/false));
    if (final.substr(whole.shared).starts_with(whole.rest)) return whole.size();
    // What both renders have behind the content ends with the message in one and with the
    // conversation in the other; the difference is what later messages take.
    JIGE_TRY(const Text whole_changed, render_first(i + 1, false, /*changed=*/true));
    JIGE_TRY(const Text final_changed, render_changed(i));
    const size_t rest =
        common_suffix({.shared = 0, .rest = {}, .tail = final.size()}, final_changed);
    const std::string_view behind = final.substr(final.size() - rest);
    const std::string whole_end = end_of(whole, common_suffix(whole, whole_changed));
    const size_t tail = std::min(common_prefix(behind, whole_end), common_with_prompt(i, behind));
    return final.size() - (rest > tail ? rest - tail : 0);
  }

  // How much of what stands behind a message's content stands there too where the next answer is
  // to begin: a template that closes every conversation with a token has it not there.
  size_t common_with_prompt(size_t i, std::string_view behind) {
    const auto prompt = render_first(i + 1, /*prompt=*/true, /*changed=*/false);
    const auto changed = render_first(i + 1, /*prompt=*/true, /*changed=*/true);
    if (!prompt || !changed) return behind.size();
    return common_prefix(behind, end_of(*prompt, common_suffix(*prompt, *changed)));
  }

  char letter(const Text& text, size_t place) const {
    if (place < text.shared) return renders_.text()[place];
    if (place < text.shared + text.rest.size()) return text.rest[place - text.shared];
    return renders_.text()[renders_.text().size() + place - text.size()];
  }

  size_t common_suffix(const Text& a, const Text& b) const {
    size_t size = std::min(a.tail, b.tail);
    const size_t limit = std::min(a.size(), b.size());
    while (size < limit && letter(a, a.size() - 1 - size) == letter(b, b.size() - 1 - size)) ++size;
    return size;
  }

  // The last `size` bytes.
  std::string end_of(const Text& text, size_t size) const {
    const std::string& final = renders_.text();
    if (size <= text.tail) return final.substr(final.size() - size);
    const std::string tail = final.substr(final.size() - text.tail);
    size -= text.tail;
    if (size <= text.rest.size()) return text.rest.substr(text.rest.size() - size) + tail;
    const size_t from_shared = size - text.rest.size();
    return final.substr(text.shared - from_shared, from_shared) + text.rest + tail;
  }

  ChatPrefixes renders_;
  const Json& messages_;
  const ChatOptions& options_;
};

// A conversation as it goes to the template: control tokens between marks, tokens filled in.
struct Prepared {
  Json messages;
  Json tools;
  ChatOptions options;

  Prepared(const Tokenizer& tokenizer, const ChatTemplate& chat, const Json& given,
           const ChatOptions& chosen)
      : options(chosen) {
    const ControlTokens control(tokenizer, chat);
    messages = control.mark_messages(given);
    if (chosen.tools) {
      tools = control.mark_tools(*chosen.tools);
      options.tools = &tools;
    }
    if (options.bos_token.empty()) options.bos_token = tokenizer.special().bos_token;
    if (options.eos_token.empty()) options.eos_token = tokenizer.special().eos_token;
  }
  Prepared(const Prepared&) = delete;  // `options` points to `tools`
  Prepared& operator=(const Prepared&) = delete;
};

// The white space that the template puts between a prompt and the answer to it (Llama 2: a space).
std::string space_before_reply(const ChatTemplate& chat, const Prepared& prepared,
                               std::string_view prompt) {
  constexpr char kReply = 'x';
  Json messages = prepared.messages;  // a list, as the prompt was rendered
  messages.push_back({{"role", "assistant"}, {"content", std::string(1, kReply)}});
  ChatOptions options = prepared.options;
  options.add_generation_prompt = false;
  const auto whole = chat.render(messages, options);
  // Templates that refuse an answer here, or write the prompt in another way then, put none.
  if (!whole || !whole->starts_with(prompt)) return {};
  const std::string_view behind = std::string_view(*whole).substr(prompt.size());
  const std::string_view reply = jinja::strip_left(behind);
  if (!reply.starts_with(kReply)) return {};
  return std::string(behind.substr(0, behind.size() - reply.size()));
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
  JIGE_TRY(ChatPrefixes renders, ChatPrefixes::create(chat, messages, options));
  return AnswerFinder(std::move(renders), messages, options).run();
}

Result<std::vector<int32_t>> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                         const Json& messages, const ChatOptions& options) {
  const Prepared prepared(tokenizer, chat, messages, options);
  JIGE_TRY(const ChatRender render, chat.render_with_spans(prepared.messages, prepared.options));
  Unmarked text = remove_marks(render);
  put_image_text(options.image, text.text, text.guards);
  return tokenizer.encode(text.text, {.add_special = false, .guards = text.guards});
}

Result<std::vector<int32_t>> encode_chat_continued(const Tokenizer& tokenizer,
                                                   const ChatTemplate& chat, const Json& messages,
                                                   const ChatOptions& options) {
  // Shows where the content ends, and by its last letter whether what it ends with is kept. It is
  // that of transformers, as templates that write more behind a content look for it there.
  constexpr std::string_view kEnd = "CONTINUE_FINAL_MESSAGE_TAG ";
  Json given = messages;
  if (!given.is_array() || given.empty() || !given.back().is_object() ||
      !given.back().contains("content") || !given.back()["content"].is_string()) {
    return fail(Code::kInvalidArgument, "the last message has no text that could be continued");
  }
  given.back()["content"].get_ref<std::string&>() += kEnd;
  const Prepared prepared(tokenizer, chat, given, options);
  JIGE_TRY(const std::string rendered, chat.render(prepared.messages, prepared.options));
  const std::string_view mark = jinja::strip_right(kEnd);
  const size_t end = rendered.rfind(mark);
  if (end == std::string::npos) {
    return fail(Code::kInvalidArgument,
                "the chat template does not show the last message, so it cannot be continued");
  }
  const std::string_view shown = std::string_view(rendered).substr(0, end);
  const bool keeps_space = rendered.compare(end, kEnd.size(), kEnd) == 0;
  Unmarked text = remove_marks(
      {.text = std::string(keeps_space ? shown : jinja::strip_right(shown)), .generated = {}});
  put_image_text(options.image, text.text, text.guards);
  return tokenizer.encode(text.text, {.add_special = false, .guards = text.guards});
}

Result<ChatReply> encode_chat_reply(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                    const Json& messages, const std::string& reply,
                                    const ChatOptions& options) {
  ChatOptions asking = options;
  asking.add_generation_prompt = true;
  const Prepared prepared(tokenizer, chat, messages, asking);
  JIGE_TRY(const std::string prompt, chat.render(prepared.messages, prepared.options));
  const std::string space = space_before_reply(chat, prepared, prompt);
  const auto encode = [&](const std::string& rendered) {
    Unmarked text = remove_marks({.text = rendered, .generated = {}});
    put_image_text(options.image, text.text, text.guards);
    return tokenizer.encode(text.text, {.add_special = false, .guards = text.guards});
  };
  JIGE_TRY(std::vector<int32_t> ids, encode(prompt));
  const Json answer = Json::array({{{"role", "assistant"}, {"content", reply}}});
  const Json marked = ControlTokens(tokenizer, chat).mark_messages(answer);
  JIGE_TRY(std::vector<int32_t> whole,
           encode(prompt + space + marked[0]["content"].get_ref<const std::string&>()));
  const size_t prompt_count = ids.size();
  if (std::mismatch(ids.begin(), ids.end(), whole.begin(), whole.end()).first == ids.end()) {
    return ChatReply{std::move(whole), prompt_count};
  }
  JIGE_TRY(const std::vector<int32_t> apart,
           tokenizer.encode(
               space + reply,
               {.add_special = false, .allow_special = false, .continues = !prompt.empty()}));
  ids.insert(ids.end(), apart.begin(), apart.end());
  return ChatReply{std::move(ids), prompt_count};
}

Result<ChatEncoding> encode_chat_answers(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                         const Json& messages, const ChatOptions& options) {
  const Prepared prepared(tokenizer, chat, messages, options);
  JIGE_TRY(const ChatRender render, render_answers(chat, prepared.messages, prepared.options));
  Unmarked text = remove_marks(render);
  std::vector<size_t> borders;
  for (const ChatSpan& span : text.spans) borders.insert(borders.end(), {span.begin, span.end});
  std::sort(borders.begin(), borders.end());  // blocks may nest
  std::vector<size_t> places = borders;
  put_image_text(options.image, text.text, text.guards, &places);
  JIGE_TRY(PlacedIds placed, tokenizer.core().encode_places(
                                 text.text, {.add_special = false, .guards = text.guards}, places));
  const auto ids_before = [&](size_t border) {
    const auto at = std::lower_bound(borders.begin(), borders.end(), border) - borders.begin();
    return placed.before[static_cast<size_t>(at)];
  };
  ChatEncoding encoding;
  encoding.answer.assign(placed.ids.size(), 0);
  for (const ChatSpan& span : text.spans) {
    const size_t end = ids_before(span.end);
    for (size_t id = ids_before(span.begin); id < end; ++id) encoding.answer[id] = 1;
  }
  encoding.ids = std::move(placed.ids);
  return encoding;
}

}  // namespace jige::text
