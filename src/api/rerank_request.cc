#include "api/rerank_request.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/generation_fields.h"
#include "base/rng.h"
#include "serve/pair_text.h"

namespace jige::api {
namespace {

constexpr size_t kRerankTextBytesMax = size_t{4} << 20;  // of query and instruction
constexpr size_t kUserBytesMax = 1024;

// What is asked for, besides the documents.
struct RerankFields {
  std::string query;
  std::string instruction;
  int64_t results_max = INT64_MAX;
  bool returns_documents = false;
  bool raw = false;        // logits, not scores
  int64_t tokens_max = 0;  // of a pair; 0: what the model holds, and longer ones are refused
  std::optional<std::string> user;
};

// How many tokens longer pairs are cut to, as vLLM calls it; -1: to what the model holds.
int64_t read_truncation(FieldReader& fields, const ServedPairs& pairs) {
  const auto asked = fields.integer("truncate_prompt_tokens", {-1, pairs.tokens_max});
  if (!asked) return 0;
  if (*asked == 0) {
    fields.refuse(bad_field("truncate_prompt_tokens",
                            "truncate_prompt_tokens must be -1 or 1 to {}, found 0",
                            pairs.tokens_max));
  }
  return *asked == -1 ? pairs.tokens_max : *asked;
}

RerankFields read_rerank_fields(FieldReader& fields, const ServedPairs& pairs) {
  RerankFields read;
  read.query = fields.text("query", kRerankTextBytesMax).value_or("");
  if (read.query.empty()) {
    fields.refuse(bad_field("query", "query must be a text that says what is looked for"));
  }
  read.instruction = fields.text("instruction", kRerankTextBytesMax).value_or("");
  read.results_max = fields.integer("top_n", {.min = 1}).value_or(INT64_MAX);
  read.returns_documents = fields.boolean("return_documents").value_or(false);
  read.raw = !fields.boolean("use_activation").value_or(true);
  read.tokens_max = read_truncation(fields, pairs);
  read.user = fields.text("user", kUserBytesMax);
  for (const char* field : {"max_tokens_per_doc", "max_chunks_per_doc"}) {
    if (!fields.find(field)) continue;
    fields.refuse(bad_field(field,
                            "{} is not supported: documents are judged whole, or cut as "
                            "truncate_prompt_tokens says",
                            field));
  }
  return read;
}

ApiResult<std::vector<std::string>> read_documents(const FieldReader& fields,
                                                   const RequestLimits& limits) {
  const Json* list = fields.find("documents");
  if (!list || !list->is_array() || list->empty() ||
      std::ssize(*list) > limits.embedding_inputs_max) {
    return tl::unexpected(bad_field(
        "documents", "documents must be a list of 1 to {} texts or objects {{\"text\": …}}, {}",
        limits.embedding_inputs_max,
        !list              ? "and is missing"
        : list->is_array() ? fmt::format("found {}", list->size())
                           : "found " + shown_value(*list)));
  }
  std::vector<std::string> documents;
  for (const Json& one : *list) {
    const Json* text = one.is_object() ? find_field(one, "text") : &one;
    if (!text || !text->is_string()) {
      return tl::unexpected(bad_field("documents",
                                      "document {} must be a text or {{\"text\": …}}, found {}",
                                      documents.size(), shown_value(one)));
    }
    documents.push_back(text->get<std::string>());
  }
  return documents;
}

// What an answer is made of, besides the logits.
struct RerankAnswer {
  formats::PairConfig config;
  std::string model_name;
  int64_t results_max = 0;
  bool raw = false;
  std::vector<std::string> documents;  // to be repeated; or empty

  std::string body(const std::vector<std::vector<float>>& logits, int64_t prompt_tokens,
                   std::string_view id) const {
    std::vector<size_t> order(logits.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::ranges::greater(), [&](size_t i) { return logits[i][0]; });
    order.resize(static_cast<size_t>(std::min(results_max, std::ssize(order))));
    std::string body;
    fmt::format_to(std::back_inserter(body),
                   R"({{"id":{},"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}},)"
                   R"("results":[)",
                   dump_json(Json(id)), dump_json(Json(model_name)), prompt_tokens, prompt_tokens);
    for (const size_t i : order) {
      const float logit = logits[i][0];
      const float score = raw ? logit : static_cast<float>(formats::pair_score(config, logit));
      fmt::format_to(std::back_inserter(body), R"({}{{"index":{},"relevance_score":{})",
                     i == order.front() ? "" : ",", i, score);
      if (!documents.empty()) {
        body += R"(,"document":)" + dump_json(Json{{"text", documents[i]}});
      }
      body += '}';
    }
    return body + "]}";
  }
};

}  // namespace

ApiResult<VectorWork> rerank_work(const Json& body, const ServedModel& model,
                                  const RequestLimits& limits, uint64_t tenant) {
  const ServedPairs& pairs = *model.pairs;
  FieldReader fields(body);
  const ChosenAdapter adapter = read_model_name(fields, model);
  const RerankFields read = read_rerank_fields(fields, pairs);
  if (fields.error()) return tl::unexpected(*fields.error());
  auto documents = read_documents(fields, limits);
  if (!documents) return tl::unexpected(std::move(documents.error()));
  const auto texts = serve::PairText::create(
      model.tokenizer, pairs.config,
      {.query = read.query,
       .instruction = read.instruction,
       .tokens_max = read.tokens_max > 0 ? read.tokens_max : pairs.tokens_max,
       .truncate = read.tokens_max > 0,
       .hint = ", or set truncate_prompt_tokens to -1" + pairs.context_hint});
  if (!texts) {
    return tl::unexpected(
        to_text_error(texts.error(), read.instruction.empty() ? "query" : "instruction"));
  }
  serve::EngineRequest one{.tokens_max = 0,
                           .tenant = tenant,
                           .adapter = adapter.number,
                           .lease = adapter.lease,
                           .vector = serve::WantedVector{.form = serve::pair_form(pairs.config)}};
  if (pairs.by_user && read.user && !read.user->empty()) one.tenant = derive_key(0, *read.user);
  VectorWork work{.field = "documents", .noun = "document"};
  for (size_t i = 0; i < documents->size(); ++i) {
    auto input = texts->encode((*documents)[i]);
    if (!input) {
      return tl::unexpected(bad_field("documents", "document {}: {}", i, input.error().message));
    }
    serve::EngineRequest request = one;
    request.prompt = std::move(input->tokens);
    request.vector->second_begin = input->second_begin;
    work.engine.push_back(std::move(request));
  }
  if (!read.returns_documents) documents->clear();
  work.write = [answer = RerankAnswer{.config = pairs.config,
                                      .model_name = model.name_of(adapter.number),
                                      .results_max = read.results_max,
                                      .raw = read.raw,
                                      .documents = std::move(*documents)}](
                   const std::vector<std::vector<float>>& logits, int64_t prompt_tokens,
                   std::string_view id) { return answer.body(logits, prompt_tokens, id); };
  return work;
}

}  // namespace jige::api
