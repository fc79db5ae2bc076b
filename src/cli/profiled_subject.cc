#include "cli/profiled_subject.h"

#include <fmt/format.h>

#include <utility>

#include "base/cpu.h"

namespace jige::cli {

sim::ProfiledModel profiled_shape(const formats::ModelConfig& config) {
  return {.parameters = parameter_count(config),
          .layers = config.layer_count,
          .width = config.hidden_size,
          .vocabulary = config.vocab_size};
}

sim::ProfiledSubject profiled_subject(const ComputeDevices& devices,
                                      const model::InferenceModel& model, std::string name) {
  const CpuFeatures& cpu = cpu_features();
  const model::InferenceSizes& sizes = model.sizes();
  sim::ProfiledSubject subject{.machine = {.processor = cpu.model_name,
                                           .kernels = isa_name(active_isa()),
                                           .device = devices.on_gpu() ? "cuda" : "cpu",
                                           .processors = cpu.logical_count,
                                           .threads = devices.team().size()},
                               .model = profiled_shape(model.config())};
  subject.model.name = std::move(name);
  subject.model.compute = std::string(dtype_info(sizes.compute).name);
  subject.model.weights = std::string(ops::weight_format_name(sizes.format));
  if (const size_t count = sizes.streamed_layers.size(); count > 0) {
    subject.model.weights += fmt::format(", {} layers stream", count);
  }
  const int64_t layer_count = model.config().layer_count;
  if (const int64_t end = sizes.layers.end; end < layer_count) {
    subject.model.weights += fmt::format(", {} layers elsewhere", layer_count - end);
  }
  subject.model.kv_cache = std::string(kv_cache_name(sizes.kv_dtype));
  subject.model.context = sizes.context_max;
  return subject;
}

}  // namespace jige::cli
