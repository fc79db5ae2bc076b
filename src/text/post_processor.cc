#include "text/post_processor.h"

#include <nlohmann/json.hpp>

#include "text/component.h"
#include "text/vocabulary.h"

namespace jige::text {
namespace {

constexpr size_t kIdsMax = 1024;

Status append_id(const Json& id, std::string_view where, std::vector<int32_t>& ids) {
  if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > kTokenIdMax) {
    return fail(Code::kCorrupt, "{}: {} is not a token id", where, dump_json(id));
  }
  ids.push_back(id.get<int32_t>());
  if (ids.size() > kIdsMax) return fail(Code::kCorrupt, "{}: adds too many tokens", where);
  return {};
}

Status append_special(const Json& component, const Json& item, std::string_view where,
                      std::vector<int32_t>& ids) {
  JIGE_TRY(const std::string name, get_string(item, "id", where));
  const Json* tokens = find_field(component, "special_tokens");
  const Json* token = tokens ? find_field(*tokens, name.c_str()) : nullptr;
  const Json* list = token ? find_field(*token, "ids") : nullptr;
  if (!list || !list->is_array()) {
    return fail(Code::kCorrupt, "{}: the special token \"{}\" has no ids", where, name);
  }
  for (const Json& id : *list) JIGE_DO(append_id(id, where, ids));
  return {};
}

Result<PostProcessor> from_template(const Json& component, std::string_view where) {
  JIGE_TRY(const Json* single, component_list(component, "single", where));
  PostProcessor result{.decides = true};
  int texts = 0;
  for (const Json& item : *single) {
    if (find_field(item, "Sequence")) {
      ++texts;
    } else if (const Json* special = find_field(item, "SpecialToken")) {
      JIGE_DO(append_special(component, *special, where, texts ? result.suffix : result.prefix));
    } else {
      return fail(Code::kCorrupt, "{}: \"single\" holds neither Sequence nor SpecialToken", where);
    }
  }
  if (texts != 1) {
    return fail(Code::kUnsupported, "{}: \"single\" holds the text {} times instead of once", where,
                texts);
  }
  return result;
}

// BertProcessing and RobertaProcessing: "cls" before and "sep" after, each [token, id].
Result<PostProcessor> from_bert(const Json& component, std::string_view where) {
  PostProcessor result{.decides = true};
  for (const char* field : {"cls", "sep"}) {
    const Json* pair = find_field(component, field);
    if (!pair || !pair->is_array() || pair->size() != 2) {
      return fail(Code::kCorrupt, "{}: field \"{}\" must be [token, id]", where, field);
    }
    JIGE_DO(append_id((*pair)[1], where, field[0] == 'c' ? result.prefix : result.suffix));
  }
  return result;
}

}  // namespace

Result<PostProcessor> PostProcessor::from_json(const Json* component, std::string_view where) {
  if (!component) return PostProcessor{};
  const std::string place = fmt::format("{}: post_processor", where);
  JIGE_TRY(const std::string type, component_type(*component, place));
  if (type == "ByteLevel") return PostProcessor{};
  if (type == "TemplateProcessing") return from_template(*component, place);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    return from_bert(*component, place);
  }
  if (type != "Sequence") return unsupported_component("post-processor", type, place);
  JIGE_TRY(const Json* parts, component_list(*component, "processors", place));
  PostProcessor result;
  for (const Json& part : *parts) {
    JIGE_TRY(PostProcessor one, from_json(&part, where));
    result.prefix.insert(result.prefix.begin(), one.prefix.begin(), one.prefix.end());
    result.suffix.insert(result.suffix.end(), one.suffix.begin(), one.suffix.end());
    result.decides |= one.decides;
    if (result.prefix.size() + result.suffix.size() > kIdsMax) {
      return fail(Code::kCorrupt, "{}: adds too many tokens", place);
    }
  }
  return result;
}

}  // namespace jige::text
