// Seeded mutation of every kind of file this folder reads. A parser may refuse or accept what it is
// given, but what it accepts must hold its promises; crashes and sanitizer reports are failures
// too. Replay one case with its seed: each failure prints it. JIGE_FUZZ_ROUNDS multiplies the
// number of cases.

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/test_fuzz_rounds.h"
#include "formats/checkpoint.h"
#include "formats/generation_config.h"
#include "formats/gguf_config.h"
#include "formats/gguf_export.h"
#include "formats/gguf_import.h"
#include "formats/gguf_test_support.h"
#include "formats/gguf_tokenizer.h"
#include "formats/gguf_weights.h"
#include "formats/json_file.h"
#include "formats/lora_config.h"
#include "formats/model_config.h"
#include "formats/safetensors.h"
#include "formats/tensor_folder.h"
#include "formats/test_support.h"
#include "formats/token_bin.h"
#include "formats/torch_file.h"
#include "formats/torch_test_support.h"
#include "formats/xxhash64.h"
#include "formats/zip_directory.h"

namespace jige::formats {
namespace {

// Files with these endings below a fixture folder.
std::vector<std::string> seeds_below(const std::string& folder, std::string_view ending) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(fixture(folder))) {
    if (entry.path().string().ends_with(ending)) paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());  // the order of a folder is not the same everywhere
  std::vector<std::string> seeds;
  for (const std::string& path : paths) seeds.push_back(read_or_fail(path));
  EXPECT_FALSE(seeds.empty()) << folder;
  return seeds;
}

// Calls body(mutated text) `count` times; every case is derived from its number alone.
template <typename Body>
void fuzz(const std::vector<std::string>& seeds, uint64_t count, Body&& body) {
  set_log_level(LogLevel::kError);
  for (uint64_t seed = 0; seed < fuzz_rounds(count); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    body(Mutator(seed).mutate(seeds[seed % seeds.size()]));
    if (testing::Test::HasFatalFailure()) break;
  }
  set_log_level(LogLevel::kInfo);
}

// Messages go to terminals and logs: of bounded length and naming the source.
void expect_message(const Error& error, std::string_view where) {
  EXPECT_LT(error.message.size(), 10'000u);
  EXPECT_NE(error.message.find(where), std::string::npos) << error.message;
}

TEST(FormatsFuzz, SafetensorsHeaders) {
  std::vector<std::string> seeds = seeds_below("weights", ".safetensors");
  for (std::string& lie : seeds_below("lies", ".safetensors")) seeds.push_back(std::move(lie));
  int accepted = 0;
  fuzz(seeds, 12'000, [&](const std::string& file) {
    const auto header = parse_safetensors_header(bytes_of(file), "file");
    if (!header) return expect_message(header.error(), "file");
    ++accepted;
    uint64_t covered = 0;
    for (const StoredTensor& tensor : header->tensors) {
      ASSERT_LE(tensor.offset, file.size());
      ASSERT_LE(tensor.bytes, file.size() - tensor.offset);
      ASSERT_GE(tensor.count(), 0);
      if (tensor.dtype) {
        ASSERT_EQ(static_cast<uint64_t>(dtype_bytes(*tensor.dtype, tensor.count())), tensor.bytes);
      }
      covered += tensor.bytes;
    }
    ASSERT_LE(covered, file.size());
    ASSERT_EQ(header->index.size(), header->tensors.size());
  });
  EXPECT_GT(accepted, 60);  // damage to data alone is not the header's business
}

void expect_inside(const TensorTable& table, const std::string& file) {
  for (const StoredTensor& tensor : table.tensors) {
    ASSERT_LE(tensor.offset, file.size());
    ASSERT_LE(tensor.bytes, file.size());
    if (tensor.strides.empty()) {
      ASSERT_LE(tensor.bytes, file.size() - tensor.offset);
    } else {
      __int128 last = 0;
      ASSERT_EQ(tensor.strides.size(), tensor.dims.size());
      for (size_t axis = 0; axis < tensor.dims.size(); ++axis) {
        ASSERT_GE(tensor.strides[axis], 0);
        last += __int128{tensor.dims[axis] - 1} * tensor.strides[axis];
      }
      ASSERT_LE(last, file.size());
      const auto end = (static_cast<uint64_t>(last) + 1) *
                       static_cast<uint64_t>(stored_type_bits(tensor.dtype_name)) / 8;
      ASSERT_LE(end, file.size() - tensor.offset);
    }
    ASSERT_GE(tensor.count(), 0);
    const auto bits = static_cast<uint64_t>(stored_type_bits(tensor.dtype_name));
    ASSERT_EQ(static_cast<uint64_t>(tensor.count()) * bits, tensor.bytes * 8);
    ASSERT_LE(tensor.name.size(), kTensorNameBytesMax);
  }
  ASSERT_EQ(table.index.size(), table.tensors.size());
}

