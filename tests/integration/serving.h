// A `jige serve` that runs beside the test: started on a free port, waited for, ended by it.
//
// Threads: one thread per Serving.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/test_client.h"
#include "integration/process.h"

namespace jige::integration {

class Serving {
 public:
  // `arguments` stand behind "serve". Waits until it is ready for requests. `port`: 0 for a free
  // one.
  explicit Serving(std::vector<std::string> arguments, uint16_t port = 0);

  uint16_t port() const { return port_; }
  Process& process() { return *process_; }
  // What it has printed so far.
  std::string out() const;
  api::testing::TestResponse post(const std::string& path, const std::string& body,
                                  const std::string& fields = "") const;
  api::testing::TestResponse get(const std::string& path, const std::string& fields = "") const;

 private:
  TestFolder folder_;
  std::unique_ptr<Process> process_;
  uint16_t port_ = 0;
};

// Runs `jige serve` with these arguments and --json among them until it is ready, or has failed.
Outcome serve_and_stop(std::vector<std::string> arguments);

}  // namespace jige::integration
