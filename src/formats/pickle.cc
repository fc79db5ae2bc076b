#include "formats/pickle.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "formats/byte_reader.h"

namespace jige::formats {
namespace {

constexpr int kProtocolMax = 5;
constexpr uint32_t kNothing = std::numeric_limits<uint32_t>::max();

class PickleMachine {
 public:
  PickleMachine(std::span<const std::byte> bytes, std::string_view where) : reader_(bytes, where) {}

  Result<Pickle> run();

 private:
  // What an opcode does, with a number that tells it from those like it.
  using Action = Status (PickleMachine::*)(uint64_t variant);
  using Actions = std::array<std::pair<Action, uint64_t>, 256>;
  static constexpr Actions actions();

  // Of `bytes` bytes, little-endian.
  Result<uint64_t> read_number(uint64_t bytes, std::string_view what) {
    JIGE_TRY(const std::string_view text, reader_.take(bytes, what));
    uint64_t value = 0;
    std::memcpy(&value, text.data(), text.size());
    return value;
  }

  template <typename... Args>
  tl::unexpected<Error> corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    return fail(Code::kCorrupt, "{}: opcode at byte {} of the pickle: {}", reader_.where(),
                opcode_at_, fmt::format(format, std::forward<Args>(args)...));
  }

  // Counts against the limit.
  Status charge(size_t steps) {
    steps_ += steps;
    if (steps_ <= kPickleStepsMax) return {};
    return fail(Code::kExhausted, "{}: its pickle has more than {} opcodes and items",
                reader_.where(), kPickleStepsMax);
  }

  Status push(PickleValue value) {
    JIGE_DO(charge(value.items.size()));
    if (pickle_.values.size() == kPickleValuesMax) {
      return fail(Code::kExhausted, "{}: its pickle has more than {} values", reader_.where(),
                  kPickleValuesMax);
    }
    stack_.push_back(static_cast<uint32_t>(pickle_.values.size()));
    pickle_.values.push_back(std::move(value));
    return {};
  }

  // What lies below the last mark cannot be reached.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  Result<uint32_t> pop() {
    if (stack_.size() <= floor()) return corrupt("there is nothing left to take");
    const uint32_t id = stack_.back();
    stack_.pop_back();
    return id;
  }

  Result<std::vector<uint32_t>> pop_marked() {
    if (marks_.empty()) return corrupt("there is no mark");
    const auto begin = stack_.begin() + static_cast<ptrdiff_t>(marks_.back());
    std::vector<uint32_t> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }

  // The object under what was popped, which is to grow.
  Result<PickleValue*> target(PickleKind kind) {
    if (stack_.size() <= floor()) return corrupt("there is nothing to add to");
    PickleValue& value = pickle_.values[stack_.back()];
    if (value.kind != kind && value.kind != PickleKind::kCall) {
      return corrupt("adds to what is no {}", kind == PickleKind::kDict ? "dictionary" : "list");
    }
    return &value;
  }

  Status add(PickleKind kind, const std::vector<uint32_t>& items) {
    JIGE_TRY(PickleValue * into, target(kind));
    if (kind == PickleKind::kDict && items.size() % 2 != 0) return corrupt("a key has no value");
    if (into->kind == PickleKind::kCall) return {};  // the content of an object that is not made
    JIGE_DO(charge(items.size()));
    into->items.insert(into->items.end(), items.begin(), items.end());
    return {};
  }

  Status skip(uint64_t bytes) {
    JIGE_DO(reader_.take(bytes, "a frame of the pickle"));
    return {};
  }

  Status protocol(uint64_t) {
    JIGE_TRY(const uint64_t version, read_number(1, "the protocol"));
    if (version <= kProtocolMax) return {};
    return fail(Code::kUnsupported, "{}: its pickle is of protocol {}; up to {} are read",
                reader_.where(), version, kProtocolMax);
  }

