#include "grammar/schema.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/integer_range.h"
#include "grammar/json_rules.h"
#include "grammar/regex.h"
#include "grammar/repeat.h"
#include "grammar/schema_keywords.h"
#include "grammar/schema_names.h"
#include "grammar/string_formats.h"

namespace jige::grammar {
namespace {

class SchemaBuilder {
 public:
  SchemaBuilder(GrammarBuilder& builder, const Json& root)
      : builder_(builder), root_(root), json_(builder) {}

  // Schemas become rules one after the other, so that circles of them end.
  Result<NodeId> build() {
    const NodeId start = call(root_, "#", builder_.end());
    while (!waiting_.empty() && !builder_.overflowed()) {
      const Waiting next = std::move(waiting_.back());
      waiting_.pop_back();
      JIGE_TRY(const NodeId entry, node_of(*next.schema, next.path));
      builder_.define(next.rule, entry);
    }
    return start;
  }

 private:
  struct Waiting {
    const Json* schema;
    std::string path;
    RuleId rule;
  };

  NodeId call(const Json& schema, const std::string& path, NodeId next) {
    const auto known = rules_.find(&schema);
    if (known != rules_.end()) return builder_.call(known->second, next);
    const RuleId rule = builder_.add_rule();
    rules_.emplace(&schema, rule);
    waiting_.push_back({&schema, path, rule});
    return builder_.call(rule, next);
  }

  Result<NodeId> node_of(const Json& schema, const std::string& path) {
    if (schema == true) return json_.value(builder_.end());
    if (schema == false) return builder_.split({});
    JIGE_DO(check_keywords(schema, path));
    JIGE_TRY(const NodeId node, checked_node(schema, path));
    if (!schema.contains("nullable") || schema["nullable"] != true) return node;
    return builder_.split({node, json_.null(builder_.end())});
  }

  Result<NodeId> checked_node(const Json& schema, const std::string& path) {
    if (schema.contains("$ref")) return reference(schema["$ref"], path);
    for (const char* name : {"anyOf", "oneOf", "allOf"}) {
      if (schema.contains(name)) return alternatives(schema[name], path + "/" + name);
    }
    if (schema.contains("enum") || schema.contains("const")) return literals(schema, path);
    std::vector<NodeId> branches;
    for (const std::string& type : types_of(schema)) {
      JIGE_TRY(const NodeId branch, typed(schema, type, path));
      branches.push_back(branch);
    }
    if (branches.empty()) return json_.value(builder_.end());
    return builder_.split(branches);
  }

  Result<NodeId> reference(const Json& value, const std::string& path) {
    JIGE_TRY(const Json* target, find_reference(root_, value, path));
    return call(*target, value.get<std::string>(), builder_.end());
  }

  Result<NodeId> alternatives(const Json& list, const std::string& path) {
    std::vector<NodeId> branches;
    for (size_t i = 0; i < list.size(); ++i) {
      branches.push_back(call(list[i], fmt::format("{}/{}", path, i), builder_.end()));
    }
    return builder_.split(branches);
  }

  Result<NodeId> literals(const Json& schema, const std::string& path) {
    const Json values = schema.contains("const") ? Json::array({schema["const"]}) : schema["enum"];
    const std::vector<std::string> types = types_of(schema);
    std::vector<std::string> texts;
    for (const Json& value : values) {
      if (is_of_types(value, types)) texts.push_back(dump_json(value));
    }
    if (texts.empty()) {
      return fail(Code::kInvalidArgument, "{}: none of its values is of its type", path);
    }
    return one_of(builder_, std::move(texts), builder_.end());
  }

  Result<NodeId> typed(const Json& schema, const std::string& type, const std::string& path) {
    const NodeId end = builder_.end();
    if (type == "object") return object(schema, path);
    if (type == "array") return array(schema, path);
    if (type == "string") return string(schema, path);
    if (type == "integer") return integer(schema, path);
    if (type == "number") return number(schema, path);
    if (type == "boolean") return json_.boolean(end);
    return json_.null(end);
  }

  Result<NodeId> integer(const Json& schema, const std::string& path) {
    JIGE_TRY(const std::optional<IntegerRange> range, integers_of(schema, path));
    return range ? integer_within(builder_, *range, builder_.end()) : json_.integer(builder_.end());
  }

  Result<NodeId> number(const Json& schema, const std::string& path) {
    const std::optional<NumberRange> range = numbers_of(schema);
    if (!range) return json_.number(builder_.end());
    if (const auto within = number_within(builder_, *range, builder_.end())) return *within;
    return fail(Code::kInvalidArgument,
                "{}: no number of up to {} digits before the point and behind it is within minimum "
                "and maximum",
                path, kDigitsMax);
  }

  Result<NodeId> string(const Json& schema, const std::string& path) {
    JIGE_TRY(const Counts counts, counts_of(schema, "minLength", "maxLength", path));
    if (schema.contains("pattern")) {
      return matching(schema["pattern"].get_ref<const std::string&>(), path + "/pattern");
    }
    if (counts.min != 0 || counts.max != kUnbounded) return json_.string(counts, builder_.end());
    // Beside a pattern or lengths those count alone: both at once would be an intersection.
    const auto format = schema.find("format");
    if (format != schema.end() && format->is_string()) {
      if (const auto expression = format_expression(format->get_ref<const std::string&>())) {
        return matching(*expression, path + "/format");
      }
    }
    return json_.string(builder_.end());
  }

