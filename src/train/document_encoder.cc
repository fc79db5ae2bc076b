#include "train/document_encoder.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "text/chat_encode.h"
#include "train/option_flags.h"
#include "train/preference_encoder.h"
#include "train/record_json.h"

namespace jige::train {
namespace {

constexpr text::EncodeOptions kPlain = {.add_special = false, .allow_special = false};

// Beside what a template could not do: the first message without a content.
std::string silent_message(const Json& messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    if (find_field(messages[i], "content")) continue;
    return fmt::format(": messages[{}] has calls of tools and no \"content\"", i);
  }
  return "";
}

text::ChatOptions chat_options(const Json& object) {
  // A fixed time: the same file gives the same tokens on every day.
  text::ChatOptions options{.now_s = 0};
  if (const auto tools = object.find("tools"); tools != object.end() && !tools->is_null()) {
    options.tools = &*tools;
  }
  return options;
}

}  // namespace

DocumentEncoder::DocumentEncoder(text::Tokenizer tokenizer, std::optional<text::ChatTemplate> chat,
                                 EncoderOptions options)
    : tokenizer_(std::move(tokenizer)), chat_(std::move(chat)), options_(std::move(options)) {}

Result<DocumentEncoder> DocumentEncoder::create(const text::Tokenizer& tokenizer,
                                                const EncoderOptions& options) {
  std::optional<text::ChatTemplate> chat;
  if (!tokenizer.chat_template().empty()) {
    JIGE_TRY(chat, text::ChatTemplate::parse(tokenizer.chat_template(), "chat template"));
  }
  return DocumentEncoder(tokenizer, std::move(chat), options);
}

Result<EncodedPart> DocumentEncoder::encode(const Record& record, const std::string& file) const {
  const std::string where = fmt::format("{}:{}", file, record.line);
  if (record.json) {
    return encode_json(record, where, std::filesystem::path(file).parent_path().string());
  }
  auto part = encode_text(record);
  if (!part) return with_context(std::move(part.error()), "{}", where);
  return part;
}

Result<EncodedPart> DocumentEncoder::encode_text(const Record& record) const {
  EncodedPart part{.begins = record.begins, .ends = record.ends};
  const auto prefix = tokenizer_.prefix_ids();
  if (record.begins) part.ids.assign(prefix.begin(), prefix.end());
  text::EncodeOptions options = kPlain;
  options.continues = !record.begins;
  JIGE_TRY(const std::vector<int32_t> ids, tokenizer_.encode(record.text, options));
  part.ids.insert(part.ids.end(), ids.begin(), ids.end());
  if (record.ends && options_.append_eos && tokenizer_.eos_id() >= 0) {
    part.ids.push_back(tokenizer_.eos_id());
  }
  return part;
}

Result<EncodedPart> DocumentEncoder::encode_json(const Record& record, const std::string& where,
                                                 const std::string& folder) const {
  JIGE_TRY(const Json object, read_json_record(record.text, where));
  if (options_.pair_context > 0) {
    JIGE_DO(check_no_images(object, image_refusal(), where));
    return encode_pair(*this, object, options_.pair_context, where);
  }
  return encode_object(object, where, folder);
}

Result<EncodedPart> DocumentEncoder::encode_object(const Json& object, const std::string& where,
                                                   const std::string& folder) const {
  if (object.contains("chosen") && object.contains("rejected")) {
    return fail(Code::kInvalidArgument,
                "{}: is a pair of answers, \"chosen\" and \"rejected\"; add {} to learn from pairs",
                where, flag_of("dpo"));
  }
  const bool has_text = object.contains(options_.text_field);
  const bool asked_for = options_.text_field != EncoderOptions().text_field;
  if (!has_text || !asked_for) {
    if (object.contains("messages")) return encode_messages(object, where, folder);
    if (object.contains("prompt") || object.contains("completion")) {
      return encode_completion(object, where);
    }
  }
  if (!has_text) return no_known_field(object, options_.text_field, where);
  if (options_.images && !asked_for) JIGE_DO(check_no_images(object, "", where));
  JIGE_TRY(std::string text, get_string(object, options_.text_field, where));
  return encode_text(Record{.text = std::move(text)});
}

