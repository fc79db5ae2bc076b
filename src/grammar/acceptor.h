// Acceptor: reads a text byte by byte and knows at every place whether a grammar lets it go on so,
// and whether it may end.
//
//   JIGE_TRY(Acceptor acceptor, Acceptor::create(grammar));
//   int state = acceptor.start();
//   Work work;
//   for (const uint8_t byte : text) JIGE_TRY(state, acceptor.next(state, byte, work));  // -1: no
//   const bool fits = state >= 0 && acceptor.accepts(state);
//
// A state is the set of all places of the grammar that the text so far can have led to, each with
// its stack of open calls. Stacks share their tails; equal stacks and equal states are the same
// numbers, so a step that was made before is one look-up.
// Invariant: from every state some text leads to the end.
// Bounds: kStatesMax states and kPlacesMax places in all of them together, and what a
// ConstraintMemory leaves. Work bounds how long its caller waits for states that are new.
// Threads: one at a time. The grammar is shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "grammar/constraint_memory.h"
#include "grammar/grammar.h"

namespace jige::grammar {

inline constexpr int kNoState = -1;

// What may still be done while someone waits, in visits of places, so that it is the same on every
// machine. A visit takes some tens of nanoseconds, all of them some ten milliseconds.
inline constexpr size_t kWorkMax = size_t{1} << 19;

struct Work {
  size_t left = kWorkMax;
  // Whether so many visits were left; none are after one that was refused.
  bool take(size_t visits) {
    const bool enough = visits <= left;
    left = enough ? left - visits : 0;
    return enough;
  }
};

struct AcceptorLimits {
  size_t states_max = size_t{1} << 15;
  size_t places_max = size_t{1} << 18;   // of all states
  size_t places_of_state_max = 1 << 13;  // of one
};

class Acceptor {
 public:
  // Fails with kExhausted when the limits do not let it begin, and as MemoryShare::take. Without a
  // memory there is no limit to the bytes.
  static Result<Acceptor> create(std::shared_ptr<const Grammar> grammar,
                                 const AcceptorLimits& limits = {},
                                 std::shared_ptr<ConstraintMemory> memory = nullptr);

  int start() const { return 0; }
  // The state behind a byte; kNoState where no text of the grammar goes on so. Fails with
  // kExhausted at the limits, with kInvalidArgument where the work is used up, and as
  // MemoryShare::take; what is known stays usable. REQUIRES: a state.
  Result<int> next(int state, uint8_t byte, Work& work);
  // Whether the text may end here.
  bool accepts(int state) const { return states_[static_cast<size_t>(state)].accepts; }
  // Whether nothing may follow.
  bool is_last(int state) const { return states_[static_cast<size_t>(state)].count == 0; }
  size_t state_count() const { return states_.size(); }

 private:
  using StackId = int32_t;
  struct Frame {
    NodeId node;  // where the caller goes on
    StackId below;
    int32_t depth;
  };
  struct Place {
    NodeId node;
    StackId stack;
    bool operator==(const Place&) const = default;
    auto operator<=>(const Place&) const = default;
  };
  struct State {
    size_t first = 0;  // of places_; all are kBytes nodes
    size_t count = 0;
    bool accepts = false;
  };

  Acceptor(std::shared_ptr<const Grammar> grammar, const AcceptorLimits& limits,
           std::shared_ptr<ConstraintMemory> memory)
      : share_(std::move(memory)),
        grammar_(std::move(grammar)),
        limits_(limits),
        frames_{{0, -1, 0}} {}
  Result<int> step(int state, int byte_class, Work& work);
  StackId push(NodeId node, StackId below);
  void visit(Place place, Work& work);
  void expand(Place place, Work& work);
  // The state of what was visited.
  Result<int> intern(Work& work);
  // Takes memory for one more state, and for the frames and the work that led to it.
  Status take_memory(size_t seen_count, size_t place_count);

  MemoryShare share_;
  size_t frames_counted_ = 0, seen_counted_ = 0;  // in share_
  std::shared_ptr<const Grammar> grammar_;
  AcceptorLimits limits_;
  std::vector<Frame> frames_;  // 0: no call is open
  std::unordered_map<uint64_t, StackId> frame_ids_;
  std::vector<State> states_;
  std::vector<Place> places_;
  std::vector<int32_t> steps_;                        // [state, class]; kUnknown: not made yet
  std::unordered_multimap<uint64_t, int> state_ids_;  // by hash

  // Of the step that is being made.
  std::vector<Place> open_, found_;
  std::unordered_set<uint64_t> seen_;
  bool found_end_ = false;
};

}  // namespace jige::grammar
