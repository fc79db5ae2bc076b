#include "model/param_loader.h"

#include <fmt/ranges.h>

#include "base/check.h"
#include "model/architecture.h"
#include "model/joined_rows.h"
#include "model/quantised_params.h"
#include "model/stacked_tensors.h"
#include "model/tensor_convert.h"
#include "tensor/cpu_device.h"

namespace jige::model {

Result<std::string> find_name(const formats::TensorFolder& files, const ParamSpec& spec) {
  if (files.find(spec.name)) return spec.name;  // the first of them, and the usual one
  const std::vector<std::string> names = Architecture::stored_names(spec);
  for (const std::string& name : names) {
    if (files.find(name)) return name;
  }
  std::string note;
  if (Architecture::base_name(spec.name) == spec.name) {  // what a base class lacks
    note = "; without it a folder gives embeddings of texts alone (jige embed)";
  } else if (spec.stacked && spec.stacked->usual) {
    note = "; files of the family hold it in \"" + spec.stacked->tensor + "\"";
  }
  return fail(Code::kNotFound,
              "{}: tensor \"{}\" is missing; the model in config.json needs it with shape {}{}",
              files.folder(), names.front(), spec.shape.to_string(), note);
}

std::string file_of(const formats::TensorFolder& files, const std::string& name) {
  for (const formats::TensorFile& file : files.files()) {
    if (file.find(name)) return file.path();
  }
  return files.folder();
}

Result<TensorView> find_checked(const formats::TensorFolder& files, const ParamSpec& spec) {
  JIGE_TRY(const std::string name, find_name(files, spec));
  const formats::StoredTensor& stored = *files.find(name);
  const DType dtype = stored.dtype.value_or(DType::kU8);
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
    return fail(Code::kUnsupported,
                "{}: tensor \"{}\" is stored as {}; supported are F32, BF16, F16",
                file_of(files, name), name, stored.dtype_name);
  }
  const Shape shape = spec.stored_shape();
  std::vector<int64_t> expected;
  for (int axis = 0; axis < shape.rank(); ++axis) expected.push_back(shape[axis]);
  if (stored.dims != expected) {
    return fail(Code::kCorrupt, "{}: tensor \"{}\" has shape [{}], but config.json makes it [{}]",
                file_of(files, name), name, fmt::join(stored.dims, ", "),
                fmt::join(expected, ", "));
  }
  JIGE_TRY(const TensorView view, files.view(name));
  const bool reshaped = spec.as_row || spec.as_scalar || spec.as_kernels;
  return reshaped ? TensorView::of(view.data, view.dtype, spec.shape) : view;
}

Status check_params(const formats::ModelConfig& config, std::span<const ParamSpec> specs,
                    const formats::TensorFolder& files) {
  for (const ParamSpec& spec : specs) {
    if (spec.adapter) continue;
    if (is_stacked(files, spec)) {
      JIGE_DO(check_stacked(files, spec));
      continue;
    }
    if (is_joined(files, spec)) {
      JIGE_DO(check_joined(files, spec));
      continue;
    }
    JIGE_TRY(const auto quantised, find_quantised(config, files, spec));
    if (!quantised) JIGE_DO(find_checked(files, spec).map([](const TensorView&) {}));
  }
  return {};
}

ParamLoader::ParamLoader(const formats::ModelConfig& config, const formats::TensorFolder& files,
                         Stream& stream, DType compute)
    : config_(config),
      files_(files),
      stream_(stream),
      compute_(compute),
      team_(stream.device().kind() == DeviceKind::kCpu
                ? static_cast<CpuStream&>(stream).cpu().team()
                : alone_),
      copies_(stream, "loading") {}

