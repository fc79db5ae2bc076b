// jige tokenize: text to token ids and back.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/counted.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/generation_flags.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/table.h"
#include "text/tokenizer.h"

namespace jige::cli {
namespace {

// Reads "1 2,3" or "[1, 2, 3]".
Result<std::vector<int32_t>> read_ids(const std::string& text) {
  std::vector<int32_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto separates = [](char c) {
    return std::string_view(" \t\r\n,[]").find(c) != std::string_view::npos;
  };
  while (true) {
    while (at < end && separates(*at)) ++at;
    if (at == end) return ids;
    int32_t id = 0;
    const auto [stop, error] = std::from_chars(at, end, id);
    if (error != std::errc()) {
      const std::string shown(at, std::find_if(at, std::min(end, at + 20), separates));
      return fail(Code::kInvalidArgument,
                  "--decode: \"{}\" is not a token id; ids are whole "
                  "numbers between spaces or commas",
                  shown);
    }
    ids.push_back(id);
    at = stop;
  }
}

class TokenizeCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Turns text into the token ids of a model, or ids back into text. The text comes from "
        "--text, --file or standard input.");
    flags.text("FOLDER", folder_, "model or tokenizer folder");
    flags.text("-t,--text TEXT", source_.text, "the text, or the ids with --decode");
    flags.text("-f,--file FILE", source_.file, "read the text from a file; - is standard input");
    flags.toggle("--decode", decode_, "the other way: ids in, text out");
    flags.toggle("--pieces", pieces_, "a table with one line per token");
    flags.toggle("--count", count_, "only the number of tokens");
    flags.toggle("--no-special", no_special_,
                 "without the tokens put around every text; with --decode, leave special tokens "
                 "out");
    flags.toggle("--literal", literal_, "special tokens spelled out in the text are ordinary text");
    output_.declare(flags, "print one JSON object: ids and tokens, or only --count");
    flags.example("jige tokenize models/tiny --text \"Once upon a time\" --pieces");
    flags.example("jige tokenize models/tiny --file book.txt --count");
    flags.example("echo 42 7 | jige tokenize models/tiny --decode");
  }

  Status run() override {
    if (decode_ && (pieces_ || count_ || literal_)) {
      return fail(Code::kInvalidArgument,
                  "{} is about text that becomes ids: leave it out, or --decode",
                  pieces_  ? "--pieces"
                  : count_ ? "--count"
                           : "--literal");
    }
    if (pieces_ && count_) {
      return fail(Code::kInvalidArgument, "--pieces and --count exclude each other; give one");
    }
    JIGE_TRY(const std::string folder, find_tokenizer_folder(folder_));
    JIGE_TRY(const text::Tokenizer tokenizer, text::Tokenizer::load(folder));
    JIGE_TRY(const std::string input, read_text(source_, "--text or --file"));
    return decode_ ? decode(tokenizer, input) : encode(tokenizer, input);
  }

 private:
  Status decode(const text::Tokenizer& tokenizer, const std::string& input) const {
    JIGE_TRY(const std::vector<int32_t> ids, read_ids(input));
    JIGE_TRY(const std::string text, tokenizer.decode(ids, {.skip_special = no_special_}));
    output_.json ? print_json(Json{{"text", text}, {"count", ids.size()}})
                 : print_exact(shown_text(text) + "\n");
    return {};
  }

  Status encode(const text::Tokenizer& tokenizer, const std::string& input) const {
    Progress progress("tokenizing", std::ssize(input), output_.json || output_.quiet,
                      kSilentSeconds);
    const std::function<void(size_t)> on_progress = [&](size_t done_bytes) {
      progress.update(static_cast<int64_t>(done_bytes), format_bytes(std::ssize(input)));
    };
    JIGE_TRY(const std::vector<int32_t> ids,
             tokenizer.encode(input, {.add_special = !no_special_,
                                      .allow_special = !literal_,
                                      .on_progress = &on_progress}));
    progress.finish(counted(std::ssize(ids), "token"));
    if (output_.json && count_) {
      print_json(Json{{"count", ids.size()}});
    } else if (output_.json) {
      Json tokens = Json::array();
      for (const int32_t id : ids) tokens.push_back(tokenizer.id_to_token(id).value_or(""));
      print_json(Json{{"count", ids.size()}, {"ids", ids}, {"tokens", tokens}});
    } else if (count_) {
      print_text(fmt::format("{}\n", ids.size()));
    } else if (pieces_) {
      Table table({{"id", Table::Align::kRight}, {"token"}});
      for (const int32_t id : ids) {
        table.row({fmt::format("{}", id), tokenizer.id_to_token(id).value_or("")});
      }
      print_text(table.render());
    } else {
      print_text(fmt::format("{}\n", fmt::join(ids, " ")));
    }
    return {};
  }

  std::string folder_;
  TextSource source_;
  bool decode_ = false, pieces_ = false, count_ = false, no_special_ = false, literal_ = false;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_tokenize_command() { return std::make_unique<TokenizeCommand>(); }

}  // namespace jige::cli