  // A text that the whole expression matches.
  Result<NodeId> matching(std::string_view expression, const std::string& path) {
    auto regex = parse_regex(expression);
    if (!regex) return with_context(std::move(regex.error()), "{}", path);
    const NodeId close = builder_.byte('"', builder_.end());
    return builder_.byte('"', build_regex(builder_, *regex, spell_in_json, close));
  }

  // The schemas of an array's elements: those of `prefix`, then `rest`, if there is one.
  struct Elements {
    std::vector<std::pair<const Json*, std::string>> prefix;
    const Json* rest = nullptr;
    std::string rest_path;
  };

  static Elements elements_of(const Json& schema, const std::string& path) {
    static const Json any = true;
    Elements elements{.rest_path = path + "/items"};
    if (schema.contains("prefixItems")) {
      const Json& list = schema["prefixItems"];
      for (size_t i = 0; i < list.size(); ++i) {
        elements.prefix.emplace_back(&list[i], fmt::format("{}/prefixItems/{}", path, i));
      }
    } else {
      elements.rest = &any;
    }
    if (schema.contains("items"))
      elements.rest = schema["items"] == false ? nullptr : &schema["items"];
    return elements;
  }

  Result<NodeId> array(const Json& schema, const std::string& path) {
    JIGE_TRY(Counts counts, counts_of(schema, "minItems", "maxItems", path));
    const Elements elements = elements_of(schema, path);
    const auto prefix_count = static_cast<int32_t>(elements.prefix.size());
    if (!elements.rest && (counts.max == kUnbounded || counts.max > prefix_count)) {
      counts.max = prefix_count;
    }
    if (counts.max != kUnbounded && counts.max < counts.min) {
      return fail(Code::kInvalidArgument,
                  "{}: {} elements are the least, and only {} have a schema; give \"items\"", path,
                  counts.min, counts.max);
    }
    const auto element = [&](int32_t index, NodeId next) {
      if (index >= prefix_count) return call(*elements.rest, elements.rest_path, next);
      const auto& [item, item_path] = elements.prefix[static_cast<size_t>(index)];
      return call(*item, item_path, next);
    };
    const NodeId close = builder_.byte(']', builder_.end());
    const NodeId spaced_close = json_.space(close);
    int32_t count = counts.max;  // elements before `tail`
    NodeId tail = spaced_close;
    if (counts.max == kUnbounded) {
      count = std::max({prefix_count, counts.min, 1});
      tail = builder_.reserve_split();
      builder_.set_split(tail, {json_.comma(element(count, tail)), spaced_close});
    }
    for (; count > 1 && !builder_.overflowed(); --count) {
      const NodeId more = json_.comma(element(count - 1, tail));
      tail = count - 1 >= counts.min ? builder_.split({more, spaced_close}) : more;
    }
    std::vector<NodeId> inside;
    if (counts.min == 0) inside.push_back(close);
    if (count == 1) inside.push_back(json_.space(element(0, tail)));
    return builder_.byte('[', builder_.split(inside));
  }

  Result<NodeId> object(const Json& schema, const std::string& path) {
    JIGE_TRY(const ObjectMembers members, members_of(schema, path));
    const NodeId close = builder_.byte('}', builder_.end());
    // Behind at least one member, and behind none yet; at first behind all that are listed.
    NodeId some = json_.space(close);
    std::optional<NodeId> none;
    if (members.additional) {
      const NodeId more = builder_.reserve_split();
      const NodeId value = json_.colon(call(*members.additional, members.additional_path, more));
      const NodeId pair = other_name(builder_, members.names(), value);
      builder_.set_split(more, {json_.comma(pair), some});
      some = more;
      none = pair;
    }
    for (auto it = members.listed.rbegin(); it != members.listed.rend(); ++it) {
      const NodeId value = json_.colon(call(*it->schema, it->path, some));
      const NodeId pair = builder_.text(dump_json(Json(it->name)), value);
      const NodeId with_comma = json_.comma(pair);
      some = it->required ? with_comma : builder_.split({with_comma, some});
      none = none && !it->required ? builder_.split({pair, *none}) : pair;
      if (builder_.overflowed()) break;
    }
    const bool may_be_empty = std::ranges::none_of(members.listed, &ObjectMember::required);
    std::vector<NodeId> inside;
    if (may_be_empty) inside.push_back(close);
    if (none) inside.push_back(json_.space(*none));
    return builder_.byte('{', builder_.split(inside));
  }

  GrammarBuilder& builder_;
  const Json& root_;
  JsonRules json_;
  std::map<const Json*, RuleId> rules_;
  std::vector<Waiting> waiting_;
};

}  // namespace

Result<NodeId> build_schema(GrammarBuilder& builder, const Json& schema) {
  const size_t bytes = dump_json(schema).size();
  if (bytes > kSchemaBytesMax) {
    return fail(Code::kInvalidArgument, "the schema has {} bytes; at most {} are taken", bytes,
                kSchemaBytesMax);
  }
  return SchemaBuilder(builder, schema).build();
}

}  // namespace jige::grammar
