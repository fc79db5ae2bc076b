// Values of the template language: what Python would call str, int, list, dict and so on.
//
// Strings, lists and dicts are shared and never change; only namespaces and cyclers do. Every list
// and dict knows its height (how deep it nests), which is bounded, so that copying, comparing,
// printing and freeing never exhaust the stack. Namespaces, cyclers and macros belong to the
// interpreter that runs the template; values only point to them, so that cycles through namespaces
// free properly.
//
// Budget: everything whose cost could grow with the data charges it, so hostile templates end.
//
// The list of messages may be watched (Watch), and so are its tails: it notes how much of it was
// looked at, and can be made shorter, or show another item, without touching the values that hold
// it. What knows nothing of watches calls items(), which counts as looking at everything.
//
// Threads: values may be shared between threads as long as their namespaces are not.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace jige::text::jinja {

class Value;

// What a render may still use. Charges fail with kExhausted once a bound is crossed.
class Budget {
 public:
  static constexpr int64_t kSteps = 30'000'000;
  static constexpr int64_t kBytes = int64_t{512} << 20;

  Budget() = default;
  // Less than the bounds of every template.
  Budget(int64_t steps_max, int64_t bytes_max) : steps_max_(steps_max), bytes_max_(bytes_max) {}

  // One unit is about what evaluating one expression node costs.
  Status steps(size_t count);
  // Bytes of strings and containers made, also counted as steps in proportion.
  Status bytes(size_t count);
  int64_t steps_used() const { return steps_max_ - steps_left_; }
  // Whether a namespace was ever put into a list or dict.
  bool keeps_namespaces() const { return keeps_namespaces_; }
  void note_item(const Value& item);

 private:
  int64_t steps_max_ = kSteps;
  int64_t bytes_max_ = kBytes;
  int64_t steps_left_ = steps_max_;
  int64_t bytes_left_ = bytes_max_;
  bool keeps_namespaces_ = false;
};

inline constexpr uint32_t kValueHeightMax = 200;

struct ListData;
struct DictData;
struct Cycler;
struct LoopState;
struct MacroInstance;
struct RecursiveLoop;
struct Namespace;
struct Watch;

using Items = std::vector<Value>;

enum class Kind {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kNamespace,
  kLoop,
  kMacro,
  kFunction,  // a global function such as range
  kMethod,    // a method taken from an object without calling it
  kCycler,    // what cycler(…) and joiner(…) make
};

class Value {
 public:
  Value() : data_(Undefined{}) {}
  static Value undefined(std::string hint);
  static Value none();
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value number(double value);
  // A whole number of JSON; beyond int64_t a float that is shown with all its digits.
  static Value whole(uint64_t value);
  static Value string(std::string text);
  // Text that is HTML already: what is added to it becomes HTML, too, as markupsafe has it.
  static Value markup(std::string text);
  static Value string_view(std::string_view text) { return string(std::string(text)); }
  // A list or tuple. Fails with kUnsupported when it nests too deep.
  static Result<Value> list(Items items, Budget& budget);
  static Result<Value> tuple(Items items, Budget& budget);
  static Result<Value> dict(DictData entries, Budget& budget);
  // A tuple (grouper, list), as groupby makes it.
  static Result<Value> group(Value grouper, Value list, Budget& budget);
  // A list with the same items that is watched. REQUIRES: a list, not watched yet.
  static Value watched(const Value& list, std::shared_ptr<Watch> watch);
  static Value name_space(Namespace* value);
  static Value cycler(Cycler* value);
  static Value loop(std::shared_ptr<LoopState> state);
  static Value macro(const MacroInstance* macro);
  static Value function(std::string_view name);
  static Value method(std::string_view name);

  Kind kind() const;
  bool is(Kind kind_wanted) const { return kind() == kind_wanted; }
  bool is_sequence() const { return is(Kind::kList) || is(Kind::kTuple); }
  bool is_number() const { return is(Kind::kBool) || is(Kind::kInt) || is(Kind::kFloat); }

  // REQUIRES of each: the kind it names.
  const std::string& undefined_hint() const;
  bool as_bool() const { return std::get<bool>(data_); }
  int64_t as_int() const;                       // kInt or kBool
  double as_double() const;                     // any number
  std::optional<uint64_t> large_whole() const;  // any kind; nothing of what is no such float
  const std::string& text() const { return std::get<Text>(data_)->text; }
  bool is_markup() const;      // any kind
  const Items& items() const;  // kList or kTuple; valid until the watch of the list changes
  bool is_watched() const;     // any kind
  Watch& watch() const;        // of a watched list
  // Of a watched list, looking no further than this item: whether there is one of that number, it,
  // and the watched list of those from there on.
  bool has_item(size_t number) const;
  const Value& item(size_t number) const;
  Result<Value> tail(size_t begin, Budget& budget) const;
  bool is_group() const;  // of groupby; any kind
  const DictData& entries() const;
  Namespace& as_namespace() const { return *std::get<Namespace*>(data_); }
  Cycler& as_cycler() const { return *std::get<Cycler*>(data_); }
  LoopState& as_loop() const { return *std::get<std::shared_ptr<LoopState>>(data_); }
  const MacroInstance& as_macro() const { return *std::get<const MacroInstance*>(data_); }
  std::string_view name() const;  // kFunction or kMethod

