// ConstraintCompiler: from what a request says of its answer to a Constraint over one tokenizer's
// tokens.
//
// The last kConstraintsMax constraints are kept, so that requests of one kind share what is known
// of theirs. The trie of the vocabulary is made at the first request.
// Threads: any number at once.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/constraint.h"
#include "text/tokenizer.h"

namespace jige::grammar {

inline constexpr size_t kConstraintsMax = 16;
inline constexpr size_t kChoicesMax = 4096;
inline constexpr size_t kChoicesBytesMax = size_t{1} << 17;  // of all together

struct ConstraintSource {
  enum class Kind { kRegex, kChoices, kJsonObject, kJsonSchema, kPieces };
  Kind kind = Kind::kJsonObject;
  Json value;  // a text, a list of texts, nothing, a schema, a piece (pieces.h)
};

// The grammar of a source. Fails with kInvalidArgument or kUnsupported, naming the place in it.
Result<Grammar> compile_grammar(const ConstraintSource& source);

// The bytes of every token as they come in the middle of a text, special_text (pieces.h) of special
// ones; none for tokens with its mark, which fit nothing.
std::vector<std::string> token_texts(const text::Tokenizer& tokenizer);

class ConstraintCompiler {
 public:
  explicit ConstraintCompiler(text::Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}

  // Fails as compile_grammar and Constraint::create do.
  Result<std::shared_ptr<Constraint>> compile(const ConstraintSource& source);

 private:
  struct Kept {
    std::string key;
    std::shared_ptr<Constraint> constraint;
  };

  const text::Tokenizer tokenizer_;
  std::once_flag trie_made_;
  std::shared_ptr<const TokenTrie> trie_;
  std::mutex mutex_;
  std::list<Kept> kept_;  // guarded by mutex_; the one used last in front
};

}  // namespace jige::grammar
