#include "formats/torch_state_dict.h"

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include "text/unicode.h"

namespace jige::formats {
namespace {

// Of a parameter around a tensor; more are nonsense.
constexpr int kParametersMax = 4;

// Loading such a file with torch would run what it says.
constexpr std::string_view kObjectRemedy =
    "Jige makes no objects and runs nothing that a file says; only if you trust its source, load "
    "it with torch and save model.state_dict() anew";

struct TorchType {
  std::string_view storage;     // class, in the module torch
  std::string_view dtype;       // in the module torch
  std::string_view dtype_name;  // as safetensors spells it
};

constexpr TorchType kTorchTypes[] = {
    {"FloatStorage", "float32", "F32"},
    {"HalfStorage", "float16", "F16"},
    {"BFloat16Storage", "bfloat16", "BF16"},
    {"DoubleStorage", "float64", "F64"},
    {"LongStorage", "int64", "I64"},
    {"IntStorage", "int32", "I32"},
    {"ShortStorage", "int16", "I16"},
    {"CharStorage", "int8", "I8"},
    {"ByteStorage", "uint8", "U8"},
    {"BoolStorage", "bool", "BOOL"},
    {"ComplexFloatStorage", "complex64", "C64"},
    {"", "uint16", "U16"},
    {"", "uint32", "U32"},
    {"", "uint64", "U64"},
    {"", "float8_e4m3fn", "F8_E4M3"},
    {"", "float8_e5m2", "F8_E5M2"},
    {"", "float8_e4m3fnuz", "F8_E4M3FNUZ"},
    {"", "float8_e5m2fnuz", "F8_E5M2FNUZ"},
    {"", "float8_e8m0fnu", "F8_E8M0"},
};

// Empty: not known.
std::string_view storage_dtype(const PickleValue& global) {
  if (global.module == "torch.storage" && global.text == "UntypedStorage") return "U8";
  for (const TorchType& type : kTorchTypes) {
    if (global.module == "torch" && !type.storage.empty() && type.storage == global.text) {
      return type.dtype_name;
    }
  }
  return {};
}

std::string_view named_dtype(const PickleValue& global) {
  for (const TorchType& type : kTorchTypes) {
    if (global.module == "torch" && type.dtype == global.text) return type.dtype_name;
  }
  return {};
}

uint64_t element_bytes(std::string_view dtype_name) {
  return static_cast<uint64_t>(stored_type_bits(dtype_name)) / 8;
}

std::optional<uint64_t> whole_number(const PickleValue& value) {
  if (value.kind != PickleKind::kInt || value.number < 0) return std::nullopt;
  return static_cast<uint64_t>(value.number);
}

// Nothing where the id is of something else, as of the source of a module.
Result<std::optional<TorchStorageName>> storage_name(const Pickle& pickle, const PickleValue& id,
                                                     std::string_view where) {
  const PickleValue& tuple = pickle[id.items[0]];
  const auto item = [&](size_t i) -> const PickleValue& { return pickle[tuple.items[i]]; };
  if (tuple.kind != PickleKind::kTuple || tuple.items.size() < 5 ||
      item(0).kind != PickleKind::kText || item(0).text != "storage") {
    return std::nullopt;
  }
  const PickleValue& type = item(1);
  const std::optional<uint64_t> count = whole_number(item(4));
  if (type.kind != PickleKind::kGlobal || item(2).kind != PickleKind::kText || !count) {
    return fail(Code::kCorrupt, "{}: a storage of its pickle is not of the form that torch writes",
                where);
  }
  TorchStorageName name{.key = item(2).text, .dtype_name = storage_dtype(type), .count = *count};
  if (name.dtype_name.empty()) {
    return fail(Code::kUnsupported, "{}: storage \"{}\" is a {}, which is not read; {}", where,
                pickle_shown(name.key), global_text(type), kTorchRemedy);
  }
  if (__builtin_mul_overflow(*count, element_bytes(name.dtype_name), &name.bytes)) {
    return fail(Code::kCorrupt, "{}: storage \"{}\" is said to have {} elements", where,
                pickle_shown(name.key), *count);
  }
  // Old files name a part of another storage behind these.
  if (tuple.items.size() > 5 && item(5).kind != PickleKind::kNone) {
    return fail(Code::kUnsupported,
                "{}: storage \"{}\" is a part of another, which is not read; {}", where,
                pickle_shown(name.key), kTorchRemedy);
  }
  return name;
}

class StateDictReader {
 public:
  StateDictReader(const Pickle& pickle, const TorchStorages& storages, std::string_view where)
      : pickle_(pickle), storages_(storages), where_(where) {}

