#include "text/jinja_value.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/unicode.h"

namespace jige::text::jinja {
namespace {

const std::string kEmptyText;

uint32_t tallest(const Items& items, Budget& budget) {
  uint32_t height = 0;
  for (const Value& item : items) {
    height = std::max(height, item.height());
    budget.note_item(item);
  }
  return height;
}

Status check_height(uint32_t height) {
  if (height <= kValueHeightMax) return {};
  return fail(Code::kUnsupported, "a list or dict nests deeper than {} levels", kValueHeightMax);
}

tl::unexpected<Error> no_order(const Value& left, const Value& right) {
  return fail(Code::kInvalidArgument, "cannot order {} and {}", left.type_name(),
              right.type_name());
}

bool numbers_equal(const Value& left, const Value& right) {
  if (left.is(Kind::kFloat) || right.is(Kind::kFloat)) {
    return left.as_double() == right.as_double();
  }
  return left.as_int() == right.as_int();
}

bool keys_equal(const Value& left, const Value& right) {
  if (left.is(Kind::kString) && right.is(Kind::kString)) return left.text() == right.text();
  if (left.is_number() && right.is_number()) return numbers_equal(left, right);
  return left.is(Kind::kNone) && right.is(Kind::kNone);
}

Result<bool> dicts_equal(const DictData& left, const DictData& right, Budget& budget) {
  if (left.entries.size() != right.entries.size()) return false;
  for (const auto& [key, value] : left.entries) {
    const Value* other = right.find(key);
    if (!other) return false;
    JIGE_TRY(const bool same, equals(value, *other, budget));
    if (!same) return false;
  }
  return true;
}

}  // namespace

Status Budget::steps(size_t count) {
  steps_left_ -= static_cast<int64_t>(std::min<size_t>(count, steps_max_ + 1));
  if (steps_left_ >= 0) return {};
  return fail(Code::kExhausted, "the template takes more than {} steps", steps_max_);
}

Status Budget::bytes(size_t count) {
  bytes_left_ -= static_cast<int64_t>(std::min<size_t>(count, bytes_max_ + 1));
  if (bytes_left_ >= 0) return steps(count / 64);
  return fail(Code::kExhausted, "the template makes more than {} bytes of text and lists",
              bytes_max_);
}

void Budget::note_item(const Value& item) { keeps_namespaces_ |= item.is(Kind::kNamespace); }

Value Value::undefined(std::string hint) {
  return Value(Data(Undefined{std::make_shared<const std::string>(std::move(hint))}));
}
Value Value::none() { return Value(Data(None{})); }
Value Value::boolean(bool value) { return Value(Data(value)); }
Value Value::integer(int64_t value) { return Value(Data(value)); }
Value Value::number(double value) { return Value(Data(value)); }
Value Value::whole(uint64_t value) {
  if (value > static_cast<uint64_t>(INT64_MAX)) return Value(Data(value));
  return integer(static_cast<int64_t>(value));
}
Value Value::string(std::string text) {
  return Value(Data(std::make_shared<const TextData>(TextData{std::move(text)})));
}
Value Value::markup(std::string text) {
  return Value(Data(std::make_shared<const TextData>(TextData{std::move(text), true})));
}
Value Value::name_space(Namespace* value) { return Value(Data(value)); }
Value Value::cycler(Cycler* value) { return Value(Data(value)); }
Value Value::loop(std::shared_ptr<LoopState> state) { return Value(Data(std::move(state))); }
Value Value::macro(const MacroInstance* macro) { return Value(Data(macro)); }
Value Value::function(std::string_view name) { return Value(Data(Function{std::string(name)})); }
Value Value::method(std::string_view name) { return Value(Data(Method{std::string(name)})); }

Result<Value> Value::list(Items items, Budget& budget) {
  JIGE_DO(budget.bytes(items.size() * sizeof(Value)));
  const uint32_t height = tallest(items, budget) + 1;
  JIGE_DO(check_height(height));
  return Value(Data(std::make_shared<const ListData>(ListData{std::move(items), false, height})));
}

Result<Value> Value::tuple(Items items, Budget& budget) {
  JIGE_DO(budget.bytes(items.size() * sizeof(Value)));
  const uint32_t height = tallest(items, budget) + 1;
  JIGE_DO(check_height(height));
  return Value(Data(std::make_shared<const ListData>(ListData{std::move(items), true, height})));
}

Result<Value> Value::group(Value grouper, Value list, Budget& budget) {
  JIGE_TRY(const Value pair, tuple({std::move(grouper), std::move(list)}, budget));
  return Value(
      Data(std::make_shared<const ListData>(ListData{pair.items(), true, pair.height(), true})));
}

Result<Value> Value::dict(DictData entries, Budget& budget) {
  JIGE_DO(budget.bytes(entries.entries.size() * 4 * sizeof(Value)));
  uint32_t height = 0;
  for (const auto& [key, value] : entries.entries) {
    height = std::max({height, key.height(), value.height()});
    budget.note_item(value);
  }
  entries.height = height + 1;
  JIGE_DO(check_height(entries.height));
  return Value(Data(std::make_shared<const DictData>(std::move(entries))));
}

Kind Value::kind() const {
  switch (data_.index()) {
    case 0: return Kind::kUndefined;
    case 1: return Kind::kNone;
    case 2: return Kind::kBool;
    case 3: return Kind::kInt;
    case 4: return Kind::kFloat;
    case 5: return Kind::kString;
    case 6: return std::get<ListPointer>(data_)->is_tuple ? Kind::kTuple : Kind::kList;
    case 7: return Kind::kDict;
    case 8: return Kind::kNamespace;
    case 9: return Kind::kLoop;
    case 10: return Kind::kMacro;
    case 11: return Kind::kFunction;
    case 12: return Kind::kMethod;
    case 13: return Kind::kCycler;
    default: return Kind::kFloat;
  }
}

const std::string& Value::undefined_hint() const {
  const auto& hint = std::get<Undefined>(data_).hint;
  return hint ? *hint : kEmptyText;
}

int64_t Value::as_int() const {
  return is(Kind::kBool) ? (as_bool() ? 1 : 0) : std::get<int64_t>(data_);
}

double Value::as_double() const {
  if (const auto large = large_whole()) return static_cast<double>(*large);
  return is(Kind::kFloat) ? std::get<double>(data_) : static_cast<double>(as_int());
}

std::optional<uint64_t> Value::large_whole() const {
  const auto* value = std::get_if<uint64_t>(&data_);
  return value ? std::optional(*value) : std::nullopt;
}

const Items& Value::items() const {
  const ListData& list = *std::get<ListPointer>(data_);
  if (!list.watch) return list.items;
  Watch& watch = *list.watch;
  watch.seen = Watch::kAll;
  watch.lowest = 0;
  const size_t end = list.first + list.items.size();
  const bool changed = list.first <= watch.changed_at && watch.changed_at < end;
  if (watch.limit >= end && !changed) return list.items;
  if (list.shown_version != watch.version) {
    const size_t size = std::min(end, std::max(watch.limit, list.first)) - list.first;
    list.shown.assign(list.items.begin(), list.items.begin() + static_cast<std::ptrdiff_t>(size));
    if (changed && watch.changed_at - list.first < size) {
      list.shown[watch.changed_at - list.first] = watch.changed;
    }
    list.shown_version = watch.version;
  }
  return list.shown;
}

Value Value::watched(const Value& list, std::shared_ptr<Watch> watch) {
  ListData data = *std::get<ListPointer>(list.data_);
  data.watch = std::move(watch);
  return Value(Data(std::make_shared<const ListData>(std::move(data))));
}

bool Value::is_watched() const {
  const auto* list = std::get_if<ListPointer>(&data_);
  return list && (*list)->watch;
}

Watch& Value::watch() const { return *std::get<ListPointer>(data_)->watch; }

// That an item is missing at the end of the whole list says nothing: it is missing in every shorter
// one, too.
bool Value::has_item(size_t number) const {
  const ListData& list = *std::get<ListPointer>(data_);
  if (number >= list.items.size() || list.first + number >= list.watch->limit) return false;
  list.watch->saw(list.first + number);
  return true;
}

const Value& Value::item(size_t number) const {
  const ListData& list = *std::get<ListPointer>(data_);
  list.watch->saw(list.first + number);
  return list.first + number == list.watch->changed_at ? list.watch->changed : list.items[number];
}

Result<Value> Value::tail(size_t begin, Budget& budget) const {
  ListData data = *std::get<ListPointer>(data_);
  JIGE_DO(budget.bytes(data.items.size() * sizeof(Value)));
  begin = std::min(begin, data.items.size());
  data.items.erase(data.items.begin(), data.items.begin() + static_cast<std::ptrdiff_t>(begin));
  data.first += begin;
  data.shown.clear();
  data.shown_version = 0;
  return Value(Data(std::make_shared<const ListData>(std::move(data))));
}

bool Value::is_group() const {
  const auto* list_data = std::get_if<ListPointer>(&data_);
  return list_data && (*list_data)->is_group;
}
bool Value::is_markup() const {
  const auto* text_data = std::get_if<Text>(&data_);
  return text_data && (*text_data)->is_markup;
}
const DictData& Value::entries() const { return *std::get<DictPointer>(data_); }

std::string_view Value::name() const {
  if (const auto* function = std::get_if<Function>(&data_)) return function->name;
  return std::get<Method>(data_).name;
}

uint32_t Value::height() const {
  if (const auto* list_data = std::get_if<ListPointer>(&data_)) return (*list_data)->height;
  if (const auto* dict_data = std::get_if<DictPointer>(&data_)) return (*dict_data)->height;
  if (const auto* state = std::get_if<std::shared_ptr<LoopState>>(&data_)) return (*state)->height;
  return 0;
}

bool Value::same(const Value& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::kUndefined: return undefined_hint() == other.undefined_hint();
    case Kind::kNone: return true;
    case Kind::kBool:
    case Kind::kInt: return as_int() == other.as_int();
    case Kind::kString: return is_markup() == other.is_markup() && text() == other.text();
    case Kind::kList:
    case Kind::kTuple: {
      const ListPointer& a = std::get<ListPointer>(data_);
      const ListPointer& b = std::get<ListPointer>(other.data_);
      return a == b || (a->watch && a->watch == b->watch && a->first == b->first);
    }
    case Kind::kDict: return std::get<DictPointer>(data_) == std::get<DictPointer>(other.data_);
    case Kind::kFunction:
    case Kind::kMethod: return name() == other.name();
    default: return false;
  }
}

