// AsyncEngine: the thread of an AsyncGroup. It runs the flows of all that was started at once, in
// order on each link, sleeps while nothing can move, and looks after the other ranks meanwhile.
//
// Invariants: (1) a flow starts when no earlier one uses its links. (2) Nothing but this thread
// touches the transport, but for Transport::interrupt().
// Threads: start() and fail_with() from one thread, health() and silent_seconds() from any; the
// rest is private.
#pragma once

#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "comm/async_group.h"
#include "comm/flow_runner.h"
#include "comm/range_set.h"
#include "comm/stillness.h"

namespace jige::comm {

// Shared by an engine and its handles, which may outlive it.
struct AsyncSignals {
  std::mutex mutex;
  std::condition_variable changed;
};

struct ElementRange {
  int64_t begin = 0;
  int64_t count = 0;
};

struct Pending::State {
  // Adds elements that became final; whether that ends somebody's wait. Under signals->mutex.
  bool add_final(int64_t begin, int64_t count);

  Operation operation;
  // Of the engine's thread.
  FlowContext context;
  std::vector<Flow> flows;
  std::list<FlowRunner> runners;  // of the flows that have begun and are not over
  size_t begun_count = 0;

  std::shared_ptr<AsyncSignals> signals;
  // Under signals->mutex.
  RangeSet final_ranges;
  std::list<ElementRange> awaited;  // by those who wait for a range
  bool over = false;
  std::optional<Error> error;
};

class AsyncEngine {
 public:
  explicit AsyncEngine(Communicator group);
  ~AsyncEngine();

  Communicator& group() { return group_; }
  Pending start(std::shared_ptr<Pending::State> state);
  void fail_with(const Error& error);
  // As AsyncGroup's.
  Status health() const;
  double silent_seconds(int rank) const;
  // A state without flows.
  std::shared_ptr<Pending::State> make_state() const;
  // One that is over, with or without an error.
  static Pending finished(std::shared_ptr<Pending::State> state, std::optional<Error> error);

 private:
  using States = std::list<std::shared_ptr<Pending::State>>;
  void main();
  // Takes what was started meanwhile; false when the group is to end.
  bool take_started();
  Result<bool> advance();
  Result<bool> advance_state(Pending::State& state, std::vector<Link>& in, std::vector<Link>& out);
  Status keep_in_touch();
  void note_heard();
  Status sleep();
  Status look_for_others() const;
  Status check_silence() const;
  void end_with(const Error& error);

  Communicator group_;
  std::shared_ptr<AsyncSignals> signals_ = std::make_shared<AsyncSignals>();
  // Of the engine's thread.
  States active_;
  std::vector<Want> wants_;
  std::vector<Link> listened_;  // what the flows of active_ receive from
  Stillness still_;
  int64_t touched_ns_ = 0;
  // Under signals_->mutex.
  States started_;
  std::vector<int64_t> heard_ns_;     // of each rank, for other threads
  std::optional<Error> asked_error_;  // of fail_with()
  std::optional<Error> error_;
  bool closing_ = false;
  std::thread thread_;  // last, as it uses the rest
};

}  // namespace jige::comm
