#include "api/embedding_request.h"

#include <fmt/ranges.h>

#include <bit>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "api/generation_fields.h"
#include "api/token_lists.h"
#include "base/base64.h"
#include "base/rng.h"
#include "serve/context_hint.h"
#include "serve/embedding_text.h"

namespace jige::api {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kWordBytesMax = 1024;
constexpr size_t kPromptBytesMax = size_t{64} << 10;

// What is asked for, besides the inputs.
struct EmbeddingFields {
  bool base64 = false;
  bool truncate = false;
  int64_t dimensions = 0;
  bool names_prompt = false;
  std::string prompt;  // in front of every text
};

bool read_encoding(FieldReader& fields) {
  const auto format = fields.text("encoding_format", kWordBytesMax);
  if (!format || *format == "float" || *format == "base64") return format == "base64";
  fields.refuse(bad_field("encoding_format",
                          "encoding_format must be \"float\" or \"base64\", found {}",
                          shown_value(Json(*format))));
  return false;
}

void read_prompt(FieldReader& fields, const formats::EmbeddingConfig& config,
                 EmbeddingFields& read) {
  const auto name = fields.text("prompt_name", kWordBytesMax);
  const auto text = fields.text("prompt", kPromptBytesMax);
  read.names_prompt = name || text;
  if (name && text) {
    return fields.refuse(bad_field("prompt_name",
                                   "prompt_name and prompt both say what stands in front of the "
                                   "texts; give one of them"));
  }
  if (text) {
    read.prompt = *text;
    return;
  }
  const std::string& wanted = name ? *name : config.default_prompt;
  if (!name && wanted.empty()) return;
  if (const std::string* found = config.find_prompt(wanted)) {
    read.prompt = *found;
    return;
  }
  std::vector<std::string_view> known;
  for (const auto& prompt : config.prompts) known.push_back(prompt.first);
  fields.refuse(bad_field(
      "prompt_name", "prompt_name is {}; the model has {}; give the text itself as prompt",
      shown_value(Json(wanted)),
      known.empty() ? "no prompts" : fmt::format("the prompts {}", fmt::join(known, ", "))));
}

EmbeddingFields read_fields(FieldReader& fields, const ServedEmbedding& embedding) {
  EmbeddingFields read;
  read.base64 = read_encoding(fields);
  read.dimensions = fields.integer("dimensions", {1, embedding.width}).value_or(0);
  read.truncate = fields.boolean("truncate").value_or(false);
  read_prompt(fields, embedding.config, read);
  return read;
}

// The inputs, each a text or a list of ids.
ApiResult<std::vector<const Json*>> list_inputs(const FieldReader& fields, int64_t dimensions,
                                                const RequestLimits& limits) {
  const Json* input = fields.find("input");
  if (!input) return tl::unexpected(bad_field("input", "input is missing"));
  if (input->is_string() || is_id_list(*input)) return std::vector<const Json*>{input};
  if (!input->is_array()) {
    return tl::unexpected(bad_field("input",
                                    "input must be a text, a list of texts, a list of token ids or "
                                    "a list of such lists, found {}",
                                    shown_value(*input)));
  }
  const int64_t most =
      std::min<int64_t>(limits.embedding_inputs_max, limits.embedding_numbers_max / dimensions);
  if (input->empty() || std::ssize(*input) > most) {
    return tl::unexpected(bad_field(
        "input", "input must hold 1 to {} texts, with vectors of {} numbers, found {}; send {}",
        most, dimensions, input->size(), input->empty() ? "some" : "fewer at once"));
  }
  std::vector<const Json*> inputs;
  for (const Json& item : *input) inputs.push_back(&item);
  return inputs;
}

struct InputReader {
  const ServedModel& model;
  const EmbeddingFields& fields;
  const serve::EmbeddingText& texts;