bool Value::truth() const {
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool: return as_bool();
    case Kind::kInt: return as_int() != 0;
    case Kind::kFloat: return as_double() != 0;
    case Kind::kString: return !text().empty();
    case Kind::kList:
    case Kind::kTuple: return is_watched() ? has_item(0) : !items().empty();
    case Kind::kDict: return !entries().entries.empty();
    default: return true;
  }
}

std::string_view Value::type_name() const {
  switch (kind()) {
    case Kind::kUndefined: return "undefined";
    case Kind::kNone: return "none";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return "string";
    case Kind::kList: return "list";
    case Kind::kTuple: return "tuple";
    case Kind::kDict: return "dict";
    case Kind::kNamespace: return "namespace";
    case Kind::kLoop: return "loop";
    case Kind::kMacro: return "macro";
    case Kind::kFunction: return "function";
    case Kind::kMethod: return "method";
    case Kind::kCycler: return as_cycler().joins ? "joiner" : "cycler";
  }
  return "value";
}

const Value* DictData::find(std::string_view key) const {
  const auto it = index_.find(std::string(key));
  return it == index_.end() ? nullptr : &entries[it->second].second;
}

const Value* DictData::find(const Value& key) const {
  if (key.is(Kind::kString)) return find(key.text());
  for (const auto& [known, value] : entries) {
    if (keys_equal(known, key)) return &value;
  }
  return nullptr;
}

