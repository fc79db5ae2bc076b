// Matrices in few bits that q8 and q4 keep as they are: the blocks that are loaded stand for the
// numbers that are decoded.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "formats/gguf_types.h"
#include "formats/safetensors_writer.h"
#include "model/inference.h"
#include "model/model_test_support.h"
#include "model/quantised_params.h"

namespace jige::model {
namespace {

using formats::QuantisedLayout;
using formats::QuantisedMatrix;
using formats::QuantisedWeights;
using ops::WeightFormat;
using testing::succeed;
using testing::TempFolder;
using testing::value_of;

constexpr WeightFormat kKeepingFormats[] = {WeightFormat::kQ8, WeightFormat::kQ4};

// Tensors that are written as a file of safetensors.
class Tensors {
 public:
  template <typename T>
  void add(const std::string& name, DType dtype, const Shape& shape, const std::vector<T>& values) {
    std::vector<std::byte>& bytes = bytes_[name];
    bytes.resize(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    sources_.push_back(formats::TensorSource::of(name, TensorView::of(bytes.data(), dtype, shape)));
  }
  formats::TensorFolder folder(const std::string& path) const {
    succeed(make_folders(path));
    value_of(formats::write_safetensors(path + "/model.safetensors", sources_));
    return value_of(formats::TensorFolder::open(path));
  }

 private:
  std::map<std::string, std::vector<std::byte>> bytes_;
  std::vector<formats::TensorSource> sources_;
};

std::vector<int32_t> random_words(Rng& rng, int64_t count) {
  std::vector<int32_t> words;
  for (int64_t i = 0; i < count; ++i) words.push_back(static_cast<int32_t>(rng.next_u32()));
  return words;
}

// How a matrix of random codes is stored.
struct Stored {
  const char* name;
  QuantisedWeights weights;
  uint32_t zeros = 0x77777777;  // every word of GPTQ's and AWQ's; 0: random ones
  bool shuffled = false;        // g_idx
  float scale_size = 0.05f;
  bool odd_scales = false;  // not of f16
};

int64_t groups_of(const Stored& stored, int64_t columns) {
  const int64_t group = stored.weights.block_columns;
  return group == 0 ? 1 : (columns + group - 1) / group;
}

std::vector<float> random_scales(const Stored& stored, int64_t count, Rng& rng) {
  std::vector<float> scales;
  for (int64_t i = 0; i < count; ++i) {
    const auto scale = stored.scale_size * (1 + static_cast<float>(rng.below(100)) / 100);
    scales.push_back(stored.odd_scales ? std::nextafter(to_float(to_float16(scale)), 1.0f)
                                       : to_float(to_float16(scale)));
  }
  return scales;
}

// The parts of "m", [rows, columns], as quantised_matrix.h has them.
Tensors parts_of(const Stored& stored, int64_t rows, int64_t columns) {
  Rng rng(derive_key(31, stored.name));
  Tensors parts;
  const QuantisedWeights& weights = stored.weights;
  const int64_t groups = groups_of(stored, columns), per_word = 32 / weights.bits;
  const auto words = [&](const char* part, int64_t lines, int64_t across) {
    parts.add(part, DType::kI32, Shape{lines, across}, random_words(rng, lines * across));
  };
  const std::vector<float> scales = random_scales(stored, rows * groups, rng);
  if (weights.layout == QuantisedLayout::kPacked) {
    words("m.weight_packed", rows, (columns + per_word - 1) / per_word);
    parts.add("m.weight_scale", DType::kF32, Shape{rows, groups}, scales);
    parts.add("m.weight_shape", DType::kI32, Shape{2},
              std::vector{static_cast<int32_t>(rows), static_cast<int32_t>(columns)});
    if (weights.zero_points) {
      words("m.weight_zero_point", (rows + per_word - 1) / per_word, groups);
    }
    return parts;
  }
  const bool gptq = weights.layout == QuantisedLayout::kGptq;
  words("m.qweight", gptq ? columns / per_word : columns, gptq ? rows : rows / per_word);
  parts.add("m.scales", DType::kF32, Shape{groups, rows}, scales);
  const int64_t zero_words = (rows + per_word - 1) / per_word;
  std::vector<int32_t> zeros = random_words(rng, groups * zero_words);
  if (stored.zeros != 0) zeros.assign(zeros.size(), static_cast<int32_t>(stored.zeros));
  parts.add("m.qzeros", DType::kI32, Shape{groups, zero_words}, zeros);
  if (gptq) {
    std::vector<int32_t> order;
    for (int64_t k = 0; k < columns; ++k) {
      const int64_t at = stored.shuffled ? k * 37 % columns : k;
      order.push_back(static_cast<int32_t>(at * groups / columns));
    }
    parts.add("m.g_idx", DType::kI32, Shape{columns}, order);
  }
  return parts;
}

// A matrix in blocks, as it is loaded, and the numbers that they stand for.
class LoadedBlocks {
 public:
  LoadedBlocks(const QuantisedMatrix& matrix, WeightFormat format, DType dtype, int threads,
               bool with_scales)
      : device_({.thread_count = threads}) {
    LoadBuffer values, scales;
    ThreadTeam team(threads);
    const TensorView numbers = value_of(read_quantised(matrix, "m", dtype, team, values));
    const TensorView known =
        with_scales ? value_of(read_block_scales(matrix, "m", team, scales)) : TensorView{};
    pack(numbers, format, known);
  }
  LoadedBlocks(const TensorView& numbers, WeightFormat format) : device_({.thread_count = 1}) {
    pack(numbers, format, {});
  }

