#include "model/stacked_tensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "model/architecture.h"
#include "model/tensor_convert.h"

namespace jige::model {
namespace {

constexpr const char* kBlocks = "_blocks";
constexpr const char* kScales = "_scales";
constexpr int64_t kBlockElements = 32;
constexpr int64_t kBlockBytes = 16;
constexpr int kScaleBias = 127;
constexpr int64_t kTurnedTile = 32;
constexpr int64_t kRowGrain = 32;  // rows that a thread takes at once

bool is_vector(const ParamSpec& spec) { return spec.shape.rank() == 1; }
int64_t inputs_of(const ParamSpec& spec) { return is_vector(spec) ? 1 : spec.shape[1]; }

// Where a row of the parameter is among those of all parts.
int64_t stacked_row(const ParamSpec& spec, int64_t row) {
  const StackedPlace& place = *spec.stacked;
  return place.interleaved ? row * place.part_count + place.part : place.part * spec.shape[0] + row;
}

Status check_tensor(const formats::TensorFolder& files, const std::string& name,
                    const std::vector<int64_t>& dims, bool bytes) {
  const formats::StoredTensor* stored = files.find(name);
  if (!stored) {
    return fail(Code::kNotFound, "{}: tensor \"{}\" is missing", files.folder(), name);
  }
  const bool is_float =
      stored->dtype == DType::kF32 || stored->dtype == DType::kBF16 || stored->dtype == DType::kF16;
  if (bytes ? stored->dtype != DType::kU8 : !is_float) {
    return fail(Code::kUnsupported, "{}: tensor \"{}\" is stored as {}; supported are {}",
                files.folder(), name, stored->dtype_name, bytes ? "U8" : "F32, BF16, F16");
  }
  if (stored->dims == dims) return {};
  return fail(Code::kCorrupt, "{}: tensor \"{}\" has shape [{}], but config.json makes it [{}]",
              files.folder(), name, fmt::join(stored->dims, ", "), fmt::join(dims, ", "));
}

// The name that the files have for a stacked tensor, or for its parts; its own where they have
// none.
std::string stored_tensor(const formats::TensorFolder& files, const StackedPlace& place) {
  const auto has = [&](const std::string& name) {
    return files.find(name) || files.find(name + kBlocks);
  };
  if (has(place.tensor)) return place.tensor;  // the first of them, and the usual one
  for (std::string& name : Architecture::names_in_files(place.tensor)) {
    if (has(name)) return std::move(name);
  }
  return place.tensor;
}

std::vector<int64_t> float_dims(const ParamSpec& spec, bool transposed) {
  const StackedPlace& place = *spec.stacked;
  const int64_t rows = spec.shape[0] * place.part_count;
  if (is_vector(spec)) return {place.expert_count, rows};
  if (transposed) return {place.expert_count, spec.shape[1], rows};
  return {place.expert_count, rows, spec.shape[1]};
}

// Whether matrices are stored as [K, N]: as the family does, or as their shape shows. Folders of
// Qwen3-VL have either; transformers, too, takes those that may be both as they stand.
bool is_transposed(const formats::StoredTensor& stored, const ParamSpec& spec) {
  if (is_vector(spec) || spec.stacked->transposed) return spec.stacked->transposed;
  return stored.dims != float_dims(spec, false) && stored.dims == float_dims(spec, true);
}

// Rows [begin, end) of the parameter are columns of the stored matrix [K, columns].
template <typename T>
void copy_turned(const ParamSpec& spec, T* dst, const T* matrix, int64_t columns, int64_t begin,
                 int64_t end) {
  const int64_t inputs = inputs_of(spec);
  for (int64_t row0 = begin; row0 < end; row0 += kTurnedTile) {
    const int64_t row_end = std::min(row0 + kTurnedTile, end);
    for (int64_t k = 0; k < inputs; ++k) {
      for (int64_t row = row0; row < row_end; ++row) {
        dst[row * inputs + k] = matrix[k * columns + stacked_row(spec, row)];
      }
    }
  }
}

template <typename T>
void copy_floats(const ParamSpec& spec, void* dst, const void* stored, bool transposed,
                 ThreadTeam& team) {
  const StackedPlace& place = *spec.stacked;
  const int64_t inputs = inputs_of(spec);
  const int64_t rows = spec.shape[0] * place.part_count;
  const T* expert = static_cast<const T*>(stored) + place.expert * rows * inputs;
  T* to = static_cast<T*>(dst);
  team.parallel_for(spec.shape[0], kRowGrain, [&](int64_t begin, int64_t end, int) {
    if (transposed && !is_vector(spec)) {
      return copy_turned(spec, to, expert, rows, begin, end);
    }
    for (int64_t row = begin; row < end; ++row) {
      std::memcpy(to + row * inputs, expert + stacked_row(spec, row) * inputs,
                  static_cast<size_t>(inputs) * sizeof(T));
    }
  });
}

// By scale and half a byte: what they stand for.
using Mxfp4Table = std::array<std::array<BFloat16, 16>, 256>;

const Mxfp4Table& mxfp4_table() {
  static const auto table = [] {
    Mxfp4Table made{};
    for (size_t scale = 0; scale < made.size(); ++scale) {
      for (size_t half = 0; half < made[scale].size(); ++half) {
        const float value = mxfp4_value(static_cast<uint8_t>(half));
        made[scale][half] = to_bfloat16(std::ldexp(value, static_cast<int>(scale) - kScaleBias));
      }
    }
    return made;
  }();
  return table;
}

void decode_block(BFloat16* dst, const uint8_t* bytes, uint8_t scale) {
  const std::array<BFloat16, 16>& values = mxfp4_table()[scale];
  for (int64_t i = 0; i < kBlockBytes; ++i) {
    dst[2 * i] = values[bytes[i] & 15];
    dst[2 * i + 1] = values[bytes[i] >> 4];
  }
}

Result<TensorView> read_mxfp4(const formats::TensorFolder& files, const ParamSpec& spec,
                              ThreadTeam& team, LoadBuffer& buffer) {
  const StackedPlace& place = *spec.stacked;
  const std::string tensor = stored_tensor(files, place);
  JIGE_TRY(const TensorView blocks, files.view(tensor + kBlocks));
  JIGE_TRY(const TensorView scales, files.view(tensor + kScales));
  JIGE_TRY(const TensorView param, buffer.make(files.folder(), DType::kBF16, spec.shape));
  const int64_t row_blocks = spec.shape[1] / kBlockElements;
  const int64_t first_row = place.expert * spec.shape[0] * place.part_count;
  auto* to = static_cast<BFloat16*>(param.data);
  team.parallel_for(spec.shape[0], kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t block = (first_row + stacked_row(spec, row)) * row_blocks;
      for (int64_t i = 0; i < row_blocks; ++i) {
        decode_block(to + row * spec.shape[1] + i * kBlockElements,
                     static_cast<const uint8_t*>(blocks.data) + (block + i) * kBlockBytes,
                     static_cast<const uint8_t*>(scales.data)[block + i]);
      }
    }
  });
  return param;
}

}  // namespace