TEST(FormatsFuzz, TorchFiles) {
  std::vector<std::string> seeds = seeds_below("torch", ".bin");
  const auto readable = open_safetensors(fixture("weights/readable.safetensors"));
  ASSERT_TRUE(readable);
  seeds.push_back(torch_archive(torch_tensors(*readable), true));
  int accepted = 0;
  fuzz(seeds, 12'000, [&](const std::string& file) {
    const auto table = parse_torch_file(bytes_of(file), "file");
    if (!table) return expect_message(table.error(), "file");
    ++accepted;
    expect_inside(*table, file);
  });
  EXPECT_GT(accepted, 200);  // most seeds are refused as they are
}

// The pickles alone are damaged, and put beside the storages that they are of.
TEST(FormatsFuzz, TorchPickles) {
  std::vector<std::string> pickles;
  std::vector<std::vector<ZipEntry>> storages;
  const std::vector<std::string> files = seeds_below("torch/good", ".bin");
  for (const std::string& file : files) {
    const auto entries = read_zip_directory(bytes_of(file), "seed");
    if (!entries) continue;
    storages.emplace_back();
    for (const ZipEntry& entry : *entries) {
      if (entry.name.ends_with("/data.pkl")) {
        pickles.push_back(file.substr(entry.offset, entry.bytes));
      } else {
        storages.back().push_back(entry);
      }
    }
  }
  ASSERT_EQ(pickles.size(), storages.size());
  int accepted = 0;
  uint64_t round = 0;
  fuzz(pickles, 5000, [&](const std::string& pickle) {
    ZipBuilder zip;
    zip.add("archive/data.pkl", pickle);
    for (const ZipEntry& entry : storages[round++ % storages.size()]) {
      zip.add(entry.name, std::string(entry.bytes, 'x'));
    }
    const std::string file = zip.bytes();
    const auto table = parse_torch_file(bytes_of(file), "file");
    if (!table) return expect_message(table.error(), "file");
    ++accepted;
    expect_inside(*table, file);
  });
  EXPECT_GT(accepted, 250);
}

// Headers alone are damaged: most of a file is numbers, which may be anything.
struct GgufSeed {
  std::string head;
  std::string data;
};

GgufSeed gguf_seed(const std::string& file) {
  const auto header = parse_gguf(bytes_of(file), "seed");
  EXPECT_TRUE(header) << header.error().message;
  size_t begin = file.size();
  for (const GgufTensor& tensor : header->tensors) begin = std::min(begin, tensor.offset);
  return {file.substr(0, begin), file.substr(begin)};
}

void decode_rows(const GgufFile& file) {
  for (const GgufTensor& tensor : file.header().tensors) {
    ASSERT_LE(tensor.offset, file.size(tensor.part));
    ASSERT_LE(tensor.bytes, file.size(tensor.part) - tensor.offset);
    if (!tensor.type->decode) continue;
    std::vector<float> row(static_cast<size_t>(tensor.columns()));
    const std::byte* last = file.data(tensor) + tensor.bytes - tensor.row_bytes();
    tensor.type->decode(last, tensor.columns() / tensor.type->block_elements, row.data());
  }
}

TEST(FormatsFuzz, GgufParts) {
  const ScratchFolder scratch;
  const auto path = [&](size_t part) {
    return scratch.file(fmt::format("a-{:05}-of-00002.gguf", part + 1));
  };
  const std::vector<GgufBuilder> parts = small_gguf_llama().parts(2);
  std::vector<GgufSeed> seeds;
  for (const GgufBuilder& part : parts) seeds.push_back(gguf_seed(part.bytes()));
  int read = 0;
  for (const size_t damaged : {0, 1}) {
    write_or_fail(path(1 - damaged), parts[1 - damaged].bytes());
    fuzz({seeds[damaged].head}, 700, [&](const std::string& head) {
      write_or_fail(path(damaged), head + seeds[damaged].data);
      const auto file = GgufFile::open(path(0));
      if (!file) return expect_message(file.error(), scratch.file("a-0000"));
      ++read;
      decode_rows(*file);
    });
  }
  EXPECT_GT(read, 90);
}

