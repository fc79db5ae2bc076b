#include "cli/tokenizer_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/json.h"
#include "base/progress.h"
#include "cli/chat_defaults.h"
#include "cli/interrupt.h"
#include "text/bpe_trainer.h"
#include "text/chat_content.h"
#include "train/record_json.h"
#include "train/record_reader.h"

namespace jige::cli {
namespace {

class CorpusFeeder {
 public:
  CorpusFeeder(const TokenizerTraining& training, text::BpeTrainer& trainer)
      : training_(training), trainer_(trainer) {}

  Status feed_file(const std::string& path) {
    JIGE_TRY(const train::SourceKind kind, train::source_kind(path));
    if (kind == train::SourceKind::kTokens) {
      return fail(Code::kInvalidArgument,
                  "{}: holds token ids; a tokenizer is trained from text or "
                  "JSONL",
                  path);
    }
    JIGE_TRY(auto reader, train::RecordReader::open(path, {.skip_bad = training_.skip_bad}));
    train::Record record;
    for (;;) {
      JIGE_TRY(const bool more, reader.next(record));
      if (!more || cut) return {};
      if (interrupted()) return fail(Code::kCancelled, "reading {}", path);
      if (!record.json) {
        JIGE_DO(feed_text(record.text));
        continue;
      }
      const Status fed = feed_json(record, path);
      if (!fed && !training_.skip_bad) return fed;
    }
  }

  int64_t bytes = 0;
  bool chat = false;
  bool cut = false;

 private:
  Status feed_text(const std::string& text) {
    bytes += static_cast<int64_t>(text.size());
    cut = bytes >= training_.sample_bytes;
    return trainer_.feed(text);
  }

  Status feed_messages(const Json& messages, const std::string& where) {
    for (size_t i = 0; i < messages.size(); ++i) {
      if (!messages[i].is_object()) continue;
      const auto content = messages[i].find("content");
      if (content == messages[i].end() || content->is_null()) continue;
      const std::string place = fmt::format("{}: messages[{}]", where, i);
      auto text = text::chat_content_text(*content, place);
      if (!text && text.error().code == Code::kUnsupported) {
        text.error().message +=
            "; a tokenizer is trained on texts: leave images out, or start from a model that reads "
            "them, whose tokenizer `jige train --from` takes";
      }
      if (!text) return tl::unexpected(std::move(text.error()));
      JIGE_DO(feed_text(*text));
    }
    return {};
  }

  Status feed_json(const train::Record& record, const std::string& path) {
    const std::string where = fmt::format("{}:{}", path, record.line);
    JIGE_TRY(const Json object, train::read_json_record(record.text, where));
    if (const Json* messages = find_field(object, "messages"); messages && messages->is_array()) {
      chat = true;
      return feed_messages(*messages, where);
    }
    bool found = false;
    for (const std::string& field :
         {training_.text_field, std::string("prompt"), std::string("completion")}) {
      if (!object.contains(field)) continue;
      found = true;
      const Json& value = object[field];
      if (value.is_string()) JIGE_DO(feed_text(value.get_ref<const std::string&>()));
    }
    if (found) return {};
    return train::no_known_field(object, training_.text_field, where);
  }

  const TokenizerTraining& training_;
  text::BpeTrainer& trainer_;
};

}  // namespace

Result<TokenizerTrained> train_tokenizer(const TokenizerTraining& training) {
  const std::vector<std::string> special = default_special_tokens();
  text::BpeTrainer trainer(
      {.vocab_size = static_cast<int32_t>(training.vocab_size),
       .special_tokens = special,
       .digits = training.single_digits ? text::DigitGroups::kSingle : text::DigitGroups::kUpTo3});
  CorpusFeeder feeder(training, trainer);
  for (const std::string& path : training.files) {
    if (!feeder.cut) JIGE_DO(feeder.feed_file(path));
  }
  if (feeder.bytes == 0) {
    return fail(Code::kInvalidArgument, "{}: no text in {}; a tokenizer needs some",
                fmt::join(training.files, ", "), training.files.size() == 1 ? "it" : "them");
  }
  Progress progress("tokenizer", training.vocab_size, training.quiet);
  JIGE_TRY(const text::TrainedBpe trained, trainer.train([&](int32_t done, int32_t total) {
    progress.update(training.vocab_size * done / std::max(total, 1),
                    fmt::format("{} merges", done));
    return !interrupted();
  }));
  if (training.before_write) JIGE_DO(training.before_write());
  JIGE_DO(text::write_tokenizer_folder(
      trained, {.folder = training.folder,
                .bos_token = kBosToken,
                .eos_token = kEosToken,
                .add_bos = true,
                .chat_template = feeder.chat ? default_chat_template() : ""}));
  const auto vocab_size = static_cast<int64_t>(trained.tokens.size());
  progress.finish(fmt::format("{} tokens from {}", vocab_size, format_bytes(feeder.bytes)));
  return TokenizerTrained{vocab_size, feeder.bytes, feeder.chat, feeder.cut};
}

}  // namespace jige::cli
