#include "cli/score_record.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "cli/image_model.h"
#include "images/decode.h"
#include "text/chat_encode.h"
#include "train/image_index.h"
#include "train/image_messages.h"
#include "train/record_json.h"
#include "train/story_corpus.h"

namespace jige::cli {
namespace {

// The index of the right choice: the answer as an index, or as the text of a choice.
Result<int64_t> right_choice(const Json& answer, const std::vector<std::string>& choices,
                             const std::string& where) {
  if (answer.is_number_integer()) {
    const auto index = answer.get<int64_t>();
    if (index >= 0 && index < static_cast<int64_t>(choices.size())) return index;
  }
  if (answer.is_string()) {
    const auto found = std::find(choices.begin(), choices.end(), answer.get<std::string>());
    if (found != choices.end()) return found - choices.begin();
  }
  return fail(Code::kInvalidArgument,
              "{}: \"answer\" is {}; it must be the index (from 0) or the "
              "text of one of the {} choices",
              where, dump_json(answer), choices.size());
}

Result<std::vector<std::string>> choice_texts(const Json& record, const std::string& where) {
  std::vector<std::string> choices;
  const Json& list = record["choices"];
  bool strings = list.is_array() && !list.empty();
  for (size_t i = 0; strings && i < list.size(); ++i) strings = list[i].is_string();
  for (size_t i = 0; strings && i < list.size(); ++i) {
    strings = !list[i].get_ref<const std::string&>().empty();
  }
  if (!strings) {
    return fail(Code::kInvalidArgument,
                "{}: \"choices\" must be a list of texts, none of them empty", where);
  }
  for (const Json& choice : list) choices.push_back(choice.get<std::string>());
  return choices;
}

Json choices_json(const serve::ChoiceResult& result) {
  Json list = Json::array();
  for (const serve::ChoiceScore& score : result.scores) {
    list.push_back({{"logprob", score.logprob},
                    {"tokens", score.token_count},
                    {"per_token", score.per_token()},
                    {"per_byte", score.per_byte()}});
  }
  return {{"choices", std::move(list)},
          {"best", result.best},
          {"best_per_token", result.best_per_token},
          {"best_per_byte", result.best_per_byte}};
}

Json scores_json(const serve::TokenScores& scores) {
  const double sum = scores.sum();
  const auto count = static_cast<double>(scores.logprobs.size());
  return {{"tokens", scores.tokens},
          {"logprobs", scores.logprobs},
          {"logprob", sum},
          {"perplexity", scores.logprobs.empty() ? 1.0 : std::exp(-sum / count)}};
}

Json asked(const std::string& question) {
  return Json::array({{{"role", "user"}, {"content", question}}});
}

Json reply_result(const ScoreRecord& record, ScoreSummary& summary) {
  const bool right = train::reply_is_right(record.reply, record.right_reply);
  ++summary.reply_count;
  summary.replies_right += right;
  if (!record.reply_kind.empty()) {
    ScoreSummary::Kind& counted = summary.kinds[record.reply_kind];
    ++counted.count;
    counted.right += right;
  }
  return Json{{"reply", record.reply}, {"answer", record.right_reply}, {"right", right}};
}

Json answers_result(const ScoreRecord& record, ScoreSummary& summary) {
  serve::TokenScores all;
  Json answers = Json::array();
  for (const serve::TokenScores& answer : record.answers) {
    answers.push_back(scores_json(answer));
    all.logprobs.insert(all.logprobs.end(), answer.logprobs.begin(), answer.logprobs.end());
  }
  const double sum = all.sum();
  const auto count = std::ssize(all.logprobs);
  summary.token_count += count;
  summary.logprob_sum += sum;
  return {{"answers", std::move(answers)},
          {"logprob", sum},
          {"perplexity", std::exp(-sum / static_cast<double>(count))}};
}

// Which ids are an answer's, with the tokens of images in place of their placeholders.
std::vector<uint8_t> mask_with_images(const text::ChatEncoding& chat,
                                      const std::vector<images::Image>& images,
                                      const serve::ImagePrompts& reader) {
  std::vector<uint8_t> mask;
  auto image = images.begin();
  for (size_t i = 0; i < chat.ids.size(); ++i) {
    if (chat.ids[i] != reader.config().placeholder_id || image == images.end()) {
      mask.push_back(chat.answer[i]);
      continue;
    }
    mask.resize(mask.size() + static_cast<size_t>(reader.token_count(image->width, image->height)));
    ++image;
  }
  return mask;
}

}  // namespace

Result<RecordReader> RecordReader::create(const text::Tokenizer& tokenizer,
                                          const std::string& folder, bool chat, ImageSource images,
                                          const std::string& data_folder) {
  RecordReader reader(tokenizer);
  reader.asks_in_chats_ = chat;
  reader.images_ = std::move(images);
  reader.data_folder_ = data_folder;
  const std::string& source = tokenizer.chat_template();
  if (source.empty() && chat) {
    return fail(Code::kUnsupported, "{}: has no chat template; leave out --chat", folder);
  }
  if (source.empty()) return reader;
  auto parsed = text::ChatTemplate::parse(source, folder + ": chat template");
  if (parsed) reader.chat_ = std::move(*parsed);
  if (!parsed && chat) return tl::unexpected(std::move(parsed.error()));
  return reader;
}

Status RecordReader::read(const Json& record, const std::string& where, ScoreRecord& made,
                          const TextTaker& take) const {
  if (!record.is_object()) {
    return fail(Code::kInvalidArgument, "{}: is no JSON object", where);
  }
  if (record.contains("choices")) return read_choices(record, where, made, take);
  if (record.contains("question")) return read_reply(record, where, made);
  if (record.contains("messages")) return take_answers(record, where, made, take);
  if (record.contains("completion")) return take_completion(record, where, take);
  if (!record.contains("text")) {
    return fail(
        Code::kNotFound,
        "{}: has none of the fields \"text\", \"completion\" (with \"prompt\"), "
        "\"choices\" (with \"question\"), \"question\" (with \"answer\") and \"messages\"; it "
        "has {}",
        where, train::fields_text(record));
  }
  JIGE_TRY(const std::string text, get_string(record, "text", where));
  JIGE_TRY(std::vector<int32_t> tokens, tokenizer_->encode(text, {}));
  return take({.tokens = std::move(tokens)});
}

Status RecordReader::take_completion(const Json& record, const std::string& where,
                                     const TextTaker& take) const {
  JIGE_TRY(const std::string prompt, get_string(record, "prompt", where));
  JIGE_TRY(const std::string completion, get_string(record, "completion", where));
  JIGE_TRY(const std::vector<int32_t> context, tokenizer_->encode(prompt, {}));
  JIGE_TRY(serve::ScoredText text,
           serve::continued_text(*tokenizer_, context, prompt + completion));
  if (text.first >= text.tokens.size()) {
    return fail(Code::kInvalidArgument, "\"completion\" adds no token to \"prompt\"");
  }
  return take(std::move(text));
}

Status RecordReader::take_choices(const std::string& question,
                                  const std::vector<std::string>& choices,
                                  const TextTaker& take) const {
  JIGE_TRY(const std::vector<int32_t> context, tokenizer_->encode(question, {}));
  for (const std::string& choice : choices) {
    const std::string spaced = " " + choice;
    JIGE_TRY(serve::ScoredText text,
             serve::continued_text(*tokenizer_, context, question + spaced));
    if (text.first >= text.tokens.size()) {
      return fail(Code::kInvalidArgument, "choice \"{}\" adds no token to its context", spaced);
    }
    JIGE_DO(take(std::move(text)));
  }
  return {};
}

Status RecordReader::read_choices(const Json& record, const std::string& where, ScoreRecord& made,
                                  const TextTaker& take) const {
  made.kind = ScoreRecord::Kind::kChoices;
  JIGE_TRY(const std::string question, get_string(record, "question", where));
  JIGE_TRY(made.choices, choice_texts(record, where));
  if (record.contains("answer")) made.answer = record["answer"];
  if (asks_in_chats_) return take_chat_choices(record, where, made.choices, take);
  if (find_field(record, "images")) {
    return fail(Code::kInvalidArgument, "{}: has images, whose places are in chats: add --chat",
                where);
  }
  return take_choices(question, made.choices, take);
}

Status RecordReader::read_reply(const Json& record, const std::string& where,
                                ScoreRecord& made) const {
  made.kind = ScoreRecord::Kind::kReply;
  JIGE_TRY(const std::string question, get_string(record, "question", where));
  JIGE_TRY(made.right_reply, get_string(record, "answer", where));
  JIGE_TRY(made.reply_kind, get_string_or(record, "kind", "", where));
  if (find_field(record, "images")) {
    return fail(Code::kUnsupported,
                "{}: replies to questions about images are not made here; give \"choices\"", where);
  }
  if (asks_in_chats_) {
    JIGE_TRY(made.prompt, text::encode_chat(*tokenizer_, *chat_, asked(question),
                                            {.add_generation_prompt = true}));
  } else {
    JIGE_TRY(made.prompt, tokenizer_->encode(question, {}));
  }
  return {};
}

Result<RecordReader::Asked> RecordReader::read_asked(const Json& object,
                                                     const std::string& where) const {
  if (!chat_) {
    return fail(
        Code::kUnsupported,
        "{}: has \"messages\", but the tokenizer has no chat template that can be used; put "
        "a chat_template.jinja into its folder",
        where);
  }
  const std::string blind = images_ ? "" : "this command reads texts alone here";
  JIGE_TRY(train::ImageMessages read, train::read_image_messages(object, blind, where));
  Asked asked{.messages = std::move(read.messages), .images = {}};
  for (size_t i = 0; i < read.sources.size(); ++i) {
    const std::string place = fmt::format("{}: {}", where, read.places[i]);
    train::ImageFile source;
    JIGE_TRY(const std::string bytes,
             train::read_image_source(read.sources[i], data_folder_, place, source));
    JIGE_TRY(images::Image image,
             images::decode_image(std::as_bytes(std::span(bytes)), place, {}, may_read_on));
    asked.images.push_back(std::move(image));
  }
  if (!asked.images.empty()) {
    JIGE_TRY(asked.reader, images_());
  }
  return asked;
}

// Each answer is a text of its own, which ends with it: what they share is run once.
Status RecordReader::take_answers(const Json& record, const std::string& where, ScoreRecord& made,
                                  const TextTaker& take) const {
  made.kind = ScoreRecord::Kind::kAnswers;
  JIGE_TRY(const Asked asked, read_asked(record, where));
  JIGE_TRY(const text::ChatEncoding chat,
           text::encode_chat_answers(*tokenizer_, *chat_, asked.messages,
                                     {.now_s = 0, .image = asked.text()}));
  serve::ImagePrompt prompt{.ids = chat.ids, .given = {}};
  std::vector<uint8_t> answer = chat.answer;
  if (asked.reader) {
    JIGE_TRY(prompt, asked.reader->read(chat.ids, asked.images, may_read_on));
    answer = mask_with_images(chat, asked.images, *asked.reader);
  }
  bool any = false;
  for (size_t end = 1; end <= answer.size(); ++end) {
    const bool ends = answer[end - 1] != 0 && (end == answer.size() || answer[end] == 0);
    if (!ends) continue;
    size_t first = end;
    while (first > 1 && answer[first - 1] != 0) --first;
    any = true;
    const auto behind = prompt.ids.begin() + static_cast<ptrdiff_t>(end);
    JIGE_DO(take({.tokens = {prompt.ids.begin(), behind}, .first = first, .given = prompt.given}));
  }
  if (any) return {};
  return fail(Code::kInvalidArgument,
              "{}: field \"messages\" has no answer of the assistant, which could be scored",
              where);
}

Status RecordReader::take_chat_choices(const Json& record, const std::string& where,
                                       const std::vector<std::string>& choices,
                                       const TextTaker& take) const {
  Json object = {{"messages", asked(record["question"].get<std::string>())}};
  if (const Json* listed = find_field(record, "images")) object["images"] = *listed;
  JIGE_TRY(const Asked asked, read_asked(object, where));
  for (const std::string& choice : choices) {
    JIGE_TRY(text::ChatReply reply, text::encode_chat_reply(*tokenizer_, *chat_, asked.messages,
                                                            choice, {.image = asked.text()}));
    if (reply.ids.size() == reply.prompt_count) {
      return fail(Code::kInvalidArgument, "choice \"{}\" has no token", choice);
    }
    serve::ScoredText text{.tokens = std::move(reply.ids), .first = reply.prompt_count};
    if (asked.reader) {
      const auto added =
          asked.reader->token_count(text.tokens, asked.images) - std::ssize(text.tokens);
      JIGE_TRY(serve::ImagePrompt shown,
               asked.reader->read(text.tokens, asked.images, may_read_on));
      text = {.tokens = std::move(shown.ids),
              .first = text.first + static_cast<size_t>(added),
              .given = std::move(shown.given)};
    }
    JIGE_DO(take(std::move(text)));
  }
  return {};
}

void keep_scores(ScoreRecord& record, size_t index, const serve::ScoredText& text,
                 std::vector<float> logprobs) {
  serve::TokenScores scores{.logprobs = std::move(logprobs)};
  if (record.kind == ScoreRecord::Kind::kTokens) {
    scores.tokens.assign(text.tokens.begin() + static_cast<ptrdiff_t>(text.first),
                         text.tokens.end());
    record.scores = std::move(scores);
    return;
  }
  if (record.kind == ScoreRecord::Kind::kAnswers) {
    if (record.answers.size() <= index) record.answers.resize(index + 1);
    scores.tokens.assign(text.tokens.begin() + static_cast<ptrdiff_t>(text.first),
                         text.tokens.end());
    record.answers[index] = std::move(scores);
    return;
  }
  if (record.ranked.size() <= index) record.ranked.resize(index + 1);
  // A space before a choice is not of its length.
  record.ranked[index] = {.logprob = scores.sum(),
                          .token_count = std::ssize(scores.logprobs),
                          .byte_count = std::ssize(record.choices[index])};
}

Result<Json> record_result(const ScoreRecord& record, const std::string& where,
                           ScoreSummary& summary) {
  if (record.kind == ScoreRecord::Kind::kReply) return reply_result(record, summary);
  if (record.kind == ScoreRecord::Kind::kAnswers) return answers_result(record, summary);
  if (record.kind == ScoreRecord::Kind::kTokens) {
    summary.token_count += std::ssize(record.scores.logprobs);
    summary.logprob_sum += record.scores.sum();
    return scores_json(record.scores);
  }
  const serve::ChoiceResult result = serve::compare_choices(record.ranked);
  Json json = choices_json(result);
  if (!record.answer) return json;
  JIGE_TRY(const int64_t right, right_choice(*record.answer, record.choices, where));
  ++summary.choice_count;
  summary.right += result.best == right;
  summary.right_per_token += result.best_per_token == right;
  summary.right_per_byte += result.best_per_byte == right;
  json["answer"] = right;
  json["right"] = result.best == right;
  return json;
}

}  // namespace jige::cli