  const std::vector<std::byte>& memory() const { return memory_; }
  std::vector<float> numbers() {
    const int64_t n = packed_.n, k = packed_.k;
    std::vector<std::byte> strip(static_cast<size_t>(ops::linear_strip_bytes(DType::kF32, n, k)));
    std::vector<float> unit(static_cast<size_t>(k * k)), turned(static_cast<size_t>(n * k));
    for (int64_t i = 0; i < k; ++i) unit[static_cast<size_t>(i * k + i)] = 1;
    ops::linear_forward(*stream_,
                        {.dst = TensorView::of(turned.data(), DType::kF32, Shape{k, n}),
                         .src = TensorView::of(unit.data(), DType::kF32, Shape{k, k}),
                         .weight = packed_,
                         .strip = TensorView::of(strip.data(), DType::kU8,
                                                 Shape{static_cast<int64_t>(strip.size())})});
    stream_->synchronize();
    std::vector<float> numbers(turned.size());
    for (int64_t i = 0; i < n * k; ++i) {
      numbers[static_cast<size_t>(i)] = turned[static_cast<size_t>(i % k * n + i / k)];
    }
    return numbers;
  }

 private:
  void pack(const TensorView& numbers, WeightFormat format, const TensorView& scales) {
    const int64_t n = numbers.rows(), k = numbers.columns();
    memory_.resize(static_cast<size_t>(
        ops::packed_weight_bytes(DType::kF32, ops::PackUse::kForward, n, k, format)));
    packed_ = {.data = memory_.data(), .n = n, .k = k, .format = format};
    ops::pack_weight(*stream_, packed_, numbers, 0, scales);
    stream_->synchronize();
  }

