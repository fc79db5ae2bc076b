#include "train/machine_identity.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/counted.h"
#include "base/cpu.h"
#include "tensor/cuda_device.h"

namespace jige::train {

Json machine_identity() {
  const CpuFeatures& cpu = cpu_features();
  return {{"processor", cpu.model_name},
          {"kernels", isa_name(active_isa())},
          {"processors", cpu.logical_count}};
}

Status check_same_machine(const Json& identity, const std::string& where) {
  const Json here = machine_identity();
  for (const auto& [name, value] : here.items()) {
    const auto found = identity.is_object() ? identity.find(name) : identity.end();
    const std::string there = found == identity.end() ? "none" : dump_json(*found);
    if (there == dump_json(value)) continue;
    return fail(
        Code::kInvalidArgument,
        "{}: was made from times of another machine: {} is {} there, {} here; plan anew here with "
        "`jige plan train --measure`, or remove its field \"machine\" to use it as it is",
        where, name, there, dump_json(value));
  }
  return {};
}

Result<Json> gpus_identity(const std::vector<int>& gpus) {
  JIGE_TRY(const std::vector<CudaDeviceInfo> present, list_cuda_devices());
  Json list = Json::array();
  for (const int index : gpus) {
    if (index >= std::ssize(present)) {
      return fail(Code::kNotFound, "there is no GPU {}; this machine has {}", index,
                  present.size());
    }
    const CudaDeviceInfo& gpu = present[static_cast<size_t>(index)];
    list.push_back({{"name", gpu.name}, {"memory_bytes", gpu.memory_bytes}});
  }
  return list;
}

Status check_same_gpus(const Json& identity, const std::vector<int>& gpus,
                       const std::string& where) {
  const bool of_gpus = identity.is_array() && !identity.empty();
  if (!of_gpus && gpus.empty()) return {};
  if (!of_gpus) {
    return fail(Code::kInvalidArgument,
                "{}: is a plan for processors; for GPUs make one with `jige plan train --device`",
                where);
  }
  const std::string wanted = counted(std::ssize(identity), "GPU");
  if (gpus.empty()) {
    return fail(Code::kInvalidArgument,
                "{}: is a plan for {}; name them with --device, such as cuda:0,cuda:1, or plan for "
                "processors",
                where, wanted);
  }
  if (identity.size() != gpus.size()) {
    return fail(Code::kInvalidArgument,
                "{}: is a plan for {}, --device names {}; name as many, or plan anew", where,
                wanted, gpus.size());
  }
  JIGE_TRY(const Json here, gpus_identity(gpus));
  for (size_t i = 0; i < here.size(); ++i) {
    for (const auto& [name, value] : here[i].items()) {
      const auto found = identity[i].is_object() ? identity[i].find(name) : identity[i].end();
      const std::string there = found == identity[i].end() ? "none" : dump_json(*found);
      if (there == dump_json(value)) continue;
      return fail(
          Code::kInvalidArgument,
          "{}: was made for other GPUs: {} of the one in place {} is {} there, {} of GPU {} "
          "here; name them in the plan's order, or plan anew",
          where, name, i, there, dump_json(value), gpus[i]);
    }
  }
  return {};
}

}  // namespace jige::train