Status ParamLoader::load(const Target& target) {
  const BlockWeights& block = target.weights;
  BlockWeights source{.packed = block.packed, .format = block.format};
  std::vector<size_t> alone;
  for (size_t i = 0; i < target.specs.size(); ++i) {
    const ParamSpec& spec = target.specs[i];
    source.params.emplace_back();
    if (spec.adapter || i == target.given) continue;
    if (is_stacked(files_, spec) || is_joined(files_, spec)) {
      alone.push_back(i);
      continue;
    }
    JIGE_TRY(const auto quantised, find_quantised(config_, files_, spec));
    if (quantised) {
      alone.push_back(i);
      continue;
    }
    JIGE_TRY(TensorView stored, find_checked(files_, spec));
    JIGE_TRY(stored, in_order(spec, stored));
    const TensorView& value = block.params[i].value;
    if (value) {
      JIGE_DO(copy_converted(stream_, value, stored));
    } else {
      JIGE_TRY(source.params.back().value, to_device(stored));
    }
  }
  target.pack(source);
  finish();
  for (const size_t i : alone) JIGE_DO(load_alone(target, i));
  return {};
}

Result<Param> ParamLoader::make(const ParamSpec& spec, bool has_value, ops::WeightFormat format) {
  Param made;
  if (is_stacked(files_, spec)) {
    JIGE_TRY(made.value, read_stacked(files_, spec, team_, buffer_));
    return made;
  }
  if (is_joined(files_, spec)) {
    JIGE_TRY(made.value, read_joined(files_, spec, buffer_));
    return made;
  }
  JIGE_TRY(const auto quantised, find_quantised(config_, files_, spec));
  JIGE_CHECK(quantised, "{} is made of nothing", spec.name);
  const DType dtype = has_value ? DType::kF32 : compute_;
  JIGE_TRY(made.value, read_quantised(*quantised, files_.folder(), dtype, team_, buffer_));
  // Scales of blocks along rows say nothing of columns in another order.
  if (!has_value && format != ops::WeightFormat::kCompute && !spec.stored_columns) {
    JIGE_TRY(made.scales, read_block_scales(*quantised, files_.folder(), team_, scales_));
  }
  return made;
}

Status ParamLoader::load_alone(const Target& target, size_t index) {
  const ParamSpec& spec = target.specs[index];
  const BlockWeights& block = target.weights;
  const TensorView& value = block.params[index].value;
  JIGE_TRY(Param stored, make(spec, static_cast<bool>(value), block.format));
  if (const auto& order = spec.stored_rows) {
    JIGE_TRY(stored.value, reordered(stored.value, *order));
    if (stored.scales) {
      JIGE_TRY(stored.scales, reordered(stored.scales, *order));
    }
  }
  JIGE_TRY(stored.value, columns_in_order(spec, stored.value));
  if (value) {
    const Status copied = copy_converted(stream_, value, stored.value);
    finish();
    return copied;
  }
  BlockWeights source{.packed = block.packed, .format = block.format};
  source.params.resize(target.specs.size());
  JIGE_TRY(source.params[index].value, to_device(stored.value));
  if (stored.scales) {
    JIGE_TRY(source.params[index].scales, to_device(stored.scales));
  }
  target.pack(source);
  finish();
  return {};
}

void ParamLoader::finish() {
  copies_.clear();
  host_.clear();
}

Result<TensorView> ParamLoader::in_order(const ParamSpec& spec, TensorView stored) {
  if (spec.transposed) {
    const Shape shape{stored.shape[1], stored.shape[0]};
    JIGE_TRY(const TensorView view, host_memory(stored.dtype, shape));
    transpose_into(view, stored);
    stored = view;
  }
  if (spec.stored_rows) {
    JIGE_TRY(stored, reordered(stored, *spec.stored_rows));
  }
  return columns_in_order(spec, stored);
}

Result<TensorView> ParamLoader::columns_in_order(const ParamSpec& spec, const TensorView& stored) {
  if (!spec.stored_columns) return stored;
  JIGE_TRY(const TensorView view, host_memory(stored.dtype, stored.shape));
  columns_from_files(view, stored, *spec.stored_columns);
  return view;
}

Result<TensorView> ParamLoader::reordered(const TensorView& stored, const StoredRows& order) {
  JIGE_TRY(const TensorView view, host_memory(stored.dtype, stored.shape));
  rows_from_files(view, stored, order);
  return view;
}

Result<TensorView> ParamLoader::host_memory(DType dtype, const Shape& shape) {
  return host_.emplace_back().make(files_.folder(), dtype, shape);
}

Result<TensorView> ParamLoader::to_device(const TensorView& stored) {
  return copies_.of(stored, stored.shape.rank() == 1 ? DType::kF32 : stored.dtype);
}

}  // namespace jige::model
