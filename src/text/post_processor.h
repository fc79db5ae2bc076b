// The "post_processor" of a tokenizer.json: ids that go before and after those of a text.
//
// Known: TemplateProcessing (its form for one text), ByteLevel (changes no ids), BertProcessing,
// RobertaProcessing, Sequence.
// Threads: values.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace jige::text {

struct PostProcessor {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
  // Whether the file says what is added, be it nothing; a ByteLevel does not.
  bool decides = false;

  // `component` may be null: nothing is added. Fails with kUnsupported naming an unknown type, and
  // on a template that holds the text less or more often than once.
  static Result<PostProcessor> from_json(const Json* component, std::string_view where);
};

}  // namespace jige::text