  Status stop(uint64_t) {
    if (stack_.size() != 1 || !marks_.empty())
      return corrupt("ends with more or less than a value");
    pickle_.root = stack_.back();
    pickle_.size = reader_.at();
    stopped_ = true;
    return {};
  }

  Status mark(uint64_t) {
    marks_.push_back(stack_.size());
    return {};
  }
  Status drop(uint64_t) {
    JIGE_DO(pop());
    return {};
  }
  Status drop_marked(uint64_t) {
    JIGE_DO(pop_marked());
    return {};
  }

  Status empty(uint64_t kind) { return push({.kind = static_cast<PickleKind>(kind)}); }
  Status boolean(uint64_t value) {
    return push({.kind = PickleKind::kBool, .number = static_cast<int64_t>(value)});
  }
  Status integer(uint64_t bytes) {
    JIGE_TRY(const uint64_t value, read_number(bytes, "a number of the pickle"));
    // That of four bytes alone is signed.
    const int64_t number = bytes == 4 ? static_cast<int32_t>(value) : static_cast<int64_t>(value);
    return push({.kind = PickleKind::kInt, .number = number});
  }
  Status fraction(uint64_t bytes) {
    JIGE_TRY(const std::string_view text, reader_.take(bytes, "a number of the pickle"));
    return push({.kind = PickleKind::kOtherNumber, .text = text});
  }
  // In two's complement, of a length that is said before.
  Status long_integer(uint64_t length_bytes) {
    JIGE_TRY(const uint64_t size, read_number(length_bytes, "a number of the pickle"));
    JIGE_TRY(const std::string_view text, reader_.take(size, "a number of the pickle"));
    if (size > sizeof(int64_t)) return push({.kind = PickleKind::kOtherNumber, .text = text});
    const bool negative = size > 0 && (static_cast<unsigned char>(text.back()) & 0x80u) != 0;
    int64_t number = negative ? -1 : 0;
    std::memcpy(&number, text.data(), text.size());
    return push({.kind = PickleKind::kInt, .number = number});
  }
  Status text(uint64_t length_bytes) { return text_of(PickleKind::kText, length_bytes); }
  Status binary(uint64_t length_bytes) { return text_of(PickleKind::kBytes, length_bytes); }
  Status text_of(PickleKind kind, uint64_t length_bytes) {
    JIGE_TRY(const uint64_t size, read_number(length_bytes, "a text of the pickle"));
    JIGE_TRY(const std::string_view text, reader_.take(size, "a text of the pickle"));
    return push({.kind = kind, .text = text});
  }

  Status tuple(uint64_t count) {
    std::vector<uint32_t> items(count);
    for (uint64_t i = count; i-- > 0;) {
      JIGE_TRY(items[i], pop());
    }
    return push({.kind = PickleKind::kTuple, .items = std::move(items)});
  }
  Status marked(uint64_t kind) {
    JIGE_TRY(std::vector<uint32_t> items, pop_marked());
    return push({.kind = static_cast<PickleKind>(kind), .items = std::move(items)});
  }
  Status append(uint64_t) {
    JIGE_TRY(const uint32_t item, pop());
    return add(PickleKind::kList, {item});
  }
  Status set_item(uint64_t) {
    JIGE_TRY(const uint32_t value, pop());
    JIGE_TRY(const uint32_t key, pop());
    return add(PickleKind::kDict, {key, value});
  }
  Status add_marked(uint64_t kind) {
    JIGE_TRY(const std::vector<uint32_t> items, pop_marked());
    return add(static_cast<PickleKind>(kind), items);
  }

  Status get(uint64_t bytes) {
    JIGE_TRY(const uint64_t place, read_number(bytes, "a place in the memo"));
    if (place >= memo_.size() || memo_[place] == kNothing) {
      return corrupt("there is nothing at place {} of the memo", place);
    }
    stack_.push_back(memo_[place]);
    return {};
  }
  Status put(uint64_t bytes) {
    JIGE_TRY(const uint64_t place, read_number(bytes, "a place in the memo"));
    return keep(place);
  }
  Status memoize(uint64_t) { return keep(memo_count_); }
  Status keep(uint64_t place) {
    if (stack_.size() <= floor()) return corrupt("there is nothing to keep");
    if (place >= kPickleStepsMax) return corrupt("place {} of the memo is too far", place);
    if (place >= memo_.size()) memo_.resize(place + 1, kNothing);
    if (memo_[place] == kNothing) ++memo_count_;
    memo_[place] = stack_.back();
    return {};
  }

