#include "text/reasoning.h"

#include <algorithm>

namespace jige::text {
namespace {

constexpr size_t kSpacesMax = 64;  // held back in case a tag follows
constexpr std::string_view kSpaces = " \t\r\n";

// Messages in channels: prompts end with the first mark.
constexpr std::string_view kMessageStart = "<|start|>assistant";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kFurtherChannel = "<|start|>assistant<|channel|>";
constexpr std::string_view kBody = "<|message|>";
constexpr std::string_view kMessageEnd = "<|end|>";
constexpr std::string_view kFinalHeader = "<|channel|>final<|message|>";
constexpr std::string_view kMarks[] = {"<|start|>", kChannel, "<|constrain|>", kBody, kMessageEnd};
constexpr size_t kHeaderMax = 256;

bool is_special(const Tokenizer& tokenizer, std::string_view text) {
  const auto id = tokenizer.token_to_id(text);
  return id && tokenizer.is_special(*id);
}

bool has_channels(const Tokenizer& tokenizer) {
  return is_special(tokenizer, kChannel) && is_special(tokenizer, kBody) &&
         is_special(tokenizer, kMessageEnd);
}

// How long a part of `tag`, but not all of it, `text` ends with.
size_t part_at_end(std::string_view text, std::string_view tag) {
  size_t part = std::min(tag.size() - 1, text.size());
  while (part > 0 && !text.ends_with(tag.substr(0, part))) --part;
  return part;
}

// `end`, less the line feeds before it, up to those that are held back for a tag.
size_t before_line_feeds(std::string_view text, size_t end) {
  const size_t least = end > kSpacesMax ? end - kSpacesMax : 0;
  while (end > least && text[end - 1] == '\n') --end;
  return end;
}

}  // namespace

bool has_reasoning(const ChatTemplate& chat) {
  const std::string& source = chat.source();
  return source.find(kReasoningOpen) != std::string::npos ||
         source.find(kReasoningClose) != std::string::npos ||
         source.find(kChannel) != std::string::npos;
}

ReasoningStart reasoning_start(const Tokenizer& tokenizer, std::span<const int32_t> prompt) {
  constexpr size_t kTokensMax = 32;  // a tag of single letters, and line feeds
  const auto end = prompt.last(std::min(prompt.size(), kTokensMax));
  const Result<std::string> shown = tokenizer.decode(end, {});
  if (!shown) return ReasoningStart::kMayOpen;
  std::string_view text = *shown;
  if (text.ends_with(kMessageStart) && has_channels(tokenizer)) return ReasoningStart::kChannels;
  text = text.substr(0, text.find_last_not_of(kSpaces) + 1);
  if (text.ends_with(kReasoningOpen)) return ReasoningStart::kOpened;
  return text.ends_with(kReasoningClose) ? ReasoningStart::kNone : ReasoningStart::kMayOpen;
}

ReasoningStart constrained_start(const Tokenizer& tokenizer, ReasoningStart start,
                                 std::vector<int32_t>& prompt) {
  if (start == ReasoningStart::kChannels) {
    const auto header = tokenizer.encode(kFinalHeader, {.add_special = false, .continues = true});
    if (header) prompt.insert(prompt.end(), header->begin(), header->end());
    return ReasoningStart::kNone;
  }
  const bool closed = !tokenizer.token_to_id(kReasoningOpen);
  return start == ReasoningStart::kMayOpen && closed ? ReasoningStart::kNone : start;
}

std::vector<int32_t> reasoning_mark_ids(const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  const auto add = [&](std::string_view text) {
    if (is_special(tokenizer, text)) ids.push_back(*tokenizer.token_to_id(text));
  };
  add(kReasoningOpen);
  add(kReasoningClose);
  if (!has_channels(tokenizer)) return ids;
  for (const std::string_view mark : kMarks) add(mark);
  return ids;
}

ReasoningParser::ReasoningParser(ReasoningStart start)
    : has_channels_(start == ReasoningStart::kChannels),
      place_(start == ReasoningStart::kNone     ? Place::kContent
             : start == ReasoningStart::kOpened ? Place::kInside
             : has_channels_                    ? Place::kHeader
                                                : Place::kStart),
      opened_(start == ReasoningStart::kOpened),
      behind_tag_(opened_) {}

ReasoningPiece ReasoningParser::push(std::string_view text) {
  held_ += text;
  ReasoningPiece piece;
  if (place_ == Place::kStart) read_start();
  if (place_ == Place::kInside && !has_channels_) read_inside(piece);
  if (has_channels_) read_channels(piece);
  if (place_ == Place::kContent) read_content(piece);
  return piece;
}

ReasoningPiece ReasoningParser::finish() {
  ReasoningPiece piece;
  if (place_ != Place::kHeader) {
    (is_inside() ? piece.reasoning : piece.content) = std::move(held_);
  }
  held_.clear();
  return piece;
}

std::string_view ReasoningParser::rest_of_close() const {
  const bool has_tag = is_inside() && !has_channels_;
  const size_t part = has_tag ? part_at_end(held_, kReasoningClose) : 0;
  return part > 0 ? kReasoningClose.substr(part) : std::string_view();
}

void ReasoningParser::read_start() {
  const size_t begin = std::min(held_.find_first_not_of(kSpaces), held_.size());
  const std::string_view rest = std::string_view(held_).substr(begin);
  if (begin <= kSpacesMax && rest.starts_with(kReasoningOpen)) {
    held_.erase(0, begin + kReasoningOpen.size());
    place_ = Place::kInside;
    opened_ = behind_tag_ = true;
  } else if (begin > kSpacesMax || !kReasoningOpen.starts_with(rest)) {
    place_ = Place::kContent;
  }
}

void ReasoningParser::read_channels(ReasoningPiece& piece) {
  size_t before;
  do {
    before = held_.size();
    if (place_ == Place::kHeader) read_header();
    if (place_ == Place::kInside) read_message(piece.reasoning);
    if (place_ == Place::kMessage) read_message(piece.content);
  } while (held_.size() < before);
}

void ReasoningParser::read_header() {
  const std::string_view held = held_;
  const std::string_view begin = is_further_ ? kFurtherChannel : kChannel;
  const size_t body = held.find(kBody);
  const bool is_whole = body <= kHeaderMax;
  const bool may_be_header = held.substr(0, begin.size()) == begin.substr(0, held.size());
  if (may_be_header && !is_whole && held.size() < kHeaderMax + kBody.size()) return;
  place_ = Place::kContent;
  if (!may_be_header || !is_whole) return;
  const std::string_view header = held.substr(0, body).substr(begin.size());
  if (header.find("to=") != std::string_view::npos) return;
  const bool is_analysis = header.starts_with("analysis");
  place_ = is_analysis ? Place::kInside : Place::kMessage;
  opened_ |= is_analysis;
  held_.erase(0, body + kBody.size());
}

void ReasoningParser::read_message(std::string& text) {
  const size_t found = held_.find(kMessageEnd);
  const bool ends = found != std::string::npos;
  const size_t cut = ends ? found : held_.size() - part_at_end(held_, kMessageEnd);
  text.append(held_, 0, cut);
  held_.erase(0, ends ? cut + kMessageEnd.size() : cut);
  if (!ends) return;
  place_ = Place::kHeader;
  is_further_ = true;
}

void ReasoningParser::read_inside(ReasoningPiece& piece) {
  if (!skip_line_feeds()) return;
  const size_t found = held_.find(kReasoningClose);
  if (found != std::string::npos) {
    piece.reasoning.append(held_, 0, before_line_feeds(held_, found));
    held_.erase(0, found + kReasoningClose.size());
    place_ = Place::kContent;
    behind_tag_ = true;
    return;
  }
  const size_t part = part_at_end(held_, kReasoningClose);
  const size_t cut = before_line_feeds(held_, held_.size() - part);
  piece.reasoning.append(held_, 0, cut);
  held_.erase(0, cut);
}

void ReasoningParser::read_content(ReasoningPiece& piece) {
  if (!skip_line_feeds()) return;
  piece.content += held_;
  held_.clear();
}

// Behind a tag: false where there is nothing else yet.
bool ReasoningParser::skip_line_feeds() {
  if (!behind_tag_) return true;
  held_.erase(0, std::min(held_.find_first_not_of('\n'), held_.size()));
  behind_tag_ = held_.empty();
  return !behind_tag_;
}

}  // namespace jige::text
