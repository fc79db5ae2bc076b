// The "decoder" of a tokenizer.json, as a chain of steps that each turn token texts into token
// texts.
//
// Known: ByteLevel Metaspace ByteFallback Fuse Replace Strip Sequence. Without a decoder, token
// texts are joined with spaces.
//
// The chain is written once, for streaming: a step takes chunks of tokens and passes on what can no
// longer change. Decoding a whole is pushing everything and finishing, so both give the same text.
// ByteFallback passes on every complete character of a run of <0x..> tokens and U+FFFD for what is
// ill-formed; Hugging Face shows a run with any ill-formed part as U+FFFD throughout, which cannot
// be streamed and loses good characters.
//
// Threads: a Decoder is immutable; a DecoderRun belongs to one thread.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace jige::text {

// A chunk of one token's text. A chunk never ends inside a character.
struct TokenChunk {
  std::string_view text;
  bool begins = true;  // the first chunk of its token
  bool ends = true;    // the last chunk of its token
};

// One step while it runs.
class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  virtual void push(const TokenChunk& chunk) = 0;
  // Passes on all that was held back; no push may follow.
  virtual void finish() = 0;
  void connect(DecoderStep* next) { next_ = next; }

 protected:
  DecoderStep* next_ = nullptr;
};

class Decoder {
 public:
  // Makes the running form of one step.
  class Factory {
   public:
    virtual ~Factory() = default;
    virtual std::unique_ptr<DecoderStep> start() const = 0;
  };

  // `component` may be null. Fails with kUnsupported naming an unknown type.
  static Result<Decoder> from_json(const Json* component, std::string_view where);
  // What SentencePiece models need: "▁" to space, byte tokens to characters, and the first space
  // dropped where encoding added one.
  static Decoder for_sentencepiece(bool strip_first_space);

 private:
  friend class DecoderRun;
  std::vector<std::shared_ptr<const Factory>> steps_;
};

class DecoderRun {
 public:
  // REQUIRES: `decoder` outlives the run.
  explicit DecoderRun(const Decoder& decoder);
  DecoderRun(DecoderRun&&) noexcept;
  ~DecoderRun();

  // Takes the text of the next token and appends to `out` what can be shown now.
  void push(std::string_view token, std::string& out);
  // Appends the rest and starts anew.
  void finish(std::string& out);

 private:
  class Sink;
  void start();
  const Decoder* decoder_;
  std::vector<std::unique_ptr<DecoderStep>> steps_;
};

}  // namespace jige::text