  Status global(uint64_t) {
    JIGE_TRY(const std::string_view module, reader_.take_line("the name of a module"));
    JIGE_TRY(const std::string_view name, reader_.take_line("the name of a class"));
    return push({.kind = PickleKind::kGlobal, .text = name, .module = module});
  }
  Status stacked_global(uint64_t) {
    JIGE_TRY(const uint32_t name, pop());
    JIGE_TRY(const uint32_t module, pop());
    const PickleValue& first = pickle_[module];
    const PickleValue& second = pickle_[name];
    if (first.kind != PickleKind::kText || second.kind != PickleKind::kText) {
      return corrupt("the name of a class is no text");
    }
    return push({.kind = PickleKind::kGlobal, .text = second.text, .module = first.text});
  }
  Status persistent(uint64_t) {
    JIGE_TRY(const uint32_t id, pop());
    return push({.kind = PickleKind::kPersistent, .items = {id}});
  }
  // The state of an object, as its attributes.
  Status set_state(uint64_t) {
    JIGE_DO(drop(0));
    if (stack_.size() <= floor()) return corrupt("there is no object");
    return {};
  }
  Status call(uint64_t keywords) {
    if (keywords != 0) JIGE_DO(drop(0));
    JIGE_TRY(const uint32_t arguments, pop());
    JIGE_TRY(const uint32_t called, pop());
    const PickleValue& tuple = pickle_[arguments];
    if (tuple.kind != PickleKind::kTuple) return corrupt("the arguments of a call are no tuple");
    const PickleValue& global = pickle_[called];
    if (global.kind == PickleKind::kGlobal && global.module == "collections" &&
        global.text == "OrderedDict") {
      return ordered_dict(tuple);
    }
    return push({.kind = PickleKind::kCall, .items = {called, arguments}});
  }
  // Without arguments, or as Python 2 writes it, with a list of pairs.
  Status ordered_dict(const PickleValue& arguments) {
    if (arguments.items.size() > 1) return corrupt("a dictionary is made of several arguments");
    PickleValue dict{.kind = PickleKind::kDict};
    for (const uint32_t list : arguments.items) {
      JIGE_DO(charge(2 * pickle_[list].items.size()));
      for (const uint32_t pair : pickle_[list].items) {
        const std::vector<uint32_t>& both = pickle_[pair].items;
        if (both.size() != 2) return corrupt("makes a dictionary of other than pairs");
        dict.items.insert(dict.items.end(), both.begin(), both.end());
      }
    }
    return push(std::move(dict));
  }

  ByteReader reader_;
  bool stopped_ = false;
  size_t opcode_at_ = 0;
  size_t steps_ = 0;
  Pickle pickle_;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;
  std::vector<uint32_t> memo_;  // kNothing where there is none
  size_t memo_count_ = 0;
};