  Result<std::vector<StoredTensor>> run() {
    JIGE_TRY(const PickleValue* dict, find_dict());
    std::vector<StoredTensor> tensors;
    std::unordered_set<std::string_view> names;
    for (size_t i = 0; i < dict->items.size(); i += 2) {
      const PickleValue& key = pickle_[dict->items[i]];
      const PickleValue& value = pickle_[dict->items[i + 1]];
      if (key.kind != PickleKind::kText) continue;
      const std::string_view name = key.text;
      if (name.size() > kTensorNameBytesMax || !text::is_valid_utf8(name)) {
        return fail(Code::kCorrupt, "{}: a name of {} bytes is too long or is not UTF-8", where_,
                    name.size());
      }
      if (is_tensor(value)) {
        if (!names.insert(name).second) return corrupt(name, "appears twice");
        if (names.size() > kTorchTensorsMax) {
          return fail(Code::kExhausted, "{}: has more than {} tensors", where_, kTorchTensorsMax);
        }
        JIGE_TRY(StoredTensor tensor, read_tensor(name, value));
        tensors.push_back(std::move(tensor));
      } else if (is_object(value)) {
        return fail(Code::kUnsupported, "{}: tensor \"{}\" is an object of {}; {}", where_, name,
                    object_text(value), kObjectRemedy);
      }
    }
    return tensors;
  }

 private:
  template <typename... Args>
  tl::unexpected<Error> unsupported(std::string_view tensor, fmt::format_string<Args...> format,
                                    Args&&... args) const {
    return fail(Code::kUnsupported, "{}: tensor \"{}\" {}; {}", where_, tensor,
                fmt::format(format, std::forward<Args>(args)...), kTorchRemedy);
  }
  template <typename... Args>
  tl::unexpected<Error> corrupt(std::string_view tensor, fmt::format_string<Args...> format,
                                Args&&... args) const {
    return fail(Code::kCorrupt, "{}: tensor \"{}\" {}", where_, tensor,
                fmt::format(format, std::forward<Args>(args)...));
  }

  static bool is_object(const PickleValue& value) {
    return value.kind == PickleKind::kCall || value.kind == PickleKind::kGlobal ||
           value.kind == PickleKind::kPersistent;
  }
  std::string object_text(const PickleValue& value) const {
    if (value.kind == PickleKind::kGlobal) return global_text(value);
    const PickleValue* callee = pickle_.callee(value);
    return callee ? global_text(*callee) : "another class";
  }

  // The name of a function of torch._utils that a call would call, if it begins so.
  std::string_view rebuilt_by(const PickleValue& value) const {
    const PickleValue* callee = pickle_.callee(value);
    if (!callee || callee->module != "torch._utils") return {};
    return callee->text.starts_with("_rebuild_") ? callee->text : std::string_view();
  }
  bool is_tensor(const PickleValue& value) const { return !rebuilt_by(value).empty(); }

  bool has_tensors(const PickleValue& dict) const {
    for (size_t i = 0; i < dict.items.size(); i += 2) {
      const bool named = pickle_[dict.items[i]].kind == PickleKind::kText;
      if (named && is_tensor(pickle_[dict.items[i + 1]])) return true;
    }
    return false;
  }

