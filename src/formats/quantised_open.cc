// QuantisedMatrix::open: the parts that files hold of a matrix in few bits, and what they must be.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "formats/quantised_matrix.h"

namespace jige::formats {
namespace {

constexpr int64_t kDimensionMax = int64_t{1} << 31;
const std::vector<std::string_view> kFloatTypes = {"F32", "BF16", "F16"};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How many blocks there are along a dimension; 0 means one for all.
int64_t blocks_of(int64_t size, int64_t block) { return block == 0 ? 1 : ceil_div(size, block); }

}  // namespace

class QuantisedMatrix::Opener {
 public:
  Opener(const TensorFolder& files, const std::string& module, const QuantisedWeights& weights)
      : files_(files), module_(module) {
    out_.weights_ = weights;
  }

  Result<QuantisedMatrix> run() {
    switch (out_.weights_.layout) {
      case QuantisedLayout::kFloat8:
      case QuantisedLayout::kInt8:
        JIGE_DO(open_bytes());
        break;
      case QuantisedLayout::kPacked:
        JIGE_DO(open_packed());
        break;
      case QuantisedLayout::kGptq:
      case QuantisedLayout::kAwq:
        JIGE_DO(open_grouped());
        break;
    }
    return out_;
  }

 private:
  using Dims = std::vector<int64_t>;

  std::string name_of(std::string_view part) const { return fmt::format("{}.{}", module_, part); }
  bool has(std::string_view part) const { return files_.find(name_of(part)) != nullptr; }

  // A part of one of the types and of `rank` dimensions.
  Result<const StoredTensor*> part_of(std::string_view part,
                                      const std::vector<std::string_view>& types, size_t rank) {
    const std::string name = name_of(part);
    const StoredTensor* stored = files_.find(name);
    if (!stored) {
      return fail(Code::kNotFound,
                  "{}: tensor \"{}\" is missing; the weights of \"{}\" are quantised ({}) and "
                  "cannot be read without it; fetch the folder again",
                  files_.folder(), name, module_, quantised_text(out_.weights_));
    }
    if (std::find(types.begin(), types.end(), stored->dtype_name) == types.end()) {
      return fail(Code::kUnsupported,
                  "{}: tensor \"{}\" is stored as {}, but quantization_config in config.json makes "
                  "it {}; take the model in another form, or unquantised",
                  files_.folder(), name, stored->dtype_name, fmt::join(types, " or "));
    }
    const auto fits = [](int64_t size) { return size >= 1 && size <= kDimensionMax; };
    const bool whole = std::all_of(stored->dims.begin(), stored->dims.end(), fits);
    if (!whole || (rank > 0 && stored->dims.size() != rank)) {
      return fail(Code::kCorrupt,
                  "{}: tensor \"{}\" has shape [{}]; it must have {} dimensions of "
                  "1 to {}",
                  files_.folder(), name, fmt::join(stored->dims, ", "),
                  rank > 0 ? std::to_string(rank) : "its", kDimensionMax);
    }
    return stored;
  }

  Result<QuantisedTensor> take(const StoredTensor& stored) {
    JIGE_TRY(const auto bytes, files_.bytes_of(stored.name));
    return QuantisedTensor{.bytes = bytes.data(),
                           .dtype = stored.dtype_name,
                           .columns = stored.dims.empty() ? 1 : stored.dims.back()};
  }

  Status expect(const StoredTensor& stored, const Dims& dims) const {
    if (stored.dims == dims) return {};
    return fail(Code::kCorrupt,
                "{}: tensor \"{}\" has shape [{}], but a matrix [{}, {}] of {} makes it [{}]",
                files_.folder(), stored.name, fmt::join(stored.dims, ", "), out_.rows_,
                out_.columns_, quantised_text(out_.weights_), fmt::join(dims, ", "));
  }