float mxfp4_value(uint8_t half) {
  constexpr float kMagnitudes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  return half < 8 ? kMagnitudes[half] : -kMagnitudes[half & 7];
}

bool is_stacked(const formats::TensorFolder& files, const ParamSpec& spec) {
  if (!spec.stacked || files.find(spec.name)) return false;
  for (const std::string& name : Architecture::stored_names(spec)) {
    if (files.find(name)) return false;
  }
  const std::string tensor = stored_tensor(files, *spec.stacked);
  return files.find(tensor) || files.find(tensor + kBlocks);
}

Status check_stacked(const formats::TensorFolder& files, const ParamSpec& spec) {
  const StackedPlace& place = *spec.stacked;
  const std::string tensor = stored_tensor(files, place);
  if (const formats::StoredTensor* stored = files.find(tensor)) {
    return check_tensor(files, tensor, float_dims(spec, is_transposed(*stored, spec)), false);
  }
  const std::string blocks = tensor + kBlocks;
  if (is_vector(spec) || spec.shape[1] % kBlockElements != 0) {
    return fail(Code::kCorrupt, "{}: tensor \"{}\" has blocks of {} numbers, but rows have {}",
                files.folder(), blocks, kBlockElements, inputs_of(spec));
  }
  const int64_t rows = spec.shape[0] * place.part_count;
  const int64_t row_blocks = spec.shape[1] / kBlockElements;
  JIGE_DO(check_tensor(files, blocks, {place.expert_count, rows, row_blocks, kBlockBytes}, true));
  return check_tensor(files, tensor + kScales, {place.expert_count, rows, row_blocks}, true);
}