  Result<const PickleValue*> find_dict() const {
    const PickleValue& top = pickle_.top();
    if (top.kind != PickleKind::kDict) {
      return fail(Code::kUnsupported, "{}: is no state dict but {}; {}", where_,
                  is_object(top) ? "an object of " + object_text(top) : "another value",
                  is_object(top) ? kObjectRemedy : kTorchRemedy);
    }
    const PickleValue* found = has_tensors(top) ? &top : nullptr;
    std::string_view found_key;
    std::unordered_set<uint32_t> seen;
    for (size_t i = 0; i < top.items.size(); i += 2) {
      const PickleValue& key = pickle_[top.items[i]];
      const PickleValue& value = pickle_[top.items[i + 1]];
      if (key.kind != PickleKind::kText || value.kind != PickleKind::kDict) continue;
      if (!seen.insert(top.items[i + 1]).second || !has_tensors(value)) continue;
      if (found)
        return two_dicts(found == &top ? std::nullopt : std::optional(found_key), key.text);
      found = &value;
      found_key = key.text;
    }
    if (found) return found;
    return fail(Code::kUnsupported,
                "{}: holds no tensors by name, neither at the top nor in a dictionary there; {}",
                where_, kTorchRemedy);
  }

  tl::unexpected<Error> two_dicts(std::optional<std::string_view> first,
                                  std::string_view second) const {
    const std::string place =
        first ? fmt::format("in \"{}\"", pickle_shown(*first)) : std::string("at the top");
    return fail(Code::kUnsupported,
                "{}: holds tensors {} and in \"{}\", and does not say which are the model's; {}",
                where_, place, pickle_shown(second), kTorchRemedy);
  }

  Result<StoredTensor> read_tensor(std::string_view name, const PickleValue& value) const {
    const PickleValue* call = &value;
    for (int i = 0; i < kParametersMax && rebuilt_by(*call).starts_with("_rebuild_parameter");
         ++i) {
      const PickleValue& arguments = pickle_[call->items[1]];
      if (arguments.items.empty()) return corrupt(name, "is a parameter without a tensor");
      call = &pickle_[arguments.items[0]];
    }
    const std::string_view function = rebuilt_by(*call);
    const bool typed = function == "_rebuild_tensor_v3";
    if (!typed && function != "_rebuild_tensor_v2" && function != "_rebuild_tensor") {
      return unsupported(name, "is made by {}, which is not read",
                         function.empty() ? "an object" : pickle_shown(function));
    }
    const std::vector<uint32_t>& arguments = pickle_[call->items[1]].items;
    if (arguments.size() < (typed ? 7u : 4u) ||
        pickle_[arguments[0]].kind != PickleKind::kPersistent) {
      return corrupt(name, "is not of the form that torch writes");
    }
    JIGE_TRY(const auto storage, storage_name(pickle_, pickle_[arguments[0]], where_));
    if (!storage) return corrupt(name, "has no storage");
    StoredTensor tensor{.name = std::string(name), .dtype_name = std::string(storage->dtype_name)};
    if (typed) {
      const PickleValue& dtype = pickle_[arguments[6]];
      tensor.dtype_name = dtype.kind == PickleKind::kGlobal ? named_dtype(dtype) : "";
      if (tensor.dtype_name.empty()) {
        return unsupported(name, "is of type {}, which is not read", object_text(dtype));
      }
    }
    // What stands behind says that values are conjugated or negated where they are used.
    const size_t metadata = typed ? 7 : 6;
    if (arguments.size() > metadata && !pickle_[arguments[metadata]].items.empty()) {
      return unsupported(name, "is a view that changes its values, which is not read");
    }
    tensor.dtype = readable_dtype(tensor.dtype_name);
    JIGE_DO(read_shape(tensor, pickle_[arguments[2]], pickle_[arguments[3]]));
    JIGE_DO(place(tensor, *storage, pickle_[arguments[1]]));
    return tensor;
  }

