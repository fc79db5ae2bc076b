#include "cli/reasoning_view.h"

#include <utility>

#include "cli/generation_flags.h"

namespace jige::cli {

ReasoningView::ReasoningView(text::ReasoningStart start, bool dims, Print print)
    : parser_(start), dims_(dims), print_(std::move(print)) {}

ReasoningView::~ReasoningView() { end_dimming(); }

void ReasoningView::push(std::string_view text) {
  add(parser_.push(text));
  if (!dims_ && !text.empty()) print_(shown_text(text));
}

void ReasoningView::finish() {
  add(parser_.finish());
  end_dimming();
}

void ReasoningView::add(const text::ReasoningPiece& piece) {
  if (dims_ && !piece.reasoning.empty()) {
    if (!std::exchange(is_dimmed_, true)) print_("\x1b[2m");
    print_(shown_text(piece.reasoning));
  }
  if (dims_ && !piece.content.empty()) {
    end_dimming();
    if (whole_.content.empty() && !(whole_.reasoning + piece.reasoning).empty()) print_("\n\n");
    print_(shown_text(piece.content));
  }
  whole_.reasoning += piece.reasoning;
  whole_.content += piece.content;
}

void ReasoningView::end_dimming() {
  if (std::exchange(is_dimmed_, false)) print_("\x1b[0m");
}

}  // namespace jige::cli