Status DocumentEncoder::check_chat(const std::string& where) const {
  if (chat_) return {};
  return fail(Code::kInvalidArgument,
              "{}: has \"messages\", but the tokenizer has no chat template; put a "
              "chat_template.jinja into its folder",
              where);
}

Result<std::vector<int32_t>> DocumentEncoder::encode_prompt(const Json& object,
                                                            const std::string& where) const {
  const auto named = [&](auto ids) -> Result<std::vector<int32_t>> {
    if (ids && ids->empty()) return fail(Code::kInvalidArgument, "{}: the prompt is empty", where);
    return ids ? std::move(ids) : with_context(std::move(ids.error()), "{}", where);
  };
  if (!object.contains("messages")) {
    JIGE_TRY(const std::string prompt, get_string(object, "prompt", where));
    JIGE_DO(check_no_images(object, image_refusal(), where));
    return named(encode_beginning(prompt));
  }
  JIGE_TRY(const ImageMessages read, read_image_messages(object, image_refusal(), where));
  const Json& messages = read.messages;
  JIGE_DO(check_chat(where));
  if (!read.sources.empty()) {
    return fail(Code::kUnsupported, "{}: {} is an image; answers are not drawn to those yet", where,
                read.places.front());
  }
  if (messages.back().at("role") == "assistant") {
    return fail(Code::kInvalidArgument,
                "{}: field \"messages\" ends with an answer; it must end with what is to be "
                "answered",
                where);
  }
  text::ChatOptions options = chat_options(object);
  options.add_generation_prompt = true;
  return named(text::encode_chat(tokenizer_, *chat_, messages, options));
}

Result<std::vector<int32_t>> DocumentEncoder::encode_beginning(const std::string& prompt) const {
  const auto prefix = tokenizer_.prefix_ids();
  std::vector<int32_t> ids(prefix.begin(), prefix.end());
  JIGE_TRY(const std::vector<int32_t> prompt_ids, tokenizer_.encode(prompt, kPlain));
  ids.insert(ids.end(), prompt_ids.begin(), prompt_ids.end());
  return ids;
}

Result<EncodedPart> DocumentEncoder::encode_messages(const Json& object, const std::string& where,
                                                     const std::string& folder) const {
  JIGE_TRY(const ImageMessages read, read_image_messages(object, image_refusal(), where));
  JIGE_DO(check_chat(where));
  text::ChatOptions options = chat_options(object);
  if (options_.images) options.image = options_.images->config.written;
  auto chat = text::encode_chat_answers(tokenizer_, *chat_, read.messages, options);
  if (!chat) {
    return with_context(std::move(chat.error()), "{}{}", where, silent_message(read.messages));
  }
  EncodedPart part{.ids = std::move(chat->ids), .learned = std::move(chat->answer)};
  if (!options_.images) return part;
  JIGE_TRY(part.images, read_images(read, folder, where));
  JIGE_DO(place_images(*options_.images, part.images, part.ids, part.learned, where));
  return part;
}

Result<EncodedPart> DocumentEncoder::encode_completion(const Json& object,
                                                       const std::string& where) const {
  for (const char* field : {"prompt", "completion"}) {
    if (find_field(object, field)) continue;
    return fail(Code::kNotFound,
                "{}: field \"{}\" is {}; the record has {}, and a prompt is learned from with its "
                "completion",
                where, field, object.contains(field) ? "null" : "missing", fields_text(object));
  }
  JIGE_TRY(const std::string prompt, get_string(object, "prompt", where));
  JIGE_TRY(const std::string completion, get_string(object, "completion", where));
  JIGE_DO(check_no_images(object, image_refusal(), where));
  EncodedPart part;
  JIGE_TRY(part.ids, encode_beginning(prompt));
  part.learned.assign(part.ids.size(), 0);
  text::EncodeOptions behind = kPlain;
  behind.continues = !prompt.empty();
  JIGE_TRY(const std::vector<int32_t> completion_ids, tokenizer_.encode(completion, behind));
  part.ids.insert(part.ids.end(), completion_ids.begin(), completion_ids.end());
  if (options_.append_eos && tokenizer_.eos_id() >= 0) part.ids.push_back(tokenizer_.eos_id());
  part.learned.resize(part.ids.size(), 1);
  return part;
}

}  // namespace jige::train
