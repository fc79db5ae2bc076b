// The fields that completions and chat completions share: how text is drawn, where it ends, how it
// is sent.
//
// Precedence: request, then the folder's generation_config.json, then temperature 1 and no filter,
// as the OpenAI API has it.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/field_reader.h"
#include "api/refused_fields.h"
#include "api/served_model.h"
#include "serve/engine_request.h"

namespace jige::api {

struct GenerationFields {
  serve::EngineRequest engine;  // without a prompt
  bool stream = false;
  bool include_usage = false;  // a last frame with the usage
  bool logprobs = false;
};

// Reads them; what is wrong is noted in `fields`. tokens_max, logprobs and the prompt belong to the
// endpoints. Without a seed in the request, `seed` is taken.
GenerationFields read_generation_fields(FieldReader& fields, const ServedModel& model,
                                        const RequestLimits& limits, uint64_t seed);

// What the API calls a member that the engine refuses; empty where the message alone can tell.
std::string_view wire_field(serve::RequestField field, Endpoint endpoint);

// The adapter that "model" names, or the model itself, also where it is absent. Refuses, with 404,
// a name that is not served.
ChosenAdapter read_model_name(FieldReader& fields, const ServedModel& model);

}  // namespace jige::api
