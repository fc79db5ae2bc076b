// Flows: what a rank does with the streams of one lane, step by step, and the loop that runs
// several at once. Every collective is a list of flows.
//
// A step receives bytes, combines them with local ones or not, stores the result or not, and sends
// it or not. Bytes move on as soon as a unit of them is there, so a step overlaps with the one that
// feeds it on another rank and the one that it feeds.
//
// Invariants: (1) steps of a flow run in order, each whole; flows are independent of one another,
// unless one follows another: then its step k begins when that one's step k is over.
// (2) A flow in which sending waits for receiving has steps of at most a third of a stream
// (Transport, invariant 1), so a ring of them cannot block itself.
// Threads: the thread of the transport.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "comm/transport.h"
#include "comm/wire.h"

namespace jige::comm {

// receive, local, store, send: what comes is combined with `local` if there is one; without
// receive, `local` itself moves. REQUIRES: a combination is stored or sent; what is received alone
// is stored.
struct Step {
  int64_t bytes = 0;
  bool receive = false;
  bool send = false;
  const std::byte* local = nullptr;
  std::byte* store = nullptr;
  bool last_addition = false;  // an average is divided here; the step stores
  Range final_range;           // elements that are final after the step, for OnFinal
};

struct Flow {
  // Each begins with its header. What is received must begin with an equal one.
  std::optional<Link> in;
  std::optional<Link> out;
  Header in_header;
  Header out_header;
  int64_t step_count = 0;
  std::function<Step(int64_t index)> step;
  // Steps that are over, for flows of the same rank that follow this one; and of the one that this
  // flow follows. Either may be null.
  std::shared_ptr<int64_t> progress;
  std::shared_ptr<const int64_t> follows;
};

// A flow of one step that sends, or receives, a whole message.
Flow send_flow(Link to, const Header& header, std::span<const std::byte> bytes);
Flow receive_flow(Link from, const Header& header, std::span<std::byte> bytes);

struct FlowContext {
  Transport* transport = nullptr;
  DType dtype = DType::kF32;
  RedOp redop = RedOp::kSum;
  double timeout_s = 30;                         // without any movement
  const std::atomic<bool>* cancelled = nullptr;  // fails with kCancelled once it is set
  OnFinal on_final = nullptr;                    // may be empty
  std::function<Status()> on_stall;  // called now and then while nothing moves; may be empty
};

// The error of a rank that gives up, for itself and for the others.
Error interruption();

// Runs all flows to their end. After an error the group has failed (Transport, invariant 3).
Status run_flows(const FlowContext& context, std::span<Flow> flows);

}  // namespace jige::comm
