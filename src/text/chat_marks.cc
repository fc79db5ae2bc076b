#include "text/chat_marks.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/mark_characters.h"
#include "text/tokenizer_core.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

bool is_mark_at(std::string_view text, size_t at) {
  const std::string_view here = text.substr(at, kMarkBegin.size());
  return here == kMarkBegin || here == kMarkEnd;
}

// The first mark at or after `from`, or npos.
size_t find_mark(std::string_view text, size_t from) {
  const std::string_view lead = kMarkBegin.substr(0, 2);
  for (size_t at = find_text(text, lead, from); at != text.npos;
       at = find_text(text, lead, at + 1)) {
    if (is_mark_at(text, at)) return at;
  }
  return text.npos;
}

std::string without_marks(std::string_view text) {
  std::string out;
  size_t from = 0;
  for (size_t at = find_mark(text, 0); at != text.npos; at = find_mark(text, from)) {
    out.append(text.substr(from, at - from));
    from = at + kMarkBegin.size();
  }
  return out.append(text.substr(from));
}

std::string mark_text(const std::string& raw, const TokenTrie& tokens) {
  const std::string text = without_marks(raw);
  std::string out;
  std::vector<TokenTrie::End> ends;
  size_t from = 0;
  for (size_t at = tokens.find(text, 0, ends); at < text.size();
       at = tokens.find(text, from, ends)) {
    const size_t end = ends.back().end;
    out.append(text, from, at - from).append(kMarkBegin);
    out.append(text, at, end - at).append(kMarkEnd);
    from = end;
  }
  return out.append(text, from);
}

Json marked_tree(const Json& node, const TokenTrie& tokens) {
  if (node.is_string()) return mark_text(node.get_ref<const std::string&>(), tokens);
  if (!node.is_structured()) return node;
  Json marked = node.is_array() ? Json::array() : Json::object();
  for (const auto& [name, child] : node.items()) {
    if (node.is_array()) {
      marked.push_back(marked_tree(child, tokens));
    } else {
      marked[mark_text(name, tokens)] = marked_tree(child, tokens);
    }
  }
  return marked;
}

}  // namespace

ControlTokens::ControlTokens(const Tokenizer& tokenizer, const ChatTemplate& chat) {
  for (const AddedToken* token : tokenizer.core().parts().added.all()) {
    if (token->special) special_.add(token->content, token->id);
    if (token->special || chat.source().find(token->content) != std::string::npos) {
      written_.add(token->content, token->id);
    }
  }
}

Json ControlTokens::mark_messages(const Json& messages) const {
  if (!messages.is_array()) return messages;
  Json marked = Json::array();
  for (const Json& message : messages) {
    const bool is_assistant =
        message.is_object() && message.contains("role") && message["role"] == "assistant";
    marked.push_back(marked_tree(message, is_assistant ? special_ : written_));
  }
  return marked;
}

Json ControlTokens::mark_tools(const Json& tools) const { return marked_tree(tools, written_); }

Unmarked remove_marks(const ChatRender& render) {
  const std::string_view text = render.text;
  Unmarked result;
  std::vector<size_t> marks;
  size_t from = 0;
  for (size_t at = find_mark(text, 0); at != text.npos; at = find_mark(text, from)) {
    result.text.append(text.substr(from, at - from));
    from = at + kMarkBegin.size();
    marks.push_back(at);
    const size_t place = result.text.size();
    // Nothing may span a mark, begin behind a first or end before a last one: of a pair a template
    // may have cut one off.
    const bool begins = text.substr(at, kMarkBegin.size()) == kMarkBegin;
    if (!begins && place > 0) result.guards.push_back(place - 1);
    result.guards.push_back(place);
    if (begins) result.guards.push_back(place + 1);
  }
  result.text.append(text.substr(from));
  std::sort(result.guards.begin(), result.guards.end());
  const auto moved = [&](size_t place) {
    const auto before = std::lower_bound(marks.begin(), marks.end(), place) - marks.begin();
    return place - static_cast<size_t>(before) * kMarkBegin.size();
  };
  for (const ChatSpan& span : render.generated) {
    result.spans.push_back({moved(span.begin), moved(span.end)});
  }
  return result;
}

}  // namespace jige::text