  // The dimensions, and the strides where they are not those of C order; of dimensions of 1 and of
  // tensors without elements they do not matter.
  Status read_shape(StoredTensor& tensor, const PickleValue& sizes,
                    const PickleValue& strides) const {
    if (sizes.kind != PickleKind::kTuple || strides.kind != PickleKind::kTuple ||
        sizes.items.size() != strides.items.size() || sizes.items.size() > kRankListedMax) {
      return corrupt(tensor.name, "has {} dimensions and {} strides; at most {} are read",
                     sizes.items.size(), strides.items.size(), kRankListedMax);
    }
    for (const uint32_t item : sizes.items) {
      const std::optional<uint64_t> dim = whole_number(pickle_[item]);
      if (!dim) return corrupt(tensor.name, "has a dimension that is no whole number");
      tensor.dims.push_back(static_cast<int64_t>(*dim));
    }
    JIGE_TRY(const uint64_t count, checked_count(tensor, where_));
    tensor.bytes = count * element_bytes(tensor.dtype_name);
    bool in_order = true;
    int64_t wanted = 1;
    tensor.strides.resize(tensor.dims.size());
    for (size_t axis = tensor.dims.size(); count > 0 && axis-- > 0;) {
      const std::optional<uint64_t> stride = whole_number(pickle_[strides.items[axis]]);
      if (!stride) return corrupt(tensor.name, "has a stride that is no whole number");
      if (tensor.dims[axis] == 1) continue;
      tensor.strides[axis] = static_cast<int64_t>(*stride);
      in_order &= tensor.strides[axis] == wanted;
      wanted *= tensor.dims[axis];
    }
    if (in_order) tensor.strides.clear();
    return {};
  }

  // Bytes from the first element to the end of the last one; nothing where 64 bits do not hold
  // them.
  static std::optional<uint64_t> extent(const StoredTensor& tensor) {
    if (tensor.strides.empty()) return tensor.bytes;
    uint64_t last = 0;  // element
    for (size_t axis = 0; axis < tensor.dims.size(); ++axis) {
      const auto steps = static_cast<uint64_t>(tensor.dims[axis] - 1);
      uint64_t distance = 0;
      if (__builtin_mul_overflow(steps, static_cast<uint64_t>(tensor.strides[axis]), &distance) ||
          __builtin_add_overflow(last, distance, &last)) {
        return std::nullopt;
      }
    }
    uint64_t bytes = 0;
    const bool fits = last < UINT64_MAX &&
                      !__builtin_mul_overflow(last + 1, element_bytes(tensor.dtype_name), &bytes);
    return fits ? std::optional(bytes) : std::nullopt;
  }

  Status place(StoredTensor& tensor, const TorchStorageName& name,
               const PickleValue& first_element) const {
    const auto it = storages_.find(name.key);
    if (it == storages_.end()) {
      return corrupt(tensor.name, "is in storage \"{}\", which the file does not have",
                     pickle_shown(name.key));
    }
    if (it->second.bytes != name.bytes) {
      return corrupt(tensor.name, "is in storage \"{}\" of {} bytes, of which the file has {}",
                     pickle_shown(name.key), name.bytes, it->second.bytes);
    }
    const std::optional<uint64_t> first = whole_number(first_element);
    const std::optional<uint64_t> bytes = extent(tensor);
    uint64_t begin = 0;
    if (!first || __builtin_mul_overflow(*first, element_bytes(tensor.dtype_name), &begin) ||
        begin > name.bytes || bytes.value_or(UINT64_MAX) > name.bytes - begin) {
      return corrupt(tensor.name, "has {} bytes from element {} on, beyond the {} of its storage",
                     bytes ? fmt::to_string(*bytes) : "too many", first.value_or(0), name.bytes);
    }
    // So that a small file cannot ask for a copy of any size.
    if (tensor.bytes > name.bytes) {
      return unsupported(tensor.name, "has elements that stand for many: {} bytes in {} of storage",
                         tensor.bytes, name.bytes);
    }
    tensor.offset = it->second.offset + begin;
    return {};
  }

  const Pickle& pickle_;
  const TorchStorages& storages_;
  std::string_view where_;
};

}  // namespace

Result<std::vector<TorchStorageName>> torch_storage_names(const Pickle& pickle,
                                                          std::string_view where) {
  std::vector<TorchStorageName> names;
  std::unordered_set<std::string_view> known;
  for (const PickleValue& value : pickle.values) {
    if (value.kind != PickleKind::kPersistent) continue;
    JIGE_TRY(const auto name, storage_name(pickle, value, where));
    if (name && known.insert(name->key).second) names.push_back(*name);
  }
  return names;
}

Result<std::vector<StoredTensor>> read_state_dict(const Pickle& pickle,
                                                  const TorchStorages& storages,
                                                  std::string_view where) {
  return StateDictReader(pickle, storages, where).run();
}

}  // namespace jige::formats