void DictData::set(Value key, Value value) {
  if (const Value* known = find(key)) {
    *const_cast<Value*>(known) = std::move(value);
    return;
  }
  if (key.is(Kind::kString)) index_.emplace(key.text(), entries.size());
  entries.emplace_back(std::move(key), std::move(value));
}

Result<Value> from_json(const Json& json, Budget& budget) {
  JIGE_DO(budget.steps(1));
  switch (json.type()) {
    case Json::value_t::null: return Value::none();
    case Json::value_t::boolean: return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer: return Value::integer(json.get<int64_t>());
    case Json::value_t::number_unsigned: return Value::whole(json.get<uint64_t>());
    case Json::value_t::number_float: return Value::number(json.get<double>());
    case Json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      JIGE_DO(budget.bytes(text.size()));
      return Value::string(is_valid_utf8(text) ? text : replace_invalid_utf8(text));
    }
    case Json::value_t::array: {
      Items items;
      for (const Json& item : json) {
        JIGE_TRY(Value value, from_json(item, budget));
        items.push_back(std::move(value));
      }
      return Value::list(std::move(items), budget);
    }
    case Json::value_t::object: {
      DictData entries;
      for (const auto& [key, item] : json.items()) {
        JIGE_TRY(Value value, from_json(item, budget));
        entries.set(Value::string(replace_invalid_utf8(key)), std::move(value));
      }
      return Value::dict(std::move(entries), budget);
    }
    default: return fail(Code::kUnsupported, "binary JSON values have no place in a template");
  }
}

