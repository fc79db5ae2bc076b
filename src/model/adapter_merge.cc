// merge_adapter: base folder + adapter folder -> folder, one tensor in memory at a time.
#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "formats/image_model_names.h"
#include "formats/model_config.h"
#include "formats/tensor_folder.h"
#include "model/adapter_tensors.h"
#include "model/architecture.h"
#include "model/beside_images.h"
#include "model/cancellable_source.h"
#include "model/param_loader.h"
#include "model/quantised_params.h"
#include "model/stacked_tensors.h"
#include "model/tensor_convert.h"
#include "model/weights_save.h"

namespace jige::model {
namespace {

std::vector<float> widened(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.count()));
  widen(values, view.data, view.dtype);
  return values;
}

// Each of the matrices [E, K, N] as [N, K].
std::vector<float> turned_back(const TensorView& stored) {
  const std::vector<float> values = widened(stored);
  const auto columns = static_cast<size_t>(stored.shape[2]);
  const size_t inputs = static_cast<size_t>(stored.shape[1]);
  std::vector<float> turned(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t expert = i / (inputs * columns);
    const size_t k = i / columns % inputs;
    turned[(expert * columns + i % columns) * inputs + k] = values[i];
  }
  return turned;
}

// rows [R, C] += scale · left [R, r] · right [r, C], sums over r in ascending order.
void add_product(std::vector<float>& rows, const std::vector<float>& left,
                 const std::vector<float>& right, size_t rank, float scale) {
  const size_t columns = right.size() / rank;
  std::vector<float> delta(columns);
  for (size_t row = 0; row * columns < rows.size(); ++row) {
    std::fill(delta.begin(), delta.end(), 0.0f);
    for (size_t i = 0; i < rank; ++i) {
      const float factor = left[row * rank + i];
      const float* from = right.data() + i * columns;
      for (size_t column = 0; column < columns; ++column) {
        delta[column] = std::fma(factor, from[column], delta[column]);
      }
    }
    for (size_t column = 0; column < columns; ++column) {
      float& element = rows[row * columns + column];
      element = std::fma(scale, delta[column], element);
    }
  }
}

// Rows, or columns where `transposed`, get the lengths that DoRA gives them. A row of zeros stays.
void set_lengths(std::vector<float>& values, const std::vector<float>& lengths, bool transposed) {
  const size_t outputs = lengths.size();
  const size_t inputs = values.size() / outputs;
  const size_t row_step = transposed ? 1 : inputs;
  const size_t column_step = transposed ? outputs : 1;
  for (size_t row = 0; row < outputs; ++row) {
    float* const first = values.data() + row * row_step;
    double square = 0;
    for (size_t i = 0; i < inputs; ++i) {
      square += double{first[i * column_step]} * first[i * column_step];
    }
    if (square == 0) continue;
    const auto factor = static_cast<float>(lengths[row] / std::sqrt(square));
    for (size_t i = 0; i < inputs; ++i) first[i * column_step] *= factor;
  }
}

// The stored matrix with its adapter added; stored [out, in], or [in, out] where `transposed`.
std::vector<float> merged_matrix(std::vector<float> rows, const AdapterPair& adapter,
                                 bool transposed) {
  std::vector<float> a = widened(adapter.a);
  std::vector<float> b = widened(adapter.b);
  const auto rank = static_cast<size_t>(adapter.a.shape[0]);
  const auto turn = [](std::vector<float>& values, const Shape& shape) {
    std::vector<float> turned(values.size());
    transpose_into(TensorView::of(turned.data(), DType::kF32, Shape{shape[1], shape[0]}),
                   TensorView::of(values.data(), DType::kF32, shape));
    values = std::move(turned);
  };
  if (transposed) {
    turn(a, adapter.a.shape);
    turn(b, adapter.b.shape);
    add_product(rows, a, b, rank, adapter.scale);
  } else {
    add_product(rows, b, a, rank, adapter.scale);
  }
  if (adapter.magnitude) set_lengths(rows, widened(adapter.magnitude), transposed);
  return rows;
}

