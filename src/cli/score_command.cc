// jige score: log-probabilities and right answers for a data set.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/file.h"
#include "base/progress.h"
#include "cli/bad_lines.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/image_model.h"
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
        "Scores a JSONL file. {\"text\"} and {\"prompt\", \"completion\"} give the "
        "log-probability of every token. {\"question\", \"choices\", \"answer\"} finds the "
        "likeliest choice, by sum, by token and by byte. {\"question\", \"answer\"} asks, and "
        "looks for the answer in the reply. {\"messages\"} gives that of the answers' tokens, also "
        "behind images, where the model reads them. Many records are run at once, what they share "
        "only "
        "once, with the results of each alone. Results are JSON lines, in the order of the file; "
        "the summary goes to standard error.");
    model_.declare_folder(flags);
    flags.text("[DATA]", data_, "JSONL file; without it or with -, standard input");
    model_.declare_adapter(flags);
    flags.text("-o,--out FILE", out_, "write the JSON lines to a file instead of standard output");
    flags.toggle("--chat", options_.chat, "ask questions through the model's chat template");
    flags.integer("--max-new-tokens N", options_.tokens_max, {.min = 1, .max = 1 << 20},
                  "length of a reply at most");
    declare_image_pixels(flags, image_pixels_);
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
    JIGE_TRY(const std::string folder, find_model_folder(model_.folder));
    JIGE_TRY(
        LoadedModel loaded,
        model_.load({.scores = true,
                     .images_bytes = image_memory_bytes(folder, model_.context, image_pixels_)}));
    std::optional<AtomicFile> file;
    if (!out_.empty()) {
      JIGE_TRY(file, AtomicFile::create(out_));
    }
    JIGE_TRY(const ScoreSummary summary, score_all(loaded, file));
    if (summary.record_count == 0) {
      return fail(Code::kInvalidArgument, "{}: holds no record{}{}", shown_name(),
                  summary.skipped_count > 0 ? " that can be scored; " : "",
                  summary.skipped_count > 0 ? bad_lines_text(summary.skipped_count) : "");
    }
    warn_of_bad_lines(summary.skipped_count);
    if (file) JIGE_DO(file->commit());
    if (output_.json) print_json(Json{{"summary", summary.to_json()}});
    if (!output_.quiet) print_message(summary.to_text());
    return {};
  }

 private:
  std::string shown_name() const {
    return data_.empty() || data_ == "-" ? "standard input" : data_;
  }

  Result<ScoreSummary> score_all(LoadedModel& loaded, std::optional<AtomicFile>& file) const {
    JIGE_TRY(const int64_t total, count_filled_lines(data_, limit_));
    Progress progress("scoring", total, output_.quiet || total == 0);
    const StopWatch watch;
    const ScoreSummary* summary = nullptr;
    const auto note = [&] { return progress_note(*summary, watch.seconds()); };
    const auto take = [&](int64_t line, const Json& scored) -> Status {
      Json result{{"line", line}};
      result.update(scored);
      const std::string text = dump_json(result) + "\n";
      progress.update(summary->record_count + summary->skipped_count, note());
      if (file) return file->write(text.data(), text.size());
      print_text(text);
      return {};
    };
    std::optional<ImageModel> image_model;
    ScoreOptions options = options_;
    options.data_folder = std::filesystem::path(data_).parent_path().string();
    options.images = [&]() -> Result<serve::ImagePrompts*> {
      if (!image_model) {
        JIGE_TRY(image_model, load_image_model(loaded, model_, image_pixels_));
      }
      return image_model->prompts.get();
    };
    JIGE_TRY(RecordScorer scorer, RecordScorer::create(loaded, options, take));
    summary = &scorer.summary();
    int64_t read = 0;
    const auto add_line = [&](std::string_view line, int64_t number) -> Result<bool> {
      if (is_blank(line)) return true;
      const std::string where = fmt::format("{}:{}", shown_name(), number);
      if (interrupted()) {
        JIGE_DO(scorer.flush());  // says at which line, where one was taken and is not done
        return fail(Code::kCancelled, "by a signal, at {}", where);
      }
      JIGE_DO(scorer.add(line, number, where));
      return ++read < limit_ || limit_ == 0;
    };
    JIGE_DO(for_each_line(data_, add_line, [&] { return scorer.flush(); }));
    JIGE_DO(scorer.flush());
    progress.finish(note());
    return scorer.summary();
  }

  static std::string progress_note(const ScoreSummary& summary, double seconds) {
    const auto rate = [&](int64_t count) {
      return static_cast<double>(count) / std::max(seconds, 1e-9);
    };
    std::string note = fmt::format("{}, {:.1f}/s", counted(summary.record_count, "record"),
                                   rate(summary.record_count));
    if (summary.computed_tokens > 0) {
      note += fmt::format(", {} tokens/s", format_count(rate(summary.computed_tokens)));
    }
    return note;
  }

  ModelFlags model_;
  std::string data_, out_;
  ScoreOptions options_;
  int64_t limit_ = 0;
  int64_t image_pixels_ = 0;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_score_command() { return std::make_unique<ScoreCommand>(); }

}  // namespace jige::cli
