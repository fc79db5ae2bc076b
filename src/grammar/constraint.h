// Constraint: what an answer may be, and, token by token, which ones may come next.
//
//   JIGE_TRY(const auto constraint, Constraint::create(grammar, trie));
//   ConstraintCursor cursor(constraint);
//   JIGE_TRY(const TokenSet allowed, cursor.allowed());
//   …choose a token of *allowed…
//   JIGE_DO(cursor.advance(token));
//
// A constraint may be shared by many answers; what one has found out about its grammar, states and
// sets of tokens, serves the others. At the limits of the shared acceptor a cursor goes on with one
// of its own, which reads the text so far again; when its own one cannot make a single step either,
// its answer fails, and no other. One step of a cursor is at most kWorkMax visits, beyond which its
// answer fails, too, so that nobody else waits for it. What is kept of a constraint is taken from a
// ConstraintMemory; where that has no more, sets of tokens are not kept, and an answer that needs
// new states fails.
//
// Threads: a constraint may be used by any number of cursors at once, behind a lock; a cursor
// belongs to one thread at a time. What a cursor allows depends on the grammar and its tokens only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "grammar/acceptor.h"
#include "grammar/grammar.h"
#include "grammar/token_trie.h"

namespace jige::grammar {

inline constexpr size_t kTokenSetBytesMax = size_t{8} << 20;  // kept of one constraint

// Bit i: the token i.
using TokenBits = std::vector<uint64_t>;
using TokenSet = std::shared_ptr<const TokenBits>;

class Constraint {
 public:
  struct Place {
    int state = 0;
    bool accepts = false;
    bool is_last = false;  // nothing may follow
  };

  // Fails with kExhausted when the grammar is too ambiguous to begin with, and as
  // MemoryShare::take.
  static Result<std::shared_ptr<Constraint>> create(
      std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
      const AcceptorLimits& limits = {}, std::shared_ptr<ConstraintMemory> memory = nullptr);
  // One with the same grammar and nothing known of it yet.
  Result<std::shared_ptr<Constraint>> renewed() const {
    return create(grammar_, trie_, limits_, memory_);
  }

  Place start();
  // Where the text leads; fails with kInvalidArgument where it does not fit, and as Acceptor::next.
  Result<Place> advance(int state, std::string_view text, Work& work);
  // The tokens that may come next. Fails as Acceptor::next; where the work was used up, it fails
  // from then on.
  Result<TokenSet> allowed(int state, Work& work);

  const TokenTrie& trie() const { return *trie_; }
  // Whether so much is known that a new one serves better.
  bool is_crowded();

 private:
  Constraint(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
             const AcceptorLimits& limits, std::shared_ptr<ConstraintMemory> memory,
             MemoryShare share, Acceptor acceptor);
  Result<TokenSet> walk(int state, Work& work);
  void keep_set(int state, const TokenSet& set);
  Place place(int state) const {
    return {state, acceptor_.accepts(state), acceptor_.is_last(state)};
  }

  MemoryShare share_;  // of the grammar and the sets
  const std::shared_ptr<const Grammar> grammar_;
  const std::shared_ptr<const TokenTrie> trie_;
  const AcceptorLimits limits_;
  const std::shared_ptr<ConstraintMemory> memory_;
  std::mutex mutex_;  // guards what follows, and share_
  Acceptor acceptor_;
  std::unordered_map<int, TokenSet> sets_;
  std::deque<int> set_order_;               // the oldest goes first
  std::unordered_map<int, Error> refused_;  // states whose walk is too much work
};

// Where an answer is.
class ConstraintCursor {
 public:
  explicit ConstraintCursor(std::shared_ptr<Constraint> constraint)
      : constraint_(std::move(constraint)), place_(constraint_->start()) {}

  // The tokens that may come next, end-of-text not among them. Fails with kInvalidArgument at the
  // limits, and with kUnavailable where other answers' constraints leave no memory.
  Result<TokenSet> allowed();
  // Takes a token. Fails with kInvalidArgument on one that was not allowed, and as allowed().
  Status advance(int32_t token);
  bool accepts() const { return place_.accepts; }
  bool is_last() const { return place_.is_last; }

 private:
  template <typename T, typename Step>
  Result<T> step_renewed(const Step& step, Work& work);

  std::shared_ptr<Constraint> constraint_;
  Constraint::Place place_;
  std::string text_;  // so far
};

}  // namespace jige::grammar
