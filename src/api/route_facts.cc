#include "api/route_facts.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "api/field_reader.h"
#include "base/rng.h"

namespace jige::api {
namespace {

constexpr int64_t kTokensMax = int64_t{1} << 40;
constexpr int64_t kCompletionTokens = 16;  // of a completion that names none
constexpr int64_t kSequencesMax = 4096;

// Takes the bytes of a prompt and puts down a hash behind every block.
class BlockHasher {
 public:
  explicit BlockHasher(uint64_t seed) : hash_(seed) {}

  void add(std::string_view bytes) {
    byte_count_ += bytes.size();
    while (!bytes.empty() && prefix.size() < RouteFacts::kBlocksMax) {
      const std::string_view part = bytes.substr(0, RouteFacts::kBlockBytes - block_.size());
      block_ += part;
      bytes.remove_prefix(part.size());
      if (block_.size() < RouteFacts::kBlockBytes) return;
      hash_ = derive_key(hash_, block_);
      prefix.push_back(hash_);
      block_.clear();
    }
  }
  void add_id(int64_t id) {
    char bytes[RouteFacts::kBytesPerToken];
    const auto low = static_cast<uint32_t>(id);
    std::memcpy(bytes, &low, sizeof bytes);
    add({bytes, sizeof bytes});
  }
  // Of a file that the model reads as tokens, however long it is: bytes that only it has.
  void add_image(std::string_view file) {
    const uint64_t key = derive_key(0, file);
    char bytes[sizeof key];
    std::memcpy(bytes, &key, sizeof key);
    for (size_t i = 0; i < RouteFacts::kImageTokens * RouteFacts::kBytesPerToken; i += sizeof key) {
      add({bytes, sizeof bytes});
    }
  }
  int64_t token_count() const {
    return static_cast<int64_t>(byte_count_ / RouteFacts::kBytesPerToken) + 1;
  }

  std::vector<uint64_t> prefix;

 private:
  uint64_t hash_;
  std::string block_;
  size_t byte_count_ = 0;
};

// Whether an object has an image as the messages of the Anthropic API do.
bool is_coded_source(const Json& object) {
  const auto type = object.find("type");
  return type != object.end() && *type == "base64";
}

// Everything in a value, member by member. Marks that clients move from turn to turn to say what is
// to be cached are no part of the prompt.
void add_value(BlockHasher& hasher, const Json& value) {
  if (value.is_object()) {
    hasher.add("{");
    const bool is_coded = is_coded_source(value);
    for (const auto& [name, member] : value.items()) {
      if (name == "cache_control") continue;
      hasher.add(name);
      if (is_coded && name == "data" && member.is_string()) {
        hasher.add_image(member.get_ref<const std::string&>());
      } else {
        add_value(hasher, member);
      }
    }
  } else if (value.is_array()) {
    hasher.add("[");
    for (const Json& element : value) add_value(hasher, element);
  } else if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    hasher.add("\"");
    if (text.starts_with("data:image/")) return hasher.add_image(text);
    hasher.add(text);
  } else if (value.is_number_integer()) {
    hasher.add_id(value.get<int64_t>());
  } else {
    hasher.add(value.dump());
  }
}

std::string text_of(const Json& body, std::string_view name) {
  const Json* value = find_field(body, name);
  return value && value->is_string() ? value->get<std::string>() : std::string();
}

int64_t count_of(const Json& body, std::initializer_list<std::string_view> names,
                 int64_t otherwise) {
  for (const std::string_view name : names) {
    const Json* value = find_field(body, name);
    const auto count = value ? as_integer(*value) : std::nullopt;
    if (count && *count >= 0) return std::min(*count, kTokensMax);
  }
  return otherwise;
}

// One, or those of a list of texts, of lists of ids or of documents.
int64_t prompt_count(const Json* prompt) {
  const bool several = prompt && prompt->is_array() && !prompt->empty() &&
                       (prompt->front().is_string() || prompt->front().is_structured());
  return several ? static_cast<int64_t>(prompt->size()) : 1;
}

// What a path's prompt is made of, in the order in which templates render it; and where its length
// stands.
struct PromptForm {
  std::string_view path;
  std::vector<std::string_view> parts;
  std::vector<std::string_view> limits;
};

const PromptForm* find_form(std::string_view path) {
  static const PromptForm kForms[] = {
      {"/v1/completions", {"prompt"}, {"max_tokens"}},
      {"/v1/chat/completions", {"tools", "messages"}, {"max_completion_tokens", "max_tokens"}},
      {"/v1/responses", {"tools", "instructions", "input"}, {"max_output_tokens"}},
      {"/v1/messages", {"tools", "system", "messages"}, {"max_tokens"}},
      {"/v1/embeddings", {"input"}, {}},
      {"/v1/rerank", {"documents", "query"}, {}},
      {"/v2/rerank", {"documents", "query"}, {}},
  };
  const auto* found = std::ranges::find(kForms, path, &PromptForm::path);
  return found == std::end(kForms) ? nullptr : found;
}

}  // namespace

RouteFacts route_facts(std::string_view path, const Json& body) {
  RouteFacts facts;
  facts.model = text_of(body, "model");
  const PromptForm* form = find_form(path);
  if (!form) {  // what is done in no time
    facts.answer_tokens_max = 0;
    return facts;
  }
  const bool is_text = path == "/v1/completions";
  BlockHasher hasher(
      derive_key(derive_key(is_text ? 1 : 2, facts.model), text_of(body, "cache_salt")));
  for (const std::string_view part : form->parts) {
    if (const Json* value = find_field(body, part)) add_value(hasher, *value);
  }
  facts.prompt_tokens = hasher.token_count();
  const bool may_be_list = is_text || form->limits.empty();
  const int64_t prompts = may_be_list ? prompt_count(find_field(body, form->parts.front())) : 1;
  facts.sequences = std::min(prompts, kSequencesMax);
  if (form->limits.empty()) {  // vectors: there is no answer, and texts are seldom asked for twice
    facts.answer_tokens_max = 0;
    return facts;
  }
  const Json* stream = find_field(body, "stream");
  facts.stream = stream && stream->is_boolean() && stream->get<bool>();
  facts.prefix = std::move(hasher.prefix);
  for (const std::string_view limit : form->limits) {
    if (facts.answer_tokens_max < 0) facts.answer_tokens_max = count_of(body, {limit}, -1);
  }
  if (is_text && facts.answer_tokens_max < 0) facts.answer_tokens_max = kCompletionTokens;
  const int64_t choices = std::max<int64_t>(count_of(body, {"n"}, 1), 1);
  facts.sequences *= std::min(choices, kSequencesMax);
  if (facts.answer_tokens_max > 0) {
    facts.answer_tokens_max = std::min(facts.answer_tokens_max, kTokensMax / choices) * choices;
  }
  return facts;
}

}  // namespace jige::api
