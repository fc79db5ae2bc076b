// One record of `jige score`: the texts that it asks about, and its result once they are scored.
//
//   {"text": T}                                  log-probability of every token of T but the first
//   {"prompt": P, "completion": C}               of every token of C behind P
//   {"question": Q, "choices": [C…], "answer": A}  the likeliest choice; A is an index or a choice
//   {"messages": [{"role", "content"}…]}         of every token of the answers, in the chat
//                                                template's form; of images, too
//                                                (train/image_messages.h)
//   {"question": Q, "answer": A}                 a greedy reply; right if it holds A as whole
//                                                words; with "kind": K counted by kind as well
// A choice stands behind "Q" and a space, or, with a chat template in use, where the answer begins,
// behind the white space that the template puts there; there "images" may stand before Q, as in a
// record with messages.
// Log-probabilities are natural. Threads: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/score_summary.h"
#include "images/image.h"
#include "serve/image_prompts.h"
#include "serve/scored_text.h"
#include "text/chat_template.h"
#include "text/image_text.h"
#include "text/tokenizer.h"

namespace jige::cli {

struct ScoreRecord {
  enum class Kind { kTokens, kAnswers, kChoices, kReply };
  Kind kind = Kind::kTokens;
  serve::TokenScores scores;                // kTokens: of what is scored, and no token before it
  std::vector<serve::TokenScores> answers;  // kAnswers: the same of each
  std::vector<std::string> choices;         // kChoices
  std::vector<serve::ChoiceScore> ranked;   // of each choice
  std::optional<Json> answer;               // which is right, where it is said
  std::vector<int32_t> prompt;              // kReply
  std::string reply, right_reply, reply_kind;
};

// Takes the texts of a record, in order.
using TextTaker = std::function<Status(serve::ScoredText text)>;

// Gives what reads the images of a model, loaded when the first one comes; null: it reads none.
using ImageSource = std::function<Result<serve::ImagePrompts*>()>;

class RecordReader {
 public:
  // Fails with kUnsupported where questions are to be asked through a chat template and the
  // tokenizer, which must outlive the reader, has none. `folder` names it.
  // Paths of images begin in `data_folder`.
  static Result<RecordReader> create(const text::Tokenizer& tokenizer, const std::string& folder,
                                     bool chat, ImageSource images = {},
                                     const std::string& data_folder = "");

  // Fills `made` and hands the texts to `take` one by one. Fails with kInvalidArgument and
  // kNotFound on missing fields and wrong types, and as `take` does.
  Status read(const Json& record, const std::string& where, ScoreRecord& made,
              const TextTaker& take) const;

 private:
  explicit RecordReader(const text::Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  // A conversation, whose images are there.
  struct Asked {
    Json messages;
    std::vector<images::Image> images;
    serve::ImagePrompts* reader = nullptr;  // where there are any
    text::ImageText text() const { return reader ? reader->config().written : text::ImageText(); }
  };
  Result<Asked> read_asked(const Json& object, const std::string& where) const;
  Status take_answers(const Json& record, const std::string& where, ScoreRecord& made,
                      const TextTaker& take) const;
  Status take_chat_choices(const Json& record, const std::string& where,
                           const std::vector<std::string>& choices, const TextTaker& take) const;
  Status take_completion(const Json& record, const std::string& where, const TextTaker& take) const;
  Status take_choices(const std::string& question, const std::vector<std::string>& choices,
                      const TextTaker& take) const;
  Status read_choices(const Json& record, const std::string& where, ScoreRecord& made,
                      const TextTaker& take) const;
  Status read_reply(const Json& record, const std::string& where, ScoreRecord& made) const;

  const text::Tokenizer* tokenizer_;
  std::optional<text::ChatTemplate> chat_;
  bool asks_in_chats_ = false;
  ImageSource images_;
  std::string data_folder_;
};

// Puts what was found out about the record's text number `index` into it.
void keep_scores(ScoreRecord& record, size_t index, const serve::ScoredText& text,
                 std::vector<float> logprobs);

// The result of a record that is complete, which is counted in the summary. Fails with
// kInvalidArgument where the answer is none of the choices.
Result<Json> record_result(const ScoreRecord& record, const std::string& where,
                           ScoreSummary& summary);

}  // namespace jige::cli
