#include "grammar/acceptor.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace jige::grammar {
namespace {

constexpr int32_t kUnknownStep = -2;

uint64_t joined(int32_t high, int32_t low) {
  return uint64_t{static_cast<uint32_t>(high)} << 32 | static_cast<uint32_t>(low);
}

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 29;
}

}  // namespace

Result<Acceptor> Acceptor::create(std::shared_ptr<const Grammar> grammar,
                                  const AcceptorLimits& limits,
                                  std::shared_ptr<ConstraintMemory> memory) {
  Acceptor acceptor(std::move(grammar), limits, std::move(memory));
  Work work;
  acceptor.visit({acceptor.grammar_->start(), 0}, work);
  JIGE_DO(acceptor.intern(work));
  return acceptor;
}

Result<int> Acceptor::next(int state, uint8_t byte, Work& work) {
  const int byte_class = grammar_->class_of(byte);
  const size_t at = static_cast<size_t>(state) * static_cast<size_t>(grammar_->class_count()) +
                    static_cast<size_t>(byte_class);
  if (steps_[at] != kUnknownStep) return steps_[at];
  JIGE_TRY(const int found, step(state, byte_class, work));
  steps_[at] = found;
  return found;
}

Result<int> Acceptor::step(int state, int byte_class, Work& work) {
  const State from = states_[static_cast<size_t>(state)];
  work.take(from.count);
  for (size_t i = from.first; i < from.first + from.count; ++i) {
    const Place place = places_[i];
    const Node& node = grammar_->node(place.node);
    if (grammar_->takes(node, byte_class)) visit({node.second, place.stack}, work);
  }
  if (seen_.empty() && work.left > 0) return kNoState;
  return intern(work);
}

Acceptor::StackId Acceptor::push(NodeId node, StackId below) {
  const auto id = static_cast<StackId>(frames_.size());
  const auto [it, is_new] = frame_ids_.emplace(joined(node, below), id);
  if (is_new) {
    frames_.push_back({node, below, frames_[static_cast<size_t>(below)].depth + 1});
  }
  return it->second;
}

// Notes a place and all that can be reached from it without a byte. A place from which the end
// would need more frames than there may be is passed over: another way leads there.
void Acceptor::visit(Place place, Work& work) {
  open_.push_back(place);
  while (!open_.empty()) {
    const Place top = open_.back();
    open_.pop_back();
    if (!work.take(1)) return open_.clear();
    if (seen_.size() > limits_.places_of_state_max) continue;
    const int32_t need = grammar_->need(top.node);
    if (need > kDepthMax - frames_[static_cast<size_t>(top.stack)].depth) continue;
    if (!seen_.insert(joined(top.node, top.stack)).second) continue;
    expand(top, work);
  }
}

void Acceptor::expand(Place place, Work& work) {
  const Node& node = grammar_->node(place.node);
  switch (node.kind) {
    case Node::Kind::kReturn:
      if (place.stack == 0) {
        found_end_ = true;
      } else {
        const Frame& frame = frames_[static_cast<size_t>(place.stack)];
        open_.push_back({frame.node, frame.below});
      }
      break;
    case Node::Kind::kBytes:
      found_.push_back(place);
      break;
    case Node::Kind::kSplit:
      if (!work.take(grammar_->branches(node).size())) break;
      for (const NodeId branch : grammar_->branches(node)) open_.push_back({branch, place.stack});
      break;
    case Node::Kind::kCall: {
      const bool frame = grammar_->node(node.second).kind != Node::Kind::kReturn;
      // A call that could not be ended within the depth makes no frame.
      const int32_t depth = frames_[static_cast<size_t>(place.stack)].depth + (frame ? 1 : 0);
      const NodeId entry = grammar_->entry(node.first);
      if (grammar_->need(entry) > kDepthMax - depth) break;
      open_.push_back({entry, frame ? push(node.second, place.stack) : place.stack});
      break;
    }
  }
}

Result<int> Acceptor::intern(Work& work) {
  const size_t seen_count = seen_.size();
  const bool crowded = seen_count > limits_.places_of_state_max;
  seen_.clear();
  std::vector<Place> found = std::exchange(found_, {});
  const bool accepts = std::exchange(found_end_, false);
  if (crowded) {
    return fail(Code::kExhausted,
                "the text can be read in more than {} ways at once; make the constraint less "
                "ambiguous",
                limits_.places_of_state_max);
  }
  if (!work.take(found.size())) {
    return fail(Code::kInvalidArgument,
                "the text can go on in so many ways that {} visits of places of the constraint do "
                "not tell which tokens fit; make the constraint less ambiguous",
                kWorkMax);
  }
  std::ranges::sort(found);
  uint64_t hash = accepts ? 1 : 0;
  for (const Place& place : found) hash = mixed(hash, joined(place.node, place.stack));
  const auto [begin, end] = state_ids_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const State& known = states_[static_cast<size_t>(it->second)];
    if (known.accepts == accepts && known.count == found.size() &&
        std::equal(found.begin(), found.end(),
                   places_.begin() + static_cast<std::ptrdiff_t>(known.first))) {
      return it->second;
    }
  }
  if (states_.size() >= limits_.states_max || places_.size() + found.size() > limits_.places_max) {
    return fail(Code::kExhausted,
                "the constraint has more than {} states or {} places in them; make it simpler",
                limits_.states_max, limits_.places_max);
  }
  JIGE_DO(take_memory(seen_count, found.size()));
  constexpr size_t kStepsOfVisit = 16;  // are written in its time
  work.take(1 + static_cast<size_t>(grammar_->class_count()) / kStepsOfVisit);
  const auto id = static_cast<int>(states_.size());
  states_.push_back({places_.size(), found.size(), accepts});
  places_.insert(places_.end(), found.begin(), found.end());
  steps_.resize(states_.size() * static_cast<size_t>(grammar_->class_count()), kUnknownStep);
  state_ids_.emplace(hash, id);
  return id;
}

Status Acceptor::take_memory(size_t seen_count, size_t place_count) {
  constexpr size_t kEntry = 64;  // of a hash table, at most
  const size_t frames = frames_.size();
  const size_t seen = std::max(seen_count, seen_counted_);
  const auto classes = static_cast<size_t>(grammar_->class_count());
  // Vectors double, so that up to twice their elements are there.
  const size_t state =
      kEntry + 2 * (sizeof(State) + place_count * sizeof(Place) + classes * sizeof(int32_t));
  JIGE_DO(share_.take(state + (frames - frames_counted_) * (kEntry + 2 * sizeof(Frame)) +
                      (seen - seen_counted_) * (kEntry + 4 * sizeof(Place))));
  frames_counted_ = frames;
  seen_counted_ = seen;
  return {};
}

}  // namespace jige::grammar
