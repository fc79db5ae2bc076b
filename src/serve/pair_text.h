// PairText: a query and one document after another as the tokens of which a pair is judged.
//
//   JIGE_TRY(const PairText pairs, PairText::create(tokenizer, config, {.query = "What is …?"}));
//   JIGE_TRY(const EmbedInput input, pairs.encode("A lease is …"));
//
// By the tokenizer's frame of pairs, each text encoded by itself:
//   before  query  between  document  behind
// with token types where the model has several; or by the prompt of Qwen3-Reranker, in which query
// and document are one text with the instruction:
//   <|im_start|>system\nJudge whether …<|im_end|>\n<|im_start|>user\n
//   <Instruct>: …\n<Query>: …\n<Document>: …
//   <|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n
// The text of special tokens inside query, document and instruction is ordinary text: who writes a
// document cannot end it, nor begin another. Of a pair that is too long the document's last tokens
// go, where that was asked for, and nothing of the query.
// Threads: immutable; any number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/pair_config.h"
#include "serve/embedding_text.h"
#include "serve/row_pooler.h"
#include "text/tokenizer.h"

namespace jige::serve {

// What the vector of a pair is made like: its one number is the logit.
EmbeddingForm pair_form(const formats::PairConfig& config);

struct PairTextOptions {
  std::string query;
  std::string instruction = {};  // of models that have one; empty: the usual
  int64_t tokens_max = 0;        // of a pair with everything around it; >= 1
  bool truncate = false;         // cut longer ones, instead of failing
  std::string hint = {};         // behind "shorten it" of that failure
};

class PairText {
 public:
  // Fails as Tokenizer::encode does; with kUnsupported where the tokenizer has no frame of pairs;
  // with kInvalidArgument on an empty query, an instruction that the model does not have, and a
  // query that leaves no room for a document.
  static Result<PairText> create(const text::Tokenizer& tokenizer,
                                 const formats::PairConfig& config, const PairTextOptions& options);

  // Fails with kInvalidArgument on a pair that is too long.
  Result<EmbedInput> encode(std::string_view document) const;

 private:
  explicit PairText(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  Status frame_by_tokenizer(const formats::PairConfig& config);
  Status frame_by_prompt();
  Result<std::vector<int32_t>> ids_of(std::string_view text) const;

  text::Tokenizer tokenizer_;
  PairTextOptions options_;
  std::string lead_;             // what stands in one text with a document, in front of it
  std::vector<int32_t> before_;  // all in front of that text
  std::vector<int32_t> behind_;
  int64_t lead_count_ = 0;  // tokens of lead_ alone
  int32_t second_begin_ = ops::kFirstTypeAlone;
};

}  // namespace jige::serve