Result<bool> equals(const Value& left, const Value& right, Budget& budget) {
  JIGE_DO(budget.steps(1));
  if (left.is_number() && right.is_number()) return numbers_equal(left, right);
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kString: {
      if (left.text().size() != right.text().size()) return false;
      JIGE_DO(budget.steps(left.text().size() / 64));
      return left.text() == right.text();
    }
    case Kind::kList:
    case Kind::kTuple: {
      if (left.items().size() != right.items().size()) return false;
      for (size_t i = 0; i < left.items().size(); ++i) {
        JIGE_TRY(const bool same, equals(left.items()[i], right.items()[i], budget));
        if (!same) return false;
      }
      return true;
    }
    case Kind::kDict: return dicts_equal(left.entries(), right.entries(), budget);
    case Kind::kNamespace: return &left.as_namespace() == &right.as_namespace();
    case Kind::kCycler: return &left.as_cycler() == &right.as_cycler();
    case Kind::kLoop: return &left.as_loop() == &right.as_loop();
    case Kind::kMacro: return &left.as_macro() == &right.as_macro();
    default: return left.name() == right.name();
  }
}

Result<bool> less(const Value& left, const Value& right, Budget& budget) {
  JIGE_DO(budget.steps(1));
  if (left.is_number() && right.is_number()) {
    if (left.is(Kind::kFloat) || right.is(Kind::kFloat)) {
      return left.as_double() < right.as_double();
    }
    return left.as_int() < right.as_int();
  }
  if (left.kind() != right.kind()) return no_order(left, right);
  if (left.is(Kind::kString)) {
    JIGE_DO(budget.steps(std::min(left.text().size(), right.text().size()) / 64));
    return left.text() < right.text();
  }
  if (!left.is_sequence()) return no_order(left, right);
  const Items& a = left.items();
  const Items& b = right.items();
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    JIGE_TRY(const bool same, equals(a[i], b[i], budget));
    if (!same) return less(a[i], b[i], budget);
  }
  return a.size() < b.size();
}

Result<bool> contains(const Value& container, const Value& item, Budget& budget) {
  switch (container.kind()) {
    case Kind::kUndefined: return false;
    case Kind::kString: {
      if (!item.is(Kind::kString)) {
        return fail(Code::kInvalidArgument, "'in <string>' needs a string on the left, not {}",
                    item.type_name());
      }
      JIGE_DO(budget.steps(container.text().size() / 16));
      return find_text(container.text(), item.text()) != std::string_view::npos;
    }
    case Kind::kDict: {
      JIGE_DO(budget.steps(item.is(Kind::kString) ? 1 : container.entries().entries.size()));
      return container.entries().find(item) != nullptr;
    }
    case Kind::kList:
    case Kind::kTuple: {
      for (const Value& known : container.items()) {
        JIGE_TRY(const bool same, equals(known, item, budget));
        if (same) return true;
      }
      return false;
    }
    default:
      return fail(Code::kInvalidArgument, "{} cannot be searched with 'in'",
                  container.type_name());
  }
}

Result<Items> iterate(const Value& value, Budget& budget) {
  switch (value.kind()) {
    case Kind::kUndefined: return Items();
    case Kind::kList:
    case Kind::kTuple:
      JIGE_DO(budget.bytes(value.items().size() * sizeof(Value)));
      return value.items();
    case Kind::kDict: {
      JIGE_DO(budget.bytes(value.entries().entries.size() * sizeof(Value)));
      Items keys;
      for (const auto& [key, item] : value.entries().entries) keys.push_back(key);
      return keys;
    }
    case Kind::kString: {
      JIGE_DO(budget.bytes(value.text().size() * (sizeof(Value) + sizeof(std::string))));
      Items characters;
      const std::string_view text = value.text();
      for (size_t i = 0; i < text.size();) {
        const size_t size = utf8_size(text[i]);
        characters.push_back(Value::string_view(text.substr(i, size)));
        i += size;
      }
      return characters;
    }
    default:
      return fail(Code::kInvalidArgument, "{} cannot be iterated over", value.type_name());
  }
}

Result<int64_t> length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return int64_t{0};
    case Kind::kString: return static_cast<int64_t>(count_characters(value.text()));
    case Kind::kList:
    case Kind::kTuple: return static_cast<int64_t>(value.items().size());
    case Kind::kDict: return static_cast<int64_t>(value.entries().entries.size());
    case Kind::kLoop: return static_cast<int64_t>(value.as_loop().size());
    default: return fail(Code::kInvalidArgument, "{} has no length", value.type_name());
  }
}

}  // namespace jige::text::jinja