  // How deep lists and dicts nest in it; 0 for scalars.
  uint32_t height() const;
  // True only where no template can tell it from another; lists and dicts that are no copies of one
  // another, and fractions, count as different.
  bool same(const Value& other) const;
  // Python's truth of a value.
  bool truth() const;
  // Python's name of its type, for messages.
  std::string_view type_name() const;

 private:
  struct Undefined {
    std::shared_ptr<const std::string> hint;
  };
  struct None {};
  struct Function {
    std::string name;
  };
  struct Method {
    std::string name;
  };
  struct TextData {
    std::string text;
    bool is_markup = false;
  };
  using Text = std::shared_ptr<const TextData>;
  using ListPointer = std::shared_ptr<const ListData>;
  using DictPointer = std::shared_ptr<const DictData>;
  using Data = std::variant<Undefined, None, bool, int64_t, double, Text, ListPointer, DictPointer,
                            Namespace*, std::shared_ptr<LoopState>, const MacroInstance*, Function,
                            Method, Cycler*, uint64_t>;
  explicit Value(Data data) : data_(std::move(data)) {}
  Data data_;
};

struct ListData {
  Items items;
  bool is_tuple = false;
  uint32_t height = 1;
  bool is_group = false;
  std::shared_ptr<Watch> watch = nullptr;
  size_t first = 0;  // place of items[0] in the whole list that is watched
  // What items() gives where the watch shows something else than `items`; made on demand.
  mutable Items shown = {};
  mutable uint64_t shown_version = 0;
};

// Watches one list and its tails.
struct Watch {
  static constexpr size_t kAll = SIZE_MAX;
  // How many items at the beginning of the whole list were looked at; kAll: its end, too.
  size_t seen = 0;
  // The first item that was looked at.
  size_t lowest = kAll;

  // How many items the list has, at most, and the item that shows another value.
  size_t limit = kAll;
  size_t changed_at = kAll;
  Value changed;
  uint64_t version = 0;  // changes with any of these three

  void saw(size_t place) {
    seen = std::max(seen, place + 1);
    lowest = std::min(lowest, place);
  }
};

// Entries in the order of insertion.
struct DictData {
  std::vector<std::pair<Value, Value>> entries;
  uint32_t height = 1;

  // The value of a key, or nullptr. Numbers that are equal are the same key.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  // Inserts, or replaces the value of an equal key.
  void set(Value key, Value value);

 private:
  std::unordered_map<std::string, size_t> index_;  // of text keys
};

struct Namespace {
  DictData attributes;
};

// Of a cycler the items and where it stands; of a joiner its separator, and whether it was called.
struct Cycler {
  Items items;
  size_t at = 0;
  bool joins = false;
};

// The state of one for loop, seen as `loop` inside.
struct LoopState {
  Items items;
  Value watched;  // the list in place of `items`, else undefined
  size_t at = 0;
  uint32_t height = 1;
  bool ended = false;                        // a turn came to its end, so {% else %} is passed over
  int64_t depth = 0;                         // calls of loop(…) around it
  const RecursiveLoop* recursive = nullptr;  // what a call of it runs, if it can be called

  bool has(size_t number) const {
    return watched.is_watched() ? watched.has_item(number) : number < items.size();
  }
  const Value& item(size_t number) const {
    return watched.is_watched() ? watched.item(number) : items[number];
  }
  size_t size() const { return watched.is_watched() ? watched.items().size() : items.size(); }
};

// A tree of JSON as a value. Fails with kUnsupported when it nests too deep.
Result<Value> from_json(const Json& json, Budget& budget);

// Python's == and <; the latter fails with kInvalidArgument on types that have no order.
Result<bool> equals(const Value& left, const Value& right, Budget& budget);
Result<bool> less(const Value& left, const Value& right, Budget& budget);
// Python's `item in container`.
Result<bool> contains(const Value& container, const Value& item, Budget& budget);

// What a for loop goes through: items, keys, characters; nothing for undefined.
Result<Items> iterate(const Value& value, Budget& budget);
// Python's len(); fails on numbers and none.
Result<int64_t> length(const Value& value);

}  // namespace jige::text::jinja
