// From records to token ids, with the mask of the tokens that training learns from.
//
//   text                              [prefix] text [eos]                learns every token
//   {"text": …}                       the same
//   {"prompt": …, "completion": …}    [prefix] prompt completion [eos]   learns completion and eos
//   {"messages": [{role, content}…]}  the chat template's text           learns the answers
//   {"conversations": …}              the same (record_json.h)
//   {"prompt", "chosen", "rejected"}  two of them, see preference_encoder.h; where asked for
//
// Of a record that is several of these a text field that was asked for counts, else "messages",
// else "prompt" and "completion".
// prefix is what the tokenizer puts before every text. A completion is encoded apart from its
// prompt, so that a token ends there, and as a text that goes on from it: tokenizers that put a
// space before a text put none between the two. The chat template writes its own special tokens.
// A content may be a list of text parts (text/chat_content.h) or, where images are read, of images
// and texts (image_messages.h). Special tokens spelled out inside
// texts stay ordinary text. The pieces of a text go on from one another; cut where
// Tokenizer::safe_cut says, they have the ids of the whole. A message list may come with "tools"
// for the template. Threads: immutable; encode() from any number of threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "train/image_encoder.h"
#include "train/record_reader.h"

namespace jige::train {

struct EncoderOptions {
  std::string text_field = "text";  // the JSON field of plain text
  bool append_eos = true;
  // Above 0: records are pairs of answers, each with its prompt of at most so many inputs.
  int64_t pair_context = 0;
  std::optional<ImageEncoding> images = {};
  // Where they are not read, why.
  std::string no_images = "texts alone are read here";
};

// A document or a piece of one, or the two documents of a pair.
struct EncodedPart {
  std::vector<int32_t> ids;
  std::vector<uint8_t> learned;  // one per id, 1 where it is learned; empty: all are
  bool begins = true;
  bool ends = true;
  size_t second_begin = 0;  // of a pair: where the rejected answer's document begins; 0: no pair
  std::vector<EncodedImage> images = {};
};

class DocumentEncoder {
 public:
  // Fails with kCorrupt or kUnsupported on a chat template that cannot be parsed.
  static Result<DocumentEncoder> create(const text::Tokenizer& tokenizer,
                                        const EncoderOptions& options);

  // `file` names the source in errors. Fails with kCorrupt on bad JSON or UTF-8, kInvalidArgument
  // on fields that are missing or of the wrong type; the message begins with file:line.
  Result<EncodedPart> encode(const Record& record, const std::string& file) const;
  // One document of a JSON object, with `where` before every error. Paths of images begin in
  // `folder`.
  Result<EncodedPart> encode_object(const Json& object, const std::string& where,
                                    const std::string& folder = "") const;
  // What a document of {"prompt", …} or {"messages": …, "tools"} begins with: the ids in front of
  // an answer that is to be drawn. Fails as encode_object, and with kInvalidArgument on messages
  // that end with an answer.
  Result<std::vector<int32_t>> encode_prompt(const Json& object, const std::string& where) const;

 private:
  DocumentEncoder(text::Tokenizer tokenizer, std::optional<text::ChatTemplate> chat,
                  EncoderOptions options);
  Result<EncodedPart> encode_text(const Record& record) const;
  Result<EncodedPart> encode_json(const Record& record, const std::string& where,
                                  const std::string& folder) const;
  Result<EncodedPart> encode_messages(const Json& object, const std::string& where,
                                      const std::string& folder) const;
  // Empty where images are read.
  std::string image_refusal() const { return options_.images ? "" : options_.no_images; }
  Result<EncodedPart> encode_completion(const Json& object, const std::string& where) const;
  // Fails with kInvalidArgument where there is no chat template.
  Status check_chat(const std::string& where) const;
  Result<std::vector<int32_t>> encode_beginning(const std::string& prompt) const;

  text::Tokenizer tokenizer_;
  std::optional<text::ChatTemplate> chat_;
  EncoderOptions options_;
};

}  // namespace jige::train
