#include "api/tool_call_parser.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/json.h"

namespace jige::api {
namespace {

constexpr size_t kBeforeObjectMax = 256;  // bytes of name[CALL_ID]id[ARGS], and of a header
constexpr size_t kSpacesMax = 64;         // held back in case a call follows
constexpr std::string_view kSpaces = " \t\r\n";
constexpr std::string_view kHermesOpen[] = {"<tool_call>"};
constexpr std::string_view kHermesClose = "</tool_call>";
constexpr std::string_view kMistralOpen[] = {"[TOOL_CALLS]"};
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr std::string_view kFunction = "to=functions.";
constexpr std::string_view kHarmonyOpen[] = {"<|start|>assistant", "<|channel|>", " to=functions."};
constexpr std::string_view kHarmonyBody = "<|message|>";
constexpr std::string_view kHarmonyClose = "<|call|>";

bool is_blank(std::string_view text) {
  return text.find_first_not_of(kSpaces) == std::string_view::npos;
}

// What a call may begin with, where it may begin anywhere.
std::span<const std::string_view> opens_of(ToolFormat format) {
  if (format == ToolFormat::kHarmony) return kHarmonyOpen;
  if (format == ToolFormat::kMistral) return kMistralOpen;
  return kHermesOpen;
}

std::string_view close_of(ToolFormat format) {
  return format == ToolFormat::kHarmony ? kHarmonyClose : kHermesClose;
}

struct FoundMark {
  size_t at = std::string_view::npos;
  size_t size = 0;
};

// The first of the marks.
FoundMark find_first(std::string_view text, std::span<const std::string_view> marks) {
  FoundMark first;
  for (const std::string_view mark : marks) {
    const size_t at = text.find(mark);
    if (at < first.at) first = {at, mark.size()};
  }
  return first;
}

// How long a part of a mark, but not all of it, `text` ends with; the longest such part.
size_t part_at_end(std::string_view text, std::span<const std::string_view> marks) {
  size_t longest = 0;
  for (const std::string_view mark : marks) {
    size_t part = std::min(mark.size() - 1, text.size());
    while (part > longest && !text.ends_with(mark.substr(0, part))) --part;
    longest = std::max(longest, part);
  }
  return longest;
}

// Where the end of `text` begins that may belong to a mark: white space and a part of the mark.
size_t held_from(std::string_view text, std::span<const std::string_view> marks) {
  size_t cut = text.size() - part_at_end(text, marks);
  const size_t least = cut > kSpacesMax ? cut - kSpacesMax : 0;
  while (cut > least && kSpaces.find(text[cut - 1]) != std::string_view::npos) --cut;
  return cut;
}

// `text` is a beginning of `mark`, but not all of it.
bool is_part(std::string_view text, std::string_view mark) {
  return text.size() < mark.size() && mark.starts_with(text);
}

std::optional<std::string> arguments_text(const Json* given) {
  if (!given) return "{}";
  if (given->is_object()) return dump_json(*given);
  if (!given->is_string()) return std::nullopt;
  const auto inner = parse_json(given->get_ref<const std::string&>(), "arguments");
  if (!inner || !inner->is_object()) return std::nullopt;
  return dump_json(*inner);
}

// The call that an object stands for; `name` where it stood before the object, which then is the
// arguments.
std::optional<ToolCall> read_call(std::string_view text, const std::string& name) {
  const auto json = parse_json(text, "tool call");
  if (!json || !json->is_object()) return std::nullopt;
  if (!name.empty()) return ToolCall{name, dump_json(*json)};
  const Json* called = find_field(*json, "name");
  if (!called || !called->is_string()) return std::nullopt;
  const Json* given = find_field(*json, "arguments");
  if (!given) given = find_field(*json, "parameters");
  auto arguments = arguments_text(given);
  ToolCall call{called->get<std::string>(), {}};
  if (!arguments || !is_tool_name(call.name)) return std::nullopt;
  call.arguments = std::move(*arguments);
  return call;
}

}  // namespace

size_t ObjectScanner::find_end(std::string_view text) {
  for (; seen_ < text.size(); ++seen_) {
    const char c = text[seen_];
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
      }
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{') {
      ++depth_;
    } else if (c == '}' && --depth_ == 0) {
      return ++seen_;
    }
  }
  return std::string_view::npos;
}

ToolCallParser::ToolCallParser(ToolFormat format, std::vector<std::string> names)
    : format_(format), names_(std::move(names)) {
  JIGE_CHECK(format != ToolFormat::kNone, "an answer without tools needs no parser");
}

ParsedPiece ToolCallParser::push(std::string_view text) {
  pending_ += text;
  ParsedPiece piece;
  while (step(piece)) {
  }
  return piece;
}

ParsedPiece ToolCallParser::finish() {
  ParsedPiece piece;
  if (state_ == State::kAfterObject && is_part(pending_, close_of(format_))) pending_.clear();
  const std::string rest = raw_ + pending_;
  if (!any_calls_ || !is_blank(rest)) piece.content = rest;
  raw_.clear();
  pending_.clear();
  return piece;
}

bool ToolCallParser::step(ParsedPiece& piece) {
  switch (state_) {
    case State::kText:
      return format_ == ToolFormat::kLlama ? read_start(piece) : read_text(piece);
    case State::kBeforeObject:
      return read_before_object(piece);
    case State::kName:
      return read_name(piece);
    case State::kHeader:
      return read_header(piece);
    case State::kObject:
      return read_object(piece);
    case State::kAfterObject:
      return read_after_object(piece);
  }
  return false;
}

