// Python's pickle streams as plain values, of which none is ever imported, made or called.
//
// A stream is a program for a stack machine: opcodes push numbers and texts, gather them into
// tuples, lists and dictionaries, keep them in a memo, and name classes and functions that a
// reader shall call. Here a call becomes a value that says what would be called with what, so a
// file can do nothing but describe. The opcodes are those of protocols 2 to 5 but extension codes
// and buffers outside of the stream; those of protocols 0 and 1 that are texts are refused.
// collections.OrderedDict is the one class that is known: it becomes a dictionary. What would set
// the state of an object is passed over.
// Invariants: (1) texts are views on the bytes. (2) Lists and dictionaries may contain themselves;
//             tuples, calls and persistent ids have items that are older than they are.
//             (3) Memory is bounded by the limits below, whatever the bytes say.
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace jige::formats {

inline constexpr size_t kPickleValuesMax = size_t{1} << 21;
// Opcodes, and items of all values together.
inline constexpr size_t kPickleStepsMax = size_t{1} << 23;

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInt,
  kOtherNumber,  // a fraction, or an int of more than 64 bits, whose bytes are the text
  kText,
  kBytes,
  kTuple,
  kList,  // or a set
  kDict,
  kGlobal,      // a class or function: its module and its name in it
  kCall,        // its two items: what would be called, and the tuple of arguments
  kPersistent,  // its one item: the id of something outside of the stream
};

struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  int64_t number = 0;           // kBool, kInt
  std::string_view text;        // of a kGlobal the name
  std::string_view module;      // of a kGlobal
  std::vector<uint32_t> items;  // of a kDict keys and values in turn
};

struct Pickle {
  std::vector<PickleValue> values;
  uint32_t root = 0;
  size_t size = 0;  // bytes up to the end of the stream; more may follow

  const PickleValue& operator[](uint32_t id) const { return values[id]; }
  const PickleValue& top() const { return values[root]; }
  // The kGlobal that a kCall would call, or nullptr.
  const PickleValue* callee(const PickleValue& value) const;
  // The value of a text in a kDict, or nullptr.
  const PickleValue* find(const PickleValue& dict, std::string_view key) const;
};

// Reads the stream at the start of `bytes`. Fails with kCorrupt where it contradicts itself or
// ends, with kUnsupported on other opcodes, with kExhausted beyond the limits, naming `where` and
// the byte.
Result<Pickle> read_pickle(std::span<const std::byte> bytes, std::string_view where);

// "torch._utils._rebuild_tensor_v2", of a length fit for a message; REQUIRES: a kGlobal.
std::string global_text(const PickleValue& global);

// The beginning of a text from a pickle, of a length fit for a message.
inline std::string_view pickle_shown(std::string_view text) { return text.substr(0, 200); }

}  // namespace jige::formats
