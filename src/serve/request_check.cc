#include "serve/request_check.h"

#include <algorithm>
#include <utility>

#include "ops/attention.h"
#include "serve/context_hint.h"

namespace jige::serve {
namespace {

Status in_range(std::string_view name, int64_t value, int64_t low, int64_t high) {
  if (low <= value && value <= high) return {};
  return fail(Code::kInvalidArgument, "{} is {}; it must be in {}..{}", name, value, low, high);
}

// Whether what is wanted is what the model gives.
Status check_kind(const EngineRequest& request, const RequestBounds& bounds) {
  if (!request.vector && !bounds.embeds) return {};
  if (!request.vector) {
    return fail(Code::kInvalidArgument,
                "the model was loaded for embeddings and gives no answers; ask for a vector");
  }
  if (!bounds.embeds) {
    return fail(Code::kInvalidArgument,
                "the model was not loaded for embeddings and gives no vectors; ask for an answer");
  }
  if (request.tokens_max != 0 || request.choice_count != 1 || request.prompt_top_count) {
    return fail(Code::kInvalidArgument,
                "a vector comes without an answer: ask for 0 tokens, in 1 choice, and no scores");
  }
  return in_range("the number of dimensions", request.vector->form.dimensions, 0,
                  request.vector->form.width(bounds.width));
}

Status check_vector(const EngineRequest& request, const RequestBounds& bounds) {
  if (!request.vector) return {};
  if (request.vector->second_begin < std::ssize(request.prompt) && bounds.token_types < 2) {
    return fail(Code::kInvalidArgument, "tokens of the second type, and the model has {} type(s)",
                bounds.token_types);
  }
  return check_pooled(request.vector->form, std::ssize(request.prompt),
                      request.vector->prompt_count);
}

Status check_prompt(const EngineRequest& request, const RequestBounds& bounds) {
  const int64_t count = std::ssize(request.prompt);
  if (count == 0) {
    return fail(Code::kInvalidArgument, "the prompt is empty; give at least one token");
  }
  if (count + (request.vector ? 0 : 1) > bounds.context_max) {
    return fail(Code::kInvalidArgument,
                "the prompt has {} tokens and the context holds {}; shorten the prompt{}", count,
                bounds.context_max, context_hint(bounds.context_max, bounds.model_context_max));
  }
  const GivenTable given(request.given, request.prompt);
  for (const int32_t token : request.prompt) {
    if (given.has(token)) continue;
    JIGE_DO(in_range("a token id of the prompt", token, 0, bounds.vocab_size - 1));
  }
  return {};
}

Status check_given(const EngineRequest& request, const RequestBounds& bounds) {
  if (request.given.empty()) return {};
  if (!bounds.takes_rows) {
    return fail(Code::kInvalidArgument, "the model takes tokens alone, and no rows in their place");
  }
  if (request.vector || request.prompt_top_count) {
    return fail(Code::kInvalidArgument,
                "a prompt with rows in place of tokens has no {}; ask for an answer alone",
                request.vector ? "vector" : "scores");
  }
  const GivenTable given(request.given, request.prompt);
  if (given.any_mutual() && !bounds.takes_mutual_rows) {
    return fail(Code::kInvalidArgument, "the model takes no rows that see one another");
  }
  JIGE_DO(given.check({.vocab_size = bounds.vocab_size,
                       .width = bounds.width,
                       .turns_by_places = bounds.turns_by_places,
                       .layer_count = bounds.layer_count}));
  return given.check_mutual(request.prompt, bounds.forward_rows_max);
}

Status check_choices(const EngineRequest& request, const RequestBounds& bounds) {
  return in_range("the number of choices", request.choice_count, 1, bounds.choices_max);
}

Status check_alternatives(const EngineRequest& request, const RequestBounds& bounds) {
  return in_range("the number of alternatives", request.top_count, 0, bounds.vocab_size);
}

Status check_prompt_alternatives(const EngineRequest& request, const RequestBounds& bounds) {
  return in_range("the number of alternatives for the prompt", request.prompt_top_count.value_or(0),
                  0, bounds.vocab_size);
}

// No token at all is what only those ask for who want to know about the prompt, or its vector.
bool prompt_alone(const EngineRequest& request) {
  return request.tokens_max == 0 && (request.prompt_top_count || request.vector);
}

Status check_tokens_max(const EngineRequest& request, const RequestBounds&) {
  if (prompt_alone(request)) return {};
  return validate(AnswerOptions{.tokens_max = request.tokens_max});
}

Status check_tokens_min(const EngineRequest& request, const RequestBounds&) {
  if (prompt_alone(request)) {
    return in_range("the least number of tokens to generate", request.tokens_min, 0, 0);
  }
  return validate(
      AnswerOptions{.tokens_max = request.tokens_max, .tokens_min = request.tokens_min});
}

Status check_sampling(const EngineRequest& request, const RequestBounds&) {
  return ops::validate(request.sampling);
}

Status check_bias(const EngineRequest& request, const RequestBounds& bounds) {
  for (const auto& [token, bias] : request.sampling.logit_bias) {
    JIGE_DO(in_range("a token id of logit_bias", token, 0, bounds.vocab_size - 1));
  }
  return {};
}

Status check_adapter(const EngineRequest& request, const RequestBounds& bounds) {
  if (bounds.adapter_known) return {};
  return fail(Code::kInvalidArgument, "the adapter is {}; no such number is loaded",
              request.adapter);
}

Status check_states(const EngineRequest& request, const RequestBounds& bounds) {
  if (bounds.state_count == 0 || request.choice_count <= bounds.state_count) return {};
  return fail(Code::kInvalidArgument,
              "{} choices need a recurrent state each and the server has {}; ask for fewer choices",
              request.choice_count, bounds.state_count);
}

// The cache holds a whole context, so only several choices can be too much for it.
Status check_room(const EngineRequest& request, const RequestBounds& bounds) {
  if (request.vector) return {};
  const int64_t prompt_count = std::ssize(request.prompt);
  const int64_t tokens =
      prompt_count + std::clamp<int64_t>(request.tokens_max, 1, bounds.context_max - prompt_count);
  const int64_t blocks =
      (tokens + ops::kKvBlockTokens - 1) / ops::kKvBlockTokens * request.choice_count;
  if (blocks <= bounds.kv_block_count) return {};
  return fail(Code::kInvalidArgument,
              "{} choices of {} tokens each need {} key/value blocks and the server has {}; ask "
              "for fewer choices or tokens",
              request.choice_count, tokens, blocks, bounds.kv_block_count);
}

struct Check {
  RequestField field;
  Status (*check)(const EngineRequest& request, const RequestBounds& bounds);
};

// In this order: later ones rely on what earlier ones have found in order.
constexpr Check kChecks[] = {
    {RequestField::kVector, check_kind},
    {RequestField::kPrompt, check_given},
    {RequestField::kPrompt, check_prompt},
    {RequestField::kPrompt, check_vector},
    {RequestField::kChoiceCount, check_choices},
    {RequestField::kTopCount, check_alternatives},
    {RequestField::kPromptTopCount, check_prompt_alternatives},
    {RequestField::kTokensMax, check_tokens_max},
    {RequestField::kTokensMin, check_tokens_min},
    {RequestField::kSampling, check_sampling},
    {RequestField::kLogitBias, check_bias},
    {RequestField::kAdapter, check_adapter},
    {RequestField::kChoiceCount, check_states},
    {RequestField::kChoiceCount, check_room},
};

}  // namespace

std::optional<Refusal> check_request(const EngineRequest& request, const RequestBounds& bounds) {
  for (const auto& [field, check] : kChecks) {
    if (Status status = check(request, bounds); !status) {
      return Refusal{std::move(status.error()), field};
    }
  }
  return std::nullopt;
}

}  // namespace jige::serve
