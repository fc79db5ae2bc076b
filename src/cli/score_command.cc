// jige score: log-probabilities and right answers for a data set.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/counted.h"
#include "base/file.h"
#include "base/progress.h"
#include "cli/bad_lines.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/loaded_model.h"
#include "cli/output.h"
#include "cli/score_records.h"

namespace jige::cli {
namespace {

class ScoreCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Scores a JSONL file record by record. {\"text\"} and {\"prompt\", \"completion\"} give "
        "the "
        "log-probability of every token. {\"question\", \"choices\", \"answer\"} finds the "
        "likeliest choice, by sum, by token and by byte. {\"question\", \"answer\"} asks, and "
        "looks "
        "for the answer in the reply. Results are JSON lines; the summary goes to standard error.");
    model_.declare_folder(flags);
    flags.text("[DATA]", data_, "JSONL file; without it or with -, standard input");
    model_.declare_adapter(flags);
    flags.text("-o,--out FILE", out_, "write the JSON lines to a file instead of standard output");
    flags.toggle("--chat", options_.chat, "ask questions through the model's chat template");
    flags.integer("--max-new-tokens N", options_.tokens_max, {.min = 1, .max = 1 << 20},
                  "length of a reply at most");
    declare_skip_bad(flags, options_.skip_bad);
    flags.integer("--limit N", limit_, {.min = 0}, "only the first N records; 0: all");
    model_.declare(flags);
    output_.declare(flags, "the summary as well, as a last JSON line {\"summary\": …}");
    flags.example("jige score models/tiny questions.jsonl --chat");
    flags.example("jige score models/tiny texts.jsonl --out scores.jsonl");
  }

  Status run() override {
    output_.apply();
    const InterruptScope interrupts;
    JIGE_TRY(LoadedModel loaded, model_.load({.scores = true}));
    JIGE_TRY(RecordScorer scorer, RecordScorer::create(loaded, options_));
    std::optional<AtomicFile> file;
    if (!out_.empty()) {
      JIGE_TRY(file, AtomicFile::create(out_));
    }
    JIGE_DO(score_all(scorer, file));
    const int64_t skipped = scorer.summary().skipped_count;
    if (scorer.summary().record_count == 0) {
      return fail(Code::kInvalidArgument, "{}: holds no record{}{}", shown_name(),
                  skipped > 0 ? " that can be scored; " : "",
                  skipped > 0 ? bad_lines_text(skipped) : "");
    }
    warn_of_bad_lines(skipped);
    if (file) JIGE_DO(file->commit());
    if (output_.json) print_json(Json{{"summary", scorer.summary().to_json()}});
    if (!output_.quiet) fmt::print(stderr, "{}", scorer.summary().to_text());
    return {};
  }

 private:
  std::string shown_name() const {
    return data_.empty() || data_ == "-" ? "standard input" : data_;
  }

  Status score_all(RecordScorer& scorer, std::optional<AtomicFile>& file) const {
    JIGE_TRY(const int64_t total, count_filled_lines(data_, limit_));
    Progress progress("scoring", total, output_.quiet || total == 0);
    int64_t read = 0, done = 0;
    const auto score_line = [&](std::string_view line, int64_t number) -> Result<bool> {
      if (is_blank(line)) return true;
      const std::string where = fmt::format("{}:{}", shown_name(), number);
      if (interrupted()) return fail(Code::kCancelled, "by a signal, at {}", where);
      JIGE_TRY(const std::optional<Json> scored, scorer.score_line(line, where));
      ++read;
      const bool more = limit_ == 0 || read < limit_;
      if (!scored) return more;
      Json result{{"line", number}};
      result.update(*scored);
      const std::string text = dump_json(result) + "\n";
      ++done;
      progress.update(read, counted(done, "record"));
      if (file) {
        JIGE_DO(file->write(text.data(), text.size()));
      } else {
        print_text(text);
      }
      return more;
    };
    JIGE_DO(for_each_line(data_, score_line));
    progress.finish(counted(done, "record"));
    return {};
  }

  ModelFlags model_;
  std::string data_, out_;
  ScoreOptions options_;
  int64_t limit_ = 0;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_score_command() { return std::make_unique<ScoreCommand>(); }

}  // namespace jige::cli
