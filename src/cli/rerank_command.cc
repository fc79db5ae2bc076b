// jige rerank: documents in the order in which they answer a query.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/json.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/embedding_folder.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/loaded_model.h"
#include "cli/output.h"
#include "cli/text_lines.h"
#include "formats/pair_config.h"
#include "serve/embedder.h"
#include "serve/pair_text.h"
#include "text/tokenizer.h"

namespace jige::cli {
namespace {

// Tokens of pairs that are judged between two looks at the progress.
constexpr int64_t kPairGroupTokens = 16384;
constexpr size_t kShownCharacters = 60;

// The beginning of a text, on one line.
std::string beginning_of(std::string_view text) {
  std::string shown;
  size_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) {
    size_t end = at + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    if (count == kShownCharacters) return shown + "…";
    const bool control = static_cast<unsigned char>(text[at]) < 0x20 || text[at] == 0x7F;
    shown += control ? std::string_view(" ") : text.substr(at, end - at);
    at = end;
  }
  return shown;
}

class RerankCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Judges how well documents answer a query, and gives them in that order: by a "
        "cross-encoder or reranker (a Bert…, DistilBert…, MPNet…, NomicBert…, Roberta…, "
        "XLMRoberta…, ModernBert…, DebertaV2…, EuroBert…, New… or Qwen3ForSequenceClassification "
        "with one "
        "label, such as BGE reranker, mxbai-rerank-v1 or those of MS MARCO, "
        "or Qwen3-Reranker), which reads each document together with the query. Documents are JSON "
        "lines, each {\"text\": …} or a string.");
    model_.declare_folder(flags);
    flags.text("--query TEXT", query_, "what documents are to answer");
    flags.text("--documents FILE", documents_.path,
               "JSONL file; without it or with -, standard "
               "input");
    flags.toggle("--lines", documents_.as_they_stand,
                 "every line of the documents that is not blank is one, as it is");
    flags.text("--instruction TEXT", instruction_,
               "what the query is for, to models that are told it (Qwen3-Reranker); '': the usual");
    flags.integer("--top N", top_, {.min = 0}, "only the N best; 0: all");
    flags.toggle("--raw", raw_, "logits as they are, and not their sigmoids");
    flags.toggle("--truncate", truncate_,
                 "cut documents that are too long, instead of refusing them");
    model_.declare_adapter(flags);
    model_.declare(flags);
    output_.declare(flags, "a JSON line for each document, and {\"summary\": …} behind them");
    flags.example(
        "jige rerank models/bge-reranker-v2-m3 --query 'who pays for repairs?' --documents "
        "passages.jsonl --top 5");
    flags.example("ls docs | jige rerank models/qwen3-reranker-0.6b --query 'speed' --lines");
  }

  Status run() override {
    output_.apply();
    if (query_.empty()) {
      return fail(Code::kInvalidArgument, "--query is missing; say what documents are to answer");
    }
    const InterruptScope interrupts;
    JIGE_TRY(const std::string folder, find_model_folder(model_.folder));
    JIGE_TRY(const text::Tokenizer tokenizer, text::Tokenizer::load(folder));
    JIGE_TRY(const formats::PairConfig config, formats::load_pair_config(folder, tokenizer));
    JIGE_TRY(LoadedModel loaded, model_.load({.embeds = true}));
    serve::Embedder judge(*loaded.model, serve::pair_form(config), loaded.adapter);
    const EmbeddingLength length =
        embedding_length({.of_folder = config.tokens_max,
                          .held = judge.tokens_max(),
                          .of_model = loaded.model->config().context_max});
    JIGE_TRY(const serve::PairText pairs,
             serve::PairText::create(tokenizer, config,
                                     {.query = query_,
                                      .instruction = instruction_,
                                      .tokens_max = length.tokens_max,
                                      .truncate = truncate_,
                                      .hint = ", or give --truncate" + length.hint}));
    const StopWatch watch;
    JIGE_DO(judge_all(loaded, judge, pairs, config));
    const double seconds = watch.seconds();
    std::ranges::stable_sort(judged_, std::ranges::greater(), &Judged::logit);
    print_results();
    report(seconds);
    return {};
  }

 private:
  struct Judged {
    int64_t line = 0;
    int64_t tokens = 0;
    bool truncated = false;
    std::string shown;  // beginning of the document
    float logit = 0;
    float score = 0;
    int64_t index = 0;  // among the documents
  };

  Status judge_all(const LoadedModel& loaded, serve::Embedder& judge, const serve::PairText& pairs,
                   const formats::PairConfig& config) {
    JIGE_TRY(const int64_t total, count_filled_lines(documents_.path, 0));
    Progress progress("reranking", total, output_.quiet || total == 0);
    std::vector<serve::EmbedInput> group;
    int64_t group_tokens = 0;
    const auto run_group = [&]() -> Status {
      if (group.empty()) return {};
      JIGE_TRY(const auto logits, loaded.named(judge.embed(group, &interrupt_flag())));
      Judged* one = &judged_[judged_.size() - logits.size()];
      for (const std::vector<float>& logit : logits) {
        one->logit = logit.front();
        one->score =
            raw_ ? one->logit : static_cast<float>(formats::pair_score(config, one->logit));
        ++one;
      }
      group.clear();
      group_tokens = 0;
      progress.update(std::ssize(judged_), counted(tokens_, "token"));
      return {};
    };
    const auto add_line = [&](std::string_view line, int64_t number) -> Result<bool> {
      if (is_blank(line)) return true;
      const std::string where = fmt::format("{}:{}", documents_.shown_name(), number);
      if (interrupted()) return fail(Code::kCancelled, "by a signal, at {}", where);
      JIGE_TRY(const std::string text, documents_.read(line, number));
      Result<serve::EmbedInput> input = pairs.encode(text);
      if (!input) return with_context(std::move(input.error()), "{}", where);
      const Status checked = judge.check(*input);
      if (!checked) return with_context(Error(checked.error()), "{}", where);
      judged_.push_back({.line = number,
                         .tokens = std::ssize(input->tokens),
                         .truncated = input->truncated,
                         .shown = beginning_of(text),
                         .index = std::ssize(judged_)});
      tokens_ += judged_.back().tokens;
      group_tokens += judged_.back().tokens;
      group.push_back(std::move(*input));
      if (group_tokens >= kPairGroupTokens) JIGE_DO(run_group());
      return true;
    };
    JIGE_DO(for_each_line(documents_.path, add_line));
    JIGE_DO(run_group());
    if (judged_.empty()) {
      return fail(Code::kInvalidArgument, "{}: holds no document", documents_.shown_name());
    }
    progress.finish(counted(tokens_, "token"));
    return {};
  }

  void print_results() const {
    size_t count = judged_.size();
    if (top_ > 0) count = std::min(count, static_cast<size_t>(top_));
    for (size_t i = 0; i < count; ++i) {
      const Judged& one = judged_[i];
      if (!output_.json) {
        print_text(fmt::format("{:9.6f}  line {}  {}\n", one.score, one.line, one.shown));
        continue;
      }
      // The fewest digits that give the same float.
      std::string line = fmt::format(
          R"({{"index": {}, "line": {}, "tokens": {}, "relevance_score": {}{}}})", one.index,
          one.line, one.tokens, one.score, one.truncated ? R"(, "truncated": true)" : "");
      print_exact(line + "\n");
    }
  }

  void report(double seconds) const {
    const double rate = static_cast<double>(tokens_) / std::max(seconds, 1e-9);
    const int64_t truncated = std::ranges::count(judged_, true, &Judged::truncated);
    if (output_.json) {
      print_json(Json{{"summary",
                       {{"documents", judged_.size()},
                        {"tokens", tokens_},
                        {"truncated", truncated},
                        {"seconds", seconds},
                        {"tokens_per_second", rate}}}});
    }
    if (output_.quiet) return;
    const std::string cut =
        truncated > 0 ? fmt::format("; of {} the end was cut off", counted(truncated, "document"))
                      : "";
    print_message(fmt::format("{}, {}, {} a second{}\n", counted(std::ssize(judged_), "document"),
                              counted(tokens_, "token"), format_count(rate), cut));
  }

  ModelFlags model_;
  TextLines documents_;
  std::string query_, instruction_;
  bool raw_ = false, truncate_ = false;
  int64_t top_ = 0;
  OutputFlags output_;
  std::vector<Judged> judged_;
  int64_t tokens_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_rerank_command() { return std::make_unique<RerankCommand>(); }

}  // namespace jige::cli
