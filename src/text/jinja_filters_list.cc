// Filters on lists and dicts.
#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "text/jinja_builtins.h"
#include "text/jinja_format.h"
#include "text/jinja_operators.h"
#include "text/jinja_text.h"
#include "text/unicode.h"

namespace jige::text::jinja {
namespace {

Result<Items> input_items(const FilterCall& call) { return iterate(call.input, call.budget()); }

// A number as a list index within a path, or nullopt.
std::optional<int64_t> path_index(std::string_view part) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
  if (part.empty() || error != std::errc() || end != part.data() + part.size()) return std::nullopt;
  return value;
}

// What a value is sorted and compared by: its attribute, in lower case unless case matters.
class SortKey {
 public:
  SortKey(const FilterCall& call, const Value* attribute, bool case_sensitive)
      : call_(call), attribute_(attribute), case_sensitive_(case_sensitive) {}

  Result<Value> of(const Value& item) const {
    Value key = item;
    if (attribute_ && !attribute_->is(Kind::kNone)) {
      JIGE_TRY(key, by_attribute(item));
    }
    if (case_sensitive_) return key;
    return lower(key);
  }

  static Value lower(const Value& value) {
    return value.is(Kind::kString) ? Value::string(to_lower(value.text())) : value;
  }

 private:
  Result<Value> by_attribute(const Value& item) const {
    JIGE_TRY(const std::string paths, to_text(*attribute_, call_.budget()));
    if (paths.find(',') == std::string::npos) return follow(call_.run, item, paths);
    Items keys;
    for (const std::string_view path : split_text(paths, ",", -1)) {
      JIGE_TRY(const Value key, follow(call_.run, item, path));
      keys.push_back(case_sensitive_ ? key : lower(key));
    }
    return Value::list(std::move(keys), call_.budget());
  }

  const FilterCall& call_;
  const Value* attribute_;
  bool case_sensitive_;
};

struct Keyed {
  Value key;
  Value item;
};

Result<std::vector<Keyed>> with_keys(const Items& items, const SortKey& sort_key) {
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    JIGE_TRY(Value key, sort_key.of(item));
    keyed.push_back({std::move(key), item});
  }
  return keyed;
}

// A stable merge sort, since comparing may fail, which std::sort could not pass on.
Status sort_keyed(std::vector<Keyed>& items, bool reverse, Budget& limits) {
  std::vector<Keyed> merged(items.size());
  for (size_t width = 1; width < items.size(); width *= 2) {
    for (size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, items.size());
      const size_t end = std::min(begin + 2 * width, items.size());
      size_t left = begin, right = middle;
      for (size_t to = begin; to < end; ++to) {
        bool take_right = left == middle;
        if (!take_right && right < end) {
          JIGE_TRY(take_right, reverse ? less(items[left].key, items[right].key, limits)
                                       : less(items[right].key, items[left].key, limits));
        }
        merged[to] = std::move(items[take_right ? right++ : left++]);
      }
    }
    items.swap(merged);
  }
  return {};
}

Result<Value> first(const FilterCall& call) {
  JIGE_TRY(const Items items, input_items(call));
  return items.empty() ? Value::undefined("no first item, the sequence is empty") : items.front();
}

Result<Value> last(const FilterCall& call) {
  JIGE_TRY(const Items items, input_items(call));
  return items.empty() ? Value::undefined("no last item, the sequence is empty") : items.back();
}

Result<Value> list(const FilterCall& call) {
  JIGE_TRY(Items items, input_items(call));
  return Value::list(std::move(items), call.budget());
}

Result<Value> join(const FilterCall& call) {
  JIGE_TRY(const auto bound, bind(call.arguments, {"d", "attribute"}, call.name));
  std::string separator;
  if (bound[0]) JIGE_DO(append_text(separator, *bound[0], call.budget()));
  JIGE_TRY(const Items items, input_items(call));
  const SortKey key(call, bound[1], /*case_sensitive=*/true);
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) {
      JIGE_DO(call.budget().bytes(separator.size()));
      out += separator;
    }
    JIGE_TRY(const Value shown, key.of(items[i]));
    JIGE_DO(append_text(out, shown, call.budget()));
  }
  return Value::string(std::move(out));
}