constexpr PickleMachine::Actions PickleMachine::actions() {
  using M = PickleMachine;
  constexpr auto number_of = [](PickleKind kind) { return static_cast<uint64_t>(kind); };
  constexpr uint64_t kTuple = number_of(PickleKind::kTuple);
  constexpr uint64_t kList = number_of(PickleKind::kList);
  constexpr uint64_t kDict = number_of(PickleKind::kDict);
  Actions table{};
  // The machine itself.
  table[0x80] = {&M::protocol, 0};
  table[0x95] = {&M::skip, 8};
  table['.'] = {&M::stop, 0};
  table['('] = {&M::mark, 0};
  table['0'] = {&M::drop, 0};
  table['1'] = {&M::drop_marked, 0};
  // Numbers, by their bytes or those of their length; texts likewise.
  table['N'] = {&M::empty, number_of(PickleKind::kNone)};
  table[0x88] = {&M::boolean, 1};
  table[0x89] = {&M::boolean, 0};
  table['K'] = {&M::integer, 1};
  table['M'] = {&M::integer, 2};
  table['J'] = {&M::integer, 4};
  table['G'] = {&M::fraction, 8};
  table[0x8a] = {&M::long_integer, 1};
  table[0x8b] = {&M::long_integer, 4};
  table['U'] = {&M::text, 1};
  table['T'] = {&M::text, 4};
  table[0x8c] = {&M::text, 1};
  table['X'] = {&M::text, 4};
  table[0x8d] = {&M::text, 8};
  table['C'] = {&M::binary, 1};
  table['B'] = {&M::binary, 4};
  table[0x8e] = {&M::binary, 8};
  table[0x96] = {&M::binary, 8};
  // Containers.
  table[')'] = {&M::empty, kTuple};
  table[']'] = {&M::empty, kList};
  table[0x8f] = {&M::empty, kList};
  table['}'] = {&M::empty, kDict};
  table['t'] = {&M::marked, kTuple};
  table[0x91] = {&M::marked, kList};
  table[0x85] = {&M::tuple, 1};
  table[0x86] = {&M::tuple, 2};
  table[0x87] = {&M::tuple, 3};
  table['a'] = {&M::append, 0};
  table['e'] = {&M::add_marked, kList};
  table[0x90] = {&M::add_marked, kList};
  table['s'] = {&M::set_item, 0};
  table['u'] = {&M::add_marked, kDict};
  // The memo.
  table['h'] = {&M::get, 1};
  table['j'] = {&M::get, 4};
  table['q'] = {&M::put, 1};
  table['r'] = {&M::put, 4};
  table[0x94] = {&M::memoize, 0};
  // Objects; what has keyword arguments is made in another way.
  table['c'] = {&M::global, 0};
  table[0x93] = {&M::stacked_global, 0};
  table['Q'] = {&M::persistent, 0};
  table['R'] = {&M::call, 0};
  table[0x81] = {&M::call, 0};
  table[0x92] = {&M::call, 1};
  table['b'] = {&M::set_state, 0};
  return table;
}

Result<Pickle> PickleMachine::run() {
  static constexpr Actions kActions = actions();
  while (!stopped_) {
    opcode_at_ = reader_.at();
    JIGE_DO(charge(1));
    JIGE_TRY(const uint8_t opcode, reader_.read<uint8_t>("the pickle"));
    const auto& [action, variant] = kActions[opcode];
    if (action == nullptr) {
      return fail(Code::kUnsupported,
                  "{}: byte {} of the pickle is opcode {:#04x}, which is not read; torch.save "
                  "writes none such",
                  reader_.where(), opcode_at_, opcode);
    }
    JIGE_DO((this->*action)(variant));
  }
  return std::move(pickle_);
}

}  // namespace

const PickleValue* Pickle::callee(const PickleValue& value) const {
  if (value.kind != PickleKind::kCall) return nullptr;
  const PickleValue& called = values[value.items[0]];
  return called.kind == PickleKind::kGlobal ? &called : nullptr;
}

const PickleValue* Pickle::find(const PickleValue& dict, std::string_view key) const {
  if (dict.kind != PickleKind::kDict) return nullptr;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleValue& name = values[dict.items[i]];
    if (name.kind == PickleKind::kText && name.text == key) return &values[dict.items[i + 1]];
  }
  return nullptr;
}

Result<Pickle> read_pickle(std::span<const std::byte> bytes, std::string_view where) {
  return PickleMachine(bytes, where).run();
}

std::string global_text(const PickleValue& global) {
  return fmt::format("{}.{}", pickle_shown(global.module), pickle_shown(global.text));
}

}  // namespace jige::formats
