// jige chat: a conversation with a model in the terminal.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/counted.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/chat_input.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/conversation.h"
#include "cli/flags.h"
#include "cli/generation_flags.h"
#include "cli/image_model.h"
#include "cli/interrupt.h"
#include "cli/loaded_model.h"
#include "cli/output.h"
#include "cli/reasoning_flag.h"
#include "cli/reasoning_view.h"
#include "train/record_reader.h"

namespace jige::cli {
namespace {

constexpr const char* kHelp =
    "  /help          this list\n"
    "  /reset         forget the conversation\n"
    "  /system TEXT   say how the model shall behave; without a text, nothing more\n"
    "  /image FILE    the next message is about this picture, of models that read images\n"
    "  /save FILE     write the conversation for `jige train`, which reads it as FILE.jsonl\n"
    "  /quit          end, as Ctrl-D does\n"
    "  Ctrl-C stops an answer; at the prompt it ends the chat.\n"
    "  A line that ends with \\ goes on in the next one.\n";

class ChatCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Talks to a model. Answers stream as they are made; /help tells the commands. With input "
        "from a pipe, every line is a message and only the answers are printed. What a model "
        "reasons "
        "before it answers (--reasoning) is dimmed in a terminal.");
    model_.declare_folder(flags);
    flags.text("--system TEXT", system_, "how the model shall behave");
    reasoning_.declare(flags);
    declare_image_pixels(flags, image_pixels_);
    model_.declare_adapter(flags);
    generation_.declare(flags);
    model_.declare(flags);
    output_.declare(flags, "print one JSON object an answer");
    flags.example("jige chat models/tiny");
    flags.example("echo \"What is 2 plus 3?\" | jige chat models/tiny --temperature 0 --quiet");
  }

  Status run() override {
    output_.apply();
    const InterruptScope interrupts;
    JIGE_TRY(const serve::DraftOptions drafts, generation_.speculation.read());
    JIGE_TRY(loaded_, model_.load({.draft_tokens = drafts.tokens_max,
                                   .speculation = &generation_.speculation}));
    const LoadedModel& loaded = *loaded_;
    if (interrupted()) return fail(Code::kCancelled, "while the model was loaded");
    JIGE_TRY(Conversation conversation,
             Conversation::create(loaded.tokenizer, loaded.folder, reasoning_));
    conversation.set_system(system_);
    JIGE_TRY(serve::GenerateOptions options, generation_.to_options(loaded, 512));
    options.shown_ids = conversation.shown_ids(loaded.tokenizer);
    for (std::string& stop : conversation.stop_strings()) {
      options.stop_strings.push_back(std::move(stop));
    }
    if (!conversation.has_template()) {
      log_warn("{}: has no chat template; the conversation is a plain transcript", loaded.folder);
    }
    serve::Generator generator(*loaded.model, loaded.tokenizer, loaded.adapter,
                               loaded.draft_model.get());
    ChatInput input(output_.quiet || output_.json);
    input.greet(loaded.folder);
    for (;;) {
      JIGE_TRY(const std::optional<std::string> line, input.next());
      if (!line) break;
      if (line->empty()) continue;
      if (line->front() == '/') {
        if (!run_slash(*line, conversation)) break;
        continue;
      }
      JIGE_DO(answer(*line, conversation, generator, options));
      ++options.seed;
    }
    report();
    if (!person_ && interrupted()) return cancelled();
    return {};
  }

 private:
  // False when the chat shall end.
  bool run_slash(const std::string& line, Conversation& conversation) {
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "/quit" || name == "/exit") return false;
    if (name == "/reset") {
      conversation.reset();
      images_.clear();
      image_files_.clear();
      log_info("the conversation begins anew");
    } else if (name == "/system") {
      conversation.set_system(rest);
      log_info("{}", rest.empty() ? "no system message" : "system message set");
    } else if (name == "/image" && !rest.empty()) {
      if (const Status status = take_image(rest, conversation); !status) {
        log_error("{}", status.error().message);
      }
    } else if (name == "/save" && !rest.empty()) {
      save(rest, conversation);
    } else {
      if (name != "/help") log_warn("{}: no such command, or its argument is missing", name);
      print_message(kHelp);
    }
    return true;
  }

  // What reads images is loaded when the first one comes.
  Status take_image(const std::string& file, Conversation& conversation) {
    if (!conversation.has_template()) {
      return fail(Code::kUnsupported, "{}: has no chat template, in which images have places",
                  loaded_->folder);
    }
    JIGE_TRY(images::Image image, read_image_file(file));
    if (!image_model_) {
      JIGE_TRY(image_model_, load_image_model(*loaded_, model_, image_pixels_));
      conversation.read_images(*image_model_->prompts);
    }
    log_info("{}: {} x {}, {} of the prompt; it goes with the next message", file, image.width,
             image.height,
             counted(image_model_->prompts->token_count(image.width, image.height), "token"));
    images_.push_back(std::move(image));
    std::error_code error;  // then relative, which is right where it is read from here
    const auto whole = std::filesystem::absolute(file, error).lexically_normal();
    image_files_.push_back(error ? file : whole.string());
    return {};
  }

  // What has no answer teaches nothing, and `jige train` refuses it.
  static void save(const std::string& file, const Conversation& conversation) {
    if (std::ranges::none_of(conversation.messages(),
                             [](const Message& one) { return one.role == "assistant"; })) {
      log_warn("{}: not written, since there is no answer yet", file);
      return;
    }
    const Status saved = write_file_atomic(file, dump_json(conversation.to_json()) + "\n");
    if (!saved) return log_error("{}", saved.error().message);
    const auto kind = train::source_kind(file);
    const bool read_as_json = kind && *kind == train::SourceKind::kJsonl;
    log_info("{}: written{}", file,
             read_as_json ? "" : "; `jige train` reads it under a name that ends with .jsonl");
  }

  Status answer(const std::string& question, Conversation& conversation,
                serve::Generator& generator, serve::GenerateOptions options) {
    const LoadedModel& loaded = *loaded_;
    if (images_.empty()) {
      conversation.add("user", question);
    } else {
      conversation.add(question, std::exchange(images_, {}), std::exchange(image_files_, {}));
    }
    const int64_t context = generator.context_max();
    const auto prompt = conversation.prompt(loaded.tokenizer,
                                            {.context_max = context,
                                             .room = std::min(options.tokens_max, context / 4),
                                             .model_context_max = generator.model_context_max()},
                                            may_read_on);
    if (!prompt) {
      // The message is at fault, not the chat: people may go on, scripts get the error.
      if (!person_) return tl::unexpected<Error>(prompt.error());
      log_error("{}", prompt.error().message);
      conversation.take_back();
      take_interrupt();  // which may have been why
      return {};
    }
    if (conversation.dropped_count() > 0) {
      log_info("the context is full: the {} oldest messages were left out",
               conversation.dropped_count());
    }
    ReasoningView view(conversation.reasoning_start(loaded.tokenizer, prompt->ids), dims_,
                       [&](std::string_view text) {
                         if (!output_.json) print_exact(text);
                       });
    const auto show = [&](const serve::GeneratedPiece& piece) { view.push(piece.text); };
    options.given = prompt->given;
    // What a person presses while nothing is made stops nothing; scripts mean it.
    if (person_) take_interrupt();
    JIGE_TRY(const serve::Generation generation,
             loaded.named(generator.generate(prompt->ids, options, show)));
    view.finish();
    if (person_) take_interrupt();
    // A transcript's answer begins behind "Assistant:", so with a space.
    const size_t begin = conversation.has_template() || !view.content().starts_with(" ") ? 0 : 1;
    conversation.add("assistant", view.content().substr(begin), view.reasoning());
    output_.json ? print_answer(view, generation) : print_text("\n");
    ++answer_count_;
    tokens_ += generation.stats.generated_tokens;
    // The first token comes with the prompt; the rate is that of the others.
    decoded_tokens_ += std::max<int64_t>(generation.stats.generated_tokens - 1, 0);
    decode_seconds_ += generation.stats.decode_seconds;
    // Ctrl-C ends an answer for people, everything for scripts.
    return !person_ && interrupted() ? cancelled() : Status{};
  }

  static void print_answer(const ReasoningView& view, const serve::Generation& generation) {
    Json json{{"role", "assistant"},
              {"content", view.content()},
              {"finish", serve::finish_reason_name(generation.finish)},
              {"stats", stats_json(generation.stats)}};
    if (!view.reasoning().empty()) json["reasoning_content"] = view.reasoning();
    print_json(json);
  }

  Status cancelled() const {
    return fail(Code::kCancelled, "by a signal, after {} answer{}", answer_count_,
                answer_count_ == 1 ? "" : "s");
  }

  void report() const {
    if (answer_count_ == 0) return;
    log_info("{}, {}{}", counted(answer_count_, "answer"), counted(tokens_, "token"),
             decode_seconds_ > 0
                 ? fmt::format(", {:.1f} tokens/s",
                               static_cast<double>(decoded_tokens_) / decode_seconds_)
                 : "");
  }

  ModelFlags model_;
  std::string system_;
  ReasoningFlag reasoning_;
  GenerationFlags generation_;
  OutputFlags output_;
  std::optional<LoadedModel> loaded_;
  std::optional<ImageModel> image_model_;  // on a device of that
  std::vector<images::Image> images_;      // for the next message
  std::vector<std::string> image_files_;   // where they are
  int64_t image_pixels_ = 0;
  const bool person_ = isatty(STDIN_FILENO) == 1;
  const bool dims_ = isatty(STDOUT_FILENO) == 1 && allows_color();
  int64_t answer_count_ = 0;
  int64_t tokens_ = 0;
  int64_t decoded_tokens_ = 0;
  double decode_seconds_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_chat_command() { return std::make_unique<ChatCommand>(); }

}  // namespace jige::cli