  ApiResult<serve::EmbedInput> read(const Json& value, const std::string& where) const {
    Result<serve::EmbedInput> input = fail(Code::kInvalidArgument, "");
    if (value.is_string()) {
      input = texts.encode(value.get_ref<const std::string&>());
    } else if (is_id_list(value)) {
      if (fields.names_prompt) {
        return tl::unexpected(
            bad_field("input",
                      "{} is a list of token ids, and a prompt stands in front of "
                      "texts: put its ids in front, and leave out prompt_name and "
                      "prompt",
                      where));
      }
      auto ids = read_id_list(value, model.vocab_size, where);
      if (!ids) {
        ids.error().param = "input";
        return tl::unexpected(std::move(ids.error()));
      }
      input = texts.take(std::move(*ids));
    } else {
      return tl::unexpected(bad_field("input", "{} must be a text or a list of token ids, found {}",
                                      where, shown_value(value)));
    }
    if (input) return std::move(*input);
    return tl::unexpected(bad_field("input", "{}: {}", where, input.error().message));
  }
};

void write_vector(std::span<const float> vector, bool base64, std::string& out) {
  if (base64) {
    const std::string_view bytes(reinterpret_cast<const char*>(vector.data()), vector.size_bytes());
    out += '"';
    out += base64_text(bytes);
    out += '"';
    return;
  }
  char open = '[';
  for (const float value : vector) {
    out += std::exchange(open, ',');
    fmt::format_to(std::back_inserter(out), "{}", value);
  }
  out += ']';
}

std::string embeddings_body(const std::vector<std::vector<float>>& vectors, int64_t prompt_tokens,
                            std::string_view model_name, bool base64) {
  constexpr size_t kNumberBytes = 13;  // "-0.012345678,"
  std::string body = R"({"object":"list","data":[)";
  body.reserve(vectors.size() * (64 + vectors.front().size() * kNumberBytes));
  for (size_t i = 0; i < vectors.size(); ++i) {
    fmt::format_to(std::back_inserter(body), R"({}{{"object":"embedding","index":{},"embedding":)",
                   i > 0 ? "," : "", i);
    write_vector(vectors[i], base64, body);
    body += '}';
  }
  fmt::format_to(std::back_inserter(body),
                 R"(],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                 dump_json(Json(model_name)), prompt_tokens, prompt_tokens);
  return body;
}

}  // namespace

ApiResult<PreparedEmbeddings> prepare_embeddings(const Json& body, const ServedModel& model,
                                                 const RequestLimits& limits, uint64_t tenant) {
  const ServedEmbedding& embedding = *model.embedding;
  FieldReader fields(body);
  const ChosenAdapter adapter = read_model_name(fields, model);
  const EmbeddingFields read = read_fields(fields, embedding);
  const auto user = fields.text("user", kWordBytesMax);
  if (fields.error()) return tl::unexpected(*fields.error());
  const auto inputs =
      list_inputs(fields, read.dimensions > 0 ? read.dimensions : embedding.width, limits);
  if (!inputs) return tl::unexpected(inputs.error());
  const auto texts = serve::EmbeddingText::create(
      model.tokenizer, {.prompt = read.prompt,
                        .tokens_max = embedding.tokens_max,
                        .truncate = read.truncate,
                        .cuts_left = embedding.config.cuts_left,
                        .lowers = embedding.config.lowers,
                        .hint = ", or set truncate to true" + embedding.context_hint});
  if (!texts) return tl::unexpected(to_text_error(texts.error(), "prompt"));

  serve::EngineRequest one{.tokens_max = 0,
                           .tenant = tenant,
                           .adapter = adapter.number,
                           .lease = adapter.lease,
                           .vector = serve::WantedVector{.form = embedding.form}};
  if (embedding.by_user && user && !user->empty()) one.tenant = derive_key(0, *user);
  one.vector->form.dimensions = read.dimensions;
  PreparedEmbeddings prepared{.base64 = read.base64};
  const InputReader reader{model, read, *texts};
  for (size_t i = 0; i < inputs->size(); ++i) {
    const std::string where = inputs->size() == 1 ? "input" : fmt::format("input {}", i);
    auto input = reader.read(*(*inputs)[i], where);
    if (!input) return tl::unexpected(std::move(input.error()));
    const Status pooled =
        serve::check_pooled(embedding.form, std::ssize(input->tokens), input->prompt_count);
    if (!pooled) {
      return tl::unexpected(bad_field("input", "{}: {}", where, pooled.error().message));
    }
    serve::EngineRequest request = one;
    request.prompt = std::move(input->tokens);
    request.vector->prompt_count = input->prompt_count;
    prepared.engine.push_back(std::move(request));
  }
  return prepared;
}

ApiResult<VectorWork> embedding_work(const Json& body, const ServedModel& model,
                                     const RequestLimits& limits, uint64_t tenant) {
  auto prepared = prepare_embeddings(body, model, limits, tenant);
  if (!prepared) return tl::unexpected(std::move(prepared.error()));
  std::string name = model.name_of(prepared->engine.front().adapter);
  return VectorWork{.engine = std::move(prepared->engine),
                    .field = "input",
                    .noun = "input",
                    .write = [name = std::move(name), base64 = prepared->base64](
                                 const std::vector<std::vector<float>>& vectors,
                                 int64_t prompt_tokens, std::string_view) {
                      return embeddings_body(vectors, prompt_tokens, name, base64);
                    }};
}

}  // namespace jige::api
