// ToolCallParser: takes the calls of tools out of an answer's text while it arrives.
//
//   ToolCallParser parser(ToolFormat::kHermes, {"weather"});
//   for (piece of text) { auto [content, calls] = parser.push(piece); … }
//   auto [content, calls] = parser.finish();
//
// A call is given once its JSON is complete. What turns out to be no call (JSON that does not
// parse, no name, arguments that are no object) is content, to the byte; white space before a call
// and between calls is not. Time and memory are linear in the text. Threads: one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/tool_format.h"

namespace jige::api {

struct ToolCall {
  std::string name;
  std::string arguments;  // the text of a JSON object
};

struct ParsedPiece {
  std::string content;
  std::vector<ToolCall> calls;
};

// Finds the end of a JSON object in a text that arrives in pieces, by its braces and strings alone.
class ObjectScanner {
 public:
  // Bytes of `text` up to the object's end, or npos when it goes on behind it. Text that was looked
  // at before is not looked at again: `text` is what an earlier call had, or begins with it.
  size_t find_end(std::string_view text);

 private:
  size_t seen_ = 0;
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

class ToolCallParser {
 public:
  // `names`: the tools there are. A llama answer that names another is content; the marks of the
  // other formats say clearly that a call is meant. REQUIRES: format is not kNone.
  ToolCallParser(ToolFormat format, std::vector<std::string> names);

  ParsedPiece push(std::string_view text);
  // What was held back. Nothing may be pushed behind it.
  ParsedPiece finish();

 private:
  enum class State {
    kText,
    kBeforeObject,  // behind a mark
    kName,          // of [TOOL_CALLS]name[ARGS]{…}
    kHeader,        // of a message, up to <|message|>
    kObject,
    kAfterObject,
  };

  // Each takes text off pending_ and says whether there may be more to do.
  bool step(ParsedPiece& piece);
  bool read_text(ParsedPiece& piece);
  bool read_start(ParsedPiece& piece);
  bool read_before_object(ParsedPiece& piece);
  bool read_name(ParsedPiece& piece);
  bool read_header(ParsedPiece& piece);
  bool read_object(ParsedPiece& piece);
  bool read_after_object(ParsedPiece& piece);
  bool after_mistral_object();
  bool after_llama_object();

  void take_spaces();
  void take(size_t bytes);  // from pending_ to raw_
  bool enter(State state);
  bool give_up(ParsedPiece& piece);

  ToolFormat format_;
  std::vector<std::string> names_;
  State state_ = State::kText;
  std::string pending_;  // not yet looked at
  std::string raw_;      // since the mark: the content if this is no call
  std::string name_;     // that stands before the object
  ObjectScanner scanner_;
  bool at_start_ = true;  // nothing but white space so far
  bool in_list_ = false;  // of [TOOL_CALLS][…]
  bool any_calls_ = false;
};

}  // namespace jige::api
