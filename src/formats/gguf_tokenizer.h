// The tokenizer of a GGUF file as tokenizer.json and tokenizer_config.json.
//
// tokenizer.ggml.model says the kind:
//   gpt2    byte-level BPE: tokens and merges as they stand. How text is cut into words the file
//           says by a name, tokenizer.ggml.pre; pattern, normal form, whether whole words are
//           looked up before merges and whether a beginning token is put in front follow from it.
//   llama   SentencePiece BPE: merges follow from the scores of the pieces, the best first, as
//           transformers derives them; characters without a piece become bytes.
// Control and unknown tokens become special tokens, user-defined ones added tokens that are not
// special; unused ones (padding of the vocabulary) are left out.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/gguf.h"

namespace jige::formats {

// Numbers of the token types.
inline constexpr int32_t kGgufNormalToken = 1;
inline constexpr int32_t kGgufUnknownToken = 2;
inline constexpr int32_t kGgufControlToken = 3;
inline constexpr int32_t kGgufUserDefinedToken = 4;
inline constexpr int32_t kGgufUnusedToken = 5;
inline constexpr int32_t kGgufByteToken = 6;

struct GgufTokenizerFiles {
  std::string tokenizer_json;
  std::string tokenizer_config_json;
  std::string kind;  // "byte-level BPE, words as llama-bpe"
  int64_t token_count = 0;
  int32_t bos_id = -1;  // -1: none
  int32_t pad_id = -1;
  std::vector<int32_t> eos_ids;  // all that end an answer
  bool chat_template = false;
};

struct GgufTokenizerOptions {
  std::string pre;             // in place of tokenizer.ggml.pre, unless empty
  int64_t vocab_size = 0;      // rows of the model's table: tokens at most
  int64_t context_tokens = 0;  // the longest text of the model
};

// Fails with kUnsupported naming a kind of tokenizer or a `pre` that Jige does not know, with
// kCorrupt where keys are missing, of other lengths than the tokens, or name ids that are not
// there. The result was read back by text::Tokenizer.
Result<GgufTokenizerFiles> read_gguf_tokenizer(const GgufMetadata& keys,
                                               const GgufTokenizerOptions& options);

// Merges of SentencePiece pieces: for every piece each cut into two other pieces, pieces of higher
// score first, then those of smaller id, and of one piece by the ids of its parts.
std::vector<std::pair<std::string, std::string>> merges_of_scores(
    const std::vector<std::string_view>& pieces, const std::vector<float>& scores);

}  // namespace jige::formats
