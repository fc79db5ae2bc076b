// The "precompiled_charsmap" of a tokenizer.json's Precompiled normalizer: texts and what stands
// for them, as SentencePiece compiles them.
//
// Layout: u32 size in bytes of the trie; the trie; then texts, each ended by a NUL. The trie is a
// double array of u32 units: a unit's child for a byte is at the unit's place XOR its offset XOR
// the byte, and has that byte as its label. A unit with the leaf bit has, at its place XOR its
// offset, a unit whose lower 31 bits say where among the texts the replacement begins.
//
// Hugging Face `tokenizers` goes through a text cluster by cluster (grapheme_size): a cluster of
// less than 6 bytes is replaced as a whole by what stands for the *shortest* key that it begins
// with, however much of the cluster that leaves out; where there is none, and in longer clusters,
// every character is looked up by itself. So does this.
//
// Threads: immutable; const members from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace jige::text {

class CharacterMap {
 public:
  // Fails with kCorrupt where the sizes do not fit together or the texts are not UTF-8.
  static Result<CharacterMap> parse(std::string_view bytes, std::string_view where);

  // The changed text. REQUIRES: valid UTF-8. Fails with kCorrupt where the trie leads outside
  // itself or outside the texts, and with kExhausted where the text would be longer than
  // kTextBytesMax.
  Result<std::string> apply(std::string_view text) const;

 private:
  // What stands for the shortest key that the text begins with.
  Result<std::optional<std::string_view>> find(std::string_view text) const;
  Result<uint32_t> unit(size_t place) const;

  std::vector<uint32_t> units_;  // not empty
  std::string texts_;
  std::string where_;
};

}  // namespace jige::text
