// The agent of a host: sends and takes data when a profiler on another host says so.
//
//   JIGE_TRY(const auto agent, LinkAgent::start({.listen = {"10.0.0.2", 7431}}));
//   agent->address()                               // with the port that was taken
//
// The protocol is agent_protocol.h. One profiler is served at a time; others are told to wait.
// Strangers learn no more than the version: what is no message, a wrong token, another version, or
// a first message that does not come within seconds, gets an error and the end of its connection.
// Nothing that arrives is kept, and no more than a chunk is held at once. The token is no
// encryption: agents belong on networks one trusts.
//
// Invariants: connections and open flows are bounded. The destructor ends all of them, whatever
// they wait for, within a fraction of a second, and so does a profiler that goes; other ranks of a
// collective hear that it was interrupted. Threads: one for the listener, one a connection, two for
// the profiler's, one a flow while several run.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "comm/socket.h"
#include "profile/agent_collective.h"
#include "profile/agent_protocol.h"

namespace jige::profile {

class AgentFlows;

struct LinkAgentOptions {
  comm::Address listen;
  std::string token;
  double hello_s = 10;   // for the first message of a connection
  double idle_s = 1800;  // without a message, after which a connection ends
  int32_t connections_max = 256;
};

class LinkAgent {
 public:
  static Result<std::unique_ptr<LinkAgent>> start(const LinkAgentOptions& options);
  ~LinkAgent();
  LinkAgent(const LinkAgent&) = delete;
  LinkAgent& operator=(const LinkAgent&) = delete;

  const comm::Address& address() const { return listener_.address(); }

 private:
  struct Connection {
    comm::Socket socket;
    std::thread thread;
    std::atomic<bool> ended{false};
  };

  LinkAgent(const LinkAgentOptions& options, comm::Listener listener)
      : options_(options), listener_(std::move(listener)) {}
  void accept_connections();
  void take(comm::Socket socket);
  void forget_ended();
  void talk(comm::Socket& socket);
  Status greet_and_serve(comm::Socket& socket);
  Status serve_profiler(comm::Socket& socket, const WelcomeMessage& welcome);
  // What waits for other hosts ends once the profiler has gone.
  Status serve_control(comm::Socket& socket, AgentFlows& flows, const std::atomic<bool>& gone);
  AgentMessage answer(const AgentMessage& message, AgentFlows& flows, Meeting& meeting,
                      const std::atomic<bool>& gone) const;
  // Passed at once when the agent ends.
  comm::Deadline after(double seconds) const {
    return comm::Deadline::after(seconds).unless(&stopping_);
  }
  Status serve_data(comm::Socket& socket);

  LinkAgentOptions options_;
  comm::Listener listener_;
  std::mutex mutex_;
  std::list<Connection> connections_;
  std::string profiler_;         // who is being served; empty: nobody
  AgentFlows* flows_ = nullptr;  // of that one
  std::atomic<bool> stopping_{false};
  std::thread acceptor_;
};

// The congestion controls that this kernel has and lets this process use.
std::vector<std::string> congestion_controls();
std::string kernel_release();

}  // namespace jige::profile