Result<TensorView> read_stacked(const formats::TensorFolder& files, const ParamSpec& spec,
                                ThreadTeam& team, LoadBuffer& buffer) {
  JIGE_DO(check_stacked(files, spec));
  const std::string tensor = stored_tensor(files, *spec.stacked);
  const formats::StoredTensor* const file = files.find(tensor);
  if (!file) return read_mxfp4(files, spec, team, buffer);
  const bool transposed = is_transposed(*file, spec);
  JIGE_TRY(const TensorView stored, files.view(tensor));
  JIGE_TRY(const TensorView param, buffer.make(files.folder(), stored.dtype, spec.shape));
  if (stored.dtype == DType::kF32) {
    copy_floats<uint32_t>(spec, param.data, stored.data, transposed, team);
  } else {
    copy_floats<uint16_t>(spec, param.data, stored.data, transposed, team);
  }
  return param;
}

Result<formats::TensorSource> decoded_source(const formats::TensorFolder& files,
                                             const std::string& tensor, DType dtype) {
  JIGE_TRY(const TensorView blocks, files.view(tensor + kBlocks));
  if (blocks.shape.rank() != 4 || blocks.shape[3] != kBlockBytes || blocks.dtype != DType::kU8) {
    return fail(Code::kCorrupt, "{}: tensor \"{}{}\" is {} {}, not U8 [experts, rows, blocks, {}]",
                files.folder(), tensor, kBlocks, dtype_info(blocks.dtype).name,
                blocks.shape.to_string(), kBlockBytes);
  }
  const int64_t experts = blocks.shape[0];
  const int64_t rows = blocks.shape[1];
  const int64_t row_blocks = blocks.shape[2];
  JIGE_DO(check_tensor(files, tensor + kScales, {experts, rows, row_blocks}, true));
  JIGE_TRY(const TensorView scales, files.view(tensor + kScales));
  const int64_t inputs = row_blocks * kBlockElements;
  const auto produce = [=](const formats::RowSink& sink) -> Status {
    std::vector<BFloat16> numbers(kBlockElements);
    std::vector<float> turned(static_cast<size_t>(inputs * rows));
    std::vector<std::byte> narrowed(static_cast<size_t>(dtype_bytes(dtype, inputs * rows)));
    for (int64_t block = 0; block < experts * rows * row_blocks; ++block) {
      decode_block(numbers.data(), static_cast<const uint8_t*>(blocks.data) + block * kBlockBytes,
                   static_cast<const uint8_t*>(scales.data)[block]);
      const int64_t row = block / row_blocks % rows;
      const int64_t first = block % row_blocks * kBlockElements;
      for (int64_t i = 0; i < kBlockElements; ++i) {
        turned[static_cast<size_t>((first + i) * rows + row)] =
            to_float(numbers[static_cast<size_t>(i)]);
      }
      if ((block + 1) % (rows * row_blocks) != 0) continue;
      narrow(narrowed.data(), dtype, turned);
      JIGE_DO(sink(TensorView::of(narrowed.data(), dtype, Shape{1, inputs, rows})));
    }
    return {};
  };
  return formats::TensorSource{
      .name = tensor, .dtype = dtype, .shape = Shape{experts, inputs, rows}, .produce = produce};
}

bool is_turned_stack(const formats::ModelConfig& config, const formats::StoredTensor& tensor) {
  if (config.family != formats::Family::kQwen3Moe) return false;
  const int64_t count = config.experts.count;
  const int64_t size = config.experts.ffn_size;
  const int64_t width = config.hidden_size;
  if (tensor.name.ends_with(".experts.gate_up_proj")) {
    return width != 2 * size && tensor.dims == std::vector<int64_t>{count, width, 2 * size};
  }
  return tensor.name.ends_with(".experts.down_proj") && width != size &&
         tensor.dims == std::vector<int64_t>{count, size, width};
}

std::vector<std::string> stacked_names(const ParamSpec& spec) {
  if (!spec.stacked) return {};
  std::vector<std::string> names;
  for (const std::string& tensor : Architecture::names_in_files(spec.stacked->tensor)) {
    for (const char* part : {"", kBlocks, kScales}) names.push_back(tensor + part);
  }
  return names;
}

}  // namespace jige::model