Result<Value> reverse(const FilterCall& call) {
  if (call.input.is(Kind::kString)) {
    const Value step = Value::integer(-1);
    return slice_value(call.input, {.step = &step}, call.budget());
  }
  JIGE_TRY(Items items, input_items(call));
  std::reverse(items.begin(), items.end());
  return Value::list(std::move(items), call.budget());
}

Result<Value> sort(const FilterCall& call) {
  JIGE_TRY(const auto bound,
           bind(call.arguments, {"reverse", "case_sensitive", "attribute"}, call.name));
  JIGE_TRY(const Items items, input_items(call));
  JIGE_TRY(auto keyed, with_keys(items, {call, bound[2], bool_or(bound[1], false)}));
  JIGE_DO(sort_keyed(keyed, bool_or(bound[0], false), call.budget()));
  Items sorted;
  for (Keyed& entry : keyed) sorted.push_back(std::move(entry.item));
  return Value::list(std::move(sorted), call.budget());
}

Result<Value> dict_sort(const FilterCall& call) {
  JIGE_TRY(const auto bound, bind(call.arguments, {"case_sensitive", "by", "reverse"}, call.name));
  JIGE_TRY(const std::string by, string_or(bound[1], "key", "dictsort: by"));
  if (by != "key" && by != "value") {
    return fail(Code::kInvalidArgument, "dictsort goes by \"key\" or \"value\", not \"{}\"", by);
  }
  if (!call.input.is(Kind::kDict)) {
    return fail(Code::kInvalidArgument, "dictsort needs a dict, not {}", call.input.type_name());
  }
  const SortKey sort_key(call, nullptr, bool_or(bound[0], false));
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : call.input.entries().entries) {
    JIGE_TRY(Value order, sort_key.of(by == "key" ? key : value));
    JIGE_TRY(Value pair, Value::tuple({key, value}, call.budget()));
    keyed.push_back({std::move(order), std::move(pair)});
  }
  JIGE_DO(sort_keyed(keyed, bool_or(bound[2], false), call.budget()));
  Items sorted;
  for (Keyed& entry : keyed) sorted.push_back(std::move(entry.item));
  return Value::list(std::move(sorted), call.budget());
}

Result<Value> unique(const FilterCall& call) {
  JIGE_TRY(const auto bound, bind(call.arguments, {"case_sensitive", "attribute"}, call.name));
  JIGE_TRY(const Items items, input_items(call));
  const SortKey sort_key(call, bound[1], bool_or(bound[0], false));
  Items kept;
  Items seen;
  DictData seen_texts;
  for (const Value& item : items) {
    JIGE_TRY(Value key, sort_key.of(item));
    if (key.is(Kind::kString)) {
      if (seen_texts.find(key.text())) continue;
      seen_texts.set(std::move(key), Value::none());
    } else {
      bool known = false;
      for (const Value& other : seen) {
        JIGE_TRY(known, equals(other, key, call.budget()));
        if (known) break;
      }
      if (known) continue;
      seen.push_back(std::move(key));
    }
    kept.push_back(item);
  }
  return Value::list(std::move(kept), call.budget());
}

Result<Value> extreme(const FilterCall& call) {
  JIGE_TRY(const auto bound, bind(call.arguments, {"case_sensitive", "attribute"}, call.name));
  JIGE_TRY(const Items items, input_items(call));
  if (items.empty()) return Value::undefined("no item, the sequence is empty");
  JIGE_TRY(const auto keyed, with_keys(items, {call, bound[1], bool_or(bound[0], false)}));
  size_t best = 0;
  for (size_t i = 1; i < keyed.size(); ++i) {
    JIGE_TRY(const bool better, call.name == "min"
                                    ? less(keyed[i].key, keyed[best].key, call.budget())
                                    : less(keyed[best].key, keyed[i].key, call.budget()));
    if (better) best = i;
  }
  return items[best];
}

Result<Value> sum(const FilterCall& call) {
  JIGE_TRY(const auto bound, bind(call.arguments, {"attribute", "start"}, call.name));
  JIGE_TRY(const Items items, input_items(call));
  const SortKey key(call, bound[0], /*case_sensitive=*/true);
  Value total = bound[1] ? *bound[1] : Value::integer(0);
  for (const Value& item : items) {
    JIGE_TRY(const Value term, key.of(item));
    JIGE_TRY(total, arithmetic("+", total, term, call.budget()));
  }
  return total;
}

