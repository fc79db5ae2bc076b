// Text to token ids and back, as the tokenizer of a model folder defines it.
//
//   JIGE_TRY(const text::Tokenizer tokenizer, text::Tokenizer::load("models/tiny"));
//   JIGE_TRY(const std::vector<int32_t> ids, tokenizer.encode("Hello", {}));
//   JIGE_TRY(const std::string back, tokenizer.decode(ids, {.skip_special = true}));
//
// The life of a text: added tokens that look at raw text are cut out; every other stretch goes
// through normalizer -> added tokens that look at normalized text -> pre-tokenizer -> BPE or
// Unigram; the post-processor adds the beginning and end tokens. Ids equal those of Hugging Face
// `tokenizers`.
//
// Input is bytes. Invalid UTF-8 is read the way Python's errors="replace" reads it: every maximal
// invalid part becomes one U+FFFD. NUL is an ordinary character.
//
// Decoding replaces each maximal invalid part of the bytes by U+FFFD, keeping the valid characters
// around it. StreamDecoder gives the same text in pieces.
//
// Invariants: an id below vocab_size() either has a token or is a hole that decodes to "".
// Threads: a Tokenizer is an immutable handle, cheap to copy; every member may be called from any
// number of threads. A StreamDecoder belongs to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace jige::text {

// The files that hold a tokenizer: of Hugging Face tokenizers, of Mistral, tiktoken's list of
// ranks, of SentencePiece, of that as DeBERTa has it, BERT's list of tokens, and GPT-2's, which has
// a merges.txt beside it.
inline constexpr std::array kTokenizerFileNames = {
    "tokenizer.json", "tekken.json", "tiktoken.model", "tokenizer.model",
    "spm.model",      "vocab.txt",   "vocab.json"};

struct EncodeOptions {
  // Adds what the post-processor adds, usually the beginning-of-text token.
  bool add_special = true;
  // Whether the text of a special token ("<|im_end|>") stands for that token. Turn off for text
  // from people one does not trust; it is then cut up like any other text.
  bool allow_special = true;
  // The text goes on from earlier text: no space or word mark is put in front of it.
  bool continues = false;
  // Encoding fails with kExhausted, early, once there are more ids than this.
  size_t tokens_max = SIZE_MAX;
  // Ascending byte offsets into the text that no special token may cover: guarded places of
  // chat_encode.h.
  std::span<const size_t> guards = {};
  // Told, while a long text is encoded, about how many of its bytes are.
  const std::function<void(size_t)>* on_progress = nullptr;
};

struct DecodeOptions {
  // Leaves out tokens marked special, such as the end-of-text token.
  bool skip_special = false;
};

// The texts and ids of tokens with a role; an id is -1 and its text empty where there is none.
struct SpecialTokens {
  std::string bos_token, eos_token, pad_token, unk_token;
  int32_t bos_id = -1, eos_id = -1, pad_id = -1, unk_id = -1;
  // Every id that ends an answer: the eos token's and those of generation_config.json.
  std::vector<int32_t> eos_ids;
};

class TokenizerCore;
struct PairFrame;

class Tokenizer {
 public:
  // Reads a model folder: the first of kTokenizerFileNames that is there, with
  // tokenizer_config.json, special_tokens_map.json, chat_template.jinja (or chat_template.json) and
  // generation_config.json where they are there. Fails with kNotFound, kCorrupt, or kUnsupported
  // naming the component.
  static Result<Tokenizer> load(const std::string& folder);
  // From the text of a tokenizer.json alone; `where` names it in errors.
  static Result<Tokenizer> from_json(std::string_view text, std::string_view where);

  // The ids of `text`. Fails with kExhausted above tokens_max, and where a file's own regular
  // expression runs away.
  Result<std::vector<int32_t>> encode(std::string_view text, const EncodeOptions& options) const;

  // A place of `text` at or before `wanted`, not far before it and behind the first character,
  // where it may be cut in two: the ids of the left part followed by those of the right one as a
  // text that goes on are the ids of both, whatever follows `text` in its document (both without
  // allow_special). Nothing where no such place was found; a longer text may have one. Takes time
  // like encoding. REQUIRES: valid UTF-8.
  std::optional<size_t> safe_cut(std::string_view text, size_t wanted, bool continues) const;

  // The text of `ids`. Fails with kInvalidArgument on an id outside [0, vocab_size()).
  Result<std::string> decode(std::span<const int32_t> ids, const DecodeOptions& options) const;

  // One more than the largest id, added tokens included.
  int32_t vocab_size() const;
  // The token as its file spells it ("Ġthe", "▁the", "<0x0A>"); nullopt for holes and ids outside.
  std::optional<std::string> id_to_token(int32_t id) const;
  // The id of a token in its file's spelling, or nullopt.
  std::optional<int32_t> token_to_id(std::string_view token) const;
  // Whether the id is an added token marked special.
  bool is_special(int32_t id) const;

  const SpecialTokens& special() const;
  int32_t bos_id() const { return special().bos_id; }
  int32_t eos_id() const { return special().eos_id; }
  int32_t pad_id() const { return special().pad_id; }
  const std::vector<int32_t>& eos_ids() const { return special().eos_ids; }
  // Whether a space or a word mark may be put in front of a text; else EncodeOptions::continues
  // changes nothing.
  bool marks_start() const;
  // Whether such a mark is left out where the first character of a text is dropped.
  bool may_lose_start() const;
  // The ids that add_special puts before every text, usually none or the beginning-of-text token.
  std::span<const int32_t> prefix_ids() const;
  // Those that it puts behind every text, usually none or the end-of-text token.
  std::span<const int32_t> suffix_ids() const;
  // What goes around two texts that belong together (post_processor.h), each encoded without
  // add_special; null where the files do not say it.
  const PairFrame* pair_frame() const;

  // The Jinja source of the folder's chat template, empty where it has none. Give it to
  // ChatTemplate::parse (chat_template.h).
  const std::string& chat_template() const;

  // For the parts of this folder: the immutable insides.
  const TokenizerCore& core() const { return *core_; }
  explicit Tokenizer(std::shared_ptr<const TokenizerCore> core) : core_(std::move(core)) {}

 private:
  std::shared_ptr<const TokenizerCore> core_;
};

// Turns tokens into text as they arrive. What push() and flush() return, joined, equals decode() of
// all ids; no returned piece ends inside a UTF-8 character.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options = {});
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;
  ~StreamDecoder();

  // The text that can be shown now, possibly empty. Fails with kInvalidArgument on an id outside
  // the vocabulary and then leaves the decoder as it was.
  Result<std::string> push(int32_t id);
  // What was held back, and starts anew.
  std::string flush();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace jige::text
