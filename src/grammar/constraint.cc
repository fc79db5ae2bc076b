#include "grammar/constraint.h"

#include <algorithm>
#include <utility>

namespace jige::grammar {

Result<std::shared_ptr<Constraint>> Constraint::create(std::shared_ptr<const Grammar> grammar,
                                                       std::shared_ptr<const TokenTrie> trie,
                                                       const AcceptorLimits& limits,
                                                       std::shared_ptr<ConstraintMemory> memory) {
  MemoryShare share(memory);
  JIGE_DO(share.take(sizeof(Constraint) + grammar->bytes()));
  JIGE_TRY(Acceptor acceptor, Acceptor::create(grammar, limits, memory));
  return std::shared_ptr<Constraint>(new Constraint(std::move(grammar), std::move(trie), limits,
                                                    std::move(memory), std::move(share),
                                                    std::move(acceptor)));
}

Constraint::Constraint(std::shared_ptr<const Grammar> grammar,
                       std::shared_ptr<const TokenTrie> trie, const AcceptorLimits& limits,
                       std::shared_ptr<ConstraintMemory> memory, MemoryShare share,
                       Acceptor acceptor)
    : share_(std::move(share)),
      grammar_(std::move(grammar)),
      trie_(std::move(trie)),
      limits_(limits),
      memory_(std::move(memory)),
      acceptor_(std::move(acceptor)) {}

Constraint::Place Constraint::start() {
  const std::lock_guard lock(mutex_);
  return place(acceptor_.start());
}

Result<Constraint::Place> Constraint::advance(int state, std::string_view text, Work& work) {
  const std::lock_guard lock(mutex_);
  for (const char byte : text) {
    JIGE_TRY(state, acceptor_.next(state, static_cast<uint8_t>(byte), work));
    if (state == kNoState) {
      return fail(Code::kInvalidArgument, "the text does not fit the constraint");
    }
  }
  return place(state);
}

Result<TokenSet> Constraint::allowed(int state, Work& work) {
  const std::lock_guard lock(mutex_);
  const auto known = sets_.find(state);
  if (known != sets_.end()) return known->second;
  if (const auto refused = refused_.find(state); refused != refused_.end()) {
    return tl::unexpected(refused->second);
  }
  auto set = walk(state, work);
  if (set) {
    keep_set(state, *set);
  } else if (work.left == 0) {
    refused_.emplace(state, set.error());
  }
  return set;
}

// In the place of the oldest one where there is no room; all are of one size.
void Constraint::keep_set(int state, const TokenSet& set) {
  const size_t bytes = set->size() * sizeof(uint64_t) + 256;  // with its places in the tables
  if (sets_.size() >= std::max<size_t>(1, kTokenSetBytesMax / bytes) || !share_.take(bytes)) {
    if (sets_.empty()) return;
    sets_.erase(set_order_.front());
    set_order_.pop_front();
  }
  sets_.emplace(state, set);
  set_order_.push_back(state);
}

// Goes through the trie; below a byte that does not fit there is nothing to look at.
Result<TokenSet> Constraint::walk(int state, Work& work) {
  TokenBits bits((trie_->vocab_size() + 63) / 64);
  std::vector<int> states(trie_->depth_max() + 1);  // behind so many bytes
  states[0] = state;
  const std::span<const TokenTrie::Node> nodes = trie_->nodes();
  for (uint32_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    JIGE_TRY(const int next, acceptor_.next(states[node.depth - 1], node.byte, work));
    if (next == kNoState) {
      i = node.end;
      continue;
    }
    states[node.depth] = next;
    for (const int32_t token : trie_->tokens(node)) {
      bits[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
    }
    ++i;
  }
  return std::make_shared<const TokenBits>(std::move(bits));
}

bool Constraint::is_crowded() {
  const std::lock_guard lock(mutex_);
  return acceptor_.state_count() > limits_.states_max / 2;
}

// Makes the step with an acceptor of its own.
template <typename T, typename Step>
Result<T> ConstraintCursor::step_renewed(const Step& step, Work& work) {
  JIGE_TRY(std::shared_ptr<Constraint> own, constraint_->renewed());
  auto place = own->advance(own->start().state, text_, work);
  Result<T> done = tl::unexpected(Error{});
  if (place) {
    place_ = *place;
    constraint_ = std::move(own);
    done = step();
    if (done) return done;
  }
  // Not a limit of the server but of what was asked for.
  Error error = place ? done.error() : place.error();
  if (error.code == Code::kExhausted) error.code = Code::kInvalidArgument;
  return tl::unexpected(std::move(error));
}

Result<TokenSet> ConstraintCursor::allowed() {
  Work work;
  const auto step = [&] { return constraint_->allowed(place_.state, work); };
  auto set = step();
  if (set || set.error().code != Code::kExhausted) return set;
  return step_renewed<TokenSet>(step, work);
}

Status ConstraintCursor::advance(int32_t token) {
  const std::string_view text = constraint_->trie().text(token);
  if (text.empty()) {
    return fail(Code::kInvalidArgument, "token {} has no text, so the constraint forbids it",
                token);
  }
  Work work;
  const auto step = [&] { return constraint_->advance(place_.state, text, work); };
  auto place = step();
  if (!place && place.error().code == Code::kExhausted) {
    place = step_renewed<Constraint::Place>(step, work);
  }
  if (!place) return tl::unexpected(std::move(place.error()));
  place_ = *place;
  text_ += text;
  return {};
}

}  // namespace jige::grammar
