// For tests: GGUF files made byte by byte, of any content.
//
// Threads: one test at a time.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/gguf.h"
#include "formats/gguf_tokenizer.h"
#include "formats/model_config.h"
#include "formats/tensor_folder.h"
#include "formats/test_support.h"

namespace jige::formats {

inline std::string gguf_fixture(std::string_view name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/gguf/" + std::string(name);
}

template <typename T>
void append_raw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

inline void append_gguf_text(std::string& out, std::string_view text) {
  append_raw<uint64_t>(out, text.size());
  out += text;
}

// Collects keys and tensors; bytes() is the file.
class GgufBuilder {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;

  GgufBuilder& number(std::string_view key, uint32_t value) {
    return raw_value(key, 4, std::string(reinterpret_cast<const char*>(&value), sizeof value));
  }
  GgufBuilder& real(std::string_view key, float value) {
    return raw_value(key, 6, std::string(reinterpret_cast<const char*>(&value), sizeof value));
  }
  GgufBuilder& flag(std::string_view key, bool value) {
    return raw_value(key, 7, std::string(1, value ? '\1' : '\0'));
  }
  GgufBuilder& text(std::string_view key, std::string_view value) {
    std::string bytes;
    append_gguf_text(bytes, value);
    return raw_value(key, 8, bytes);
  }
  GgufBuilder& texts(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes;
    append_raw<uint32_t>(bytes, 8);
    append_raw<uint64_t>(bytes, values.size());
    for (const std::string& value : values) append_gguf_text(bytes, value);
    return raw_value(key, 9, bytes);
  }
  GgufBuilder& ints(std::string_view key, const std::vector<int32_t>& values) {
    return array(key, 5, values);
  }
  GgufBuilder& reals(std::string_view key, const std::vector<float>& values) {
    return array(key, 6, values);
  }
  // A value of any type number, in its bytes. A key given again takes the place of the former.
  GgufBuilder& raw_value(std::string_view key, uint32_t type, std::string_view bytes) {
    remove(key);
    std::string entry;
    append_gguf_text(entry, key);
    append_raw<uint32_t>(entry, type);
    keys_.emplace_back(key, entry + std::string(bytes));
    return *this;
  }
  GgufBuilder& remove(std::string_view key) {
    std::erase_if(keys_, [&](const auto& entry) { return entry.first == key; });
    return *this;
  }

  // `dims` with the slowest first.
  GgufBuilder& tensor(std::string_view name, std::vector<int64_t> dims, uint32_t type,
                      std::string_view data) {
    remove_tensor(name);
    tensors_.push_back({std::string(name), std::move(dims), type, std::string(data)});
    return *this;
  }
  GgufBuilder& remove_tensor(std::string_view name) {
    std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; });
    return *this;
  }

  // The same in several files, of which the first has all the keys.
  std::vector<GgufBuilder> parts(uint32_t count) const {
    std::vector<GgufBuilder> made(count);
    made[0].keys_ = keys_;
    for (uint32_t i = 0; i < count; ++i) {
      made[i].number("split.no", i).number("split.count", count);
      made[i].number("split.tensors.count", static_cast<uint32_t>(tensors_.size()));
      const auto at = [&](uint32_t part) {
        return tensors_.begin() + static_cast<std::ptrdiff_t>(tensors_.size() * part / count);
      };
      made[i].tensors_.assign(at(i), at(i + 1));
    }
    return made;
  }

  std::string bytes() const {
    std::string out = "GGUF";
    append_raw<uint32_t>(out, version);
    append_raw<uint64_t>(out, tensors_.size());
    append_raw<uint64_t>(out, keys_.size());
    for (const auto& [key, entry] : keys_) out += entry;
    uint64_t offset = 0;
    for (const Tensor& tensor : tensors_) {
      append_gguf_text(out, tensor.name);
      append_raw<uint32_t>(out, static_cast<uint32_t>(tensor.dims.size()));
      for (size_t i = tensor.dims.size(); i-- > 0;) append_raw<int64_t>(out, tensor.dims[i]);
      append_raw<uint32_t>(out, tensor.type);
      append_raw<uint64_t>(out, offset);
      offset += padded(tensor.data.size());
    }
    out.resize(padded(out.size()));
    for (const Tensor& tensor : tensors_) {
      out += tensor.data;
      out.resize(padded(out.size()));
    }
    return out;
  }

 private:
  struct Tensor {
    std::string name;
    std::vector<int64_t> dims;
    uint32_t type;
    std::string data;
  };

  template <typename T>
  GgufBuilder& array(std::string_view key, uint32_t type, const std::vector<T>& values) {
    std::string bytes;
    append_raw<uint32_t>(bytes, type);
    append_raw<uint64_t>(bytes, values.size());
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    return raw_value(key, 9, bytes);
  }

  size_t padded(size_t size) const { return (size + alignment - 1) / alignment * alignment; }

  std::vector<std::pair<std::string, std::string>> keys_;
  std::vector<Tensor> tensors_;
};