  CpuDevice device_;
  std::unique_ptr<Stream> stream_ = value_of(device_.make_stream());
  std::vector<std::byte> memory_;
  ops::PackedWeight packed_;
};

// Of all blocks of a matrix, those whose numbers are the same, to the bit.
struct SameBlocks {
  int64_t same = 0;
  int64_t all = 0;
};

SameBlocks same_blocks(const std::vector<float>& a, const std::vector<float>& b, int64_t columns) {
  SameBlocks blocks;
  const auto width = static_cast<size_t>(columns);
  for (size_t row = 0; row < a.size(); row += width) {
    for (size_t from = 0; from < width; from += ops::kWeightBlock) {
      const size_t count = std::min<size_t>(ops::kWeightBlock, width - from);
      blocks.same += std::memcmp(&a[row + from], &b[row + from], count * sizeof(float)) == 0;
      ++blocks.all;
    }
  }
  return blocks;
}

std::vector<float> decoded(const QuantisedMatrix& matrix) {
  std::vector<float> numbers(static_cast<size_t>(matrix.rows() * matrix.columns()));
  matrix.decode(numbers, 0, matrix.rows());
  return numbers;
}

QuantisedMatrix opened(const Stored& stored, const formats::TensorFolder& files) {
  return value_of(QuantisedMatrix::open(files, "m", stored.weights));
}

QuantisedWeights weights_of(QuantisedLayout layout, int64_t group, int bits = 4) {
  return {.layout = layout,
          .bits = bits,
          .block_columns = group,
          .zeros_less_one = layout == QuantisedLayout::kGptq};
}

TEST(QuantisedBlocks, KeepSymmetricMatricesOfFourBits) {
  const TempFolder temp;
  const auto packed = QuantisedLayout::kPacked, gptq = QuantisedLayout::kGptq;
  for (const Stored& stored :
       {Stored{"packed, channels", weights_of(packed, 0)},
        Stored{"packed, 32", weights_of(packed, 32)},
        Stored{"packed, 128", weights_of(packed, 128)},
        Stored{"packed, subnormal scales", weights_of(packed, 64), 0, false, 0x1p-20f},
        Stored{"gptq, channels", weights_of(gptq, 0)}, Stored{"gptq, 32", weights_of(gptq, 32)},
        Stored{"gptq, 128", weights_of(gptq, 128)}}) {
    for (const auto& [rows, columns] : {std::pair{71, 256}, {8, 384}, {40, 200}}) {
      if (stored.weights.block_columns > 0 && columns % stored.weights.block_columns != 0) continue;
      SCOPED_TRACE(fmt::format("{} [{}, {}]", stored.name, rows, columns));
      const auto files = parts_of(stored, rows, columns).folder(temp / "kept");
      const QuantisedMatrix matrix = opened(stored, files);
      const std::vector<float> wanted = decoded(matrix);
      for (const WeightFormat format : kKeepingFormats) {
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          for (const int threads : {1, 3}) {
            LoadedBlocks loaded(matrix, format, dtype, threads, true);
            const SameBlocks found = same_blocks(loaded.numbers(), wanted, columns);
            EXPECT_EQ(found.same, found.all) << ops::weight_format_name(format);
          }
        }
      }
    }
  }
}

TEST(QuantisedBlocks, RoundOthersAsTheyDidBefore) {
  const TempFolder temp;
  const auto packed = QuantisedLayout::kPacked, gptq = QuantisedLayout::kGptq;
  Stored ordered{"gptq, act order", weights_of(gptq, 128)};
  ordered.shuffled = true;
  Stored odd{"scales not of f16", weights_of(packed, 32)};
  odd.odd_scales = true;
  Stored far{"scales beyond f16", weights_of(packed, 32)};
  far.scale_size = 1e5f;
  for (const Stored& stored : {ordered, odd, far, Stored{"groups of 16", weights_of(packed, 16)},
                               Stored{"groups of 48", weights_of(gptq, 48)}}) {
    SCOPED_TRACE(stored.name);
    const auto files = parts_of(stored, 40, 384).folder(temp / "rounded");
    const QuantisedMatrix matrix = opened(stored, files);
    LoadedBlocks loaded(matrix, WeightFormat::kQ4, DType::kBF16, 2, true);
    const LoadedBlocks rounded(matrix, WeightFormat::kQ4, DType::kBF16, 2, false);
    const SameBlocks kept = same_blocks(loaded.numbers(), decoded(matrix), 384);
    if (stored.weights.block_columns == 48) {  // of three blocks two lie in one group
      EXPECT_EQ(kept.same * 3, kept.all * 2);
      continue;
    }
    EXPECT_EQ(kept.same, 0);
    EXPECT_TRUE(loaded.memory() == rounded.memory());
  }
}

// With zeros of its own a block is kept if its numbers happen to reach no further than q4's: where
// a zero is in the middle, as that of the first row, or codes far from it are missing.
TEST(QuantisedBlocks, OfFourBitsWithZerosAreKeptWhereTheyReach) {
  const TempFolder temp;
  const auto gptq = QuantisedLayout::kGptq, awq = QuantisedLayout::kAwq;
  for (Stored stored : {Stored{"gptq", weights_of(gptq, 32), 0x75777577},
                        Stored{"awq", weights_of(awq, 32), 0x86888688}}) {
    SCOPED_TRACE(stored.name);
    stored.weights.zero_points = true;
    const auto files = parts_of(stored, 64, 192).folder(temp / "zeros");
    const QuantisedMatrix matrix = opened(stored, files);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      LoadedBlocks q4(matrix, WeightFormat::kQ4, dtype, 1, true);
      const SameBlocks kept = same_blocks(q4.numbers(), decoded(matrix), 192);
      EXPECT_GT(kept.same, kept.all * 3 / 4);
      EXPECT_LT(kept.same, kept.all * 7 / 8);
    }
  }
}

TEST(QuantisedBlocks, OfFourBitsWithAnyZerosAreKeptInEight) {
  const TempFolder temp;
  Stored gptq{"gptq, zeros", weights_of(QuantisedLayout::kGptq, 32), 0};
  Stored awq{"awq, zeros", weights_of(QuantisedLayout::kAwq, 32), 0};
  Stored packed{"packed, zeros", weights_of(QuantisedLayout::kPacked, 32)};
  for (Stored* stored : {&gptq, &awq, &packed}) {
    SCOPED_TRACE(stored->name);
    stored->weights.zero_points = true;
    const auto files = parts_of(*stored, 64, 192).folder(temp / "zeros");
    const QuantisedMatrix matrix = opened(*stored, files);
    const std::vector<float> wanted = decoded(matrix);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      LoadedBlocks q8(matrix, WeightFormat::kQ8, dtype, 1, true);
      const SameBlocks kept = same_blocks(q8.numbers(), wanted, 192);
      EXPECT_EQ(kept.same, kept.all);
    }
  }
}