Result<Value> items_of(const FilterCall& call) {
  if (call.input.is(Kind::kUndefined)) return Value::list({}, call.budget());
  if (!call.input.is(Kind::kDict)) {
    return fail(Code::kInvalidArgument, "items needs a dict, not {}", call.input.type_name());
  }
  return call_method(call.run, call.input, "items", {});
}

Result<Value> attribute(const FilterCall& call) {
  JIGE_TRY(const auto bound, bind(call.arguments, {"name"}, call.name));
  JIGE_TRY(const std::string name, string_or(bound[0], "", "the name of attr"));
  // Unlike a dot, this does not look at the keys of a dict.
  if (call.input.is(Kind::kDict)) {
    return Value::undefined(fmt::format("dict has no attribute '{}'", name));
  }
  return call.run.member(call.input, name);
}

// What map, select and reject go through: nothing for none, 0 and false.
Result<Items> items_if_any(const FilterCall& call) {
  if (!call.input.truth()) return Items();
  return input_items(call);
}

// map(attribute="a", default=x) or map("filter", arguments…)
Result<Value> map(const FilterCall& call) {
  JIGE_TRY(const Items items, items_if_any(call));
  Items mapped;
  if (call.arguments.positional.empty()) {
    JIGE_TRY(const auto bound, bind(call.arguments, {"attribute", "default"}, call.name));
    if (!bound[0]) return fail(Code::kInvalidArgument, "map needs a filter or an attribute");
    JIGE_TRY(const std::string path, to_text(*bound[0], call.budget()));
    for (const Value& item : items) {
      JIGE_TRY(Value value, follow(call.run, item, path, bound[1]));
      mapped.push_back(std::move(value));
    }
    return Value::list(std::move(mapped), call.budget());
  }
  JIGE_TRY(const std::string name,
           string_or(&call.arguments.positional[0], "", "the filter of map"));
  const Arguments rest{{call.arguments.positional.begin() + 1, call.arguments.positional.end()},
                       call.arguments.named};
  for (const Value& item : items) {
    JIGE_DO(call.budget().steps(1));
    JIGE_TRY(Value value, call.run.apply_filter(name, item, rest));
    mapped.push_back(std::move(value));
  }
  return Value::list(std::move(mapped), call.budget());
}

// select, reject, selectattr, rejectattr: the items for which a test does or does not hold.
Result<Value> choose(const FilterCall& call) {
  const bool by_attribute = call.name.ends_with("attr");
  const bool wanted = call.name.starts_with("select");
  const Items& given = call.arguments.positional;
  size_t used = 0;
  std::string path;
  if (by_attribute) {
    if (given.empty()) return fail(Code::kInvalidArgument, "{} needs an attribute", call.name);
    JIGE_TRY(path, to_text(given[0], call.budget()));
    used = 1;
  }
  std::string test;
  if (given.size() > used) {
    JIGE_TRY(test, string_or(&given[used], "", "the name of a test"));
    ++used;
  }
  const Arguments rest{{given.begin() + static_cast<std::ptrdiff_t>(used), given.end()},
                       call.arguments.named};
  JIGE_TRY(const Items items, items_if_any(call));
  Items chosen;
  for (const Value& item : items) {
    Value value = item;
    if (by_attribute) {
      JIGE_TRY(value, follow(call.run, item, path));
    }
    bool holds = value.truth();
    if (!test.empty()) {
      JIGE_TRY(holds, call.run.apply_test(test, value, rest));
    }
    if (holds == wanted) chosen.push_back(item);
  }
  return Value::list(std::move(chosen), call.budget());
}

Result<Value> batch(const FilterCall& call) {
  JIGE_TRY(const auto bound, bind(call.arguments, {"linecount", "fill_with"}, call.name));
  JIGE_TRY(const int64_t size, int_or(bound[0], 0, "the size of batch"));
  if (size < 1) return fail(Code::kInvalidArgument, "the size of batch must be at least 1");
  JIGE_TRY(const Items items, input_items(call));
  Items batches;
  Items current;
  const auto flush = [&]() -> Status {
    JIGE_TRY(Value made, Value::list(std::move(current), call.budget()));
    batches.push_back(std::move(made));
    current.clear();
    return {};
  };
  for (const Value& item : items) {
    if (static_cast<int64_t>(current.size()) == size) JIGE_DO(flush());
    current.push_back(item);
  }
  const bool fills = bound[1] && !bound[1]->is(Kind::kNone) && !current.empty();
  while (fills && static_cast<int64_t>(current.size()) < size) {
    JIGE_DO(call.budget().bytes(sizeof(Value)));
    current.push_back(*bound[1]);
  }
  if (!current.empty()) JIGE_DO(flush());
  return Value::list(std::move(batches), call.budget());
}