// All but Llama: content up to a mark.
bool ToolCallParser::read_text(ParsedPiece& piece) {
  const FoundMark found = find_first(pending_, opens_of(format_));
  if (found.at == std::string::npos) {
    const size_t cut = held_from(pending_, opens_of(format_));
    piece.content.append(pending_, 0, cut);
    pending_.erase(0, cut);
    return false;
  }
  size_t end = found.at;
  while (end > 0 && kSpaces.find(pending_[end - 1]) != std::string_view::npos) --end;
  piece.content.append(pending_, 0, end);
  raw_.assign(pending_, end, found.at + found.size - end);
  pending_.erase(0, found.at + found.size);
  in_list_ = false;
  name_.clear();
  return enter(format_ == ToolFormat::kHarmony ? State::kHeader : State::kBeforeObject);
}

// Llama: a call begins the answer, or there is none.
bool ToolCallParser::read_start(ParsedPiece& piece) {
  if (!at_start_) {
    piece.content += std::exchange(pending_, {});
    return false;
  }
  take_spaces();
  if (pending_.empty() || is_part(pending_, kPythonTag)) return false;
  if (pending_.starts_with('{')) return enter(State::kObject);
  if (!pending_.starts_with(kPythonTag)) return give_up(piece);
  pending_.erase(0, kPythonTag.size());  // no text that anyone is to see
  return enter(State::kBeforeObject);
}

bool ToolCallParser::read_before_object(ParsedPiece& piece) {
  take_spaces();
  if (pending_.empty()) return false;
  if (pending_.front() == '{') return enter(State::kObject);
  if (format_ != ToolFormat::kMistral || in_list_) return give_up(piece);
  if (pending_.front() != '[') return enter(State::kName);
  take(1);
  in_list_ = true;
  return true;
}

bool ToolCallParser::read_name(ParsedPiece& piece) {
  const size_t end = pending_.find('{');
  if (std::min(end, pending_.size()) > kBeforeObjectMax) return give_up(piece);
  if (end == std::string::npos) return false;
  std::string name = pending_.substr(0, end);
  for (const std::string_view mark : {"[CALL_ID]", "[ARGS]"}) {
    if (const size_t at = name.find(mark); at != std::string::npos) name.resize(at);
  }
  name.resize(name.find_last_not_of(kSpaces) + 1);
  if (!is_tool_name(name)) return give_up(piece);
  name_ = std::move(name);
  take(end);
  return enter(State::kObject);
}

bool ToolCallParser::read_header(ParsedPiece& piece) {
  const size_t end = pending_.find(kHarmonyBody);
  const bool may_come =
      end == std::string::npos && pending_.size() < kBeforeObjectMax + kHarmonyBody.size();
  if (may_come) return false;
  if (end > kBeforeObjectMax) return give_up(piece);
  const std::string header = raw_ + pending_.substr(0, end);
  const size_t named = header.find(kFunction);
  if (named == std::string::npos) return give_up(piece);
  const std::string name = header.substr(named + kFunction.size());
  name_ = name.substr(0, name.find_first_of(" <"));
  if (!is_tool_name(name_)) return give_up(piece);
  take(end + kHarmonyBody.size());
  return enter(State::kBeforeObject);
}

bool ToolCallParser::read_object(ParsedPiece& piece) {
  const size_t end = scanner_.find_end(pending_);
  if (end == std::string::npos) return false;
  std::optional<ToolCall> call = read_call(std::string_view(pending_).substr(0, end), name_);
  if (call && format_ == ToolFormat::kLlama &&
      std::ranges::find(names_, call->name) == names_.end()) {
    call.reset();
  }
  take(end);
  if (!call) return give_up(piece);
  piece.calls.push_back(std::move(*call));
  any_calls_ = true;
  raw_.clear();
  return enter(State::kAfterObject);
}

bool ToolCallParser::read_after_object(ParsedPiece&) {
  pending_.erase(0, std::min(pending_.find_first_not_of(kSpaces), pending_.size()));
  if (pending_.empty()) return false;
  if (format_ == ToolFormat::kMistral) return after_mistral_object();
  if (format_ == ToolFormat::kLlama) return after_llama_object();
  const std::string_view close = close_of(format_);
  if (is_part(pending_, close)) return false;
  if (pending_.starts_with(close)) pending_.erase(0, close.size());
  return enter(State::kText);
}

bool ToolCallParser::after_mistral_object() {
  if (!in_list_) return enter(State::kText);
  const char next = pending_.front();
  if (next == ',' || next == ']') pending_.erase(0, 1);
  return enter(next == ',' ? State::kBeforeObject : State::kText);
}

bool ToolCallParser::after_llama_object() {
  if (pending_.front() == ';') {
    pending_.erase(0, 1);
    return enter(State::kBeforeObject);
  }
  if (pending_.front() == '{') return enter(State::kObject);
  at_start_ = false;
  return enter(State::kText);
}

void ToolCallParser::take_spaces() {
  take(std::min(pending_.find_first_not_of(kSpaces), pending_.size()));
}

void ToolCallParser::take(size_t bytes) {
  raw_.append(pending_, 0, bytes);
  pending_.erase(0, bytes);
}

bool ToolCallParser::enter(State state) {
  state_ = state;
  scanner_ = ObjectScanner();
  return true;
}

bool ToolCallParser::give_up(ParsedPiece& piece) {
  piece.content += std::exchange(raw_, {});
  at_start_ = false;
  return enter(State::kText);
}

}  // namespace jige::api