// In f32 the numbers of a GGUF file's blocks come back, in bf16 but for what their scale loses.
TEST(QuantisedBlocks, OfGgufKeepEvenAndUnevenLevels) {
  constexpr uint32_t kIq4Nl = 20;
  constexpr int64_t kRows = 40, kColumns = 192, kCount = kRows * kColumns / ops::kWeightBlock;
  for (const uint32_t type : {formats::kGgufQ4_0, kIq4Nl}) {
    Rng rng(61);
    std::vector<std::byte> blocks;
    for (int64_t i = 0; i < kCount; ++i) {
      const uint16_t scale = to_float16(0.01f + 0.001f * static_cast<float>(rng.below(100))).bits;
      blocks.push_back(static_cast<std::byte>(scale & 255));
      blocks.push_back(static_cast<std::byte>(scale >> 8));
      for (int j = 0; j < 16; ++j) blocks.push_back(static_cast<std::byte>(rng.below(256)));
      blocks.back() &= static_cast<std::byte>(0xf0);  // one of the largest magnitude
    }
    std::vector<float> decoded(static_cast<size_t>(kRows * kColumns));
    formats::find_gguf_type(type)->decode(blocks.data(), kCount, decoded.data());
    std::vector<BFloat16> rounded;
    for (const float x : decoded) rounded.push_back(to_bfloat16(x));
    const Shape shape{kRows, kColumns};
    LoadedBlocks whole(TensorView::of(decoded.data(), DType::kF32, shape), WeightFormat::kQ4);
    EXPECT_EQ(whole.numbers(), decoded) << type;
    LoadedBlocks of_rounded(TensorView::of(rounded.data(), DType::kBF16, shape), WeightFormat::kQ4);
    const std::vector<float> numbers = of_rounded.numbers();
    for (size_t i = 0; i < decoded.size(); ++i) {
      EXPECT_NEAR(numbers[i], decoded[i], 0x1p-8f * std::fabs(decoded[i])) << type << ", " << i;
    }
  }
}

// Every form that was recorded: whether all, some or no blocks of q8 and of q4 are as decoded.
TEST(QuantisedBlocks, KeepRecordedMatrices) {
  struct Form {
    const char* name;
    bool q8, q4;  // all blocks
  };
  for (const Form& form : {Form{"packed4_channel", true, true}, Form{"gptq4_symmetric", true, true},
                           Form{"packed4_group", false, false}, Form{"gptq4", false, false},
                           Form{"gptq4_ordered", false, false}, Form{"awq4", false, false},
                           Form{"fp8_blocks", false, false}}) {
    SCOPED_TRACE(form.name);
    const std::string folder = testing::fixture(std::string("../quantised/") + form.name);
    const auto config = value_of(formats::load_model_config(folder));
    const auto files = value_of(formats::TensorFolder::open(folder));
    const auto expected = value_of(formats::open_safetensors(folder + "/expected.safetensors"));
    const std::string name = "model.layers.0.mlp.down_proj.weight";
    const TensorView recorded = value_of(expected.view(name));
    const auto matrix =
        value_of(find_quantised(config, files, {.name = name, .shape = recorded.shape}));
    const std::vector<float> wanted(recorded.as<float>(), recorded.as<float>() + recorded.count());
    for (const WeightFormat format : kKeepingFormats) {
      LoadedBlocks loaded(*matrix, format, DType::kBF16, 2, true);
      const SameBlocks found = same_blocks(loaded.numbers(), wanted, recorded.columns());
      const bool all = format == WeightFormat::kQ8 ? form.q8 : form.q4;
      EXPECT_EQ(found.same == found.all, all) << ops::weight_format_name(format);
      if (!all) {
        EXPECT_EQ(found.same, 0);
      }
    }
  }
}

}  // namespace
}  // namespace jige::model
