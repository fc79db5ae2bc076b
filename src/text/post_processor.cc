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

// The parts of "pair", in order: ids of special tokens, or one of the texts.
struct PairPart {
  std::vector<int32_t> ids;
  bool is_text = false;
  int64_t type = 0;
};

Result<std::vector<PairPart>> read_pair(const Json& component, const Json& list,
                                        std::string_view where) {
  std::vector<PairPart> parts;
  std::string texts;
  for (const Json& item : list) {
    const Json* text = find_field(item, "Sequence");
    const Json* special = find_field(item, "SpecialToken");
    const Json* one = text ? text : special;
    if (!one) {
      return fail(Code::kCorrupt, "{}: \"pair\" holds neither Sequence nor SpecialToken", where);
    }
    PairPart part{.is_text = text != nullptr};
    JIGE_TRY(part.type, get_int_or(*one, "type_id", 0, where));
    if (special) JIGE_DO(append_special(component, *special, where, part.ids));
    if (text) {
      JIGE_TRY(const std::string name, get_string(*text, "id", where));
      texts += name;
    }
    parts.push_back(std::move(part));
  }
  if (texts != "AB") parts.clear();  // says something else than a PairFrame can
  return parts;
}

// Nothing where types do not go from 0 to 1, once, between the texts.
std::optional<PairFrame> frame_of(const std::vector<PairPart>& parts) {
  if (parts.empty()) return std::nullopt;
  PairFrame frame;
  size_t texts = 0;
  int64_t type = 0;
  for (const PairPart& part : parts) {
    if (part.type < type || part.type > 1) return std::nullopt;
    std::vector<int32_t>& ids = texts == 0   ? frame.before
                                : texts == 1 ? frame.between
                                             : frame.behind;
    if (part.type > type) {
      if (texts != 1) return std::nullopt;
      frame.second_from = ids.size();
    }
    type = part.type;
    ids.insert(ids.end(), part.ids.begin(), part.ids.end());
    texts += part.is_text ? 1 : 0;
  }
  return frame;
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
  if (find_field(component, "pair")) {
    JIGE_TRY(const Json* pair, component_list(component, "pair", where));
    JIGE_TRY(const std::vector<PairPart> parts, read_pair(component, *pair, where));
    result.pair = frame_of(parts);
  }
  return result;
}

// BertProcessing and RobertaProcessing: "cls" before and "sep" after, each [token, id]; of pairs
// "sep" between as well, twice and without token types for RoBERTa.
Result<PostProcessor> from_bert(const Json& component, bool roberta, std::string_view where) {
  PostProcessor result{.decides = true};
  for (const char* field : {"cls", "sep"}) {
    const Json* pair = find_field(component, field);
    if (!pair || !pair->is_array() || pair->size() != 2) {
      return fail(Code::kCorrupt, "{}: field \"{}\" must be [token, id]", where, field);
    }
    JIGE_DO(append_id((*pair)[1], where, field[0] == 'c' ? result.prefix : result.suffix));
  }
  result.pair = PairFrame{.before = result.prefix,
                          .between = result.suffix,
                          .behind = result.suffix,
                          .second_from = {}};
  if (roberta) {
    result.pair->between.push_back(result.suffix.front());
  } else {
    result.pair->second_from = result.pair->between.size();
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
    return from_bert(*component, type == "RobertaProcessing", place);
  }
  if (type != "Sequence") return unsupported_component("post-processor", type, place);
  JIGE_TRY(const Json* parts, component_list(*component, "processors", place));
  PostProcessor result;
  for (const Json& part : *parts) {
    JIGE_TRY(PostProcessor one, from_json(&part, where));
    // What two parts make of a pair, one around the other, is no PairFrame.
    if (one.decides) result.pair = result.decides ? std::nullopt : std::move(one.pair);
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
