// FlowRunner: one flow on its way.
//
//   FlowRunner runner(context, flow);
//   while (!runner.done()) { JIGE_TRY(const bool moved, runner.advance()); … wait … }
//
// Threads: the thread of the transport.
#pragma once

#include <vector>

#include "comm/flow.h"

namespace jige::comm {

class FlowRunner {
 public:
  // Context and flow must outlive it.
  FlowRunner(const FlowContext& context, const Flow& flow);

  bool done() const { return index_ == flow_.step_count && header_sent_ && header_seen_; }

  // Goes on until nothing moves, or a turn is over; whether anything has moved.
  Result<bool> advance();
  // What it waits for, after advance().
  void list_wants(std::vector<Want>& wants) const;
  const Flow& flow() const { return flow_; }

 private:
  Transport& transport() { return *context_.transport; }
  void load();
  void finish_step();
  // Whether the flow that this one follows is not so far.
  bool held() const { return flow_.follows && *flow_.follows <= index_; }
  Result<bool> send_header();
  Result<bool> see_header();
  Result<bool> pass_on();
  Result<bool> receive();
  Result<bool> receive_combining();
  Result<bool> receive_plain();
  Result<bool> send();
  int64_t real_bytes(int64_t from, int64_t bytes) const;
  int64_t elements(int64_t bytes) const { return bytes / dtype_info(context_.dtype).block_bytes; }

  const FlowContext& context_;
  const Flow& flow_;
  int64_t index_ = 0;
  Step step_;
  int64_t wire_ = 0;  // bytes of the step on a link, whole units
  int64_t got_ = 0;
  int64_t sent_ = 0;
  int64_t turn_bytes_ = 0;  // moved since advance() was called
  bool header_sent_ = false;
  bool header_seen_ = false;
  bool wants_in_ = false;
  bool wants_out_ = false;
};

}  // namespace jige::comm
