// POST /v1/completions: from the body to requests for the engine.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "api/generation_fields.h"
#include "api/image_reader.h"
#include "api/prompt_fields.h"
#include "api/tool_fields.h"

namespace jige::api {

// A request of any endpoint, read and tokenised: one engine request for every prompt, each with
// `choice_count` answers. Choice c of prompt p has the index p * choice_count + c.
struct PreparedRequest {
  std::vector<serve::EngineRequest> engine;
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
  PromptWishes prompt;
  std::vector<std::optional<std::string>> prompt_texts;  // of prompts that are echoed
  ToolRequest tools;
  // For the prompt of a chat, which has a placeholder for each until they are read.
  std::vector<ImageFile> images;
  int64_t prompt_tokens = 0;      // of the first prompt, images included
  bool include_reasoning = true;  // where engine requests say that there may be some
  Json echo;                      // for AnswerHead
  int32_t choice_count() const { return engine.front().choice_count; }
};

// Fails with 400 and the name of the field, or 404 where another model is asked for.
ApiResult<PreparedRequest> prepare_completion(const Json& body, const ServedModel& model,
                                              const RequestLimits& limits, uint64_t seed);

// The body of a request as a JSON object. Fails with 400.
ApiResult<Json> parse_body(std::string_view body);

// 400 unless the context has room for the prompt and one token.
std::optional<ApiError> check_prompt_length(size_t token_count, const ServedModel& model,
                                            std::string_view param);

}  // namespace jige::api
