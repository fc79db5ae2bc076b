#include "cli/score_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "cli/interrupt.h"
#include "cli/table.h"
#include "text/chat_encode.h"
#include "train/story_corpus.h"

namespace jige::cli {
namespace {

std::string percent_of(int64_t part, int64_t whole) {
  return fmt::format("{:.1f} % ({} of {})",
                     100.0 * static_cast<double>(part) / static_cast<double>(whole), part, whole);
}

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

Result<std::vector<std::string>> read_choices(const Json& record, const std::string& where) {
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

Json scores_json(std::span<const int32_t> tokens, std::span<const float> logprobs) {
  double sum = 0;
  for (const float value : logprobs) sum += value;
  const auto count = static_cast<double>(logprobs.size());
  return {{"tokens", std::vector<int32_t>(tokens.begin(), tokens.end())},
          {"logprobs", std::vector<float>(logprobs.begin(), logprobs.end())},
          {"logprob", sum},
          {"perplexity", logprobs.empty() ? 1.0 : std::exp(-sum / count)}};
}

Json asked(const std::string& question) {
  return Json::array({{{"role", "user"}, {"content", question}}});
}

template <typename Value>
int64_t index_of_best(const std::vector<serve::ChoiceScore>& scores, Value value) {
  const auto less = [&](const auto& a, const auto& b) { return value(a) < value(b); };
  return std::max_element(scores.begin(), scores.end(), less) - scores.begin();
}

}  // namespace

RecordScorer::RecordScorer(LoadedModel& loaded, const ScoreOptions& options)
    : loaded_(&loaded),
      options_(options),
      scorer_(*loaded.model, loaded.adapter),
      generator_(*loaded.model, loaded.tokenizer, loaded.adapter) {}

Result<RecordScorer> RecordScorer::create(LoadedModel& loaded, const ScoreOptions& options) {
  RecordScorer scorer(loaded, options);
  if (!options.chat) return scorer;
  const std::string& source = loaded.tokenizer.chat_template();
  if (source.empty()) {
    return fail(Code::kUnsupported, "{}: has no chat template; leave out --chat", loaded.folder);
  }
  JIGE_TRY(scorer.chat_, text::ChatTemplate::parse(source, loaded.folder + ": chat template"));
  return scorer;
}

Result<Json> RecordScorer::score(const Json& record, const std::string& where) {
  if (!record.is_object()) {
    return fail(Code::kInvalidArgument, "{}: is no JSON object", where);
  }
  const auto run = [&]() -> Result<Json> {
    if (record.contains("choices")) return score_choices(record, where);
    if (record.contains("question")) return score_reply(record, where);
    if (record.contains("completion")) {
      JIGE_TRY(const std::string prompt, get_string(record, "prompt", where));
      JIGE_TRY(const std::string completion, get_string(record, "completion", where));
      return score_completion(prompt, completion);
    }
    if (!record.contains("text")) {
      return fail(Code::kNotFound,
                  "{}: has none of the fields \"text\", \"completion\" (with \"prompt\"), "
                  "\"choices\" (with \"question\") and \"question\" (with \"answer\")",
                  where);
    }
    JIGE_TRY(const std::string text, get_string(record, "text", where));
    return score_text(text);
  };
  Result<Json> result = loaded_->named(run());
  if (!result) {
    Error error = result.error();
    const bool says_where = error.code == Code::kCancelled || error.message.starts_with(where);
    return says_where ? result : with_context(std::move(error), "{}", where);
  }
  ++summary_.record_count;
  return result;
}

Result<std::optional<Json>> RecordScorer::score_line(std::string_view line,
                                                     const std::string& where) {
  const Result<Json> record = parse_json(line, where);
  const Result<Json> scored = record ? score(*record, where) : record;
  if (scored) return std::optional(*scored);
  const Code code = scored.error().code;
  const bool bad = !record || code == Code::kInvalidArgument || code == Code::kNotFound ||
                   code == Code::kUnsupported;
  if (!bad || !options_.skip_bad) return tl::unexpected<Error>(scored.error());
  log_debug("left out: {}", scored.error().message);
  ++summary_.skipped_count;
  return std::optional<Json>();
}

Result<Json> RecordScorer::score_text(const std::string& text) {
  JIGE_TRY(const serve::TokenScores scores, scorer_.score_text(loaded_->tokenizer, text));
  summary_.token_count += static_cast<int64_t>(scores.logprobs.size());
  summary_.logprob_sum += scores.sum();
  // The first token has no probability; the others stand beside theirs.
  return scores_json(std::span(scores.tokens).subspan(1), scores.logprobs);
}

Result<Json> RecordScorer::score_completion(const std::string& prompt,
                                            const std::string& completion) {
  const text::Tokenizer& tokenizer = loaded_->tokenizer;
  JIGE_TRY(const std::vector<int32_t> prompt_ids, tokenizer.encode(prompt, {}));
  JIGE_TRY(const std::vector<int32_t> ids, tokenizer.encode(prompt + completion, {}));
  const auto same = std::mismatch(prompt_ids.begin(), prompt_ids.end(), ids.begin(), ids.end());
  const size_t first = std::max<size_t>(static_cast<size_t>(same.second - ids.begin()), 1);
  if (first >= ids.size()) {
    return fail(Code::kInvalidArgument, "\"completion\" adds no token to \"prompt\"");
  }
  JIGE_TRY(const serve::TokenScores scores, scorer_.score(ids, first));
  summary_.token_count += static_cast<int64_t>(scores.logprobs.size());
  summary_.logprob_sum += scores.sum();
  return scores_json(std::span(ids).subspan(first), scores.logprobs);
}

Result<std::vector<int32_t>> RecordScorer::question_ids(const std::string& question) const {
  if (!chat_) return loaded_->tokenizer.encode(question, {});
  return text::encode_chat(loaded_->tokenizer, *chat_, asked(question),
                           {.add_generation_prompt = true});
}

Result<serve::ChoiceResult> RecordScorer::chat_choices(const std::string& question,
                                                       const std::vector<std::string>& choices) {
  serve::ChoiceResult result;
  for (const std::string& choice : choices) {
    JIGE_TRY(const text::ChatReply reply,
             text::encode_chat_reply(loaded_->tokenizer, *chat_, asked(question), choice, {}));
    const size_t count = reply.ids.size() - reply.prompt_count;
    if (count == 0) return fail(Code::kInvalidArgument, "choice \"{}\" has no token", choice);
    JIGE_TRY(const serve::TokenScores scores, scorer_.score(reply.ids, reply.prompt_count));
    result.scores.push_back({.logprob = scores.sum(),
                             .token_count = static_cast<int64_t>(count),
                             .byte_count = static_cast<int64_t>(choice.size())});
  }
  result.best = index_of_best(result.scores, [](const auto& s) { return s.logprob; });
  result.best_per_token = index_of_best(result.scores, [](const auto& s) { return s.per_token(); });
  result.best_per_byte = index_of_best(result.scores, [](const auto& s) { return s.per_byte(); });
  return result;
}

Result<Json> RecordScorer::score_choices(const Json& record, const std::string& where) {
  JIGE_TRY(const std::string question, get_string(record, "question", where));
  JIGE_TRY(const std::vector<std::string> choices, read_choices(record, where));
  Result<serve::ChoiceResult> result = [&] {
    if (chat_) return chat_choices(question, choices);
    std::vector<std::string> spaced;
    for (const std::string& choice : choices) spaced.push_back(" " + choice);
    return scorer_.choose(loaded_->tokenizer, question, spaced);
  }();
  if (!result) return tl::unexpected<Error>(result.error());
  // The space before a choice is not of its length, as with a chat template.
  for (size_t i = 0; i < choices.size(); ++i) {
    result->scores[i].byte_count = static_cast<int64_t>(choices[i].size());
  }
  result->best_per_byte = index_of_best(result->scores, [](const auto& s) { return s.per_byte(); });
  Json json = choices_json(*result);
  if (!record.contains("answer")) return json;
  JIGE_TRY(const int64_t right, right_choice(record["answer"], choices, where));
  ++summary_.choice_count;
  summary_.right += result->best == right;
  summary_.right_per_token += result->best_per_token == right;
  summary_.right_per_byte += result->best_per_byte == right;
  json["answer"] = right;
  json["right"] = result->best == right;
  return json;
}

Result<Json> RecordScorer::score_reply(const Json& record, const std::string& where) {
  JIGE_TRY(const std::string question, get_string(record, "question", where));
  JIGE_TRY(const std::string answer, get_string(record, "answer", where));
  JIGE_TRY(const std::string kind, get_string_or(record, "kind", "", where));
  JIGE_TRY(const std::vector<int32_t> prompt, question_ids(question));
  serve::GenerateOptions options;
  options.logprobs = false;
  options.tokens_max = options_.tokens_max;
  options.stop_ids = serve::end_ids(loaded_->tokenizer, loaded_->model->config());
  options.cancelled = &interrupt_flag();
  JIGE_TRY(const serve::Generation reply, generator_.generate(prompt, options));
  if (reply.finish == serve::FinishReason::kCancelled) {
    return fail(Code::kCancelled, "by a signal, at {}", where);
  }
  const bool right = train::reply_is_right(reply.text, answer);
  ++summary_.reply_count;
  summary_.replies_right += right;
  if (!kind.empty()) {
    ScoreSummary::Kind& counted = summary_.kinds[kind];
    ++counted.count;
    counted.right += right;
  }
  return Json{{"reply", reply.text}, {"answer", answer}, {"right", right}};
}

Json ScoreSummary::to_json() const {
  const auto share = [](int64_t part, int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  Json json{{"records", record_count}, {"skipped_lines", skipped_count}};
  if (token_count > 0) {
    json["tokens"] = token_count;
    json["logprob"] = logprob_sum;
    json["perplexity"] = std::exp(-logprob_sum / static_cast<double>(token_count));
  }
  if (choice_count > 0) {
    json["questions"] = choice_count;
    json["accuracy"] = share(right, choice_count);
    json["accuracy_per_token"] = share(right_per_token, choice_count);
    json["accuracy_per_byte"] = share(right_per_byte, choice_count);
  }
  if (reply_count > 0) {
    json["replies"] = reply_count;
    json["replies_right"] = replies_right;
    json["reply_accuracy"] = share(replies_right, reply_count);
    for (const auto& [kind, counted] : kinds) {
      json["kinds"][kind] = {{"replies", counted.count}, {"replies_right", counted.right}};
    }
  }
  return json;
}

std::string ScoreSummary::to_text() const {
  Table table({{}, {}});
  table.row({"records", fmt::format("{}", record_count)});
  if (token_count > 0) {
    const double mean = -logprob_sum / static_cast<double>(token_count);
    table.row({"tokens", fmt::format("{}, {:.4f} nats each, perplexity {:.3f}", token_count, mean,
                                     std::exp(mean))});
  }
  if (choice_count > 0) {
    table.row({"accuracy", percent_of(right, choice_count)});
    table.row({"by token", percent_of(right_per_token, choice_count)});
    table.row({"by byte", percent_of(right_per_byte, choice_count)});
  }
  if (reply_count > 0) table.row({"right replies", percent_of(replies_right, reply_count)});
  for (const auto& [kind, counted] : kinds) {
    table.row({"  " + kind, percent_of(counted.right, counted.count)});
  }
  return table.render();
}

}  // namespace jige::cli