std::vector<float> merged_bias(std::vector<float> bias, const AdapterPair& adapter) {
  if (adapter.bias) bias = widened(adapter.bias);
  if (!adapter.bias_of_b) return bias;
  const std::vector<float> added = widened(adapter.bias_of_b);
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = std::fma(adapter.scale, added[i], bias[i]);
  return bias;
}

bool is_stored_float(const formats::StoredTensor& tensor) {
  return tensor.dtype == DType::kF32 || tensor.dtype == DType::kBF16 || tensor.dtype == DType::kF16;
}

// A tensor of the base as it is written, and its numbers when their turn comes.
struct BaseTensor {
  std::string name;
  std::string stored_name;
  Shape shape;
  std::function<std::vector<float>()> read;
};

// What an entry of the base's files is, under the name it has in a folder without images; none: a
// part of a tensor that another entry stands for, or something that is not needed, such as masks
// and what reads images. `turns`: matrices that are stored the other way round are turned, as
// folders of the language model alone have them.
Result<std::optional<BaseTensor>> base_tensor(const formats::ModelConfig& config,
                                              const formats::TensorFolder& base,
                                              const formats::StoredTensor& tensor, bool turns) {
  if (formats::reads_images(tensor.name)) return std::nullopt;
  const size_t dot = tensor.name.rfind('.');
  const std::string module = tensor.name.substr(0, dot);
  const std::string part = dot == std::string::npos ? "" : tensor.name.substr(dot + 1);
  JIGE_TRY(const auto quantised, open_quantised(config, base, module));
  if (quantised && part != "bias") {
    if (part != "weight" && part != "weight_packed" && part != "qweight") return std::nullopt;
    const auto read = [matrix = *quantised] {
      std::vector<float> numbers(static_cast<size_t>(matrix.rows() * matrix.columns()));
      matrix.decode(numbers, 0, matrix.rows());
      return numbers;
    };
    return BaseTensor{.name = formats::name_without_images(module + ".weight"),
                      .stored_name = module + ".weight",
                      .shape = Shape{quantised->rows(), quantised->columns()},
                      .read = read};
  }
  if (!is_stored_float(tensor)) return std::nullopt;
  JIGE_TRY(const TensorView stored, base.view(tensor.name));
  if (turns && is_turned_stack(config, tensor)) {
    return BaseTensor{.name = formats::name_without_images(tensor.name),
                      .stored_name = tensor.name,
                      .shape = Shape{stored.shape[0], stored.shape[2], stored.shape[1]},
                      .read = [stored] { return turned_back(stored); }};
  }
  return BaseTensor{.name = formats::name_without_images(tensor.name),
                    .stored_name = tensor.name,
                    .shape = stored.shape,
                    .read = [stored] { return widened(stored); }};
}

// What an adapter makes of a tensor of the base: another one, or it and a pair.
struct TensorChange {
  TensorView saved;
  const AdapterPair* pair = nullptr;
  bool is_bias = false;  // of the pair's module
};

formats::TensorSource merged_source(const BaseTensor& tensor, const std::string& name,
                                    const TensorChange& change, bool transposed, DType dtype) {
  return {.name = name,
          .dtype = dtype,
          .shape = tensor.shape,
          .produce = [=](const formats::RowSink& sink) -> Status {
            std::vector<float> values = change.saved ? widened(change.saved) : tensor.read();
            if (change.pair) {
              values = change.is_bias ? merged_bias(std::move(values), *change.pair)
                                      : merged_matrix(std::move(values), *change.pair, transposed);
            }
            std::vector<std::byte> out(static_cast<size_t>(dtype_bytes(dtype, std::ssize(values))));
            narrow(out.data(), dtype, values);
            return sink(TensorView::of(out.data(), dtype, tensor.shape));
          }};
}

