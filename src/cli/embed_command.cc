// jige embed: vectors of texts, for search, clustering and duplicates.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/json.h"
#include "base/log.h"
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
#include "cli/vector_file.h"
#include "formats/embedding_config.h"
#include "serve/embedder.h"
#include "serve/embedding_text.h"

namespace jige::cli {
namespace {

// Tokens whose texts run together, in batches of the model: enough that few batches are not full.
constexpr int64_t kGroupTokens = 16384;

struct Totals {
  int64_t texts = 0;
  int64_t tokens = 0;
  int64_t truncated = 0;
  int64_t blank = 0;  // lines left out
};

class EmbedCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Makes a vector of every text, whose scalar products say how near texts are: for search, "
        "clustering and duplicates. For folders of embedding models (Qwen3-Embedding, "
        "EmbeddingGemma, BGE, E5 and others that sentence-transformers reads) of the families that "
        "Jige knows; of another "
        "model, it takes the last token's row. Data are JSON lines, each {\"text\": …} or a "
        "string. Results are JSON lines or, with --out FILE.npy, a matrix that NumPy loads.");
    model_.declare_folder(flags);
    flags.text("[DATA]", data_.path, "JSONL file; without it or with -, standard input");
    flags.toggle("--lines", data_.as_they_stand,
                 "every line of DATA that is not blank is a text, as it is");
    model_.declare_adapter(flags);
    flags.text("-o,--out FILE", out_,
               "write vectors to a file instead of standard output: NAME.npy for NumPy, else JSON "
               "lines");
    flags.text("--prompt NAME", prompt_name_,
               "put the prompt of this name, which the folder has, before every text; without it, "
               "the folder's default");
    flags.text("--prompt-text TEXT", prompt_text_, "put this before every text; '': nothing");
    declare_pooling(flags, pooling_);
    flags.integer("--dimensions N", dimensions_, {.min = 0, .max = formats::kHiddenMax},
                  "only the first N numbers of a vector, for models trained so (Matryoshka); 0: "
                  "all");
    flags.toggle("--no-normalize", raw_, "leave vectors as long as they are, instead of 1");
    flags.toggle("--truncate", truncate_, "cut texts that are too long, instead of refusing them");
    flags.integer("--limit N", limit_, {.min = 0}, "only the first N texts; 0: all");
    model_.declare(flags);
    output_.declare(flags, "the summary as well, as a last JSON line {\"summary\": …}");
    flags.example("jige embed models/qwen3-embedding-0.6b texts.jsonl --out texts.npy");
    flags.example("jige embed models/qwen3-embedding-0.6b queries.txt --lines --prompt query");
  }

  Status run() override {
    output_.apply();
    const InterruptScope interrupts;
    JIGE_TRY(const std::string folder, find_model_folder(model_.folder));
    JIGE_TRY(const formats::EmbeddingConfig config, read_embedding_config(folder, pooling_));
    JIGE_TRY(const std::string prompt, choose_prompt(config, folder));
    JIGE_TRY(LoadedModel loaded, model_.load({.embeds = true}));
    const int64_t width = loaded.model->config().hidden_size;
    JIGE_TRY(serve::EmbeddingForm form, embedding_form(config, folder, width));
    if (dimensions_ > form.width(width)) {
      return fail(Code::kInvalidArgument, "--dimensions {}: the model's vectors have {} numbers",
                  dimensions_, form.width(width));
    }
    form.normalise = form.normalise && !raw_;
    form.dimensions = dimensions_;
    serve::Embedder embedder(*loaded.model, form, loaded.adapter);
    JIGE_TRY(const serve::EmbeddingText texts, text_reader(loaded, embedder, config, prompt));
    std::optional<VectorFile> file;
    if (!out_.empty()) {
      JIGE_TRY(file, VectorFile::create(out_, embedder.dimensions()));
    }
    const StopWatch watch;
    JIGE_TRY(const Totals totals, embed_all(loaded, embedder, texts, file));
    if (file) JIGE_DO(file->commit());
    report(totals, embedder.dimensions(), watch.seconds());
    return {};
  }

 private:
  struct Group {
    std::vector<serve::EmbedInput> inputs;
    std::vector<int64_t> lines;
    int64_t tokens = 0;
  };

  Result<std::string> choose_prompt(const formats::EmbeddingConfig& config,
                                    const std::string& folder) const {
    if (prompt_name_ && prompt_text_) {
      return fail(Code::kInvalidArgument, "--prompt and --prompt-text: give one of them");
    }
    if (prompt_text_) return *prompt_text_;
    const std::string& name = prompt_name_ ? *prompt_name_ : config.default_prompt;
    if (!prompt_name_ && name.empty()) return std::string();
    if (const std::string* text = config.find_prompt(name)) return *text;
    std::vector<std::string_view> known;
    for (const auto& prompt : config.prompts) known.push_back(prompt.first);
    return fail(
        Code::kInvalidArgument, "--prompt {}: {} has {}; give the text by --prompt-text", name,
        folder,
        known.empty() ? "no prompts" : fmt::format("the prompts {}", fmt::join(known, ", ")));
  }

  Result<serve::EmbeddingText> text_reader(const LoadedModel& loaded,
                                           const serve::Embedder& embedder,
                                           const formats::EmbeddingConfig& config,
                                           const std::string& prompt) const {
    const EmbeddingLength length =
        embedding_length({.of_folder = config.tokens_max,
                          .held = embedder.tokens_max(),
                          .of_model = loaded.model->config().context_max});
    return serve::EmbeddingText::create(loaded.tokenizer,
                                        {.prompt = prompt,
                                         .tokens_max = length.tokens_max,
                                         .truncate = truncate_,
                                         .cuts_left = config.cuts_left,
                                         .lowers = config.lowers,
                                         .hint = ", or give --truncate" + length.hint});
  }

  Result<Totals> embed_all(const LoadedModel& loaded, serve::Embedder& embedder,
                           const serve::EmbeddingText& texts,
                           std::optional<VectorFile>& file) const {
    JIGE_TRY(const int64_t total, count_filled_lines(data_.path, limit_));
    Progress progress("embedding", total, output_.quiet || total == 0);
    Totals totals;
    Group group;
    int64_t read = 0;
    const auto run_group = [&]() -> Status {
      if (group.inputs.empty()) return {};
      auto made = loaded.named(embedder.embed(group.inputs, &interrupt_flag()));
      if (!made && made.error().code == Code::kCancelled) {
        return fail(Code::kCancelled, "by a signal, at {}:{}", data_.shown_name(),
                    group.lines.front());
      }
      JIGE_TRY(const auto vectors, std::move(made));
      for (size_t i = 0; i < vectors.size(); ++i) {
        const TextVector vector{.line = group.lines[i],
                                .tokens = std::ssize(group.inputs[i].tokens),
                                .truncated = group.inputs[i].truncated,
                                .values = vectors[i]};
        totals.truncated += vector.truncated;
        if (file) {
          JIGE_DO(file->add(vector));
        } else {
          print_exact(vector_line(vector));
        }
      }
      totals.texts += std::ssize(vectors);
      totals.tokens += group.tokens;
      progress.update(totals.texts, counted(totals.tokens, "token"));
      group = {};
      return {};
    };
    const auto add_line = [&](std::string_view line, int64_t number) -> Result<bool> {
      if (is_blank(line)) {
        ++totals.blank;
        return true;
      }
      const std::string where = fmt::format("{}:{}", data_.shown_name(), number);
      if (interrupted()) return fail(Code::kCancelled, "by a signal, at {}", where);
      JIGE_TRY(const std::string text, data_.read(line, number));
      Result<serve::EmbedInput> input = texts.encode(text);
      if (!input) return with_context(std::move(input.error()), "{}", where);
      const Status checked = embedder.check(*input);
      if (!checked) return with_context(Error(checked.error()), "{}", where);
      group.tokens += std::ssize(input->tokens);
      group.inputs.push_back(std::move(*input));
      group.lines.push_back(number);
      if (group.tokens >= kGroupTokens) JIGE_DO(run_group());
      return ++read < limit_ || limit_ == 0;
    };
    JIGE_DO(for_each_line(data_.path, add_line, run_group));
    JIGE_DO(run_group());
    if (totals.texts == 0) {
      return fail(Code::kInvalidArgument, "{}: holds no text", data_.shown_name());
    }
    progress.finish(counted(totals.tokens, "token"));
    if (totals.blank > 0 && file && file->is_npy()) {
      log_warn(
          "{}: {} left out, so rows of {} are those of the other lines in turn; JSON lines "
          "say which line each is of",
          data_.shown_name(), counted(totals.blank, "blank line"), out_);
    }
    return totals;
  }

  void report(const Totals& totals, int64_t dimensions, double seconds) const {
    const double rate = static_cast<double>(totals.tokens) / std::max(seconds, 1e-9);
    if (output_.json) {
      print_json(Json{{"summary",
                       {{"texts", totals.texts},
                        {"tokens", totals.tokens},
                        {"truncated", totals.truncated},
                        {"dimensions", dimensions},
                        {"seconds", seconds},
                        {"tokens_per_second", rate}}}});
    }
    if (output_.quiet) return;
    const std::string cut = totals.truncated > 0 ? fmt::format("; of {} the end was cut off",
                                                               counted(totals.truncated, "text"))
                                                 : "";
    print_message(fmt::format("{} of {}, {}, {} a second{}\n", counted(totals.texts, "vector"),
                              counted(dimensions, "number"), counted(totals.tokens, "token"),
                              format_count(rate), cut));
  }

  ModelFlags model_;
  TextLines data_;
  std::string out_;
  std::string pooling_;
  std::optional<std::string> prompt_name_, prompt_text_;
  bool raw_ = false, truncate_ = false;
  int64_t dimensions_ = 0;
  int64_t limit_ = 0;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_embed_command() { return std::make_unique<EmbedCommand>(); }

}  // namespace jige::cli
