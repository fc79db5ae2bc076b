#include "model/weights_save.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/image_model_names.h"
#include "formats/lora_config.h"
#include "formats/tensor_folder.h"
#include "model/adapter_tensors.h"
#include "model/beside_images.h"
#include "model/cancellable_source.h"
#include "model/load_buffer.h"
#include "model/tensor_convert.h"

namespace jige::model {
namespace {

constexpr int64_t kSaveElements = int64_t{1} << 20;

bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

Status check_dtype(DType dtype) {
  if (is_float(dtype)) return {};
  return fail(Code::kInvalidArgument, "weights cannot be saved as {}; use f32, bf16 or f16",
              dtype_info(dtype).name);
}

// Hands f32 rows of host memory over in another type, chunk by chunk.
Status sink_rows(const formats::RowSink& sink, const TensorView& rows, DType dtype) {
  if (dtype == DType::kF32) return sink(rows);
  const int64_t columns = std::max<int64_t>(rows.columns(), 1);
  const int64_t step = std::max<int64_t>(kSaveElements / columns, 1);
  std::vector<std::byte> buffer(
      static_cast<size_t>(dtype_bytes(dtype, std::min(step, rows.rows()) * rows.columns())));
  for (int64_t begin = 0; begin < rows.rows(); begin += step) {
    const TensorView part = rows.row_range(begin, std::min(begin + step, rows.rows()));
    narrow(buffer.data(), dtype, std::span(part.as<float>(), static_cast<size_t>(part.count())));
    JIGE_DO(sink(TensorView::of(buffer.data(), dtype, part.shape)));
  }
  return {};
}

// A parameter as files hold it, fetched from the device when its turn comes.
formats::TensorSource source_of(const NamedParam& param, Stream& stream, DType dtype) {
  const Shape shape = param.spec->stored_shape();
  return {
      .name = param.spec->name,
      .dtype = dtype,
      .shape = shape,
      .produce = [&stream, value = param.value, shape, dtype, transposed = param.spec->transposed,
                  order = param.spec->stored_rows](const formats::RowSink& sink) -> Status {
        std::vector<float> host(static_cast<size_t>(value.count()));
        stream.copy(host.data(), value.data, value.count() * 4, CopyKind::kDeviceToHost);
        stream.synchronize();
        const TensorView own =
            TensorView::of(host.data(), DType::kF32, transposed ? value.shape : shape);
        if (!transposed && !order) return sink_rows(sink, own, dtype);
        std::vector<float> changed(host.size());
        const TensorView view = TensorView::of(changed.data(), DType::kF32, shape);
        transposed ? transpose_into(view, own) : rows_for_files(view, own, *order);
        return sink_rows(sink, view, dtype);
      }};
}

// Writes a part into the memory of its expert, [N of all parts, K], its transpose or, of biases,
// [N of all parts]; behind the other parts or in turns with them.
void place_part(const NamedParam& param, Stream& stream, std::vector<float>& expert) {
  const StackedPlace& place = *param.spec->stacked;
  std::vector<float> host(static_cast<size_t>(param.value.count()));
  stream.copy(host.data(), param.value.data, param.value.count() * 4, CopyKind::kDeviceToHost);
  stream.synchronize();
  const auto height = static_cast<size_t>(param.spec->shape[0]);
  const auto parts = static_cast<size_t>(place.part_count);
  const size_t inputs = host.size() / height;
  for (size_t own_row = 0; own_row < height; ++own_row) {
    const auto& order = param.spec->stored_rows;
    const size_t row =
        order ? static_cast<size_t>(order->at(static_cast<int64_t>(own_row))) : own_row;
    const auto part = static_cast<size_t>(place.part);
    const size_t at = place.interleaved ? row * parts + part : part * height + row;
    for (size_t k = 0; k < inputs; ++k) {
      expert[place.transposed ? k * height * parts + at : at * inputs + k] =
          host[own_row * inputs + k];
    }
  }
}

// All experts' parts as one tensor, fetched expert by expert. REQUIRES: the parameters that a
// stacked tensor holds, all of one shape.
formats::TensorSource stacked_source(const std::vector<const NamedParam*>& params,
                                     const NodeStreams& streams, DType dtype) {
  const ParamSpec& first = *params.front()->spec;
  const StackedPlace& place = *first.stacked;
  const int64_t rows = first.shape[0] * place.part_count;
  const bool vector = first.shape.rank() == 1;
  const auto shape_of = [&](int64_t experts) {
    if (vector) return Shape{experts, rows};
    const int64_t inputs = first.shape[1];
    return place.transposed ? Shape{experts, inputs, rows} : Shape{experts, rows, inputs};
  };
  const Shape shape = shape_of(place.expert_count);
  const Shape one = shape_of(1);
  return {.name = place.tensor,
          .dtype = dtype,
          .shape = shape,
          .produce = [&streams, params, shape, one, dtype](const formats::RowSink& sink) -> Status {
            const int64_t count = shape.row_count_elements();
            std::vector<float> expert(static_cast<size_t>(count));
            std::vector<std::byte> narrowed(static_cast<size_t>(dtype_bytes(dtype, count)));
            for (int64_t e = 0; e < shape[0]; ++e) {
              for (const NamedParam* param : params) {
                if (param->spec->stacked->expert != e) continue;
                place_part(*param, streams[param->node], expert);
              }
              narrow(narrowed.data(), dtype, expert);
              JIGE_DO(sink(TensorView::of(narrowed.data(), dtype, one)));
            }
            return {};
          }};
}

// Parameters as the family's files hold them.
std::vector<formats::TensorSource> sources_of(const Masters& masters, const NodeStreams& streams,
                                              DType dtype) {
  std::vector<formats::TensorSource> sources;
  std::map<std::string, std::vector<const NamedParam*>, std::less<>> stacked;
  std::vector<std::string> order;
  for (const NamedParam& param : masters.params) {
    const auto& place = param.spec->stacked;
    if (!place || !place->usual) {
      sources.push_back(
          source_of(param, streams[param.node], param.spec->wide ? DType::kF32 : dtype));
      continue;
    }
    auto& list = stacked[place->tensor];
    if (list.empty()) order.push_back(place->tensor);
    list.push_back(&param);
  }
  for (const std::string& name : order) {
    sources.push_back(stacked_source(stacked[name], streams, dtype));
  }
  return sources;
}

Status write_json(const std::string& path, const Json& json) {
  return write_file_atomic(path, dump_json(json, 2) + "\n");
}

constexpr std::string_view kWholeModel = "model.";

std::string module_beside_images(std::string_view module, const std::string& beginning) {
  JIGE_CHECK(module.starts_with(kWholeModel), "{} is no module of a language model", module);
  return beginning + std::string(module.substr(kWholeModel.size()));
}

// Modules that read images have the same last names as those of the language model.
void leave_images_alone(formats::LoraConfig& config, const std::string& beginning) {
  const auto literal = [](std::string_view text) {
    std::string pattern;
    for (const char c : text) pattern += c == '.' ? std::string("\\.") : std::string(1, c);
    return pattern;
  };
  std::vector<std::string> targets;
  for (const std::string& target : config.target_modules) targets.push_back(literal(target));
  config.target_pattern = fmt::format("{}.*\\.({})", literal(beginning), fmt::join(targets, "|"));
  config.target_modules.clear();
}

Status copy_adapter_matrix(Stream& stream, const NamedParam& param, const TensorView& stored,
                           const std::string& folder) {
  if (!param.spec->stored_rows) return copy_converted(stream, param.value, stored);
  LoadBuffer buffer;
  JIGE_TRY(const TensorView own, buffer.make(folder, stored.dtype, stored.shape));
  rows_from_files(own, stored, *param.spec->stored_rows);
  return copy_converted(stream, param.value, own);
}

}  // namespace

Status save_model(const std::string& folder, const Masters& masters, const NodeStreams& streams,
                  const SaveOptions& options) {
  JIGE_DO(check_dtype(options.dtype));
  if (masters.architecture.lora() || masters.params.empty()) {
    return fail(Code::kInvalidArgument,
                "{}: these weights are not whole f32 masters; save and merge the adapter instead",
                folder);
  }
  JIGE_TRY(const auto images, BesideImages::open(options.image_folder));
  std::vector<formats::TensorSource> sources = sources_of(masters, streams, options.dtype);
  const bool beside_images = images && images->join(sources);
  if (!beside_images && !options.image_folder.empty()) {
    BesideImages::warn_of_text_alone(options.image_folder);
  }
  for (formats::TensorSource& source : sources) {
    source = cancellable(std::move(source), options.cancelled);
  }
  JIGE_DO(make_folders(folder));
  JIGE_DO(
      formats::write_tensor_folder(folder, sources, {.shard_bytes_max = options.shard_bytes_max}));
  if (beside_images) return write_json(folder + "/config.json", images->config(options.dtype));
  formats::ModelConfig config = masters.architecture.config();
  config.stored_dtype = options.dtype;
  return write_json(folder + "/config.json", formats::to_hf_config(config));
}

Status save_adapter(const std::string& folder, const Masters& masters, const NodeStreams& streams,
                    const std::string& base_model) {
  const auto& lora = masters.architecture.lora();
  if (!lora) return fail(Code::kInvalidArgument, "{}: the model has no adapter to save", folder);
  JIGE_TRY(const std::string beginning, formats::beginning_beside_images(base_model));
  const formats::ModelConfig& model = masters.architecture.config();
  std::vector<formats::TensorSource> sources;
  for (const NamedParam& param : masters.params) {
    sources.push_back(source_of(param, streams[param.node], DType::kF32));
    if (beginning.empty()) continue;
    std::string& name = sources.back().name;
    JIGE_TRY(const auto parts, formats::parse_lora_tensor_name(name, folder));
    name = formats::lora_tensor_name(module_beside_images(parts.module, beginning), parts.part);
  }
  JIGE_DO(make_folders(folder));
  JIGE_DO(formats::write_tensor_folder(folder, sources, {.stem = kAdapterStem}));
  formats::LoraConfig config = *lora;
  config.base_model = base_model;
  config.fan_in_fan_out = model.family == formats::Family::kGpt2;
  if (config.target_modules.empty()) config.target_modules = formats::lora_linear_modules(model);
  config.target_modules = formats::lora_target_names(model.family, config.target_modules);
  if (!beginning.empty()) leave_images_alone(config, beginning);
  return write_json(folder + "/adapter_config.json", formats::to_peft_config(config));
}

Status load_adapter(ModelWeights& weights, Stream& stream, const std::string& folder) {
  JIGE_TRY(const auto files, formats::TensorFolder::open(folder, kAdapterStem));
  for (const bool copying : {false, true}) {  // everything is checked before anything is changed
    for (const NamedParam& param : weights.trainable()) {
      const std::string& name = param.spec->name;
      JIGE_TRY(const TensorView stored, files.view(name));
      if (stored.shape != param.spec->shape) {
        return fail(Code::kCorrupt, "{}: tensor \"{}\" has shape {}, but the adapter needs {}",
                    folder, name, stored.shape.to_string(), param.spec->shape.to_string());
      }
      if (!is_float(stored.dtype)) {
        return fail(Code::kUnsupported,
                    "{}: tensor \"{}\" is stored as {}; supported are F32, BF16, F16", folder, name,
                    dtype_info(stored.dtype).name);
      }
      if (copying) JIGE_DO(copy_adapter_matrix(stream, param, stored, folder));
    }
  }
  weights.pack(stream);
  stream.synchronize();
  return {};
}

}  // namespace jige::model
