// The insides of a Tokenizer: its parts, and how a text goes through them (see tokenizer.h).
//
// Threads: immutable but for a locked pool of working memory; every member from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/rank_tokens.h"
#include "text/sentencepiece_model.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_file.h"
#include "text/unigram.h"
#include "text/vocabulary.h"
#include "text/word_piece.h"

namespace jige::text {

struct TokenizerParts {
  std::shared_ptr<const Vocabulary> vocabulary;
  AddedTokens added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::variant<BpeModel, SentencePieceModel, UnigramModel, WordPieceModel> model;
  PostProcessor post_processor;
  Decoder decoder;
  SpecialTokens special;
  std::string chat_template;
};

// The ids of a text, and how many of them lie wholly before each of some places in it.
struct PlacedIds {
  std::vector<int32_t> ids;
  std::vector<size_t> before;
};

class TokenizerCore {
 public:
  explicit TokenizerCore(TokenizerParts parts) : parts_(std::move(parts)) {}

  const TokenizerParts& parts() const { return parts_; }

  Result<std::vector<int32_t>> encode(std::string_view text, const EncodeOptions& options) const;

  // The same with `before` of ascending places. An id lies before a place when the text up to there
  // gives it, too. A place costs what stands between the added tokens around it. REQUIRES: valid
  // UTF-8.
  Result<PlacedIds> encode_places(std::string_view text, const EncodeOptions& options,
                                  std::span<const size_t> places) const;

  // See Tokenizer::safe_cut.
  std::optional<size_t> safe_cut(std::string_view text, size_t wanted, bool continues) const;

  // The text of a token, or nullptr.
  const std::string* token(int32_t id) const;
  std::optional<int32_t> id(std::string_view token) const;
  int32_t vocab_size() const;
  // See Tokenizer::marks_start.
  bool marks_start() const;

 private:
  struct Scratch {
    RegexScratch regex;
    BpeScratch bpe;
    UnigramScratch unigram;
    WordPieceScratch word_piece;
    std::vector<Section> raw;
    std::vector<Section> normalized;
  };
  class Run;
  class CutSearch;

  std::unique_ptr<Scratch> borrow() const;
  void give_back(std::unique_ptr<Scratch> scratch) const;

  TokenizerParts parts_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> pool_;  // guarded by mutex_
};

// Builds the parts from a tokenizer.json and what lies beside it. `where` names the file.
Result<TokenizerParts> build_from_file(TokenizerFile file, const TokenizerConfig& config,
                                       std::string_view where);

// The same from pieces of SentencePiece.
Result<TokenizerParts> build_from_pieces(SentencePieceModel model, const TokenizerConfig& config,
                                         std::string_view where);
// From the bytes of a tokenizer.model.
Result<TokenizerParts> build_from_sentencepiece(std::string_view bytes,
                                                const TokenizerConfig& config,
                                                std::string_view where);

// The same from tokens with ranks.
Result<TokenizerParts> build_from_ranks(const RankTokens& ranks, const TokenizerConfig& config,
                                        std::string_view where);
// From the bytes of a spm.model (framed_pieces.cc). Fails with kUnsupported on classes that are not
// DeBERTa's.
Result<TokenizerParts> build_from_framed_pieces(std::string_view bytes,
                                                const TokenizerConfig& config,
                                                std::string_view where);
// From the text of a tekken.json.
Result<TokenizerParts> build_from_tekken(std::string_view text, const TokenizerConfig& config,
                                         std::string_view where);
// From that of a tiktoken.model. Fails with kUnsupported where the folder does not name a tokenizer
// whose words are known.
Result<TokenizerParts> build_from_rank_list(std::string_view text, const TokenizerConfig& config,
                                            std::string_view where);
// From that of a vocab.txt (vocab_list.cc). Fails with kUnsupported on classes that are not BERT's.
Result<TokenizerParts> build_from_vocab(std::string_view text, const TokenizerConfig& config,
                                        std::string_view where);

}  // namespace jige::text