// The tensors of an adapter as they meet those of its base, which they all must.
class AdapterUse {
 public:
  AdapterUse(const std::string& folder, const std::string& base_folder,
             const formats::LoraConfig& lora, const formats::ModelConfig& config,
             const AdapterTensors& tensors)
      : folder_(folder),
        base_folder_(base_folder),
        lora_(lora),
        config_(config),
        tensors_(tensors) {}

  // That in place of a tensor of the base; empty: none.
  TensorView find_saved(const std::string& name) const {
    for (const auto& [saved, view] : tensors_.saved) {
      if (Architecture::base_name(saved) == Architecture::base_name(name)) return view;
    }
    return {};
  }

  Result<TensorChange> change_of(const BaseTensor& tensor, bool transposed) {
    TensorChange change{.saved = find_saved(tensor.name)};
    if (change.saved) {
      ++saved_used_;
      if (change.saved.shape == tensor.shape) return change;
      return fail(
          Code::kUnsupported, "{}: \"{}\" has shape {}, but {} in {}{}", folder_, tensor.name,
          change.saved.shape.to_string(), tensor.shape.to_string(), base_folder_,
          tensor.shape.rank() == 2 ? "; give the base the tokens that were added first" : "");
    }
    const size_t dot = tensor.name.rfind('.');
    if (dot == std::string::npos) return change;
    const std::string_view part = std::string_view(tensor.name).substr(dot + 1);
    if (part != "weight" && part != "bias") return change;
    const auto found =
        find_adapter_pair(tensors_.pairs, tensor.name.substr(0, dot), config_.family);
    if (found == tensors_.pairs.end()) return change;
    change.pair = &found->second;
    change.is_bias = part == "bias";
    if (change.is_bias) {
      biases_.insert(found->first);
      return change;
    }
    if (tensor.shape.rank() != 2) {
      return fail(Code::kCorrupt, "{}: module \"{}\" is no matrix in {}", folder_, found->first,
                  base_folder_);
    }
    const AdaptedMatrix matrix{.outputs = tensor.shape[transposed ? 1 : 0],
                               .inputs = tensor.shape[transposed ? 0 : 1]};
    JIGE_DO(check_adapter_pair(folder_, found->first, found->second, matrix, lora_));
    ++pairs_used_;
    return change;
  }

  // A head of its own, in a base that had none.
  void note_saved_head() { ++saved_used_; }

  // Fails with kCorrupt where something of the adapter met nothing.
  Status check_all_used() const {
    if (pairs_used_ != tensors_.pairs.size()) {
      return fail(Code::kCorrupt, "{}: adapts {} modules, of which {} has only {}", folder_,
                  tensors_.pairs.size(), base_folder_, pairs_used_);
    }
    if (saved_used_ != tensors_.saved.size()) {
      return fail(Code::kCorrupt, "{}: has {} tensors in place of the base's, of which {} has {}",
                  folder_, tensors_.saved.size(), base_folder_, saved_used_);
    }
    for (const auto& [module, pair] : tensors_.pairs) {
      if ((!pair.bias && !pair.bias_of_b) || biases_.contains(module)) continue;
      return fail(Code::kCorrupt, "{}: has a bias for module \"{}\", which has none in {}", folder_,
                  module, base_folder_);
    }
    return {};
  }

 private:
  const std::string& folder_;
  const std::string& base_folder_;
  const formats::LoraConfig& lora_;
  const formats::ModelConfig& config_;
  const AdapterTensors& tensors_;
  size_t pairs_used_ = 0;
  size_t saved_used_ = 0;
  std::set<std::string, std::less<>> biases_;
};