TEST(FormatsFuzz, GgufFiles) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("a.gguf");
  std::vector<GgufSeed> seeds = {gguf_seed(small_gguf_llama().bytes())};
  for (const char* name :
       {"types.gguf", "qwen2.gguf", "gpt2.gguf", "tokenizer-spm.gguf", "converted/phi4_mini.gguf",
        "converted/gpt_neox.gguf", "converted/olmo3.gguf", "converted/falcon_h1.gguf",
        "converted/minicpm3.gguf", "converted/bamba.gguf"}) {
    seeds.push_back(gguf_seed(read_or_fail(gguf_fixture(name))));
  }
  const std::string model = scratch.file("model");
  ASSERT_TRUE(import_gguf({.file = gguf_fixture("qwen2.gguf"), .folder = model}));
  ASSERT_TRUE(export_gguf({.folder = model, .file = path, .type = kGgufF16}));
  seeds.push_back(gguf_seed(read_or_fail(path)));
  std::vector<std::string> heads;
  for (const GgufSeed& seed : seeds) heads.push_back(seed.head);
  uint64_t round = 0;
  int read = 0, imported = 0;
  fuzz(heads, 1600, [&](const std::string& head) {
    write_or_fail(path, head + seeds[round++ % seeds.size()].data);
    const auto file = GgufFile::open(path);
    if (!file) return expect_message(file.error(), path);
    ++read;
    decode_rows(*file);
    const auto tokenizer = read_gguf_tokenizer(file->metadata(), {.vocab_size = 100'000});
    if (!tokenizer) expect_message(tokenizer.error(), path);
    const auto config = read_gguf_config(*file);
    if (!config) return expect_message(config.error(), path);
    ASSERT_TRUE(check_model_config(*config, "x"));
    const auto sources = gguf_sources(*file, *config, {});
    if (!sources) return expect_message(sources.error(), path);
    ++imported;
    for (const TensorSource& source : *sources) {
      int64_t rows = 0;
      ASSERT_TRUE(source.produce([&](const TensorView& part) -> Status {
        rows += part.rows();
        return {};
      }));
      ASSERT_EQ(rows, source.shape[0]);
    }
  });
  EXPECT_GT(read, 100);
  EXPECT_GT(imported, 30);
}

TEST(FormatsFuzz, ModelConfigs) {
  int accepted = 0;
  std::vector<std::string> seeds;
  for (const std::string& seed : seeds_below("configs", ".json")) {
    if (seed.find("model_type") != std::string::npos) seeds.push_back(seed);
  }
  fuzz(seeds, 4000, [&](const std::string& text) {
    const auto json = parse_json_object(text, "config.json");
    if (!json) return expect_message(json.error(), "config.json");
    const auto config = parse_model_config(*json, "config.json");
    if (!config) return expect_message(config.error(), "config.json");
    ++accepted;
    ASSERT_TRUE(check_model_config(*config, "x"));
    ASSERT_GT(parameter_count(*config), 0);
    const auto again = parse_model_config(to_hf_config(*config), "again");
    ASSERT_TRUE(again) << again.error().message;
    ASSERT_EQ(*again, *config) << text;
  });
  EXPECT_GT(accepted, 250);
}

TEST(FormatsFuzz, GenerationAndAdapterConfigs) {
  std::vector<std::string> seeds = seeds_below("configs", "generation_config.json");
  for (std::string& seed : seeds_below("weights/adapter", ".json")) seeds.push_back(seed);
  fuzz(seeds, 4000, [](const std::string& text) {
    const auto json = parse_json_object(text, "x.json");
    if (!json) return expect_message(json.error(), "x.json");
    if (const auto config = parse_generation_config(*json, "x.json")) {
      ASSERT_EQ(parse_generation_config(to_hf_generation_config(*config), "y").value(), *config);
    }
    if (const auto config = parse_lora_config(*json, "x.json")) {
      ASSERT_EQ(parse_lora_config(to_peft_config(*config), "y").value(), *config);
      ASSERT_TRUE(std::isfinite(config->scale()));
    }
  });
}

TEST(FormatsFuzz, ShardIndexes) {
  const ScratchFolder scratch;
  std::filesystem::copy(
      fixture("weights/sharded_llama"), scratch.path(),
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  int accepted = 0;
  fuzz(seeds_below("weights/sharded_llama", ".index.json"), 2000, [&](const std::string& text) {
    write_or_fail(scratch.file("model.safetensors.index.json"), text);
    const auto folder = TensorFolder::open(scratch.path());
    if (!folder) return expect_message(folder.error(), scratch.path());
    ++accepted;
    for (const StoredTensor* tensor : folder->tensors()) {
      const auto view = folder->view(tensor->name);
      ASSERT_TRUE(view) << view.error().message;
      ASSERT_EQ(view->count(), tensor->count());
    }
  });
  EXPECT_GT(accepted, 5);
}

TEST(FormatsFuzz, CheckpointsWhoseChecksumsHold) {
  const ScratchFolder scratch;
  std::vector<float> data(8, 1.0f);
  CheckpointWriter writer(scratch.path(), 1);
  writer.add("params", "w", TensorView::of(data.data(), DType::kF32, {4, 2}));
  ASSERT_TRUE(writer.commit({{"cursor", {1, 2, 3}}, {"options", {{"lr", 1e-3}}}}));
  const std::string folder = scratch.file("step-00000001");
  const std::string tensors = read_or_fail(folder + "/params.safetensors");
  const std::string state = read_or_fail(folder + "/state.json");
  int accepted = 0;
  uint64_t round = 0;
  fuzz({tensors, state}, 1500, [&](const std::string& mutated) {
    const bool is_state = round++ % 2 == 1;  // as the seeds take turns
    const std::string& params = is_state ? tensors : mutated;
    const std::string& text = is_state ? mutated : state;
    write_or_fail(folder + "/params.safetensors", params);
    write_or_fail(folder + "/state.json", text);
    write_or_fail(folder + "/checksums.xxh64",
                  checksum_text(xxhash64(bytes_of(params))) + "  params.safetensors\n" +
                      checksum_text(xxhash64(bytes_of(text))) + "  state.json\n");
    const auto reader = CheckpointReader::open(folder);
    if (!reader) return expect_message(reader.error(), folder);
    ++accepted;
    ASSERT_GE(reader->step(), 0);
    for (const StoredTensor* tensor : reader->tensors("params")) {
      const auto view = reader->tensor("params", tensor->name);
      ASSERT_TRUE(!view || view->count() == tensor->count());
    }
  });
  EXPECT_GT(accepted, 50);
}

TEST(FormatsFuzz, ChecksumFiles) {
  const std::string seed = "0123456789abcdef  params.safetensors\nfedcba9876543210  state.json\n";
  fuzz({seed}, 3000, [](const std::string& text) {
    const auto entries = parse_checksums(text, "checksums");
    if (!entries) return expect_message(entries.error(), "checksums");
    for (const auto& [name, checksum] : *entries) {
      ASSERT_EQ(name.find('/'), std::string::npos);
      ASSERT_NE(name.front(), '.');
    }
  });
}

TEST(FormatsFuzz, TokenFiles) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("a.bin");
  std::vector<std::string> seeds;
  for (const int64_t vocab_size : {1000, 100'000}) {
    auto writer = TokenFileWriter::create(path, {.vocab_size = vocab_size});
    std::vector<int32_t> tokens(50);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 19);
    ASSERT_TRUE(writer && writer->append(tokens) && writer->commit());
    seeds.push_back(read_or_fail(path));
    // Most of a header is unused: a second form puts the damage where it matters.
    seeds.push_back(seeds.back().substr(0, 12) + seeds.back().substr(1024));
  }
  const std::string zeros(1024 - 12, '\0');
  int accepted = 0;
  uint64_t round = 0;
  fuzz(seeds, 1600, [&](std::string file) {
    if (round++ % 2 == 1 && file.size() >= 12) file.insert(12, zeros);
    write_or_fail(path, file);
    for (const TokenLayout layout :
         {TokenLayout::kHeader, TokenLayout::kRawU16, TokenLayout::kRawU32}) {
      const auto tokens = TokenFile::open(path, {.layout = layout, .vocab_size = 1000});
      if (!tokens) {
        expect_message(tokens.error(), path);
        continue;
      }
      ++accepted;
      ASSERT_LE(tokens->count(), static_cast<int64_t>(file.size() / 2));
      std::vector<int32_t> out(static_cast<size_t>(tokens->count()));
      if (tokens->read(0, out)) {
        for (const int32_t token : out) ASSERT_TRUE(token >= 0 && token < 1000);
      }
      int64_t end = 0;
      for (int64_t begin = 0; begin < tokens->count(); begin = end) {
        end = tokens->document_end(begin, 0);
        ASSERT_GT(end, begin);
      }
    }
  });
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace jige::formats
