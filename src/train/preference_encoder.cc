#include "train/preference_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "train/option_flags.h"

namespace jige::train {
namespace {

constexpr std::string_view kForms =
    "a pair is {\"prompt\": TEXT, \"chosen\": TEXT, \"rejected\": TEXT}, or has lists of messages "
    "for texts";

// The two answers and what stands before them.
struct PairFields {
  const Json* prompt = nullptr;  // none: the answers are whole conversations
  const Json* answers[2] = {};
  bool chat = false;
};
constexpr const char* kAnswers[2] = {"chosen", "rejected"};

const Json* find_field(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

bool is_blank(const Json& value) {
  if (value.is_array()) return value.empty();
  return value.is_string() &&
         value.get_ref<const std::string&>().find_first_not_of(" \t\r\n") == std::string::npos;
}

Result<PairFields> read_fields(const Json& object, const std::string& where) {
  PairFields fields{.prompt = find_field(object, "prompt")};
  for (size_t i = 0; i < 2; ++i) {
    const Json* answer = find_field(object, kAnswers[i]);
    if (answer == nullptr) {
      return fail(Code::kInvalidArgument, "{}: field \"{}\" is missing; {}", where, kAnswers[i],
                  kForms);
    }
    if (!answer->is_string() && !answer->is_array()) {
      return fail(Code::kInvalidArgument, "{}: field \"{}\" is neither a text nor a list; {}",
                  where, kAnswers[i], kForms);
    }
    if (is_blank(*answer)) {
      return fail(Code::kInvalidArgument, "{}: field \"{}\" is empty; give an answer", where,
                  kAnswers[i]);
    }
    fields.answers[i] = answer;
  }
  fields.chat = fields.answers[0]->is_array();
  if (fields.chat != fields.answers[1]->is_array()) {
    return fail(Code::kInvalidArgument,
                "{}: one of \"chosen\" and \"rejected\" is a text and the other a list; {}", where,
                kForms);
  }
  if (fields.prompt == nullptr && !fields.chat) {
    return fail(Code::kInvalidArgument, "{}: field \"prompt\" is missing; {}", where, kForms);
  }
  if (fields.prompt == nullptr) return fields;
  if (fields.chat ? fields.prompt->is_array() : fields.prompt->is_string()) return fields;
  return fail(Code::kInvalidArgument, "{}: field \"prompt\" must be a {}, as \"chosen\" is{}",
              where, fields.chat ? "list of messages" : "text",
              fields.chat ? "; leave it out where \"chosen\" is the whole conversation" : "");
}

// The document of one answer.
Result<EncodedPart> encode_answer(const DocumentEncoder& encoder, const Json& object,
                                  const PairFields& fields, size_t which,
                                  const std::string& where) {
  const std::string place = fmt::format("{}: field \"{}\"", where, kAnswers[which]);
  const Json& answer = *fields.answers[which];
  if (!fields.chat) {
    return encoder.encode_object({{"prompt", *fields.prompt}, {"completion", answer}}, place);
  }
  Json conversation = {{"messages", fields.prompt != nullptr ? *fields.prompt : Json::array()}};
  conversation["messages"].insert(conversation["messages"].end(), answer.begin(), answer.end());
  if (const Json* tools = find_field(object, "tools")) conversation["tools"] = *tools;
  return encoder.encode_object(conversation, place);
}

// Leaves out answers that end before token `first`, where the other document begins to differ.
void forget_shared(EncodedPart& part, size_t first) {
  const auto size = part.learned.size();
  if (size > 0) first = std::min(first, size - 1);
  size_t begin = 0;
  while (begin < size) {
    size_t end = begin;
    while (end < size && part.learned[end] == part.learned[begin]) ++end;
    if (part.learned[begin] != 0 && end > first) return;
    std::fill(part.learned.begin() + static_cast<std::ptrdiff_t>(begin),
              part.learned.begin() + static_cast<std::ptrdiff_t>(end), uint8_t{0});
    begin = end;
  }
}

Status check_answer(const EncodedPart& part, size_t which, int64_t context,
                    const std::string& where) {
  const auto inputs = static_cast<int64_t>(part.ids.size()) - 1;
  if (inputs > context) {
    return fail(
        Code::kInvalidArgument,
        "{}: field \"{}\" with its prompt has {} tokens, more than {} of {} allows; shorten "
        "it, or give {} to leave such pairs out",
        where, kAnswers[which], inputs + 1, flag_of("context"), context, flag_of("data.skip_bad"));
  }
  // The first token of a document is nothing's prediction.
  if (!part.learned.empty() && std::count(part.learned.begin() + 1, part.learned.end(), 1) > 0) {
    return {};
  }
  return fail(Code::kInvalidArgument,
              "{}: field \"{}\" has nothing to be learned: no answer of the assistant that the "
              "other one has not, too",
              where, kAnswers[which]);
}

}  // namespace

Result<EncodedPart> encode_pair(const DocumentEncoder& encoder, const Json& object, int64_t context,
                                const std::string& where) {
  JIGE_TRY(const PairFields fields, read_fields(object, where));
  JIGE_TRY(EncodedPart pair, encode_answer(encoder, object, fields, 0, where));
  JIGE_TRY(EncodedPart rejected, encode_answer(encoder, object, fields, 1, where));
  if (pair.ids == rejected.ids) {
    return fail(Code::kInvalidArgument,
                "{}: fields \"chosen\" and \"rejected\" are the same; one must be preferred",
                where);
  }
  if (fields.chat) {
    const auto differ =
        std::mismatch(pair.ids.begin(), pair.ids.end(), rejected.ids.begin(), rejected.ids.end());
    const auto first = static_cast<size_t>(differ.first - pair.ids.begin());
    forget_shared(pair, first);
    forget_shared(rejected, first);
  }
  JIGE_DO(check_answer(pair, 0, context, where));
  JIGE_DO(check_answer(rejected, 1, context, where));
  pair.second_begin = pair.ids.size();
  pair.ids.insert(pair.ids.end(), rejected.ids.begin(), rejected.ids.end());
  pair.learned.insert(pair.learned.end(), rejected.learned.begin(), rejected.learned.end());
  return pair;
}

}  // namespace jige::train
