// ReasoningView: an answer as a person sees it while it comes, and its reasoning apart from it.
//
// Where colours are wanted, reasoning is shown dimmed and without its tags, with an empty line
// before the content. Else everything is shown as the model wrote it, tags among it, so that what
// goes into a pipe can be taken apart there. What the model wrote is printed by way of
// shown_text(). Threads: one.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "text/reasoning.h"

namespace jige::cli {

class ReasoningView {
 public:
  using Print = std::function<void(std::string_view text)>;

  // `dims`: colours are wanted. `print` gets what is to be shown.
  ReasoningView(text::ReasoningStart start, bool dims, Print print);
  ReasoningView(const ReasoningView&) = delete;
  ReasoningView& operator=(const ReasoningView&) = delete;
  ~ReasoningView();  // leaves the terminal as it was

  void push(std::string_view text);
  // Nothing may be pushed behind it.
  void finish();

  // What has come so far, as the model wrote it.
  const std::string& reasoning() const { return whole_.reasoning; }
  const std::string& content() const { return whole_.content; }

 private:
  void add(const text::ReasoningPiece& piece);
  void end_dimming();

  text::ReasoningParser parser_;
  const bool dims_;
  const Print print_;
  bool is_dimmed_ = false;
  text::ReasoningPiece whole_;
};

}  // namespace jige::cli
