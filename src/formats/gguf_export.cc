#include "formats/gguf_export.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/file.h"
#include "formats/gguf_config_writer.h"
#include "formats/gguf_params.h"
#include "formats/gguf_tensor_export.h"
#include "formats/image_model_names.h"
#include "formats/tensor_folder.h"
#include "tensor/dtype.h"

namespace jige::formats {
namespace {

constexpr uint32_t kQuantizationVersion = 2;
constexpr std::string_view kBlocksEnd = "_blocks";
constexpr std::string_view kExpertPart = ".mlp.experts.";

// Numbers of general.file_type: what most tensors are.
uint32_t file_type(uint32_t type) {
  switch (type) {
    case kGgufF32:
      return 0;
    case kGgufF16:
      return 1;
    case kGgufQ4_0:
      return 2;
    case kGgufQ8_0:
      return 7;
    default:
      return 32;  // BF16
  }
}

bool is_float_dtype(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

uint32_t plain_type(DType dtype) {
  return dtype == DType::kF32 ? kGgufF32 : dtype == DType::kF16 ? kGgufF16 : kGgufBF16;
}

class GgufExporter {
 public:
  explicit GgufExporter(const GgufExportOptions& options) : options_(options) {}

  Result<GgufExport> run() {
    JIGE_DO(check_target());
    JIGE_TRY(made_.config, load_model_config(options_.folder));
    if (made_.config.quantised) {
      return fail(Code::kUnsupported,
                  "{}: its weights are quantised ({}), which are not written as GGUF; export the "
                  "unquantised model",
                  options_.folder, quantised_text(*made_.config.quantised));
    }
    JIGE_TRY(const TensorFolder tensors, TensorFolder::open(options_.folder));
    GgufKeys keys;
    JIGE_DO(add_gguf_config(made_.config, options_.folder + "/config.json", keys));
    if (made_.config.activation == ActivationKind::kXielu) JIGE_DO(add_xielu(tensors, keys));
    JIGE_DO(add_sources(tensors));
    keys.text("general.type", "model");
    if (!options_.name.empty()) keys.text("general.name", options_.name);
    keys.number("general.file_type", file_type(matrix_type()));
    keys.number("general.quantization_version", kQuantizationVersion);
    JIGE_TRY(made_.tokenizer, add_gguf_tokenizer(options_.folder, made_.config, keys));
    for (const GgufTensorSource& source : sources_) total_ += source.bytes();
    const std::string parent = std::filesystem::path(options_.file).parent_path().string();
    if (!parent.empty()) JIGE_DO(make_folders(parent));
    JIGE_TRY(made_.bytes, write_gguf(options_.file, keys, sources_));
    return std::move(made_);
  }

 private:
  Status check_target() const {
    std::error_code error;
    if (options_.replace || !std::filesystem::is_regular_file(options_.file, error)) return {};
    return fail(Code::kInvalidArgument,
                "{}: is there already; name another file, or replace it with --replace",
                options_.file);
  }

  // The type of matrices.
  uint32_t matrix_type() const {
    return options_.type.value_or(plain_type(made_.config.stored_dtype));
  }

  uint32_t type_of(const GgufParam& param, DType stored) const {
    std::vector<int64_t> dims;
    for (int axis = 0; axis < param.shape.rank(); ++axis) dims.push_back(param.shape[axis]);
    if (param.order == RowOrder::kTransposed) std::swap(dims[0], dims[1]);
    const bool reshaped = !param.stored_dims.empty();
    if (param.flat || reshaped) return kGgufF32;
    return type_of(param.stored, dims, stored);
  }

  // Vectors, routers, norms and convolutions are F32, as readers want them.
  uint32_t type_of(const std::string& name, const std::vector<int64_t>& dims, DType stored) const {
    const bool exact = name == "position_embd.weight" || name.ends_with(".ffn_gate_inp.weight") ||
                       name.ends_with("_norm.weight") || name.ends_with(".ssm_conv1d.weight") ||
                       name.ends_with(".bias");
    if (dims.size() == 1 || exact) return kGgufF32;
    const uint32_t type = options_.type.value_or(plain_type(stored));
    if (!options_.encoders.contains(type)) return type;
    if (dims.back() % find_gguf_type(type)->block_elements != 0) return kGgufF32;
    const bool decides = name == "token_embd.weight" || name == "output.weight";
    return decides ? kGgufQ8_0 : type;
  }

  // An expert's matrix in a tensor of all of a layer, where the folder has such: gate and up one
  // behind the other, or down.
  Result<std::optional<TensorView>> expert_view(const TensorFolder& tensors, const GgufParam& param,
                                                std::vector<std::string> names) const {
    names.insert(names.begin(), param.name);
    for (const std::string& name : names) {
      const size_t at = name.find(kExpertPart);
      if (at == std::string::npos || param.stored_matrices == 0) continue;
      const size_t number_at = at + kExpertPart.size();
      const size_t end = name.find('.', number_at);
      const bool down = name.compare(end, std::string::npos, ".down_proj.weight") == 0;
      const bool up = name.compare(end, std::string::npos, ".up_proj.weight") == 0;
      const std::string all = name.substr(0, number_at) + (down ? "down_proj" : "gate_up_proj");
      if (!tensors.find(all)) continue;
      JIGE_TRY(const TensorView view, tensors.view(all));
      const int64_t rows = param.shape[0], columns = param.shape[1];
      const Shape wanted{param.stored_matrices, down ? rows : 2 * rows, columns};
      if (!is_float_dtype(view.dtype) || !(view.shape == wanted)) {
        return fail(Code::kCorrupt, "{}: tensor \"{}\" is {} {}; it must be f32, f16 or bf16 {}",
                    options_.folder, all, dtype_info(view.dtype).name, view.shape.to_string(),
                    wanted.to_string());
      }
      const int64_t first = param.first_row / rows * wanted[1] + (up ? rows : 0);
      auto* data = static_cast<std::byte*>(view.data) + dtype_bytes(view.dtype, first * columns);
      return TensorView::of(data, view.dtype, param.shape);
    }
    return std::nullopt;
  }

  Result<TensorView> view_of(const TensorFolder& tensors, const GgufParam& param) const {
    // Folders of GPT-2 may leave the prefix out.
    constexpr std::string_view kPrefix = "transformer.";
    std::string_view name = param.name;
    if (!tensors.find(name) && name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    const std::vector<std::string> others = names_beside_images(name);
    for (const std::string& other : others) {
      if (tensors.find(other)) name = other;
    }
    if (!tensors.find(name)) {
      JIGE_TRY(const auto expert, expert_view(tensors, param, others));
      if (expert) return *expert;
      return fail(Code::kCorrupt, "{}: tensor \"{}\" is missing", options_.folder, param.name);
    }
    JIGE_TRY(const TensorView view, tensors.view(name));
    if (!is_float_dtype(view.dtype) || !(view.shape == param.shape)) {
      return fail(Code::kCorrupt, "{}: tensor \"{}\" is {} {}; it must be f32, f16 or bf16 {}",
                  options_.folder, param.name, dtype_info(view.dtype).name, view.shape.to_string(),
                  param.shape.to_string());
    }
    return view;
  }

  Status add_sources(const TensorFolder& tensors) {
    const GgufLayout layout = *find_gguf_layout(gguf_architecture(made_.config));
    const std::vector<StoredTensor const*> stored = tensors.tensors();
    const bool blocks = std::any_of(stored.begin(), stored.end(), [](const StoredTensor* tensor) {
      return tensor->name.ends_with(kBlocksEnd);
    });
    const std::vector<GgufParam> params = gguf_params(made_.config, layout, nullptr, blocks);
    for (size_t at = 0; at < params.size();) {
      JIGE_TRY(const size_t count, add_source(tensors, std::span(params).subspan(at)));
      at += count;
    }
    for (const auto& [name, factors] : gguf_rope_factors(made_.config)) {
      ++made_.types["F32"];
      sources_.push_back({.name = name,
                          .type = find_gguf_type(kGgufF32),
                          .dims = {static_cast<int64_t>(factors.size())},
                          .produce = [values = factors](const GgufSink& sink) {
                            return sink(std::as_bytes(std::span(values)));
                          }});
    }
    return {};
  }

  // The tensor of the first parameter, which may hold those behind it, too: the matrices of all
  // experts stand one behind the other. Returns how many.
  Result<size_t> add_source(const TensorFolder& tensors, std::span<const GgufParam> params) {
    const GgufParam& first = params.front();
    if (first.made && first.made->bytes) return add_mxfp4(tensors, params[0], params[1]);
    if (first.made) return add_made(tensors, first);
    const auto count = static_cast<size_t>(std::max<int64_t>(first.stored_matrices, 1));
    std::vector<std::shared_ptr<const GgufTensorExport>> parts;
    const GgufTypeInfo* type = nullptr;
    for (const GgufParam& param : params.first(count)) {
      JIGE_TRY(const TensorView view, view_of(tensors, param));
      if (!type) type = find_gguf_type(type_of(param, view.dtype));
      parts.push_back(std::make_shared<const GgufTensorExport>(
          view, param, GgufRowEncoder(*type, options_, param.name),
          [this](uint64_t bytes) { return report(bytes); }));
    }
    ++made_.types[std::string(type->name)];
    std::vector<int64_t> dims = parts.front()->dims();
    if (first.stored_matrices > 0) dims.insert(dims.begin(), first.stored_matrices);
    sources_.push_back({.name = first.stored,
                        .type = type,
                        .dims = std::move(dims),
                        .produce = [parts](const GgufSink& sink) -> Status {
                          for (const auto& part : parts) JIGE_DO(part->produce(sink));
                          return {};
                        }});
    return count;
  }

  // The tensors that a parameter is made of when it is read.
  Result<size_t> add_made(const TensorFolder& tensors, const GgufParam& param) {
    if (param.made->from.empty()) return 1;  // its numbers are in keys
    JIGE_TRY(const TensorView view, view_of(tensors, param));
    for (const GgufStored& stored : param.made->from) {
      const GgufTypeInfo* type = find_gguf_type(type_of(stored.name, stored.dims, view.dtype));
      ++made_.types[std::string(type->name)];
      sources_.push_back({.name = stored.name,
                          .type = type,
                          .dims = stored.dims,
                          .produce = [this, view, stored, change = param.change,
                                      encoder = GgufRowEncoder(*type, options_, param.name)](
                                         const GgufSink& sink) {
                            return write_made_gguf(
                                view, stored, change, encoder,
                                [this](uint64_t bytes) { return report(bytes); }, sink);
                          }});
    }
    return 1;
  }

  // Blocks of MXFP4 of codes and of scales, one parameter each.
  Result<size_t> add_mxfp4(const TensorFolder& tensors, const GgufParam& codes,
                           const GgufParam& scales) {
    std::vector<TensorView> parts;
    for (const GgufParam* param : {&codes, &scales}) {
      JIGE_TRY(const TensorView view, tensors.view(param->name));
      if (view.dtype != DType::kU8 || !(view.shape == param->shape)) {
        return fail(Code::kCorrupt, "{}: tensor \"{}\" is {} {}; it must be u8 {}", options_.folder,
                    param->name, dtype_info(view.dtype).name, view.shape.to_string(),
                    param->shape.to_string());
      }
      parts.push_back(view);
    }
    const size_t sources = codes.made->from.size();
    for (size_t i = 0; i < sources; ++i) {
      ++made_.types["MXFP4"];
      sources_.push_back({.name = codes.made->from[i].name,
                          .type = find_gguf_type(kGgufMxfp4),
                          .dims = codes.made->from[i].dims,
                          .produce = [this, parts, i, sources](const GgufSink& sink) {
                            return write_mxfp4_gguf(
                                parts[0], parts[1], i, sources,
                                [this](uint64_t bytes) { return report(bytes); }, sink);
                          }});
    }
    return 2;
  }

  // The numbers of xIELU stand in keys, one of each layer.
  Status add_xielu(const TensorFolder& tensors, GgufKeys& keys) const {
    for (const char* part : {"alpha_p", "alpha_n", "beta", "eps"}) {
      std::vector<float> numbers;
      for (int64_t i = 0; i < made_.config.layer_count; ++i) {
        const GgufParam param{.stored = "",
                              .name = fmt::format("model.layers.{}.mlp.act_fn.{}", i, part),
                              .shape = part[0] == 'a' ? Shape{1} : Shape()};
        JIGE_TRY(const TensorView view, view_of(tensors, param));
        numbers.push_back(first_number(view));
      }
      keys.reals(std::string("xielu.") + part, numbers);
    }
    return {};
  }

  Status report(uint64_t bytes) {
    if (options_.cancelled && *options_.cancelled) {
      return fail(Code::kCancelled, "by a signal; {} was not written", options_.file);
    }
    done_ += bytes;
    if (options_.on_progress) options_.on_progress(done_, total_);
    return {};
  }

  const GgufExportOptions& options_;
  GgufExport made_;
  std::vector<GgufTensorSource> sources_;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
};

}  // namespace

Result<GgufExport> export_gguf(const GgufExportOptions& options) {
  return GgufExporter(options).run();
}

}  // namespace jige::formats