// A Llama of one layer, width 32 and 40 tokens, whose tensors are all F32 and hold small numbers
// that follow from their place.
inline GgufBuilder small_gguf_llama() {
  GgufBuilder out;
  out.text("general.architecture", "llama")
      .number("llama.block_count", 1)
      .number("llama.context_length", 64)
      .number("llama.embedding_length", 32)
      .number("llama.feed_forward_length", 48)
      .number("llama.attention.head_count", 4)
      .number("llama.attention.head_count_kv", 2)
      .real("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<float> scores = {0, 0, 0};
  std::vector<int32_t> types = {2, 3, 3};
  for (int i = 0; i < 26; ++i) {
    tokens.emplace_back(1, static_cast<char>('a' + i));
    scores.push_back(static_cast<float>(-10 - i));
    types.push_back(1);
  }
  for (const char* piece : {"\u2581", "\u2581a", "th", "the", "\u2581the"}) {
    tokens.emplace_back(piece);
    scores.push_back(static_cast<float>(-static_cast<int>(tokens.size())));
    types.push_back(1);
  }
  out.text("tokenizer.ggml.model", "llama")
      .texts("tokenizer.ggml.tokens", tokens)
      .reals("tokenizer.ggml.scores", scores)
      .ints("tokenizer.ggml.token_type", types);
  const auto add = [&](const char* name, std::vector<int64_t> dims) {
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    std::string data;
    for (int64_t i = 0; i < count; ++i) {
      append_raw<float>(data, static_cast<float>(i % 251) / 256.0f - 0.5f);
    }
    out.tensor(name, std::move(dims), kGgufF32, data);
  };
  add("token_embd.weight", {40, 32});
  add("blk.0.attn_norm.weight", {32});
  add("blk.0.attn_q.weight", {32, 32});
  add("blk.0.attn_k.weight", {16, 32});
  add("blk.0.attn_v.weight", {16, 32});
  add("blk.0.attn_output.weight", {32, 32});
  add("blk.0.ffn_norm.weight", {32});
  add("blk.0.ffn_gate.weight", {48, 32});
  add("blk.0.ffn_up.weight", {48, 32});
  add("blk.0.ffn_down.weight", {32, 48});
  add("output_norm.weight", {32});
  return out;
}

// The model of a fixture with a tokenizer of 96 tokens.
inline std::string folder_to_export(const ScratchFolder& scratch, const std::string& name) {
  const std::string folder = scratch.file("original-" + name);
  std::filesystem::copy(std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/" + name, folder);
  static const std::string tokenizer = [] {
    const std::string file = read_or_fail(gguf_fixture("qwen2.gguf"));
    const auto keys = parse_gguf(bytes_of(file), "qwen2");
    return read_gguf_tokenizer(keys->metadata, {.vocab_size = 96})->tokenizer_json;
  }();
  write_or_fail(folder + "/tokenizer.json", tokenizer);
  write_or_fail(folder + "/tokenizer_config.json",
                R"({"bos_token": "<|bos|>", "eos_token": "<|eos|>", "pad_token": "<|pad|>"})");
  return folder;
}

// That two folders hold the same tensors, to the bit.
inline void expect_same_tensors(const std::string& original, const std::string& imported) {
  const auto wanted = TensorFolder::open(original);
  const auto found = TensorFolder::open(imported);
  ASSERT_TRUE(wanted) << wanted.error().message;
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->tensors().size(), wanted->tensors().size());
  for (const StoredTensor* tensor : wanted->tensors()) {
    const StoredTensor* other = found->find(tensor->name);
    ASSERT_NE(other, nullptr) << tensor->name;
    EXPECT_EQ(other->dtype_name, tensor->dtype_name) << tensor->name;
    ASSERT_EQ(other->dims, tensor->dims) << tensor->name;
    EXPECT_EQ(std::memcmp(found->view(tensor->name)->data, wanted->view(tensor->name)->data,
                          tensor->bytes),
              0)
        << tensor->name;
  }
}

}  // namespace jige::formats
