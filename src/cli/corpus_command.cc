// jige corpus: writes the practice corpus of the quickstart.
#include <nlohmann/json.hpp>
#include <string>

#include "base/log.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "train/story_corpus.h"

namespace jige::cli {
namespace {

class CorpusCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Writes the practice corpus of the quickstart: conversations made from a seed (stories, "
        "sums, facts, small readings) as train.jsonl, and questions that are in no conversation, "
        "with their right answers, as questions.jsonl. The same numbers give the same bytes.");
    flags.text("-o,--out FOLDER", folder_, "where the two files go");
    flags.integer("--documents N", documents_, {.min = 1, .max = 10'000'000},
                  "conversations to write");
    flags.integer("--questions N", questions_, {.min = 0, .max = 100'000},
                  "held-out questions, "
                  "at most");
    flags.integer("--seed N", seed_, {}, "what the corpus is made from");
    output_.declare(flags, "print one JSON object that names the files");
    flags.example("jige corpus --out data/stories");
    flags.example("jige corpus --seed 7 --documents 50000 --out data/more");
  }

  Status run() override {
    output_.apply();
    if (folder_.empty()) {
      return fail(Code::kInvalidArgument, "--out is missing: name the folder for the two files");
    }
    const train::StoryCorpus corpus =
        train::make_story_corpus({.seed = static_cast<uint64_t>(seed_),
                                  .conversation_count = documents_,
                                  .held_out_count = questions_});
    JIGE_DO(train::write_story_corpus(corpus, folder_));
    if (output_.json) {
      print_json(Json{{"train", folder_ + "/train.jsonl"},
                      {"conversations", corpus.training.size()},
                      {"questions", folder_ + "/questions.jsonl"},
                      {"question_count", corpus.held_out.size()}});
    } else {
      log_info("{}/train.jsonl: {} conversations; {}/questions.jsonl: {} held-out questions",
               folder_, corpus.training.size(), folder_, corpus.held_out.size());
    }
    return {};
  }

 private:
  std::string folder_;
  int64_t documents_ = 20'000;
  int64_t questions_ = 200;
  int64_t seed_ = 1;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_corpus_command() { return std::make_unique<CorpusCommand>(); }

}  // namespace jige::cli
