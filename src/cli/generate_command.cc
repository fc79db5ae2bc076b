// jige generate: continues a text, or answers one message.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/constraint_flags.h"
#include "cli/conversation.h"
#include "cli/flags.h"
#include "cli/generation_flags.h"
#include "cli/image_model.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/loaded_model.h"
#include "cli/output.h"
#include "cli/reasoning_flag.h"
#include "cli/reasoning_view.h"
#include "grammar/constraint_compiler.h"
#include "text/chat_encode.h"

namespace jige::cli {
namespace {

class GenerateCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Continues a text, and prints the continuation as it comes. The text comes from --prompt, "
        "--file or standard input. Speeds are told on standard error.");
    model_.declare_folder(flags);
    flags.text("-p,--prompt TEXT", source_.text, "the text to continue");
    flags.text("-f,--file FILE", source_.file, "read it from a file; - is standard input");
    flags.toggle("--chat", chat_, "the text is a message to be answered: use the chat template");
    flags.text("--system TEXT", system_, "with --chat, how the model shall behave");
    flags.texts("--image FILE", image_files_,
                "a PNG, JPEG, WebP or GIF that the message is about, of models that read images; "
                "several in their order");
    declare_image_pixels(flags, image_pixels_);
    reasoning_flag_.declare(flags);
    flags.integer("-n,--samples N", samples_, {.min = 1, .max = 1'000'000},
                  "several continuations; sample i uses seed + i");
    flags.toggle("--echo", echo_, "print the text itself first");
    model_.declare_adapter(flags);
    generation_.declare(flags);
    constraint_.declare(flags);
    model_.declare(flags);
    output_.declare(flags, "print one JSON object a sample, at its end");
    flags.integer("--logprobs N", logprobs_, {.max = 100},
                  "with --json, log-probabilities of the tokens and N alternatives each");
    flags.example("jige generate models/tiny --prompt \"Once upon a time\"");
    flags.example("jige generate models/tiny --file draft.txt --temperature 0 --json");
    flags.example("jige generate models/tiny --adapter runs/poet/adapter --prompt \"A rose\"");
    flags.example("jige generate models/tiny --chat -p \"Is it red?\" --choice yes --choice no");
    flags.example("jige generate models/ministral --chat -p \"What is this?\" --image photo.jpg");
  }

  Status run() override {
    output_.apply();
    JIGE_DO(check_flags());
    const InterruptScope interrupts;
    // Before the model, which may take long to load.
    JIGE_TRY([[maybe_unused]] const std::string folder, find_model_folder(model_.folder));
    JIGE_TRY(const std::string input, read_text(source_, "--prompt or --file"));
    JIGE_TRY(const std::vector<images::Image> images, read_image_files(image_files_));
    JIGE_TRY(const serve::DraftOptions drafts, generation_.speculation.read());
    JIGE_TRY(const auto source, constraint_.read());
    JIGE_TRY(LoadedModel loaded, model_.load({.draft_tokens = drafts.tokens_max,
                                              .speculation = &generation_.speculation}));
    std::optional<ImageModel> reader;
    if (!images.empty()) {
      JIGE_TRY(reader, load_image_model(loaded, model_, image_pixels_));
    }
    const text::ImageText image = reader ? reader->prompts->config().written : text::ImageText();
    JIGE_TRY(std::vector<int32_t> prompt, encode(loaded.tokenizer, input, image));
    JIGE_TRY(serve::GenerateOptions options, generation_.to_options(loaded, 256));
    if (reader) {
      JIGE_TRY(serve::ImagePrompt shown, reader->prompts->read(prompt, images, may_read_on));
      prompt = std::move(shown.ids);
      options.given = std::move(shown.given);
    }
    options.logprobs = logprobs_.has_value();
    options.top_count = static_cast<int>(logprobs_.value_or(0));
    options.continues_text = !chat_;
    if (source) {
      JIGE_TRY(options.constraint, grammar::ConstraintCompiler(loaded.tokenizer).compile(*source));
      reasoning_ = text::constrained_start(loaded.tokenizer, reasoning_, prompt);
    }
    options.reasoning = reasoning_;
    if (reasoning_ != text::ReasoningStart::kNone) {
      options.shown_ids = text::reasoning_mark_ids(loaded.tokenizer);
    }
    serve::Generator generator(*loaded.model, loaded.tokenizer, loaded.adapter,
                               loaded.draft_model.get());
    const uint64_t first_seed = options.seed;
    for (int64_t i = 0; i < samples_; ++i) {
      options.seed = first_seed + static_cast<uint64_t>(i);
      JIGE_DO(run_sample(loaded, generator, prompt, input, options, i));
    }
    return {};
  }

 private:
  // Refuses flags that would do nothing.
  Status check_flags() const {
    if (!system_.empty() && !chat_) {
      return fail(Code::kInvalidArgument, "--system is part of a chat: add --chat");
    }
    if (reasoning_flag_.format != "auto" && !chat_) {
      return fail(Code::kInvalidArgument, "--reasoning is for answers of a chat: add --chat");
    }
    if (logprobs_ && !output_.json) {
      return fail(Code::kInvalidArgument, "--logprobs are part of the JSON: add --json");
    }
    if (echo_ && output_.json) {
      return fail(Code::kInvalidArgument, "--echo is for text: leave out --json");
    }
    return {};
  }

  // Also notes what the answer begins with.
  Result<std::vector<int32_t>> encode(const text::Tokenizer& tokenizer, const std::string& input,
                                      const text::ImageText& image) {
    if (!chat_) {
      std::string text = input;
      std::vector<size_t> guards;
      text::put_image_text(image, text, guards);
      return tokenizer.encode(text, {});
    }
    if (tokenizer.chat_template().empty()) {
      return fail(Code::kUnsupported, "{}: has no chat template; leave out --chat", model_.folder);
    }
    JIGE_TRY(const auto chat, text::ChatTemplate::parse(tokenizer.chat_template(),
                                                        model_.folder + ": chat template"));
    Json messages = Json::array();
    if (!system_.empty()) messages.push_back(message_json({.role = "system", .content = system_}));
    messages.push_back(
        message_json({.role = "user", .content = input, .image_files = image_files_}));
    JIGE_TRY(std::vector<int32_t> ids,
             text::encode_chat(tokenizer, chat, messages,
                               {.add_generation_prompt = true, .image = image}));
    if (reasoning_flag_.is_expected(&chat)) reasoning_ = text::reasoning_start(tokenizer, ids);
    return ids;
  }

  Status run_sample(const LoadedModel& loaded, serve::Generator& generator,
                    const std::vector<int32_t>& prompt, const std::string& input,
                    const serve::GenerateOptions& options, int64_t index) const {
    if (!output_.json) {
      if (samples_ > 1) print_text(fmt::format("--- {} of {}\n", index + 1, samples_));
      if (echo_) print_exact(shown_text(input));
    }
    Json details = Json::array();
    ReasoningView view(reasoning_, isatty(STDOUT_FILENO) == 1 && allows_color(),
                       [&](std::string_view text) {
                         if (!output_.json) print_exact(text);
                       });
    const auto show = [&](const serve::GeneratedPiece& piece) {
      view.push(piece.text);
      if (!logprobs_ || piece.token < 0) return;
      Json detail{{"token", piece.token}, {"logprob", piece.logprob}, {"top", Json::array()}};
      for (const ops::TokenLogProb& other : piece.top) {
        detail["top"].push_back({{"token", other.token}, {"logprob", other.logprob}});
      }
      details.push_back(std::move(detail));
    };
    JIGE_TRY(const serve::Generation answer,
             loaded.named(generator.generate(prompt, options, show)));
    view.finish();
    if (output_.json) {
      Json json{{"sample", index},         {"text", answer.text},
                {"tokens", answer.tokens}, {"finish", serve::finish_reason_name(answer.finish)},
                {"seed", options.seed},    {"stats", stats_json(answer.stats)}};
      if (logprobs_) json["logprobs"] = details;
      if (!view.reasoning().empty()) {
        json["reasoning_content"] = view.reasoning();
        json["content"] = view.content();
      }
      print_json(json);
    } else {
      print_text("\n");
      log_info("{}, ended by {}, seed {}", stats_text(answer.stats),
               serve::finish_reason_name(answer.finish), options.seed);
    }
    if (answer.finish == serve::FinishReason::kCancelled) {
      return fail(Code::kCancelled, "by a signal, after {} tokens", answer.tokens.size());
    }
    return {};
  }

  ModelFlags model_;
  TextSource source_;
  std::string system_;
  std::vector<std::string> image_files_;
  int64_t image_pixels_ = 0;
  bool chat_ = false, echo_ = false;
  ReasoningFlag reasoning_flag_;
  text::ReasoningStart reasoning_ = text::ReasoningStart::kNone;
  int64_t samples_ = 1;
  std::optional<int64_t> logprobs_;
  GenerationFlags generation_;
  ConstraintFlags constraint_;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_generate_command() { return std::make_unique<GenerateCommand>(); }

}  // namespace jige::cli
