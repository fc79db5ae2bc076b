#include "cli/chat_input.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/printable.h"
#include "cli/interrupt.h"
#include "cli/output.h"

namespace jige::cli {
namespace {

constexpr size_t kMessageBytesMax = size_t{16} << 20;

}  // namespace

ChatInput::ChatInput(bool quiet)
    : terminal_(isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1),
      quiet_(quiet),
      color_(allows_color()) {}

void ChatInput::greet(const std::string& model) {
  if (terminal_ && !quiet_) {
    print_message(
        fmt::format("Talking to {}. /help tells the commands, Ctrl-D ends.\n", printable(model)));
  }
}

void ChatInput::show_prompt(const char* text) const {
  if (!terminal_) return;
  print_message(fmt::format("{}{}{}", color_ ? "\x1b[1;36m" : "", text, color_ ? "\x1b[0m" : ""));
}

Result<std::optional<std::string>> ChatInput::read_line() {
  for (size_t searched = 0;;) {
    const size_t end = buffer_.find('\n', searched);
    if (end != std::string::npos || (at_end_ && !buffer_.empty())) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end == std::string::npos ? end : end + 1);
      if (line.ends_with('\r')) line.pop_back();
      return std::optional<std::string>(std::move(line));
    }
    if (at_end_) return std::optional<std::string>();
    if (buffer_.size() > kMessageBytesMax) {
      return fail(Code::kExhausted, "a line of the input is longer than 16 MiB");
    }
    searched = buffer_.size();
    char bytes[4096];
    const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) {
      if (!interrupted()) continue;
      at_end_ = true;
      buffer_.clear();
      if (terminal_) print_message("\n");
      return std::optional<std::string>();
    }
    if (count < 0) return fail(Code::kIo, "standard input: {}", std::strerror(errno));
    if (count == 0) {
      at_end_ = true;
      if (terminal_) print_message("\n");
    }
    buffer_.append(bytes, static_cast<size_t>(count));
  }
}

Result<std::optional<std::string>> ChatInput::next() {
  std::string message;
  show_prompt("> ");
  for (;;) {
    JIGE_TRY(std::optional<std::string> line, read_line());
    if (!line && (message.empty() || interrupted())) return std::optional<std::string>();
    if (!line) return std::optional<std::string>(std::move(message));
    message += *line;
    if (message.size() > kMessageBytesMax) {
      return fail(Code::kExhausted, "a message of the input is longer than 16 MiB");
    }
    if (!message.ends_with('\\')) return std::optional<std::string>(std::move(message));
    message.back() = '\n';
    show_prompt(". ");
  }
}

}  // namespace jige::cli
