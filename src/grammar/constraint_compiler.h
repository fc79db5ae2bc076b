// ConstraintCompiler: from what a request says of its answer to a Constraint over one tokenizer's
// tokens.
//
// The last kConstraintsMax constraints are kept, so that requests of one kind share what is known
// of theirs. The first set of tokens is found while compiling, so that a constraint for which that
// is too much work is refused here and holds up nobody. They and those that are in use take at most
// so many bytes together (constraint_memory.h), beside the trie of the vocabulary, which is made
// once. Threads: any number at once.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/constraint.h"
#include "grammar/constraint_memory.h"
#include "text/tokenizer.h"

namespace jige::grammar {

inline constexpr size_t kConstraintBytesMax = size_t{64} << 20;
inline constexpr size_t kChoicesMax = 4096;
inline constexpr size_t kChoicesBytesMax = size_t{1} << 17;  // of all together

struct ConstraintSource {
  enum class Kind { kRegex, kChoices, kJsonObject, kJsonSchema, kEbnf, kPieces };
  Kind kind = Kind::kJsonObject;
  Json value;  // a text, a list of texts, nothing, a schema, a text (ebnf.h), a piece (pieces.h)
};

// The grammar of a source. Fails with kInvalidArgument or kUnsupported, naming the place in it.
Result<Grammar> compile_grammar(const ConstraintSource& source);

// The bytes of every token as they come in the middle of a text, special_text (pieces.h) of special
// ones; none for tokens with its mark, which fit nothing.
std::vector<std::string> token_texts(const text::Tokenizer& tokenizer);

class ConstraintCompiler {
 public:
  explicit ConstraintCompiler(const text::Tokenizer& tokenizer,
                              size_t constraint_bytes_max = kConstraintBytesMax);
  ConstraintCompiler(const ConstraintCompiler&) = delete;
  ConstraintCompiler& operator=(const ConstraintCompiler&) = delete;
  ~ConstraintCompiler() { memory_->forget_all(); }

  // Fails as compile_grammar, Constraint::create and Constraint::allowed do.
  Result<std::shared_ptr<Constraint>> compile(const ConstraintSource& source);

  // Of the trie and of all constraints.
  size_t bytes_max() const { return trie_->bytes() + memory_->bytes_max(); }
  const ConstraintMemory& memory() const { return *memory_; }

 private:
  const std::shared_ptr<const TokenTrie> trie_;
  const std::shared_ptr<ConstraintMemory> memory_;  // its constraints hold it, too
};

}  // namespace jige::grammar