  // weight_scale and what goes with it: [N / block rows, G], also [N] of rows, [] and [1] of a
  // whole matrix.
  Status open_scales(std::string_view part) {
    JIGE_TRY(const StoredTensor* scales, part_of(part, kFloatTypes, 0));
    QuantisedWeights& weights = out_.weights_;
    if (weights.one_scale && scales->count() == 1) weights.block_rows = weights.block_columns = 0;
    const int64_t lines = blocks_of(out_.rows_, weights.block_rows);
    out_.group_count_ = blocks_of(out_.columns_, weights.block_columns);
    const bool one = weights.block_rows == 0 && scales->count() == 1;
    const bool column = out_.group_count_ == 1 && scales->dims == Dims{lines};
    if (!one && !column) JIGE_DO(expect(*scales, {lines, out_.group_count_}));
    if (weights.block_rows == 1 && weights.block_columns > 0 &&
        out_.columns_ % weights.block_columns != 0) {
      return fail(Code::kCorrupt,
                  "{}: rows of \"{}\" have {} numbers, which are no whole groups "
                  "of {}",
                  files_.folder(), module_, out_.columns_, weights.block_columns);
    }
    JIGE_TRY(out_.scales_, take(*scales));
    if (column || one) out_.scales_.columns = 1;
    return {};
  }

  Status open_bytes() {
    const bool float8 = out_.weights_.layout == QuantisedLayout::kFloat8;
    JIGE_TRY(const StoredTensor* codes, part_of("weight", {float8 ? "F8_E4M3" : "I8"}, 2));
    out_.rows_ = codes->dims[0];
    out_.columns_ = codes->dims[1];
    JIGE_TRY(out_.codes_, take(*codes));
    if (has("weight_scale_inv") && has("weight_scale")) {
      return fail(Code::kCorrupt, "{}: has both \"{}\" and \"{}\"; only one can be meant",
                  files_.folder(), name_of("weight_scale_inv"), name_of("weight_scale"));
    }
    const bool inverse =
        has("weight_scale_inv") || out_.weights_.one_scale || out_.weights_.block_rows > 1;
    const bool named_so = float8 && inverse && !has("weight_scale");
    JIGE_DO(open_scales(named_so ? "weight_scale_inv" : "weight_scale"));
    if (float8 || !out_.weights_.zero_points) return {};
    JIGE_TRY(const StoredTensor* zeros, part_of("weight_zero_point", {"I8"}, 0));
    JIGE_DO(expect(*zeros, files_.find(name_of("weight_scale"))->dims));
    JIGE_TRY(out_.zeros_, take(*zeros));
    out_.zeros_.columns = out_.scales_.columns;
    return {};
  }

  Status read_shape(const StoredTensor& codes, int64_t per_word) {
    JIGE_TRY(const StoredTensor* shape, part_of("weight_shape", {"I64", "I32"}, 1));
    if (shape->dims != Dims{2}) {
      return fail(Code::kCorrupt, "{}: tensor \"{}\" has shape [{}], not [2]", files_.folder(),
                  shape->name, fmt::join(shape->dims, ", "));
    }
    JIGE_TRY(const auto bytes, files_.bytes_of(shape->name));
    int64_t sizes[2] = {};
    if (shape->dtype_name == "I64") {
      std::memcpy(sizes, bytes.data(), sizeof(sizes));
    } else {
      int32_t narrow[2] = {};
      std::memcpy(narrow, bytes.data(), sizeof(narrow));
      std::copy(narrow, narrow + 2, sizes);
    }
    const bool fits = sizes[0] == codes.dims[0] && sizes[1] >= 1 &&
                      sizes[1] <= codes.dims[1] * per_word &&
                      ceil_div(sizes[1], per_word) == codes.dims[1];
    if (!fits) {
      return fail(Code::kCorrupt,
                  "{}: tensor \"{}\" says [{}, {}], but \"{}\" is [{}, {}] words of "
                  "{} numbers",
                  files_.folder(), shape->name, sizes[0], sizes[1], codes.name, codes.dims[0],
                  codes.dims[1], per_word);
    }
    out_.rows_ = sizes[0];
    out_.columns_ = sizes[1];
    return {};
  }