// The head that a base with a tied one needs once the adapter has another table or head; none:
// it stays tied.
Result<std::optional<formats::TensorSource>> untied_head(const formats::ModelConfig& config,
                                                         const formats::TensorFolder& base,
                                                         const formats::LoraConfig& lora,
                                                         AdapterUse& use, DType dtype) {
  if (!config.tied_embeddings) return std::nullopt;
  JIGE_TRY(const auto architecture, Architecture::create(config));
  const ParamSpec& table = architecture->embedding().params()[Embedding::kTable];
  const std::string name = architecture->own_head_name() + ".weight";
  const TensorView saved_head = use.find_saved(name);
  if (!saved_head && (lora.ties_saved || !use.find_saved(table.name))) return std::nullopt;
  JIGE_TRY(const std::string table_name, find_name(base, table));
  JIGE_TRY(const std::optional<BaseTensor> stored,
           base_tensor(config, base, *base.find(table_name), true));
  JIGE_CHECK(stored, "{} is no tensor", table_name);
  if (saved_head) use.note_saved_head();
  if (saved_head && saved_head.shape != stored->shape) {
    return fail(
        Code::kUnsupported,
        "an adapter's \"{}\" has shape {}, but the base's table {}; give the base the tokens "
        "that were added first",
        name, saved_head.shape.to_string(), stored->shape.to_string());
  }
  return merged_source(*stored, name, {.saved = saved_head}, false, dtype);
}

}  // namespace

Status merge_adapter(const std::string& base_folder, const std::string& adapter_folder,
                     const std::string& folder, const SaveOptions& options) {
  JIGE_TRY(formats::ModelConfig config, formats::load_model_config(base_folder));
  JIGE_TRY(const auto lora, formats::load_lora_config(adapter_folder));
  JIGE_TRY(const auto base, formats::TensorFolder::open(base_folder));
  JIGE_TRY(const auto files, formats::TensorFolder::open(adapter_folder, kAdapterStem));
  JIGE_TRY(const AdapterTensors tensors, read_adapter_tensors(files, lora));
  const bool transposed = config.family == formats::Family::kGpt2;
  AdapterUse use(adapter_folder, base_folder, lora, config, tensors);
  JIGE_TRY(auto head, untied_head(config, base, lora, use, options.dtype));

  JIGE_TRY(const auto images, BesideImages::open(base_folder));
  JIGE_TRY(const bool with_images, formats::has_images(base_folder));
  if (with_images && !images) BesideImages::warn_of_text_alone(base_folder);
  if (head && images) {
    return fail(Code::kUnsupported,
                "{}: has a head or a table of its own, but {} reads images and has one matrix for "
                "both, which is not parted",
                adapter_folder, base_folder);
  }

  std::vector<formats::TensorSource> sources;
  for (const formats::StoredTensor* tensor : base.tensors()) {
    constexpr std::string_view kBlocks = "_blocks";
    if (tensor->name.ends_with(kBlocks)) {
      const std::string name = tensor->name.substr(0, tensor->name.size() - kBlocks.size());
      JIGE_TRY(formats::TensorSource decoded, decoded_source(base, name, options.dtype));
      sources.push_back(cancellable(std::move(decoded), options.cancelled));
      continue;
    }
    JIGE_TRY(const std::optional<BaseTensor> read, base_tensor(config, base, *tensor, !images));
    if (!read || (head && read->name == head->name)) continue;
    JIGE_TRY(const TensorChange change, use.change_of(*read, transposed));
    sources.push_back(cancellable(merged_source(*read, images ? read->stored_name : read->name,
                                                change, transposed, options.dtype),
                                  options.cancelled));
  }
  if (head) {
    config.tied_embeddings = false;
    sources.push_back(cancellable(std::move(*head), options.cancelled));
  }
  JIGE_DO(use.check_all_used());
  if (images) images->add_tensors(sources);
  JIGE_DO(make_folders(folder));
  JIGE_DO(
      formats::write_tensor_folder(folder, sources, {.shard_bytes_max = options.shard_bytes_max}));
  config.stored_dtype = options.dtype;
  const Json written = images ? images->config(options.dtype) : formats::to_hf_config(config);
  return write_file_atomic(folder + "/config.json", dump_json(written, 2) + "\n");
}

}  // namespace jige::model
