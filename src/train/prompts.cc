#include "train/prompts.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "formats/xxhash64.h"
#include "train/document_encoder.h"
#include "train/option_flags.h"
#include "train/record_json.h"
#include "train/record_reader.h"

namespace jige::train {
namespace {

constexpr int64_t kLinesBetweenProgress = 256;

Result<std::string> read_answer(const Json& object, const PromptOptions& options,
                                const std::string& where) {
  const auto found = object.find("answer");
  const bool there = found != object.end() && !found->is_null();
  std::string answer;
  if (there && found->is_number()) {
    answer = dump_json(*found);
  } else if (there || options.rule) {
    JIGE_TRY(answer, get_string(object, "answer", where));
  }
  if (options.rule) JIGE_DO(check_known_answer(*options.rule, answer, where));
  return answer;
}

Result<Prompt> read_prompt(const DocumentEncoder& encoder, std::string line,
                           const PromptOptions& options, const std::string& where) {
  JIGE_TRY(const Json object, read_json_record(line, where));
  Prompt prompt{.record = std::move(line), .chat = object.contains("messages")};
  JIGE_TRY(prompt.ids, encoder.encode_prompt(object, where));
  JIGE_TRY(prompt.answer, read_answer(object, options, where));
  if (std::ssize(prompt.ids) <= options.tokens_max) return prompt;
  return fail(Code::kInvalidArgument,
              "{}: the prompt has {} tokens, and beside its answer ({}) there is room for {} in "
              "the context; shorten it, choose another {} or {}, or give {} to leave such lines "
              "out",
              where, prompt.ids.size(), flag_of("grpo.tokens_max"), options.tokens_max,
              flag_of("grpo.tokens_max"), flag_of("context"), flag_of("data.skip_bad"));
}

}  // namespace

int64_t PromptSet::byte_count() const {
  size_t bytes = prompts.capacity() * sizeof(Prompt);
  for (const Prompt& prompt : prompts) {
    bytes += prompt.ids.capacity() * sizeof(int32_t) + prompt.record.capacity() +
             prompt.answer.capacity();
  }
  return static_cast<int64_t>(bytes);
}

Status add_prompts(const std::string& path, const text::Tokenizer& tokenizer,
                   const PromptOptions& options, PromptSet& set) {
  JIGE_TRY(const SourceKind kind, source_kind(path));
  if (kind != SourceKind::kJsonl) {
    return fail(Code::kUnsupported,
                "{}: learning from rewards reads prompts from JSONL files (.jsonl): "
                "{{\"prompt\", \"answer\"}} or {{\"messages\", \"answer\"}} on each line",
                path);
  }
  JIGE_TRY(const DocumentEncoder encoder, DocumentEncoder::create(tokenizer, {}));
  JIGE_TRY(RecordReader reader, RecordReader::open(path, {.skip_bad = options.skip_bad}));
  std::error_code error;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path, error));
  const size_t before = set.prompts.size();
  formats::XxHash64 hash;
  Record record;
  for (int64_t count = 1;; ++count) {
    JIGE_TRY(const bool more, reader.next(record));
    if (!more) break;
    if (options.progress && count % kLinesBetweenProgress == 0 &&
        !options.progress(path, reader.bytes_read(), size)) {
      return fail(Code::kCancelled, "stopped while {} was read", path);
    }
    auto prompt = read_prompt(encoder, std::move(record.text), options,
                              fmt::format("{}:{}", path, record.line));
    if (!prompt && !options.skip_bad) return tl::unexpected(std::move(prompt.error()));
    if (!prompt) {
      ++set.skipped_count;
      continue;
    }
    hash.update(prompt->record.data(), prompt->record.size());
    hash.update(prompt->ids.data(), prompt->ids.size() * sizeof(int32_t));
    set.prompts.push_back(std::move(*prompt));
  }
  set.skipped_count += reader.skipped_count();
  set.keys.push_back(hash.digest());
  if (set.prompts.size() > before) return {};
  return fail(Code::kInvalidArgument, "{}: holds no prompt", path);
}

}  // namespace jige::train
