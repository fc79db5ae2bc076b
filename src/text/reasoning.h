// The reasoning that some models write before their answer, taken apart from it while it arrives:
//
//   <think>What is asked? …</think>The answer.       (Qwen 3, DeepSeek-R1 and its distillations)
//   <|channel|>analysis<|message|>What is asked? …<|end|>
//   <|start|>assistant<|channel|>final<|message|>The answer.                           (gpt-oss)
//
//   ReasoningParser parser(reasoning_start(tokenizer, prompt));
//   for (piece of text) { auto [reasoning, content] = parser.push(piece); … }
//   auto [reasoning, content] = parser.finish();
//
// Reasoning begins an answer, behind white space at most, or the prompt has begun it already, and
// it ends at the first closing tag or with the answer. Tags elsewhere are content. Line feeds
// beside the two tags belong to them, as chat templates write and drop them (behind the reasoning
// up to 64); all else comes through to the byte, and a part of a tag is never shown before it is
// known to be none. What is read does not depend on how the text is cut. Time is linear in the
// text; less than 300 bytes and one piece are held. Threads: one.
//
// In channels, messages of "analysis" are reasoning, those of other channels the content, each
// without its header and up to its <|end|>. A message for a tool (to=) is content with its header
// and with all that follows, and so is what is no header of 256 bytes at most where one should be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace jige::text {

inline constexpr std::string_view kReasoningOpen = "<think>";
inline constexpr std::string_view kReasoningClose = "</think>";

// What an answer begins with.
enum class ReasoningStart {
  kNone,      // the answer has no reasoning that is looked for
  kMayOpen,   // perhaps an opening tag
  kOpened,    // the prompt ends with one
  kChannels,  // the header of a message, whose beginning the prompt ends with
};

// Whether a chat template knows of reasoning: it writes one of the tags or the mark of channels, or
// looks for it.
bool has_reasoning(const ChatTemplate& chat);

// What the answers to a prompt of a model with reasoning begin with. A prompt that ends with a
// closing tag has no reasoning behind it.
ReasoningStart reasoning_start(const Tokenizer& tokenizer, std::span<const int32_t> prompt);

// The same for an answer that must fit a constraint behind its reasoning: it can open a tag only
// where the tag is a token, and of channels the prompt is given the header of the last.
ReasoningStart constrained_start(const Tokenizer& tokenizer, ReasoningStart start,
                                 std::vector<int32_t>& prompt);

// The tags and marks that are special tokens: answers must show them as text.
std::vector<int32_t> reasoning_mark_ids(const Tokenizer& tokenizer);

struct ReasoningPiece {
  std::string reasoning;
  std::string content;  // behind it
};

class ReasoningParser {
 public:
  explicit ReasoningParser(ReasoningStart start);

  ReasoningPiece push(std::string_view text);
  // What was held back. Nothing may be pushed behind it.
  ReasoningPiece finish();

  // Nothing but white space, and perhaps a part of the tag, so far.
  bool at_start() const { return place_ == Place::kStart; }
  // In the reasoning, or in a header, of which nothing is shown.
  bool is_inside() const { return place_ == Place::kInside || place_ == Place::kHeader; }
  // The answer has reasoning, which may be over.
  bool is_opened() const { return opened_; }
  // What completes a closing tag that has begun; empty where none has.
  std::string_view rest_of_close() const;

 private:
  enum class Place {
    kStart,
    kHeader,
    kInside,   // the reasoning
    kMessage,  // content up to its <|end|>
    kContent,  // all that follows
  };

  void read_start();
  void read_channels(ReasoningPiece& piece);
  void read_header();
  void read_message(std::string& text);
  void read_inside(ReasoningPiece& piece);
  void read_content(ReasoningPiece& piece);
  bool skip_line_feeds();

  bool has_channels_;
  Place place_;
  bool opened_;
  bool is_further_ = false;  // the message is not the first
  bool behind_tag_;          // line feeds are still the tag's
  std::string held_;         // not yet given out
};

}  // namespace jige::text