// slice(n): n lists of about equal length, the longer ones first.
Result<Value> slice(const FilterCall& call) {
  JIGE_TRY(const auto bound, bind(call.arguments, {"slices", "fill_with"}, call.name));
  JIGE_TRY(const int64_t slices, int_or(bound[0], 0, "the number of slices"));
  if (slices == 0) return fail(Code::kInvalidArgument, "the number of slices must not be 0");
  JIGE_TRY(const Items items, input_items(call));
  const auto size = static_cast<int64_t>(items.size());
  const bool fills = bound[1] && !bound[1]->is(Kind::kNone);
  Items parts;
  auto begin = items.begin();
  for (int64_t i = 0; i < slices; ++i) {
    const bool is_longer = i < size % slices;
    const auto end = begin + size / slices + (is_longer ? 1 : 0);
    Items part(begin, end);
    if (fills && !is_longer) part.push_back(*bound[1]);
    begin = end;
    JIGE_DO(call.budget().bytes(sizeof(ListData)));
    JIGE_TRY(Value made, Value::list(std::move(part), call.budget()));
    parts.push_back(std::move(made));
  }
  return Value::list(std::move(parts), call.budget());
}

// groupby(attribute): pairs (grouper, list) in the order of the attribute.
Result<Value> group_by(const FilterCall& call) {
  JIGE_TRY(const auto bound,
           bind(call.arguments, {"attribute", "default", "case_sensitive"}, call.name));
  if (!bound[0]) return fail(Code::kInvalidArgument, "groupby needs an attribute");
  JIGE_TRY(const std::string path, to_text(*bound[0], call.budget()));
  const Value* fallback = bound[1] && !bound[1]->is(Kind::kNone) ? bound[1] : nullptr;
  const bool case_sensitive = bool_or(bound[2], false);
  JIGE_TRY(const Items items, input_items(call));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    JIGE_TRY(Value key, follow(call.run, item, path, fallback));
    keyed.push_back({case_sensitive ? key : SortKey::lower(key), item});
  }
  JIGE_DO(sort_keyed(keyed, /*reverse=*/false, call.budget()));
  Items groups;
  for (size_t begin = 0, end = 0; begin < keyed.size(); begin = end) {
    Items group;
    for (bool same = true; same;) {
      group.push_back(keyed[end++].item);
      if (end == keyed.size()) break;
      JIGE_TRY(same, equals(keyed[begin].key, keyed[end].key, call.budget()));
    }
    JIGE_TRY(Value grouper, follow(call.run, group.front(), path, fallback));
    JIGE_TRY(Value list_of, Value::list(std::move(group), call.budget()));
    JIGE_TRY(Value pair, Value::group(std::move(grouper), std::move(list_of), call.budget()));
    groups.push_back(std::move(pair));
  }
  return Value::list(std::move(groups), call.budget());
}

}  // namespace

Result<Value> follow(Interpreter& run, const Value& value, std::string_view path,
                     const Value* fallback) {
  Value current = value;
  for (const std::string_view part : split_text(path, ".", -1)) {
    const auto number = path_index(part);
    JIGE_TRY(current,
             run.index(current, number ? Value::integer(*number) : Value::string_view(part)));
    if (fallback && current.is(Kind::kUndefined)) current = *fallback;
  }
  return current;
}

Filter find_list_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> kFilters = {
      {"attr", attribute},    {"batch", batch},       {"dictsort", dict_sort}, {"first", first},
      {"groupby", group_by},  {"items", items_of},    {"join", join},          {"last", last},
      {"list", list},         {"map", map},           {"max", extreme},        {"min", extreme},
      {"reject", choose},     {"rejectattr", choose}, {"reverse", reverse},    {"select", choose},
      {"selectattr", choose}, {"slice", slice},       {"sort", sort},          {"sum", sum},
      {"unique", unique},
  };
  const auto it = kFilters.find(name);
  return it != kFilters.end() ? it->second : nullptr;
}

}  // namespace jige::text::jinja
