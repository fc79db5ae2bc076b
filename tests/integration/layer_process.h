// `jige layers` as a process beside the test.
//
// Threads: one thread per LayerProcess.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "integration/process.h"

namespace jige::integration {

// `jige layers` on a free port, or one that is told.
class LayerProcess {
 public:
  explicit LayerProcess(const std::string& model, const std::vector<std::string>& more = {},
                        const std::string& listen = "127.0.0.1:0")
      : process_(words(model, more, listen), folder_.path()) {
    for (int i = 0; i < 4000 && process_.running(); ++i) {
      const std::string text = out();
      if (const size_t end = text.find('\n'); end != std::string::npos) {
        address_ = parse_json(text.substr(0, end), "holder")->at("address").get<std::string>();
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "no holder: " << read_text(folder_ / "err");
  }
  const std::string& address() const { return address_; }
  std::string out() const { return exists(folder_ / "out") ? read_text(folder_ / "out") : ""; }
  void send(int signal) { process_.send(signal); }
  Outcome stop(int signal) {
    send(signal);
    return process_.wait();
  }

 private:
  static std::vector<std::string> words(const std::string& model,
                                        const std::vector<std::string>& more,
                                        const std::string& listen) {
    std::vector<std::string> all = {"layers",    model, "--listen", listen,
                                    "--threads", "1",   "--json"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  TestFolder folder_;
  Process process_;
  std::string address_;
};

}  // namespace jige::integration