  Status open_packed() {
    JIGE_TRY(const StoredTensor* codes, part_of("weight_packed", {"I32"}, 2));
    const int64_t per_word = 32 / out_.weights_.bits;
    JIGE_DO(read_shape(*codes, per_word));
    JIGE_TRY(out_.codes_, take(*codes));
    JIGE_DO(open_scales("weight_scale"));
    if (out_.weights_.ordered || has("weight_g_idx")) JIGE_DO(open_groups("weight_g_idx"));
    if (!out_.weights_.zero_points) return {};
    JIGE_TRY(const StoredTensor* zeros, part_of("weight_zero_point", {"I32"}, 2));
    JIGE_DO(expect(*zeros, {ceil_div(out_.rows_, per_word), out_.group_count_}));
    JIGE_TRY(out_.zeros_, take(*zeros));
    return {};
  }

  // GPTQ and AWQ.
  Status open_grouped() {
    const bool gptq = out_.weights_.layout == QuantisedLayout::kGptq;
    const int64_t per_word = 32 / out_.weights_.bits;
    JIGE_TRY(const StoredTensor* codes, part_of("qweight", {"I32"}, 2));
    out_.columns_ = codes->dims[0] * (gptq ? per_word : 1);
    out_.rows_ = codes->dims[1] * (gptq ? 1 : per_word);
    JIGE_TRY(out_.codes_, take(*codes));
    out_.group_count_ = blocks_of(out_.columns_, out_.weights_.block_columns);
    JIGE_TRY(const StoredTensor* scales, part_of("scales", kFloatTypes, 2));
    JIGE_DO(expect(*scales, {out_.group_count_, out_.rows_}));
    JIGE_TRY(out_.scales_, take(*scales));
    JIGE_TRY(const StoredTensor* zeros, part_of("qzeros", {"I32"}, 2));
    JIGE_DO(expect(*zeros, {out_.group_count_, ceil_div(out_.rows_, per_word)}));
    JIGE_TRY(out_.zeros_, take(*zeros));
    if (gptq && (out_.weights_.ordered || has("g_idx"))) JIGE_DO(open_groups("g_idx"));
    return {};
  }

  Status open_groups(std::string_view part) {
    JIGE_TRY(const StoredTensor* groups, part_of(part, {"I32"}, 1));
    JIGE_DO(expect(*groups, {out_.columns_}));
    JIGE_TRY(out_.groups_, take(*groups));
    for (int64_t k = 0; k < out_.columns_; ++k) {
      int32_t group = 0;
      std::memcpy(&group, out_.groups_.bytes + k * 4, sizeof(group));
      if (group >= 0 && group < out_.group_count_) continue;
      return fail(Code::kCorrupt, "{}: tensor \"{}\" puts column {} into group {}; there are {}",
                  files_.folder(), groups->name, k, group, out_.group_count_);
    }
    return {};
  }

  const TensorFolder& files_;
  const std::string& module_;
  QuantisedMatrix out_;
};

bool QuantisedMatrix::stored(const TensorFolder& files, const std::string& module) {
  for (const char* part : {".weight_packed", ".qweight"}) {
    if (files.find(module + part)) return true;
  }
  const StoredTensor* weight = files.find(module + ".weight");
  return weight &&
         std::find(kFloatTypes.begin(), kFloatTypes.end(), weight->dtype_name) == kFloatTypes.end();
}

bool QuantisedMatrix::is_part(std::string_view name) {
  constexpr std::string_view kParts[] = {
      "weight",           "weight_scale_inv", "weight_scale", "weight_zero_point",
      "weight_packed",    "weight_shape",     "weight_g_idx", "qweight",
      "qzeros",           "scales",           "g_idx",        "input_scale",
      "input_zero_point", "activation_scale", "output_scale", "output_zero_point",
      "k_scale",          "v_scale"};
  return std::ranges::find(kParts, name) != std::end(kParts);
}

Result<QuantisedMatrix> QuantisedMatrix::open(const TensorFolder& files, const std::string& module,
                                              const QuantisedWeights& weights) {
  return Opener(files, module, weights).run();
}

}  // namespace jige::formats
