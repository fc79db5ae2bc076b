#include "integration/serving.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace jige::integration {
namespace {

constexpr int kPolls = 6000;
constexpr std::chrono::milliseconds kPoll(5);

}  // namespace

Serving::Serving(std::vector<std::string> arguments, uint16_t port) {
  arguments.insert(arguments.begin(), "serve");
  arguments.insert(arguments.end(), {"--port", std::to_string(port)});
  process_ = std::make_unique<Process>(arguments, folder_.path());
  // Of what it prints for people, and with --json.
  const std::string mark = "listening";
  std::string text;
  for (int i = 0; i < kPolls && process_->running(); ++i) {
    text = out();
    const size_t line = text.find('\n', std::min(text.find(mark), text.size()));
    if (line != std::string::npos && text.find("ready", line) != std::string::npos) {
      port_ = static_cast<uint16_t>(std::atoi(text.substr(text.rfind(':', line) + 1).c_str()));
      return;
    }
    std::this_thread::sleep_for(kPoll);
  }
  ADD_FAILURE() << "jige serve did not get ready:\n" << text << read_text(folder_ / "err");
}

std::string Serving::out() const {
  return exists(folder_ / "out") ? read_text(folder_ / "out") : std::string();
}

api::testing::TestResponse Serving::post(const std::string& path, const std::string& body,
                                         const std::string& fields) const {
  return api::testing::fetch(port_, "POST", path, body, fields);
}

api::testing::TestResponse Serving::get(const std::string& path, const std::string& fields) const {
  return api::testing::fetch(port_, "GET", path, "", fields);
}

Outcome serve_and_stop(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"serve", "--port", "0"});
  const TestFolder folder;
  Process process(arguments, folder.path());
  for (int i = 0; i < kPolls && process.running(); ++i) {
    const bool printed = exists(folder / "out");
    if (printed && read_text(folder / "out").find("\"ready\"") != std::string::npos) break;
    std::this_thread::sleep_for(kPoll);
  }
  process.send(SIGTERM);
  return process.wait();
}

}  // namespace jige::integration
